"""Options that several commands take, each said once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hyperproto.errors import ConfigError


def _json_target(value: str | None) -> str | None:
    """Refuse a target that cannot be written before the work, not after it."""
    if value is not None and value != "-" and Path(value).is_dir():
        raise typer.BadParameter(f"{value} is a folder; name a file, or - for standard output")
    return value


JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON there; - for standard output.", callback=_json_target),
]
Overrides = Annotated[
    list[str] | None, typer.Option("-o", "--override", metavar="KEY=VALUE", help="Change a setting of the recipe.")
]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes that train at a time (default: two, as far as there are cores; one on a GPU)."),
]
Trust = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="FILE.py", help="Let a run, recipe or model import this file; repeatable."),
]
OneOptions = Annotated[
    list[str] | None, typer.Option("-o", "--option", metavar="KEY=VALUE", help="Set an option of the method.")
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", metavar="KEY=VALUE", help="Set an option of the method; repeat a key to compare."),
]
Data = Annotated[str, typer.Option(help="A data spec, such as glyphs or vectors:FILE.npz.")]
Split = Annotated[str, typer.Option(help="The split to draw episodes from.")]
Way = Annotated[int, typer.Option(help="Classes an episode.")]
Shot = Annotated[
    str | None, typer.Option(help="Support examples a class: one number (default: 5), or one for each: 1,1,2,5,20.")
]
Query = Annotated[
    int | None, typer.Option(help="Queries a class (default: 15; of entities, as many as there are shots).")
]
EpisodeCount = Annotated[
    int | None, typer.Option(min=1, help="How many episodes (default: 1000, or all of the episode file).")
]
RuleName = Annotated[str | None, typer.Option("--rule", help="K~2K episodes of entities: toolkit or appendix.")]
LeastSpans = Annotated[int | None, typer.Option(help="K~2K episodes: leave out types with fewer entities.")]
EpisodeFile = Annotated[
    Path | None,
    typer.Option(help="Few-NERD's sampled episodes, such as test_5_1.jsonl; --data has the training data then."),
]
Seed = Annotated[int, typer.Option(help="Seed of the episodes.")]
NotaShare = Annotated[float, typer.Option(help="Share of the queries that are of none of the classes.")]
NaRate = Annotated[int, typer.Option(help="The same as FewRel 2.0 says it: so many for each query of one class.")]
ThresholdData = Annotated[
    str | None, typer.Option(help="With NOTA: data to choose the threshold of rejection on (default: the same data).")
]
ThresholdSplit = Annotated[str | None, typer.Option(help="With NOTA: the split to choose it on (default: val).")]
_TOLD = "Told besides the support: names, example, unlabelled or queries; two joined by +"
Know = Annotated[str, typer.Option(help=f"{_TOLD}.")]
KnowMany = Annotated[list[str] | None, typer.Option("--know", help=f"{_TOLD}; repeatable.")]
NameSource = Annotated[
    str | None,
    typer.Option("--names", help="Where names that are told come from: labels (default), descriptions, or FILE.json."),
]
UnlabelledCount = Annotated[
    int | None, typer.Option("--unlabelled", min=0, help="Items of each class without a label (default: 50).")
]
Strangers = Annotated[int, typer.Option(min=0, help="Items of other classes among those without a label.")]
OneRun = Annotated[str | None, typer.Option("--run", help="A trained run.")]
OneEncoder = Annotated[str | None, typer.Option("--encoder", help="A ready encoder, such as identity.")]
OneMethod = Annotated[str | None, typer.Option("--method", help="A method, or FILE.py:CLASS (default: the run's own).")]
OneFit = Annotated[str | None, typer.Option("--fit", help="Closed form: bayes, unbiased, paper or point.")]
OneTransform = Annotated[
    str | None, typer.Option("--transform", help="none, unit or center-unit (default: the run's).")
]


def one_of(run: str | None, encoder: str | None) -> dict[str, str | None]:
    """Take a run or an encoder, not both."""
    if (run is None) == (encoder is None):
        raise typer.BadParameter("give one of --run and --encoder", param_hint="--run")
    return {"run": run, "encoder": encoder}


def several_values(options: list[str] | None) -> dict[str, list[Any]]:
    """Read KEY=VALUE, each a TOML value, into the values of each key."""
    from hyperproto.recipes import parse_values

    values: dict[str, list[Any]] = {}
    for option in options or ():
        for key, value in parse_values([option]).items():
            values.setdefault(key, []).append(value)
    return values


def single_values(options: list[str] | None) -> dict[str, Any]:
    """Read KEY=VALUE where one method is used: each key once."""
    values = several_values(options)
    twice = [key for key, given in values.items() if len(given) > 1]
    if twice:
        raise ConfigError(f"-o {twice[0]} is given {len(values[twice[0]])} times; `hyperproto compare` takes several")
    return {key: value for key, [value] in values.items()}


def parse_shots(text: str) -> int | tuple[int, ...]:
    """Read one number, or one for each class."""
    try:
        shots = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--shot {text!r}: write one number (5), or one for each class (1,1,2,5,20)") from None
    return shots[0] if len(shots) == 1 else shots
