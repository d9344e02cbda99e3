"""Every combination of settings of a recipe: a run in a folder of its own for each, resumable, and a table at the end.

    settings -> combinations -> jobs -> GridReport (reports/grid_table.py)

`-o KEY=VALUE,VALUE` gives a setting several values. Commas inside brackets, braces or quotes belong to a value:
`-o validation.shot=[1,1,2,5],[5,5,5,5]`, `-o data.spec='"fewrel:,holdout=16"'`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from hyperproto import __version__
from hyperproto.data import open_pool
from hyperproto.encoders import ENCODERS
from hyperproto.errors import ConfigError, DataError, HyperProtoError
from hyperproto.files import lock, read_json
from hyperproto.methods import METHODS
from hyperproto.paper.jobs import Board, Job, Outcome, checked_workers, run_jobs
from hyperproto.paper.report import run_differences
from hyperproto.paper.train_run import finished
from hyperproto.progress import Show, noted
from hyperproto.recipes import WORDS, Recipe, parse_values, run_name, toml_value
from hyperproto.registry import defaults
from hyperproto.reports.grid_table import GridReport, GridRun
from hyperproto.training import Run, load_recipe
from hyperproto.training.resolve import completed

SEED = "training.seed"
MANIFEST = "grid.json"
MOST_RUNS = 1000
LONGEST_NAME = 40  # characters of a value in the name of a folder
TRAIN = "hyperproto.paper.train_run:train_job"

OnRun = Callable[[GridRun, str], None]  # a run that has ended, and a line about it


@dataclass(frozen=True)
class Combination:
    """One run: the value of every swept setting, as it was written."""

    values: dict[str, str]

    @property
    def name(self) -> str:
        """The name of its folder: the same whatever the order of the options; "run" where nothing is swept."""
        return "__".join(f"{key}={_short(value)}" for key, value in sorted(self.values.items())) or "run"

    @property
    def overrides(self) -> list[str]:
        """The settings as `train` takes them."""
        return [f"{key}={value}" for key, value in self.values.items()]


@dataclass(frozen=True)
class Grid:
    """A recipe, settings that all runs share, and those that are swept: several values each, or the seed."""

    recipe: str
    fixed: dict[str, str]
    swept: dict[str, list[str]]

    @classmethod
    def of(cls, recipe: str, settings: Mapping[str, Any] | Sequence[str]) -> "Grid":
        """Read settings, `{"training.seed": [0, 1]}` or `["training.seed=0,1"]`; every mistake is told here."""
        given = read_settings(settings)
        count = prod(map(len, given.values()))
        if count > MOST_RUNS:
            raise ConfigError(f"{count:,} combinations; a grid has at most {MOST_RUNS:,} runs: give fewer values")
        swept = {key: values for key, values in given.items() if len(values) > 1 or key == SEED}
        grid = cls(recipe, {key: values[0] for key, values in given.items() if key not in swept}, swept)
        grid.settings()
        return grid

    def combinations(self) -> list[Combination]:
        """Every combination; the last setting changes fastest."""
        return [Combination(dict(zip(self.swept, values, strict=True))) for values in product(*self.swept.values())]

    def overrides(self, one: Combination) -> list[str]:
        """All that a run changes in the recipe."""
        return [*(f"{key}={value}" for key, value in self.fixed.items()), *one.overrides]

    def load(self, one: Combination) -> Recipe:
        """The recipe of a run, checked."""
        return load_recipe(self.recipe, self.overrides(one))

    def settings(self) -> dict[str, dict[str, Any]]:
        """The settings in which the runs differ, by the name of the run, as resolved: dotted keys, with defaults.

        A swept table is taken apart, so that a row shows what its run was trained with, however it was asked for. Two
        combinations that give the same run are refused.
        """
        recipes = {}
        for one in self.combinations():
            try:
                recipes[one.name] = self.load(one)
            except HyperProtoError as error:
                raise type(error)(f"{one.name}: {error}" if self.swept else str(error)) from None
        every = {
            name: _flat(completed(recipe).model_dump(mode="json", exclude=set(WORDS)))
            for name, recipe in recipes.items()
        }
        keys = _different(every)
        for name, recipe in recipes.items():
            for registry, section in ((ENCODERS, recipe.encoder), (METHODS, recipe.method)):
                own = defaults(registry.get(section.name.partition(":")[0] if registry is ENCODERS else section.name))
                plain = json.loads(json.dumps(own, default=str))  # as the recipe has them
                usual = {f"{registry.kind}.{key}": value for key, value in plain.items()}
                every[name] = {**{key: usual[key] for key in keys if key in usual}, **every[name]}
        keys = _different(every)
        found = {name: {key: own[key] for key in keys if key in own} for name, own in every.items()}
        first: dict[str, str] = {}
        for name, own in found.items():
            other = first.setdefault(json.dumps(own, sort_keys=True, default=str), name)
            if other != name:
                raise ConfigError(f"{other} and {name} are the same run: every setting is equal; give one of them")
        return {
            name: {**own, **({SEED: every[name][SEED]} if SEED in self.swept else {})} for name, own in found.items()
        }

    def manifest(self) -> dict[str, Any]:
        """What must not change while a folder is in use; values of swept settings may be added."""
        fixed = {key: _value(text) for key, text in sorted(self.fixed.items())}
        return {"recipe": self.recipe, "fixed": fixed, "swept": sorted(self.swept)}


def read_settings(settings: Mapping[str, Any] | Sequence[str]) -> dict[str, list[str]]:
    """The values of each setting, as TOML; in a mapping, a list holds the values to try."""
    if isinstance(settings, Mapping):
        from_python = {key: value if isinstance(value, list | tuple) else [value] for key, value in settings.items()}
        given = [(key, [toml_value(value) for value in values]) for key, values in from_python.items()]
    else:
        given = [_split(text) for text in ([settings] if isinstance(settings, str) else settings)]
    found: dict[str, list[str]] = {}
    for key, values in given:
        if key in found:
            raise ConfigError(f"-o {key} is given twice; write all its values in one: -o {key}=VALUE,VALUE")
        parse_values([f"{key}=0"])  # or say what is wrong with the key
        texts = [json.dumps(_value(value), sort_keys=True, default=str) for value in values]
        twice = [value for number, value in enumerate(values) if texts[number] in texts[:number]]
        if twice:
            raise ConfigError(f"-o {key}: {twice[0].strip()} stands there twice; give each value once")
        if not values:
            raise ConfigError(f"{key}: an empty list; give at least one value")
        found[key] = values
    return found


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Name every value of nested tables by its dotted key."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{path}{key}"
        found |= _flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return found


def _different(every: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name the keys that not all have, or that have not the same value everywhere; in the order of the first."""
    keys = dict.fromkeys(key for own in every.values() for key in own)
    missing = object()
    values = {key: [own.get(key, missing) for own in every.values()] for key in keys}
    return [key for key, found in values.items() if any(value != found[0] for value in found)]


def _split(text: str) -> tuple[str, list[str]]:
    """Take KEY=VALUE,VALUE apart at the commas outside of brackets, braces and quotes."""
    key, equals, rest = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{text!r}: write section.key=value,value, for example training.seed=0,1,2")
    values, depth, quote, escaped = [""], 0, "", False
    for character in rest:
        if quote:
            quote = "" if character == quote and not escaped else quote
            escaped = quote == '"' and character == "\\" and not escaped
        elif character in "\"'" and (depth or not values[-1].strip()):
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        if character == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += character
    if depth or quote:
        raise ConfigError(f"-o {text}: a {'quote' if quote else 'bracket'} is not closed, or one too many is")
    empty = [number for number, value in enumerate(values, start=1) if not value.strip()]
    if empty:
        which = f"value {empty[0]} of {len(values)} is empty" if len(values) > 1 else "there is no value"
        raise ConfigError(f"-o {text}: {which}; write '' (in quotes) for an empty text")
    return key.strip(), [value.strip() for value in values]


def _value(text: str) -> Any:
    return parse_values([f"value={text}"])["value"]


def _short(text: str) -> str:
    """A value in the name of a folder: letters, digits and .+-; with a few hex digits where that loses something."""
    value = _value(text)
    whole = json.dumps(value, sort_keys=True, default=str)
    written = value if isinstance(value, str) else whole
    plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", written).strip("-")[:LONGEST_NAME]
    if plain == written and plain.strip(".") and _value(plain) == value:  # not the text "0" beside the number
        return plain
    return f"{plain}-{sha256(whole.encode()).hexdigest()[:6]}"


def default_folder(recipe: str) -> Path:
    """Where a grid lies unless told otherwise."""
    return Path("runs") / f"{run_name(recipe)}-grid"


def run_grid(
    grid: Grid,
    folder: Path,
    workers: int | None = None,
    show: Show | None = None,
    on_run: OnRun | None = None,
) -> GridReport:
    """Train what is not finished, skip what is, and write grid.json and grid.md after every run."""
    count = checked_workers(workers)
    runs = [Planned(one.name, grid.recipe, grid.overrides(one), folder / one.name) for one in grid.combinations()]
    if Run(folder).config.exists():
        raise ConfigError(f"{folder} is the folder of a run, not of a grid; name another one with --out")
    with lock(folder, "another process runs a grid here; wait until it ends, or name another folder with --out"):
        _check_manifest(grid, folder)
        settings = grid.settings()
        report = GridReport(grid.manifest() | {"version": __version__}, folder, {})

        def keep(run: GridRun, line: str) -> None:
            report.runs[run.name] = run
            report.write()
            if on_run is not None:
                on_run(run, line)

        run_planned(runs, settings, count, show, keep)
        report.runs = {plan.name: report.runs[plan.name] for plan in runs}  # in the order of the settings
        report.write()
    return report


def _check_manifest(grid: Grid, folder: Path) -> None:
    """Refuse a folder that holds another grid."""
    path = folder / MANIFEST
    if not path.exists():
        return
    found = read_json(path, damaged="remove it: the runs below are found without it")
    if not isinstance(found, dict):
        raise DataError(f"{path}: not the results of a grid; name another folder with --out, or remove it")
    own = grid.manifest()
    different = [
        f"{key} was {json.dumps(found.get(key))}, is {json.dumps(own[key])}"
        for key in own
        if found.get(key) != own[key]
    ]
    if different:
        raise ConfigError(
            f"{folder} holds another grid ({'; '.join(different)}); name another folder with --out, or remove this "
            "one. Values of settings that it sweeps can be added"
        )


@dataclass(frozen=True)
class Planned:
    """A run that is to be made: its name among others, its recipe with changes, its folder."""

    name: str
    recipe: str
    overrides: list[str]
    folder: Path
    weight: float = 1.0  # how long it takes, beside others
    function: str = TRAIN
    arguments: dict[str, Any] | None = None  # of another function than the training itself
    done: Callable[[Path], dict[str, Any] | None] = finished  # what a finished run keeps

    def job(self) -> Job:
        """As a job of a worker."""
        own = {"recipe": self.recipe, "folder": str(self.folder), "changes": self.overrides, **(self.arguments or {})}
        return Job(self.name, self.function, own, self.weight)


def run_planned(
    plans: Sequence[Planned],
    settings: Mapping[str, dict[str, Any]],
    workers: int,
    show: Show | None,
    on_run: OnRun,
    data: Sequence[tuple[str, str]] = (),
) -> None:
    """Make runs: those whose settings changed are refused before anything runs, finished ones are skipped.

    `data`, specs and splits, are needed beside those that the recipes name.
    """
    open_plans, told = [], 0
    for plan in plans:
        _check_settings(plan)
    for plan in plans:
        kept = plan.done(plan.folder)
        if kept is None:
            open_plans.append(plan)
            continue
        told += 1
        run = GridRun(plan.name, plan.folder, settings[plan.name], "finished", result=kept)
        on_run(run, f"[{told}/{len(plans)}] {plan.name}: {run.words()}, finished before")
    check_data(open_plans, show, data if open_plans else ())
    jobs = [*_stages(open_plans), *(plan.job() for plan in open_plans)]
    board = Board(jobs, workers, show)
    by_name = {plan.name: plan for plan in open_plans}

    def ended(outcome: Outcome) -> None:
        nonlocal told
        plan = by_name.get(outcome.name)
        if plan is None:  # a stage: what fails there fails again, and is told, in the runs that start from it
            return
        told += 1
        status = "failed" if outcome.result is None else "finished"
        run = GridRun(plan.name, plan.folder, settings[plan.name], status, outcome.result, outcome.error)
        left = len(plans) - told
        words = f"[{told}/{len(plans)}] {plan.name}: {run.words()}, {duration(outcome.seconds)}"
        seconds = board.seconds_left()
        rest = "" if seconds is None else f", about {duration(seconds)}"
        on_run(run, f"{words}; {left} to go{rest}" if left else words)

    run_jobs(board, ended)


def _check_settings(plan: Planned) -> None:
    """Refuse a run that was begun with other settings: its recipe, or a file that it names, was changed."""
    run = Run(plan.folder)
    if not run.config.exists():
        return
    different = run_differences(run, load_recipe(plan.recipe, plan.overrides))
    if different:
        raise ConfigError(
            f"{plan.folder} holds a run with other settings ({', '.join(different)}); name another folder with --out, "
            "or remove this one"
        )


def _stages(plans: Sequence[Planned]) -> list[Job]:
    """The runs that others start from: two of them must not be trained at the same time."""
    found: dict[Path, Job] = {}
    for plan in plans:
        stage = load_recipe(plan.recipe, plan.overrides).stage_before
        if stage is None or Run(stage.recipe).config.exists() or Run(plan.folder).checkpoint.exists():
            continue
        folder = plan.folder.parent / run_name(stage.recipe)
        arguments = {"recipe": stage.recipe, "folder": str(folder), "changes": []}
        if finished(folder) is None:
            found.setdefault(folder, Job(f"{stage.recipe}, a first stage", TRAIN, arguments, plan.weight, first=True))
    return list(found.values())


def check_data(plans: Sequence[Planned], show: Show | None, more: Sequence[tuple[str, str]] = ()) -> None:
    """Tell what is missing of the data before anything runs."""
    for error in data_problems(plans, show, more):
        raise type(error)(f"nothing was run: {error}")


def data_problems(
    plans: Sequence[Planned], show: Show | None, more: Sequence[tuple[str, str]] = ()
) -> Iterator[HyperProtoError]:
    """Open all data that runs train and validate on, and `more`, specs and splits; yield what is wrong with each."""
    wanted: dict[tuple[str, str], str] = {}
    for plan in plans:
        recipe = load_recipe(plan.recipe, plan.overrides)
        for data in ((recipe.data.spec, recipe.data.split), (recipe.validation_spec, recipe.validation.split)):
            wanted.setdefault(data, plan.name)
    for data in more:
        wanted.setdefault(data, "the table")
    for (spec, split), name in wanted.items():
        try:
            open_pool(spec, split, noted(show, f"items of {spec} {split}"))
        except HyperProtoError as error:
            yield type(error)(f"{name} needs {spec} ({split}): {error}{_fetched(spec, str(error))}")


def _fetched(spec: str, said: str) -> str:
    """How to get a data set, where the error does not say it."""
    name = spec.partition(":")[0]
    with suppress(ModuleNotFoundError):
        from hyperproto.data.get import DOWNLOADS

        if name == spec and name in DOWNLOADS and "hyperproto data get" not in said:
            return f"; hyperproto data get {name} fetches it"
    return ""


def duration(seconds: float) -> str:
    """A time in two units at most: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
