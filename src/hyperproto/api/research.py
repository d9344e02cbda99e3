"""Train methods, measure them on episodes of unseen classes, and answer hidden test sets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperproto.errors import ConfigError, DataError
from hyperproto.progress import Show, noted
from hyperproto.registry import Trust, trust_names
from hyperproto.registry import trust as trust_files

if TYPE_CHECKING:
    from hyperproto.comparison.measure import Selection
    from hyperproto.data.formats.tagged import TaggedLine
    from hyperproto.evaluation import Result
    from hyperproto.reports.comparison import Comparison
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
    from hyperproto.paper.train_run import train_run
    from hyperproto.recipes import override_texts, run_name

    trust_files(trust)
    name = fspath(recipe)
    folder = Path("runs") / run_name(name) if out is None else Path(out)
    return train_run(name, folder, override_texts(overrides), progress)


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
    from hyperproto.comparison.measure import Tasks, measure

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
    from hyperproto.comparison.measure import Selection, Tasks, measure
    from hyperproto.reports.comparison import Comparison

    trust_files(trust)
    trust_names(_names("method", methods))
    runs, encoders = run_folders(run), _names("encoder", encoder)
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
    from hyperproto.data.formats.tagged import TaggedLine, cut_lines, labels_of_sentences, read_plain
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
    from hyperproto.episodes.episode_files import predictions_name, read_fewrel_test, write_predictions
    from hyperproto.evaluation import EncodedPool, predict_episodes

    trust_files(trust)
    chosen = _one_selection(run, encoder, method, fit, transform, options)
    pool, episodes = read_fewrel_test(Path(test_input), uncased=uncased)
    [candidate] = chosen.candidates(pool)
    encoded = EncodedPool.encode(candidate.encoder, pool, noted(progress, "items encoded"))
    answers = predict_episodes(candidate.predictor, encoded, episodes, noted(progress, "tasks answered"))
    labels = [label for block in answers for label in block.labels[:, 0].tolist()]
    path = Path(predictions_name(episodes)) if out is None else Path(out)
    write_predictions(path, labels)
    return Submission(path, labels)


def _one_selection(
    run: "str | PathLike[str] | Run | None",
    encoder: str | None,
    method: str | None,
    fit: str | None,
    transform: str | None,
    options: Mapping[str, Any] | None,
) -> "Selection":
    """A single run or encoder with, at most, one of each."""
    from hyperproto.comparison.measure import Selection

    if (run is None) == (encoder is None):
        raise ConfigError("give one of --run and --encoder")
    given = {"encoder": encoder, "method": method, "fit": fit, "transform": transform}
    for kind, value in given.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{kind} = {value!r}: name one, as a string; `compare` takes several")
    trust_names([method])
    encoders, methods, fits, transforms = ([] if value is None else [value] for value in given.values())
    values = {key: [value] for key, value in (options or {}).items()}
    return Selection(run_folders(run), encoders, methods, fits, transforms, values)


def run_folders(given: Any) -> list[str]:
    """Return the folders of one run, or of several."""
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
