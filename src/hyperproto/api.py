"""What the command line can do, from Python in one call, with the same words. Nothing here prints.

    train(recipe) -> Run                        compare(data, run | encoder, ...) -> Comparison
    evaluate(data, run | encoder, ...) -> Result    tag(text, support, ...) -> list[TaggedLine]
    submit(test_input, ...) -> Submission       report(table) -> TableReport
    figure(name, out, ...) -> list[PaperFigure]
    grid(recipe, settings) -> GridReport        reproduce(table) -> Reproduction
    list_recipes(), list_methods(), list_data(), check_data(spec) -> a dict for each
    distant_data(sentences, triples, out) -> DistantCorpus

Files of examples are the business of `hyperproto.fit`, `add` and `predict`; see `estimators.examples`.

`progress` is a function `(done, total, note)`, called while something long is done. Errors are `HyperProtoError`s;
where they name an option of the command line (`--shot`), the argument of that name is meant. `trust` names .py files
that a run, a recipe or a model may import (`FILE.py:CLASS`); what you name yourself, as a method or in `overrides`, is
trusted, and so is every trusted file until the process ends: see SECURITY.md. Torch is imported by the
functions that need it, not by this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.progress import Show, noted
from hyperproto.registry import Trust, trust_names
from hyperproto.registry import trust as trust_files

if TYPE_CHECKING:
    from hyperproto.data.distant import DistantCorpus
    from hyperproto.data.tagged_text import TaggedLine
    from hyperproto.evaluation import Result
    from hyperproto.reports.comparison import Comparison
    from hyperproto.reports.grid_table import GridReport
    from hyperproto.reports.table_results import TableReport
    from hyperproto.studies.grid import OnRun
    from hyperproto.studies.measure import Selection
    from hyperproto.studies.paper_figures import PaperFigure
    from hyperproto.studies.reproduce import Reproduction
    from hyperproto.training import Run

Names = str | Sequence[str] | None  # one, several, or None for the default of each run or method
Shots = int | Sequence[int]  # examples of every class, or of each


def train(
    recipe: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    trust: Trust = None,
    progress: Show | None = None,
) -> "Run":
    """Train as a recipe says. A run that was killed goes on where it stopped, to the very same result.

    Parameters
    ----------
    recipe : `NAME`, `NAME:ROW` (see `list_recipes`), or the path of a .toml file.
    out : folder of the run; None stands for runs/RECIPE.
    overrides : settings of the recipe to change, as `{"training.steps": 500}` or as `["training.steps=500"]`.
    trust : .py files that the recipe, or a run that it starts from, may import.
    progress : called after every step, and while data are made ready.

    Returns
    -------
    The run: `run.folder` has the weights, the log and, if matplotlib is installed, a page; `run.best_validation()`
    tells how good it is.

    Examples
    --------
    >>> run = train("glyphs:protonet", "runs/small", overrides={"training.steps": 2, "encoder.filters": 4,
    ...             "validation.episodes": 2})  # doctest: +SKIP
    >>> run.best_validation()["step"]  # doctest: +SKIP
    2
    """
    from hyperproto.recipes import run_name
    from hyperproto.studies.train_run import train_run

    trust_files(trust)
    name = fspath(recipe)
    folder = Path("runs") / run_name(name) if out is None else Path(out)
    return train_run(name, folder, _override_texts(overrides), progress)


def evaluate(
    data: str,
    *,
    run: "str | PathLike[str] | Run | None" = None,
    encoder: str | None = None,
    method: str | None = None,
    fit: str | None = None,
    transform: str | None = None,
    options: Mapping[str, Any] | None = None,
    split: str = "test",
    way: int = 5,
    shot: Shots | None = None,
    query: int | None = None,
    episodes: int | None = None,
    seed: int = 0,
    nota_share: float = 0.0,
    na_rate: int = 0,
    threshold_data: str | None = None,
    threshold_split: str | None = None,
    rule: str | None = None,
    least_spans: int | None = None,
    episode_file: str | PathLike[str] | None = None,
    know: str = "nothing",
    names: str | None = None,
    unlabelled: int | None = None,
    strangers: int = 0,
    trust: Trust = None,
    progress: Show | None = None,
) -> "Result":
    """Measure one method on episodes of unseen classes.

    Parameters
    ----------
    data, split : a data spec (`glyphs`, `vectors:FILE.npz`; see `list_data`), and the split to draw episodes from.
    run, encoder : a trained run, or the name of a ready encoder (`identity`, `minilm`): one of them.
    method : a name (see `list_methods`) or `FILE.py:CLASS`; of a run by default its own.
    fit : closed form: bayes, unbiased, paper or point; by default the run's, or the method's first.
    transform : none, unit or center-unit; by default the run's.
    options : options of the method, such as `{"prior_ratio": 0.5}`.
    way : classes an episode.
    shot : support examples of every class (None: 5), or of each: `(1, 1, 2, 5, 20)`.
    query : queries a class (None: 15; of entities, as many as there are shots).
    episodes, seed : how many (None: 1,000, or all of `episode_file`), and the seed they are drawn by.
    nota_share, na_rate : share of the queries that are of none of the classes; or, as FewRel 2.0 says it, so many for
        each query of one class.
    threshold_data, threshold_split : with such queries, what to choose the threshold of rejection on (None: the same
        data, `val`).
    rule, least_spans : K~2K episodes of entities: toolkit or appendix; leave out types with fewer entities.
    episode_file : Few-NERD's sampled episodes, such as `test_5_1.jsonl`; `data` has the training data then.
    know : what the method is told besides the support: `names` of the classes as its prior, or as one more `example` of
        each; `unlabelled` items, or the `queries` themselves; two of them joined, `names+unlabelled`.
    names : where names come from: `labels` (the default), `descriptions` (of relations), or a file `{class: text}`.
    unlabelled, strangers : so many items of each class without a label (None: 50), and of other classes among them.
    trust : .py files that the run may import, if its method is `FILE.py:CLASS`.

    Returns
    -------
    The result: `values` (one for each episode), `metrics`, `settings`, `to_json()`.

    Examples
    --------
    >>> result = evaluate("glyphs", encoder="identity", method="cosine", shot=1, episodes=20)
    >>> result.values.shape, result.to_json()["way"]
    ((20,), 5)
    """
    from hyperproto.studies.measure import Tasks, measure

    trust_files(trust)
    chosen = replace(_one_selection(run, encoder, method, fit, transform, options), known=[know], names=names)
    tasks = Tasks(
        data=data,
        split=split,
        unlabelled=unlabelled,
        strangers=strangers,
        shots=[] if shot is None else [_as_shots(shot)],
        way=way,
        query=query,
        episodes=episodes,
        seed=seed,
        nota_share=nota_share,
        na_rate=na_rate,
        threshold_data=threshold_data,
        threshold_split=threshold_split,
        rule=rule,
        least_spans=least_spans,
        episode_file=None if episode_file is None else Path(episode_file),
    )
    [[result]] = measure(chosen, tasks, progress)
    return result


def compare(
    data: str,
    *,
    run: "str | PathLike[str] | Run | Sequence[str | PathLike[str] | Run] | None" = None,
    encoder: Names = None,
    methods: Names = None,
    fits: Names = None,
    transforms: Names = None,
    options: Mapping[str, Any] | None = None,
    split: str = "test",
    way: int = 5,
    shots: int | tuple[int, ...] | Sequence[Shots] | None = None,
    query: int | None = None,
    episodes: int | None = None,
    seed: int = 0,
    nota_share: float = 0.0,
    na_rate: int = 0,
    threshold_data: str | None = None,
    threshold_split: str | None = None,
    rule: str | None = None,
    least_spans: int | None = None,
    episode_file: str | PathLike[str] | None = None,
    know: Names = None,
    names: str | None = None,
    unlabelled: int | None = None,
    strangers: int = 0,
    trust: Trust = None,
    progress: Show | None = None,
) -> "Comparison":
    """Measure every combination that makes sense on the same episodes, with paired differences.

    Parameters
    ----------
    run, encoder, methods, fits, transforms : one or a list of each; of several methods each takes what it has.
    options : options of the methods; a list holds several values to compare.
    shots : support examples of every class, `5` (the default); of each, `(1, 1, 2, 5, 20)`; or a list of these,
        `[1, 5, (1, 2, 5)]`: a group of results for each.
    know : one or a list, as `evaluate` takes it: each method is told what it has a use for.
    data, split, way, ... : as `evaluate` takes them.

    Returns
    -------
    The comparison: `results`, `differences`, `table()`, `to_json()`, `plot()`.

    Examples
    --------
    >>> found = compare("glyphs", encoder="identity", methods=["protonet", "cosine"], shots=[1, (1, 1, 2, 5, 5)],
    ...                 episodes=20)
    >>> [(result.label, result.settings["shot"]) for result in found.results][1:3]
    [('cosine point none', 1), ('protonet point none', [1, 1, 2, 5, 5])]
    >>> [row["a"] for row in found.differences]
    ['protonet point none', 'protonet point none']
    """
    from hyperproto.reports.comparison import Comparison
    from hyperproto.studies.measure import Selection, Tasks, measure

    trust_files(trust)
    trust_names(_names("method", methods))
    runs, encoders = _runs(run), _names("encoder", encoder)
    if not runs and not encoders:
        raise ConfigError("give at least one --run or --encoder")
    alternatives = {key: value if isinstance(value, list) else [value] for key, value in (options or {}).items()}
    several: list[Any] = shots if isinstance(shots, list) else [] if shots is None else [shots]
    chosen = Selection(
        runs,
        encoders,
        _names("method", methods),
        _names("fit", fits),
        _names("transform", transforms),
        alternatives,
        known=_names("know", know),
        names=names,
    )
    tasks = Tasks(
        data=data,
        unlabelled=unlabelled,
        strangers=strangers,
        split=split,
        shots=[_as_shots(shot) for shot in several],
        way=way,
        query=query,
        episodes=episodes,
        seed=seed,
        nota_share=nota_share,
        na_rate=na_rate,
        threshold_data=threshold_data,
        threshold_split=threshold_split,
        rule=rule,
        least_spans=least_spans,
        episode_file=None if episode_file is None else Path(episode_file),
    )
    return Comparison(measure(chosen, tasks, progress))


def tag(
    text: str | PathLike[str] | Iterable[str],
    support: str | PathLike[str],
    *,
    run: "str | PathLike[str] | Run | None" = None,
    encoder: str | None = None,
    method: str | None = None,
    fit: str | None = None,
    transform: str | None = None,
    options: Mapping[str, Any] | None = None,
    trust: Trust = None,
    progress: Show | None = None,
) -> "list[TaggedLine]":
    """Find entities in raw text by the example of a few annotated sentences; `encoder="minilm"` needs no training.

    Parameters
    ----------
    text : the path of a file of plain text, a sentence a line; or a list of sentences.
    support : a file of annotated sentences (IO, BIO or BIOES), with options as in `FILE,scheme=io`.
    run, encoder, method, fit, transform, options : as `evaluate` takes them; method and transform by default those that
        are best on words without training.
    trust : as `evaluate` takes it.

    Returns
    -------
    For each line that has words: `labels`, `entities()`, `to_json()`, `to_conll()`.

    Examples
    --------
    >>> lines = tag(["Anna lives in Rome."], "few.conll", encoder="minilm")  # doctest: +SKIP
    >>> [(entity["type"], entity["text"]) for entity in lines[0].entities()]  # doctest: +SKIP
    [('person', 'Anna'), ('city', 'Rome')]
    """
    from hyperproto.data import open_pool
    from hyperproto.data.tagged_text import TaggedLine, cut_lines, labels_of_sentences, read_plain
    from hyperproto.estimators import EntityTagger
    from hyperproto.training import Run

    trust_files(trust)
    chosen = _one_selection(run, encoder, method, fit, transform, options)
    examples = open_pool(f"conll:{fspath(support)}", "all")
    if not examples.n_classes:
        raise DataError(f"{fspath(support)}: every word is O; mark at least one entity")
    lines = read_plain(Path(text)) if isinstance(text, str | PathLike) else cut_lines(text, "the text")
    for folder in chosen.runs:
        Run(folder).read_config()  # or say that there is none
    tagger = EntityTagger(
        encoder=[*chosen.runs, *chosen.encoders][0],
        method=method,
        fit_mode=fit,
        feature_transform=transform,
        options=options,
        scheme="io",
    )
    tagger.fit(examples.items, labels_of_sentences(examples))
    labels = tagger.predict([line.words for line in lines], progress=noted(progress, "sentences encoded"))
    return [TaggedLine(*pair) for pair in zip(lines, labels, strict=True)]


@dataclass(frozen=True)
class Submission:
    """Answers to a hidden test set: the file that its server takes, and the predicted class of each task."""

    path: Path
    labels: list[int]


def submit(
    test_input: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    run: "str | PathLike[str] | Run | None" = None,
    encoder: str | None = None,
    method: str | None = None,
    fit: str | None = None,
    transform: str | None = None,
    options: Mapping[str, Any] | None = None,
    uncased: bool = False,
    trust: Trust = None,
    progress: Show | None = None,
) -> Submission:
    """Answer a hidden test set of FewRel, such as `test_wiki_input-5-1.json`, and write the answers.

    The file is one JSON list of whole numbers: for each task, in the order of the input, the place (0 to N - 1) of the
    predicted class in `meta_train`.

    Parameters
    ----------
    out : where the answers go; None stands for pred-N-K.json.
    run, encoder, method, fit, transform, options : as `evaluate` takes them.
    uncased : lower-case the words and strip their accents.
    trust : as `evaluate` takes it.

    Examples
    --------
    >>> submit("test_wiki_input-5-1.json", run="runs/mine").path  # doctest: +SKIP
    PosixPath('pred-5-1.json')
    """
    from hyperproto.episodes.fewrel_hidden import predictions_name, read_fewrel_test, write_predictions
    from hyperproto.evaluation import EncodedPool, predict_episodes

    trust_files(trust)
    chosen = _one_selection(run, encoder, method, fit, transform, options)
    pool, episodes = read_fewrel_test(Path(test_input), uncased=uncased)
    [contender] = chosen.contenders(pool)
    encoded = EncodedPool.encode(contender.encoder, pool, noted(progress, "items encoded"))
    answers = predict_episodes(contender.predictor, encoded, episodes, noted(progress, "tasks answered"))
    labels = [label for block in answers for label in block.labels[:, 0].tolist()]
    path = Path(predictions_name(episodes)) if out is None else Path(out)
    write_predictions(path, labels)
    return Submission(path, labels)


def report(
    table: str | PathLike[str],
    runs: str | PathLike[str] | None = None,
    *,
    episodes: int | None = None,
    progress: Show | None = None,
) -> "TableReport":
    """Set what your runs reach beside the rows of a table of the paper, all on the same episodes.

    Parameters
    ----------
    table : table1 to table5, or a path that ends in .toml, with a [table].
    runs : folder that holds the runs, one or two levels below; None: runs, if there is one.
    episodes : how many; None: as many as the table says.

    A run whose method is a file of yours (`FILE.py:CLASS`) is left out, with a remark: nothing is imported here.

    Returns
    -------
    The report: `groups` (runs that differ in their seeds, with their results), `to_run`, `to_json()`, and
    `table_text("markdown" | "latex" | "csv" | "html")`.

    Examples
    --------
    >>> report("table4").to_run  # doctest: +SKIP
    """
    from hyperproto.studies.paper_table import make_report

    folder = None if runs is None else Path(runs)
    return make_report(fspath(table), folder, episodes, progress or _nobody)


def figure(
    name: str,
    out: str | PathLike[str],
    *,
    run: "str | PathLike[str] | Run | Sequence[str | PathLike[str] | Run] | None" = None,
    results: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    data: str | None = None,
    split: str | None = None,
    samples: int | None = None,
    shots: Sequence[int] | None = None,
    recipe: str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    anchors: int | None = None,
    seed: int = 0,
    trust: Trust = None,
    progress: Show | None = None,
) -> "list[PaperFigure]":
    """Draw a figure of the paper, from runs or from files of results: NAME.png, NAME.svg, and its numbers, NAME.json.

    Parameters
    ----------
    name : fig1 to fig8, radius, memory; or "all": every figure that what is given suffices for, and a page, index.html.
    out : the folder to write to; fig6 trains below it, and goes on where it was killed.
    run : trained runs, for the figures that look into them (fig4, fig5, fig7, radius).
    results : files, or folders with such: reports on tables (`hyperproto report --json`), numbers of figures that were
        measured before; None stands for the folder results, if there is one.
    data, shots : of memory: a data spec (None: fewnerd), and the numbers of shots.
    split : the split of unseen classes; None: test or, where there is none, the one that a run was validated on.
    samples : instances a class, of fig7 (None: 500) and of radius (None: 100).
    recipe, overrides, anchors : of fig6: what is trained (None: the CNN of table2, 5-way, on a CPU), settings to
        change, and how many anchor classes (None: 8).
    seed : of what is drawn at random: classes, instances; of fig6 also of the trainings.
    trust : .py files that the runs, or the recipe, may import.

    Returns
    -------
    The figures: `name`, `numbers` (what the JSON file holds), `files`, `drawing.figure` (a matplotlib figure).

    Examples
    --------
    >>> [made] = figure("fig3", "figures", results=[])  # doctest: +SKIP
    >>> made.numbers["panels"][0]["series"]["HyperProto, published"]["INTER 5-way 1~2-shot"]  # doctest: +SKIP
    {'percent': 52.09, 'half': 2.49}
    """
    from hyperproto.studies.paper_figures import Request, Results, make_figures

    trust_files(trust)
    several = [results] if isinstance(results, str | PathLike) else results
    request = Request(
        Path(out),
        _runs(run),
        Results.read(None if several is None else [Path(path) for path in several]),
        data=data,
        split=split,
        samples=samples,
        shots=shots,
        recipe=recipe,
        overrides=_override_texts(overrides),
        anchors=anchors,
        seed=seed,
    )
    return make_figures(name, request, progress or _nobody)[0]


def grid(
    recipe: str | PathLike[str],
    settings: Mapping[str, Any] | Sequence[str],
    out: str | PathLike[str] | None = None,
    *,
    workers: int | None = None,
    trust: Trust = None,
    progress: Show | None = None,
    on_run: "OnRun | None" = None,
) -> "GridReport":
    """Train every combination of settings, each in a folder of its own, and compare them by their validation.

    Finished runs are skipped and interrupted ones go on, to the very same result. A run that fails is recorded, and the
    others go on; the next call tries it again.

    Parameters
    ----------
    recipe : as `train` takes it.
    settings : `{"training.seed": [0, 1, 2], "optim.encoder.lr": [1e-3, 3e-3]}`, a list for the values to try (a value
        that is a list stands in a list), or `["training.seed=0,1,2"]` as on the command line.
    out : folder of the grid; None stands for runs/RECIPE-grid. Values can be added later, other settings cannot.
    workers : how many processes train at a time (None: two, as far as there are cores; one on a GPU). One is this
        process itself; several share its threads.
    trust : as `train` takes it.
    progress : called while a run is trained.
    on_run : `(run, line)`, called as each run ends; the line says what became of it, and how long the rest may take.

    Returns
    -------
    The report: `runs` by name, `failed`, `groups` (means over seeds, the best first), `table_text("markdown")`,
    `to_json()`; the folder holds it as grid.json and grid.md.

    Examples
    --------
    >>> found = grid("glyphs:protonet", {"training.seed": [0, 1], "training.steps": 20})  # doctest: +SKIP
    >>> found.groups[0].mean  # doctest: +SKIP
    (0.9512, 0.0213)
    """
    from hyperproto.studies.grid import Grid, default_folder, run_grid

    trust_files(trust)
    name = fspath(recipe)
    folder = default_folder(name) if out is None else Path(out)
    return run_grid(Grid.of(name, settings), folder, workers, progress, on_run)


def reproduce(
    table: str | PathLike[str],
    *,
    budget: str = "small",
    seeds: int = 3,
    rows: str | Sequence[str] = "default",
    out: str | PathLike[str] | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    episodes: int | None = None,
    workers: int | None = None,
    dry_run: bool = False,
    trust: Trust = None,
    progress: Show | None = None,
    on_run: "OnRun | None" = None,
) -> "Reproduction":
    """Make a table of the paper: train its rows with several seeds, measure them in every column, write the table.

    Whatever was finished before is kept: a call that was interrupted goes on, to the very same result. A run that fails
    is recorded, and the others go on.

    Parameters
    ----------
    table : table1 to table5, or a path that ends in .toml, with a [table].
    budget : "small", recipes of CPU size, or "paper", the paper's settings, for a GPU.
    seeds : how many runs a row; their mean is reported.
    rows : "default" (ProtoNet and HyperProto's variants), "all", or names of sets and of recipes: "omniglot" of table3,
        "fewrel-cnn:protonet", or "protonet" where only one file has it.
    out : folder of runs and tables; None stands for runs/reproduce-TABLE-BUDGET.
    overrides : settings of all recipes to change, as `train` takes them.
    episodes : a column; None: as many as the table, or its budget, says.
    workers : as `grid` takes them.
    trust : .py files that recipes of the table may import.
    dry_run : train nothing; tell what would be run, how long it may take, and which data are missing.
    progress, on_run : as `grid` takes them.

    Returns
    -------
    The reproduction: `plan`, `minutes` (an estimate), `runs` by name, `failed`, `report` (a `TableReport`), `files`
    (the table as Markdown, LaTeX, CSV, HTML and JSON; also fig3, where it has a bar for one of the rows), `to_json()`.

    Examples
    --------
    >>> plan = reproduce("table3", dry_run=True)  # doctest: +SKIP
    >>> [(row.recipe, row.runs) for row in plan.plan][:2]  # doctest: +SKIP
    [('glyphs:protonet', 3), ('glyphs:hyperproto-published', 3)]
    """
    from hyperproto.studies.reproduce import reproduce as make_table

    if not isinstance(rows, str) and not (isinstance(rows, Sequence) and all(isinstance(row, str) for row in rows)):
        raise ConfigError(f"rows = {rows!r:.60}: give a name, or a list of names")
    trust_files(trust)
    return make_table(
        fspath(table),
        budget=budget,
        seeds=seeds,
        rows=rows if isinstance(rows, str) else ",".join(rows),
        folder=None if out is None else Path(out),
        overrides=_override_texts(overrides),
        episodes=episodes,
        workers=workers,
        dry_run=dry_run,
        show=progress,
        on_run=on_run,
    )


def list_recipes(
    *, data: str | None = None, method: str | None = None, cost: str | int | None = None
) -> list[dict[str, str]]:
    """The recipes that come with the package: `recipe` (what `train` takes), `description`, `cost`.

    Parameters
    ----------
    data, method : only those that train on this data set, with this method.
    cost : only those that run on a `"cpu"`, that want a `"gpu"`, or that take at most so many minutes of CPU, stages
        before included.

    Examples
    --------
    >>> [row["recipe"] for row in list_recipes(data="glyphs", method="protonet", cost=5)]
    ['glyphs:protonet']
    """
    from hyperproto.recipes import builtin_recipes, read_rows

    wanted = {"data": data, "method": method}
    known: dict[str, set[str]] = {kind: set() for kind in wanted}
    rows = []
    for name in builtin_recipes():
        recipes = read_rows(name)
        for row, recipe in recipes.items():
            own = {"data": recipe["data"]["spec"].partition(":")[0], "method": recipe["method"]["name"]}
            for kind, value in own.items():
                known[kind].add(value)
            if _costs(recipe.get("cost", ""), cost) and all(wanted[kind] in (None, own[kind]) for kind in wanted):
                words = {key: recipe.get(key, "") for key in ("description", "cost")}
                rows.append({"recipe": f"{name}:{row}" if len(recipes) > 1 else name, **words})
    for kind, value in wanted.items():
        if value is not None and value not in known[kind]:
            raise ConfigError(f"--{kind}: {unknown_name(f'recipe with {kind}', value, known[kind])}")
    if not rows:
        raise ConfigError("no recipe is all of this at once; leave out one of --data, --method and --cost")
    return rows


def _costs(words: str, wanted: str | int | None) -> bool:
    """Whether the cost of a recipe, in its words, is of the wanted kind: all that need a GPU say so."""
    from hyperproto.recipes import cost_minutes

    on_gpu = "GPU" in words
    if wanted is None or wanted in ("cpu", "gpu"):
        return wanted is None or on_gpu == (wanted == "gpu")
    if not str(wanted).isdecimal() or len(str(wanted)) > 9:
        raise ConfigError(
            f"--cost {str(wanted)[:40]}: write cpu, gpu, or how many minutes of CPU it may take, such as 30"
        )
    minutes = cost_minutes(words)
    return minutes is not None and minutes <= int(wanted)


def list_methods() -> list[dict[str, str]]:
    """The few-shot methods: `method`, the closed forms (`fit`) and transforms it has, and `what` it is."""
    from hyperproto.methods import METHODS

    rows = []
    for name in METHODS.names():
        cls = METHODS.get(name)
        words = (cls.__doc__ or "").strip().partition("\n")[0]
        rows.append(
            {
                "method": name,
                "fit": ", ".join(cls.fits),
                "transform": ", ".join(cls.transforms or ["any"]),
                "what": words,
            }
        )
    return rows


def list_data() -> list[dict[str, str]]:
    """The data sets: `data` and `what` it is made from."""
    from hyperproto.data import DATASETS

    return [{"data": name, "what": DATASETS.get(name).SUMMARY} for name in DATASETS.names()]


def check_data(data: str, progress: Show | None = None) -> list[dict[str, Any]]:
    """Open every split of a data set and count what is in it.

    Examples
    --------
    >>> [(row["split"], row["classes"]) for row in check_data("glyphs")]  # doctest: +SKIP
    """
    from hyperproto.data import open_pool, splits_of

    rows = []
    for split in splits_of(data):
        pool = open_pool(data, split, noted(progress, f"items of {split}"))
        row = {"data": data, "split": split, "classes": pool.n_classes, "items": len(pool), "digest": pool.digest}
        sizes = pool.counts.tolist() or [0]  # a split without labels has no classes
        rows.append({**row, "smallest class": min(sizes), "largest class": max(sizes)})
    return rows


def distant_data(
    sentences: str | PathLike[str],
    triples: str | PathLike[str],
    out: str | PathLike[str],
    *,
    without: str | PathLike[str] | None = "fewrel",
    without_relations: str | PathLike[str] | None = "fewrel",
    most: int | None = None,
    least: int = 1,
    ambiguous: str = "drop",
    seed: int = 0,
    progress: Show | None = None,
) -> "DistantCorpus":
    """Label sentences with linked entities by a file of triples, and write a corpus in FewRel's format to train on.

    Parameters
    ----------
    sentences : a file of JSON lines, `{"tokens": [...], "entities": [{"id": ..., "start": 0, "end": 2}, ...]}`.
    triples : a file of lines `HEAD<tab>RELATION<tab>TAIL`, with the same ids.
    out : the file to write, `{relation: [{tokens, h, t}]}`; data spec `fewrel:FILE`.
    without : file or folder whose sentences are left out; "fewrel": every file in FewRel's folder; None: nothing.
    without_relations : file whose relations are left out; "fewrel": those of FewRel's files but the training one, which
        pre-training must not have seen if they are to be few-shot classes; None: none.
    most, least : instances of a relation: at most so many, chosen by a hash; a relation with fewer is left out.
    ambiguous : a pair of entities with several relations is left out ("drop"), or is an instance of each ("keep").
    seed : another choice of `most` instances.

    Returns
    -------
    What was kept, by relation, and how many were left out, and why: `kept`, `rows()`, `to_json()`.

    Examples
    --------
    >>> distant_data("wikipedia.jsonl", "wikidata.tsv", "corpus.json", most=5000).kept  # doctest: +SKIP
    {'P1001': 5000, 'P101': 4312, ...}
    """
    from hyperproto.data.distant import label_by_triples

    return label_by_triples(
        Path(sentences),
        Path(triples),
        Path(out),
        without=None if without is None else fspath(without),
        without_relations=None if without_relations is None else fspath(without_relations),
        most=most,
        least=least,
        ambiguous=ambiguous,
        seed=seed,
        progress=noted(progress, "kB of sentences"),
    )


def _nobody(done: int, total: int, note: str = "") -> None:
    """Take no note of progress."""


def _one_selection(
    run: "str | PathLike[str] | Run | None",
    encoder: str | None,
    method: str | None,
    fit: str | None,
    transform: str | None,
    options: Mapping[str, Any] | None,
) -> "Selection":
    """A single run or encoder with, at most, one of each."""
    from hyperproto.studies.measure import Selection

    if (run is None) == (encoder is None):
        raise ConfigError("give one of --run and --encoder")
    given = {"encoder": encoder, "method": method, "fit": fit, "transform": transform}
    for kind, value in given.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{kind} = {value!r}: name one, as a string; `compare` takes several")
    trust_names([method])
    encoders, methods, fits, transforms = ([] if value is None else [value] for value in given.values())
    values = {key: [value] for key, value in (options or {}).items()}
    return Selection(_runs(run), encoders, methods, fits, transforms, values)


def _runs(given: Any) -> list[str]:
    """Folders of one run or of several."""
    from hyperproto.training import Run

    if given is None:
        return []
    several = given if isinstance(given, list | tuple) else [given]
    return [str(one.folder) if isinstance(one, Run) else fspath(one) for one in several]


def _names(kind: str, given: Names) -> list[str]:
    """One name or several as a list."""
    several = [] if given is None else [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in several):
        raise ConfigError(f"{kind} = {given!r}: give a name, or a list of names")
    return several


def _as_shots(shot: Shots) -> int | tuple[int, ...]:
    return tuple(shot) if isinstance(shot, list | tuple) else shot  # type: ignore[return-value] # what else it is, `Tasks` refuses


def _override_texts(overrides: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Settings as the command line writes them, KEY=VALUE with a TOML value."""
    from hyperproto.recipes import toml_value

    if isinstance(overrides, Mapping):
        return [f"{key}={toml_value(value)}" for key, value in overrides.items()]
    return list(overrides)
