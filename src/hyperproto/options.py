"""Options that Python and the command line share, each declared once: name, type, default and help text.

    SamplerOptions     how an episode is drawn
    EpisodeOptions     the same, and from which data and how many
    SelectionOptions   one run or encoder, with at most one method, closed form and transform
    SeveralOptions     the same for `compare`, which takes several of each

The functions of `api` take them as `**settings: Unpack[...]`, the command line is generated from them (see
`cli.options`), and samplers read the dictionary that `complete` returns. A new episode option is one entry of
`SamplerOptions` and the lines of a sampler that use it. Nothing heavy is imported here: `--help` reads this file.
The options of a method, `options`, are a mapping `{"prior_ratio": 0.5}` or texts `["prior_ratio=0.5"]`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar, cast, get_args

from hyperproto.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from hyperproto.registry import Trust
    from hyperproto.training import Run

Names = str | Sequence[str] | None  # one, several, or None for the default of each run or method
Shots = int | Sequence[int]  # examples of every class, or of each

Declared = TypeVar("Declared", bound=Mapping[str, Any])
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """Default, help text and spelling on the command line of one entry of a declaration."""

    default: Any
    help: str
    flags: tuple[str, ...] = ()  # spellings on the command line; none given: --NAME
    typed: Any = None  # type on the command line; None: the type in Python
    read: Callable[[Any], Any] | None = None  # value on the command line -> value in Python
    metavar: str | None = None
    least: int | None = None
    formerly: str | None = None  # name in earlier versions, still accepted
    in_recipes: bool = False  # may stand in [episodes] and [validation] of a recipe


def read_shots(text: str | None) -> int | tuple[int, ...] | None:
    """Read a number of shots for all classes, `5`, or one for each, `1,1,2,5,20`."""
    if text is None:
        return None
    try:
        shots = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--shot {text!r}: write one number (5), or one for each class (1,1,2,5,20)") from None
    return shots[0] if len(shots) == 1 else shots


def _read_several_shots(texts: list[str] | None) -> list[Any] | None:
    return [read_shots(text) for text in texts] if texts else None


class SamplerOptions(TypedDict, total=False):
    """Settings of a sampler: how each episode is drawn."""

    way: Annotated[int, Option(5, "Classes an episode.")]
    shot: Annotated[
        Shots | None,
        Option(
            None,
            "Support examples a class: one number (default: 5), or one for each: 1,1,2,5,20.",
            typed=str | None,
            read=read_shots,
        ),
    ]
    query: Annotated[
        int | None, Option(None, "Queries a class (default: 15; of entities, as many as there are shots).")
    ]
    seed: Annotated[int, Option(0, "Seed of the episodes.")]
    nota_share: Annotated[float, Option(0.0, "Share of the queries that are of none of the classes.")]
    na_rate: Annotated[int, Option(0, "The same as FewRel 2.0 counts: such queries for each query of one class.")]
    rule: Annotated[
        Literal["toolkit", "appendix"] | None,
        Option(None, "K~2K episodes of entities: toolkit or appendix.", typed=str | None, in_recipes=True),
    ]
    least_spans: Annotated[
        int | None, Option(None, "K~2K episodes: leave out types with fewer entities.", least=0, in_recipes=True)
    ]
    unlabelled: Annotated[int | None, Option(None, "Items of each class without a label (default: 50).", least=0)]
    distractors: Annotated[
        int, Option(0, "Items of other classes among those without a label.", least=0, formerly="strangers")
    ]


class TrainingSamplerOptions(SamplerOptions, total=False):
    """Settings of a sampler, with those that only training uses."""

    noise_rate: Annotated[float, Option(0.0, "Probability that a support example is replaced by one of another class.")]
    most_shots: Annotated[
        int | None, Option(None, "Draw the shots of each class from `shot` to this number, k in proportion to 1 / k.")
    ]
    anchor: Annotated[int | None, Option(None, "A class that every episode holds, as its first.")]


class EpisodeOptions(SamplerOptions, total=False):
    """Settings of the episodes that methods are measured on: how they are drawn, from which data, and how many."""

    split: Annotated[str, Option("test", "The split to draw episodes from.")]
    episodes: Annotated[
        int | None, Option(None, "How many episodes (default: 1000, or all of the episode file).", least=1)
    ]
    episode_file: Annotated[
        str | PathLike[str] | None,
        Option(
            None,
            "Few-NERD's sampled episodes, such as test_5_1.jsonl; --data has the training data then.",
            typed=Path | None,
        ),
    ]
    threshold_data: Annotated[
        str | None,
        Option(None, "With NOTA: data to choose the threshold of rejection on (default: the same data)."),
    ]
    threshold_split: Annotated[str | None, Option(None, "With NOTA: the split to choose it on (default: val).")]
    names: Annotated[
        str | None,
        Option(None, "Where names used as evidence come from: labels (default), descriptions, or FILE.json."),
    ]


_EVIDENCE = "Evidence besides the support: names, example, unlabelled or queries; two joined by +"
_TRUST = Option(
    None,
    "Let a run, recipe or model import this file; repeatable.",
    typed=list[str] | None,
    metavar="FILE.py",
)


class SelectionOptions(TypedDict, total=False):
    """One run or encoder, with at most one method, closed form and transform."""

    run: Annotated["str | PathLike[str] | Run | None", Option(None, "A trained run.", typed=str | None)]
    encoder: Annotated[str | None, Option(None, "A ready encoder, such as identity.")]
    method: Annotated[str | None, Option(None, "A method, or FILE.py:CLASS (default: the run's own).")]
    fit: Annotated[str | None, Option(None, "Closed form: bayes, unbiased, paper or point.")]
    transform: Annotated[str | None, Option(None, "none, unit or center-unit (default: the run's).")]
    options: Annotated[
        Mapping[str, Any] | Sequence[str] | None,
        Option(
            None,
            "Set an option of the method.",
            flags=("-o", "--option"),
            typed=list[str] | None,
            metavar="KEY=VALUE",
        ),
    ]
    trust: Annotated["Trust", _TRUST]


class SeveralOptions(TypedDict, total=False):
    """Runs, encoders, methods, closed forms and transforms to compare; every combination that makes sense is one."""

    run: Annotated[
        "str | PathLike[str] | Run | Sequence[str | PathLike[str] | Run] | None",
        Option(None, "A trained run; repeatable.", typed=list[str] | None),
    ]
    encoder: Annotated[
        Names, Option(None, "A ready encoder, NAME:MODEL,option=value; repeatable.", typed=list[str] | None)
    ]
    methods: Annotated[
        Names,
        Option(None, "A method, or FILE.py:CLASS; repeatable.", flags=("--method",), typed=list[str] | None),
    ]
    fits: Annotated[Names, Option(None, "A closed form; repeatable.", flags=("--fit",), typed=list[str] | None)]
    transforms: Annotated[
        Names, Option(None, "A feature transform; repeatable.", flags=("--transform",), typed=list[str] | None)
    ]
    options: Annotated[
        Mapping[str, Any] | Sequence[str] | None,
        Option(
            None,
            "Set an option of the method; repeat a key to compare.",
            flags=("-o", "--option"),
            typed=list[str] | None,
            metavar="KEY=VALUE",
        ),
    ]
    trust: Annotated["Trust", _TRUST]
    evidence: Annotated[Names, Option(None, f"{_EVIDENCE}; repeatable.", typed=list[str] | None, formerly="know")]
    shots: Annotated[
        int | tuple[int, ...] | Sequence[Shots] | None,
        Option(
            None,
            "Support examples a class (default: 5), or 1,1,2,5,20; repeatable.",
            flags=("--shot",),
            typed=list[str] | None,
            read=_read_several_shots,
        ),
    ]


class EvaluateOptions(SelectionOptions, EpisodeOptions, total=False):
    """Options of `evaluate`."""

    evidence: Annotated[str, Option("nothing", f"{_EVIDENCE}.", formerly="know")]


class CompareOptions(SeveralOptions, EpisodeOptions, total=False):
    """Options of `compare`. Of `shot` and `shots` one is given; on the command line both are --shot."""


_OVERRIDES = Option(
    None,
    "Change a setting of the recipe.",
    flags=("-o", "--override"),
    typed=list[str] | None,
    metavar="KEY=VALUE",
)


class ReproduceOptions(TypedDict, total=False):
    """Options of `reproduce`."""

    budget: Annotated[str, Option("small", "small: recipes of CPU size; paper: the paper's settings, for a GPU.")]
    seeds: Annotated[int, Option(3, "Runs a row; their mean is reported.")]
    rows: Annotated[
        str | Sequence[str],
        Option(
            "default",
            "default: ProtoNet and HyperProto's variants; all; or sets and recipes by name (see --dry-run).",
            typed=str,
            metavar="default|all|NAME,...",
        ),
    ]
    out: Annotated[
        str | PathLike[str] | None,
        Option(
            None,
            "Folder of runs and tables (default: runs/reproduce-TABLE-BUDGET).",
            typed=Path | None,
            metavar="FOLDER",
        ),
    ]
    overrides: Annotated[Mapping[str, Any] | Sequence[str] | None, _OVERRIDES]
    episodes: Annotated[
        int | None, Option(None, "How many episodes a column (default: as many as the table or its budget says).")
    ]
    workers: Annotated[
        int | None,
        Option(None, "Processes that train at a time (default: two, as far as there are cores; one on a GPU)."),
    ]
    trust: Annotated["Trust", _TRUST]
    dry_run: Annotated[bool, Option(False, "Only print the plan and how long it takes.", flags=("--dry-run",))]


class FigureOptions(TypedDict, total=False):
    """Options of `figure`."""

    run: Annotated[
        "str | PathLike[str] | Run | Sequence[str | PathLike[str] | Run] | None",
        Option(None, "A trained run; repeatable.", typed=list[str] | None),
    ]
    results: Annotated[
        str | PathLike[str] | Sequence[str | PathLike[str]] | None,
        Option(
            None,
            "A file of results, or a folder (default: results, if there is one).",
            typed=list[Path] | None,
            metavar="PATH",
        ),
    ]
    data: Annotated[str | None, Option(None, "Of memory: a data spec (default: fewnerd).")]
    split: Annotated[str | None, Option(None, "The split of unseen classes (default: test, or the run's validation).")]
    samples: Annotated[
        int | None, Option(None, "Instances a class, of fig7 (default: 500) and radius (default: 100).", least=1)
    ]
    shots: Annotated[
        Sequence[int] | None,
        Option(None, "Of memory: a number of shots; repeatable.", flags=("--shot",), typed=list[int] | None, least=1),
    ]
    recipe: Annotated[str | None, Option(None, "Of fig6: what is trained (default: the CNN of table2, on a CPU).")]
    overrides: Annotated[Mapping[str, Any] | Sequence[str] | None, _OVERRIDES]
    anchors: Annotated[int | None, Option(None, "Of fig6: anchor classes (default: 8).", least=1)]
    seed: Annotated[int, Option(0, "Seed of random draws and of trainings.", least=0)]
    trust: Annotated["Trust", _TRUST]


class DistantOptions(TypedDict, total=False):
    """Options of `distant_data`."""

    without: Annotated[
        str | PathLike[str] | None,
        Option(
            "fewrel", "File or folder whose sentences are left out; fewrel: FewRel's folder; none: nothing.", typed=str
        ),
    ]
    without_relations: Annotated[
        str | PathLike[str] | None,
        Option(
            "fewrel",
            "File whose relations are left out; fewrel: those of its evaluation files; none: none.",
            typed=str,
        ),
    ]
    most: Annotated[int | None, Option(None, "At most so many instances of a relation, chosen by a hash.")]
    least: Annotated[int, Option(1, "Leave out relations with fewer instances.")]
    ambiguous: Annotated[str, Option("drop", "Pairs with several relations: drop, or keep under each.")]
    seed: Annotated[int, Option(0, "Seed of the choice of --most instances.")]


def declared(declaration: type) -> dict[str, tuple[Any, Option]]:
    """Return the type in Python and the `Option` of each name, in the order of the declaration."""
    return {name: get_args(hint) for name, hint in declaration.__annotations__.items()}


def complete(declaration: type[Declared], given: Mapping[str, Any]) -> Declared:
    """Return a value for every declared option: the given one, or the default. Former names are translated."""
    known = declared(declaration)
    former = {option.formerly: name for name, (_, option) in known.items()}
    values = {name: option.default for name, (_, option) in known.items()}
    for name, value in given.items():
        now = former.get(name, name)
        if now not in known:
            raise TypeError(f"unexpected option {name!r}: {unknown_name('option', name, known)}")
        if now != name and now in given:
            raise TypeError(f"{name!r} is the former name of {now!r}; give one of them")
        values[now] = value
    return cast(Declared, values)


def only(declaration: type[Declared], settings: Mapping[str, Any]) -> Declared:
    """Return the options of one declaration from the settings of a wider one."""
    return cast(Declared, {name: settings[name] for name in declaration.__annotations__ if name in settings})


def changed(declaration: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a declaration whose values differ from their defaults."""
    known = declared(declaration).items()
    return {name: settings[name] for name, (_, option) in known if settings.get(name, option.default) != option.default}


def unused(settings: Mapping[str, Any], used: frozenset[str]) -> list[str]:
    """Name the settings of a sampler that are not at their defaults and that it does not use."""
    return [name for name in changed(TrainingSamplerOptions, settings) if name not in used]


def documented(declaration: type) -> Callable[[Function], Function]:
    """Give a function that takes `**settings: Unpack[declaration]` the signature and the help text of every option."""

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        parameters = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        texts = ["", "", "    Options", "    -------"]
        for name, (hint, option) in declared(declaration).items():
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, keyword, default=option.default, annotation=hint))
            texts.append(f"    {name} : {option.help}")
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__doc__ = (function.__doc__ or "").rstrip() + "\n".join([*texts, "    "])
        return function

    return decorate
