"""What the runs of a grid reach on their validation episodes: means over seeds, the best first."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto.files import atomic_write
from hyperproto.problems import mean_interval
from hyperproto.problems.intervals import or_none
from hyperproto.reports.tables import Number, Sheet, SheetRow, TextTable

SEED = "training.seed"
NOTE = (
    "Mean of the best validation over seeds ± its 95 % interval over seeds (Student's t); of a single seed, the "
    "interval over its validation episodes. Validation chose the weights, and the best row: report other episodes."
)


@dataclass(frozen=True)
class GridRun:
    """A run that has ended: `finished`, with its best validation, or `failed`, with the reason."""

    name: str
    folder: Path
    settings: dict[str, Any]  # those in which the runs of the grid differ, as resolved
    status: str
    result: dict[str, Any] | None = None  # metric, value, ci95, step, seconds
    error: str | None = None

    def words(self) -> str:
        """What became of it, in a few words."""
        if self.result is None:
            return f"failed: {self.error}"
        return f"{self.result['metric']} {100 * self.result['value']:.2f} % at step {self.result['step']}"

    def to_json(self) -> dict[str, Any]:
        """All that is known of it."""
        measured = {} if self.result is None else _validation(self.result)
        error = {} if self.error is None else {"error": self.error}
        own = {"name": self.name, "folder": str(self.folder), "settings": self.settings, "status": self.status}
        return own | measured | error


def _validation(result: dict[str, Any]) -> dict[str, Any]:
    facts = {key: result[key] for key in ("ci95", "step", "seconds")}
    return {result["metric"]: result["value"], **facts}


@dataclass(frozen=True)
class SeedGroup:
    """Finished runs that differ in their seeds only."""

    settings: dict[str, Any]
    runs: list[GridRun]

    @property
    def values(self) -> list[float]:
        """The best validation of each."""
        return [run.result["value"] for run in self.runs if run.result is not None]

    @property
    def mean(self) -> tuple[float, float | None]:
        """Mean over seeds and half its 95 % interval over seeds; of a single one, its interval over episodes."""
        if len(self.values) == 1:
            [run] = self.runs
            return self.values[0], None if run.result is None else run.result["ci95"]
        mean, half = mean_interval(np.array(self.values))
        return mean, or_none(half)


@dataclass
class GridReport:
    """The runs of a grid, in a folder; `about` says which grid it is."""

    about: dict[str, Any]
    folder: Path
    runs: dict[str, GridRun] = field(default_factory=dict)

    @property
    def failed(self) -> list[GridRun]:
        """Runs without a result."""
        return [run for run in self.runs.values() if run.status == "failed"]

    @property
    def groups(self) -> list[SeedGroup]:
        """Finished runs by their settings but for the seed, the best mean first."""
        found: dict[str, SeedGroup] = {}
        for run in self.runs.values():
            if run.result is not None:
                own = {key: value for key, value in run.settings.items() if key != SEED}
                found.setdefault(json.dumps(own, default=str), SeedGroup(own, [])).runs.append(run)
        return sorted(found.values(), key=lambda group: -group.mean[0])

    @property
    def metric(self) -> str:
        """What validation measures."""
        return next((run.result["metric"] for run in self.runs.values() if run.result is not None), "accuracy")

    def sheet(self) -> Sheet:
        """The table: a row for each group of seeds."""
        keys = list(dict.fromkeys(key for group in self.groups for key in group.settings))
        seeded = any(SEED in run.settings for run in self.runs.values())
        head = [*keys, *(["seeds"] if seeded else []), "each", f"{self.metric}, %"]
        rows = []
        for group in self.groups:
            mean, half = group.mean
            words = [_word(group.settings[key]) if key in group.settings else "" for key in keys]
            words += [", ".join(str(run.settings[SEED]) for run in group.runs)] if seeded else []
            words.append(", ".join(f"{100 * value:.2f}" for value in group.values))
            rows.append(SheetRow([*words, Number(100 * mean, None if half is None else 100 * half)]))
        notes = [NOTE, *(f"{run.name}: {run.words()}" for run in self.failed)]
        fixed = ", ".join(f"{key}={_word(value)}" for key, value in self.about["fixed"].items())
        title = f"Grid over {self.about['recipe']}" + (f" with {fixed}" if fixed else "")
        return Sheet(title, head, rows, notes, labels=len(head) - 1)

    def table(self) -> TextTable:
        """The same for the terminal."""
        sheet = self.sheet()
        return TextTable(sheet.title, sheet.head, [row.texts() for row in sheet.rows], texts=sheet.labels)

    def table_text(self, kind: str = "markdown") -> str:
        """The table as Markdown, LaTeX, CSV or HTML: "markdown", "latex", "csv" or "html"."""
        return self.sheet().text(kind)

    def to_json(self) -> dict[str, Any]:
        """Every run, and every mean over seeds, the best first; values are fractions."""
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


def _word(value: Any) -> str:
    if value is None:
        return "default"
    return value if isinstance(value, str) else json.dumps(value, default=str)
