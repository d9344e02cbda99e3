"""Train methods, measure them on episodes of unseen classes, and answer hidden test sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hyperproto.errors import ConfigError
from hyperproto.options import (
    CompareOptions,
    EpisodeOptions,
    EvaluateOptions,
    Names,
    SelectionOptions,
    complete,
    documented,
    only,
)
from hyperproto.progress import Show, noted
from hyperproto.registry import Trust, trust_names
from hyperproto.registry import trust as trust_files

if TYPE_CHECKING:
    from hyperproto.comparison.measure import Selection
    from hyperproto.evaluation import Result
    from hyperproto.reports.comparison import Comparison
    from hyperproto.training import Run


def train(
    recipe: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    trust: Trust = None,
    progress: Show | None = None,
) -> "Run":
    """Train by a recipe. An interrupted run is resumed, with the same result.

    Parameters
    ----------
    recipe : `NAME`, `NAME:ROW` (see `list_recipes`), or the path of a .toml file.
    out : folder of the run; None: runs/RECIPE.
    overrides : settings of the recipe to change, as `{"training.steps": 500}` or as `["training.steps=500"]`.
    trust : .py files that the recipe, or a run that it starts from, may import.
    progress : called after every step, and while data are prepared.

    Returns
    -------
    The run: `run.folder` has the weights, the log and, if matplotlib is installed, a page; `run.best_validation()` is
    the best result on validation episodes.

    Examples
    --------
    >>> run = train("glyphs:protonet", "runs/small", overrides={"training.steps": 2, "encoder.filters": 4,
    ...             "validation.episodes": 2})  # doctest: +SKIP
    >>> run.best_validation()["step"]  # doctest: +SKIP
    2
    """
    from hyperproto.paper.runs import train_run
    from hyperproto.recipes import override_texts, run_name

    trust_files(trust)
    name = fspath(recipe)
    folder = Path("runs") / run_name(name) if out is None else Path(out)
    return train_run(name, folder, override_texts(overrides), progress)


@documented(EvaluateOptions)
def evaluate(data: str, *, progress: Show | None = None, **settings: Unpack[EvaluateOptions]) -> "Result":
    """Measure one method on episodes of unseen classes.

    Parameters
    ----------
    data : a data spec (`glyphs`, `vectors:FILE.npz`; see `list_data`).
    settings : see `EvaluateOptions`; one of `run` and `encoder` is needed.

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

    options = complete(EvaluateOptions, settings)
    chosen = replace(one_selection(options), known=[options["evidence"]], names=options["names"])
    [[result]] = measure(chosen, Tasks(data, **only(EpisodeOptions, options)), progress)
    return result


@documented(CompareOptions)
def compare(data: str, *, progress: Show | None = None, **settings: Unpack[CompareOptions]) -> "Comparison":
    """Measure every combination that makes sense on the same episodes, with paired differences.

    Parameters
    ----------
    data : a data spec, as `evaluate` takes it.
    settings : see `CompareOptions`. `run`, `encoder`, `methods`, `fits`, `transforms` and `evidence` are one name or a
        list; of several, each method takes those that it has. A list in `options` holds values to compare. `shots` is
        a number, a tuple with one number for each class, or a list of these: a group of results for each.

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

    options = complete(CompareOptions, settings)
    trust_files(options["trust"])
    methods = _names("methods", options["methods"])
    trust_names(methods)
    runs, encoders = run_folders(options["run"]), _names("encoder", options["encoder"])
    if not runs and not encoders:
        raise ConfigError("give at least one --run or --encoder")
    several: Any = options["shots"]
    if several is not None and options["shot"] is not None:
        raise ConfigError(f"shot = {options['shot']!r} and shots = {several!r}: give one of them")
    chosen = Selection(
        runs,
        encoders,
        methods,
        _names("fits", options["fits"]),
        _names("transforms", options["transforms"]),
        method_options(options["options"], lists=True),
        known=_names("evidence", options["evidence"]),
        names=options["names"],
    )
    shots = several if isinstance(several, list) else [] if several is None else [several]
    return Comparison(measure(chosen, Tasks(data, shots, **only(EpisodeOptions, options)), progress))


@dataclass(frozen=True)
class Submission:
    """Answers to a hidden test set: the file that its server takes, and the predicted class of each task."""

    path: Path
    labels: list[int]


@documented(SelectionOptions)
def submit(
    test_input: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    uncased: bool = False,
    progress: Show | None = None,
    **settings: Unpack[SelectionOptions],
) -> Submission:
    """Answer a hidden test set of FewRel, such as `test_wiki_input-5-1.json`, and write the answers.

    The file is one JSON list of whole numbers: for each task, in the order of the input, the place (0 to N - 1) of the
    predicted class in `meta_train`.

    Parameters
    ----------
    out : file for the answers; None: pred-N-K.json.
    uncased : lower-case the words and strip their accents.
    settings : see `SelectionOptions`; one of `run` and `encoder` is needed.

    Examples
    --------
    >>> submit("test_wiki_input-5-1.json", run="runs/mine").path  # doctest: +SKIP
    PosixPath('pred-5-1.json')
    """
    from hyperproto.episodes.episode_files import predictions_name, read_fewrel_test, write_predictions
    from hyperproto.evaluation import EncodedPool, predict_episodes

    chosen = one_selection(complete(SelectionOptions, settings))
    pool, episodes = read_fewrel_test(Path(test_input), uncased=uncased)
    [candidate] = chosen.candidates(pool)
    encoded = EncodedPool.encode(candidate.encoder, pool, noted(progress, "items encoded"))
    answers = predict_episodes(candidate.predictor, encoded, episodes, noted(progress, "tasks answered"))
    labels = [label for block in answers for label in block.labels[:, 0].tolist()]
    path = Path(predictions_name(episodes)) if out is None else Path(out)
    write_predictions(path, labels)
    return Submission(path, labels)


def one_selection(options: SelectionOptions) -> "Selection":
    """Return the selection of a single run or encoder, with at most one method, closed form and transform."""
    from hyperproto.comparison.measure import Selection

    trust_files(options["trust"])
    if (options["run"] is None) == (options["encoder"] is None):
        raise ConfigError("give one of --run and --encoder")
    given = {name: options[name] for name in ("encoder", "method", "fit", "transform")}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{name} = {value!r}: name one, as a string; `compare` takes several")
    trust_names([options["method"]])
    encoders, methods, fits, transforms = ([] if value is None else [value] for value in given.values())
    values = method_options(options["options"])
    for key, several in values.items():
        if len(several) > 1:
            raise ConfigError(f"-o {key} is given {len(several)} times; `hyperproto compare` takes several")
    return Selection(run_folders(options["run"]), encoders, methods, fits, transforms, values)


def method_options(given: Mapping[str, Any] | Sequence[str] | None, lists: bool = False) -> dict[str, list[Any]]:
    """Return the values of each option of a method; `lists` takes a list in a mapping for several values."""
    from hyperproto.recipes import parse_values

    if isinstance(given, Mapping):
        return {key: value if lists and isinstance(value, list) else [value] for key, value in given.items()}
    values: dict[str, list[Any]] = {}
    for text in given or ():
        for key, value in parse_values([text]).items():
            values.setdefault(key, []).append(value)
    return values


def run_folders(given: Any) -> list[str]:
    """Return the folders of one run, or of several."""
    from hyperproto.training import Run

    if given is None:
        return []
    several = given if isinstance(given, list | tuple) else [given]
    return [str(one.folder) if isinstance(one, Run) else fspath(one) for one in several]


def _names(kind: str, given: Names) -> list[str]:
    """Return one name, or several, as a list."""
    several = [] if given is None else [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in several):
        raise ConfigError(f"{kind} = {given!r}: give a name, or a list of names")
    return several
