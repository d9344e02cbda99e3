"""Grid of trainings: every combination of settings of a recipe, each run in its own folder, resumable, and a table.

    settings -> combinations -> runs -> GridReport

`-o KEY=VALUE,VALUE` gives a setting several values. Commas inside brackets, braces or quotes belong to a value:
`-o validation.shot=[1,1,2,5],[5,5,5,5]`, `-o data.spec='"fewrel:,holdout=16"'`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto import __version__
from hyperproto.encoders import ENCODERS
from hyperproto.errors import ConfigError, DataError, HyperProtoError
from hyperproto.files import atomic_write, lock, read_json
from hyperproto.methods import METHODS
from hyperproto.paper.jobs import checked_workers
from hyperproto.paper.runs import GridRun, OnRun, Planned, run_planned
from hyperproto.problems import mean_interval
from hyperproto.problems.base import or_none
from hyperproto.progress import Show
from hyperproto.recipes import WORDS, Recipe, parse_values, run_name, toml_value
from hyperproto.registry import defaults
from hyperproto.reports.tables import Number, Sheet, SheetRow, TextTable
from hyperproto.training import Run, load_recipe
from hyperproto.training.resolve import completed

SEED = "training.seed"
NOTE = (
    "Mean of the best validation over seeds ± its 95 % interval over seeds (Student's t); of a single seed, the "
    "interval over its validation episodes. Validation chose the weights, and the best row: report other episodes."
)
MANIFEST = "grid.json"
MOST_RUNS = 1000
LONGEST_NAME = 40  # characters of a value in the name of a folder


@dataclass(frozen=True)
class Combination:
    """Value of every swept setting for one run, as written."""

    values: dict[str, str]

    @property
    def name(self) -> str:
        """Name of the folder, independent of the order of the options; "run" where nothing is swept."""
        return "__".join(f"{key}={_short(value)}" for key, value in sorted(self.values.items())) or "run"

    @property
    def overrides(self) -> list[str]:
        """Settings in the form that `train` takes."""
        return [f"{key}={value}" for key, value in self.values.items()]


@dataclass(frozen=True)
class Grid:
    """A recipe, the settings that all runs share, and those that are swept: several values each, or the seed."""

    recipe: str
    fixed: dict[str, str]
    swept: dict[str, list[str]]

    @classmethod
    def of(cls, recipe: str, settings: Mapping[str, Any] | Sequence[str]) -> "Grid":
        """Read settings, `{"training.seed": [0, 1]}` or `["training.seed=0,1"]`, and check all of them."""
        given = read_settings(settings)
        count = prod(map(len, given.values()))
        if count > MOST_RUNS:
            raise ConfigError(f"{count:,} combinations; a grid has at most {MOST_RUNS:,} runs: give fewer values")
        swept = {key: values for key, values in given.items() if len(values) > 1 or key == SEED}
        grid = cls(recipe, {key: values[0] for key, values in given.items() if key not in swept}, swept)
        grid.settings  # noqa: B018 # reports every mistake before anything runs
        return grid

    def combinations(self) -> list[Combination]:
        """Return every combination; the last setting changes fastest."""
        return [Combination(dict(zip(self.swept, values, strict=True))) for values in product(*self.swept.values())]

    def overrides(self, one: Combination) -> list[str]:
        """Return all changes of a run to the recipe."""
        return [*(f"{key}={value}" for key, value in self.fixed.items()), *one.overrides]

    @cached_property
    def recipes(self) -> dict[str, Recipe]:
        """Checked recipe of each run, by the name of the run."""
        found = {}
        for one in self.combinations():
            try:
                found[one.name] = load_recipe(self.recipe, self.overrides(one))
            except HyperProtoError as error:
                raise type(error)(f"{one.name}: {error}" if self.swept else str(error)) from None
        return found

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Resolved settings in which the runs differ, by the name of the run: dotted keys, with defaults.

        A swept table is taken apart, so that a row shows what its run was trained with, however it was asked for. Two
        combinations that give the same run are refused.
        """
        every = {
            name: _flat(completed(recipe).model_dump(mode="json", exclude=set(WORDS)))
            for name, recipe in self.recipes.items()
        }
        keys = _different(every)
        for name, recipe in self.recipes.items():
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
        """Return what must not change while a folder is in use; values of swept settings may be added."""
        fixed = {key: _value(text) for key, text in sorted(self.fixed.items())}
        return {"recipe": self.recipe, "fixed": fixed, "swept": sorted(self.swept)}


def read_settings(settings: Mapping[str, Any] | Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each setting as TOML; in a mapping, a list holds the values to try."""
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
    """Return the values of nested tables by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{path}{key}"
        found |= _flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return found


def _different(every: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the keys that are missing in some tables or differ in value, in the order of the first table."""
    keys = dict.fromkeys(key for own in every.values() for key in own)
    missing = object()
    values = {key: [own.get(key, missing) for own in every.values()] for key in keys}
    return [key for key, found in values.items() if any(value != found[0] for value in found)]


def _split(text: str) -> tuple[str, list[str]]:
    """Split KEY=VALUE,VALUE at the commas outside of brackets, braces and quotes."""
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
    """Return a value as part of a folder name: letters, digits and .+-; a hash is added if that is ambiguous."""
    value = _value(text)
    whole = json.dumps(value, sort_keys=True, default=str)
    written = value if isinstance(value, str) else whole
    plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", written).strip("-")[:LONGEST_NAME]
    if plain == written and plain.strip(".") and _value(plain) == value:  # not the text "0" beside the number
        return plain
    return f"{plain}-{sha256(whole.encode()).hexdigest()[:6]}"


@dataclass(frozen=True)
class SeedGroup:
    """Finished runs that differ only in their seeds."""

    settings: dict[str, Any]
    runs: list[GridRun]

    @property
    def values(self) -> list[float]:
        """Best validation of each run."""
        return [run.result["value"] for run in self.runs if run.result is not None]

    @property
    def mean(self) -> tuple[float, float | None]:
        """Mean and half 95 % interval over seeds; of a single seed, the interval over its episodes."""
        if len(self.values) == 1:
            [run] = self.runs
            return self.values[0], None if run.result is None else run.result["ci95"]
        mean, half = mean_interval(np.array(self.values))
        return mean, or_none(half)


@dataclass
class GridReport:
    """Results of the runs of a grid; `about` identifies the grid."""

    about: dict[str, Any]
    folder: Path
    runs: dict[str, GridRun] = field(default_factory=dict)

    @property
    def failed(self) -> list[GridRun]:
        """Runs that failed."""
        return [run for run in self.runs.values() if run.status == "failed"]

    @property
    def groups(self) -> list[SeedGroup]:
        """Finished runs grouped by all settings except the seed, the best mean first."""
        found: dict[str, SeedGroup] = {}
        for run in self.runs.values():
            if run.result is not None:
                own = {key: value for key, value in run.settings.items() if key != SEED}
                found.setdefault(json.dumps(own, default=str), SeedGroup(own, [])).runs.append(run)
        return sorted(found.values(), key=lambda group: -group.mean[0])

    @property
    def metric(self) -> str:
        """Name of the validation metric."""
        return next((run.result["metric"] for run in self.runs.values() if run.result is not None), "accuracy")

    def sheet(self) -> Sheet:
        """Return the table with a row for each group of seeds."""
        keys = list(dict.fromkeys(key for group in self.groups for key in group.settings))
        seeded = any(SEED in run.settings for run in self.runs.values())
        head = [*keys, *(["seeds"] if seeded else []), "each", f"{self.metric}, %"]
        rows = []
        for group in self.groups:
            mean, half = group.mean
            words = [_shown(group.settings[key]) if key in group.settings else "" for key in keys]
            words += [", ".join(str(run.settings[SEED]) for run in group.runs)] if seeded else []
            words.append(", ".join(f"{100 * value:.2f}" for value in group.values))
            rows.append(SheetRow([*words, Number(100 * mean, None if half is None else 100 * half)]))
        notes = [NOTE, *(f"{run.name}: {run.words()}" for run in self.failed)]
        fixed = ", ".join(f"{key}={_shown(value)}" for key, value in self.about["fixed"].items())
        title = f"Grid over {self.about['recipe']}" + (f" with {fixed}" if fixed else "")
        return Sheet(title, head, rows, notes, labels=len(head) - 1)

    def table(self) -> TextTable:
        """Return the table for the terminal."""
        sheet = self.sheet()
        return TextTable(sheet.title, sheet.head, [row.texts() for row in sheet.rows], texts=sheet.labels)

    def table_text(self, kind: str = "markdown") -> str:
        """Return the table as "markdown", "latex", "csv" or "html"."""
        return self.sheet().text(kind)

    def to_json(self) -> dict[str, Any]:
        """Return every run, and every mean over seeds, the best first; values are fractions."""
        groups = []
        for group in self.groups:
            mean, half = group.mean
            seeds = [run.settings.get(SEED) for run in group.runs]
            own = {"settings": group.settings, "seeds": seeds, self.metric: mean, "ci95": half}
            groups.append({**own, "runs": [run.name for run in group.runs]})
        return {
            **self.about,
            "metric": self.metric,
            "groups": groups,
            "runs": [r.to_json() for r in self.runs.values()],
        }

    def write(self) -> None:
        """Write grid.json and grid.md into the folder."""
        for name, text in (("grid.json", json.dumps(self.to_json(), indent=1)), ("grid.md", self.table_text())):
            with atomic_write(self.folder / name) as file:
                file.write(text.encode() + (b"" if text.endswith("\n") else b"\n"))


def _shown(value: Any) -> str:
    if value is None:
        return "default"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def default_folder(recipe: str) -> Path:
    """Return the default folder of a grid."""
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
    runs = [
        Planned(one.name, grid.recipe, grid.overrides(one), grid.recipes[one.name], folder / one.name)
        for one in grid.combinations()
    ]
    if Run(folder).config.exists():
        raise ConfigError(f"{folder} is the folder of a run, not of a grid; name another one with --out")
    with lock(folder, "another process runs a grid here; wait until it ends, or name another folder with --out"):
        _check_manifest(grid, folder)
        report = GridReport(grid.manifest() | {"version": __version__}, folder, {})

        def keep(run: GridRun, line: str) -> None:
            report.runs[run.name] = run
            report.write()
            if on_run is not None:
                on_run(run, line)

        run_planned(runs, grid.settings, count, show, keep)
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
