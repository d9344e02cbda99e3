"""What was measured for a table of the paper: by published row, group of runs, method and column."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from hyperproto import __version__
from hyperproto.evaluation import Result, compare
from hyperproto.problems import mean_interval
from hyperproto.recipes import Average, Paper, PaperTable, Published
from hyperproto.reports.table_runs import TableRun


@dataclass(frozen=True, eq=False)
class Variant:
    """A method with its closed form and transform, on the encoders of one group of runs."""

    label: str
    results: dict[str, list[Result]] = field(default_factory=dict)  # by column, one for each run

    def over_seeds(self, column: str) -> Result:
        """Average the runs episode by episode: all of them saw the same ones."""
        results = self.results[column]
        values = np.mean([result.values for result in results], axis=0)
        return Result(self.label, results[0].settings, values, metric=results[0].metric)

    def value(self, column: str) -> tuple[float, float, float | None] | None:
        """Mean over runs, its 95 % interval over episodes, standard deviation between runs; None: not measured."""
        if column not in self.results:
            return None
        means = [result.values.mean() for result in self.results[column]]
        deviation = float(np.std(means, ddof=1)) if len(means) > 1 else None
        return *mean_interval(self.over_seeds(column).values), deviation

    def average(self, columns: Sequence[str]) -> tuple[float, float, float | None] | None:
        """The same of the mean over some columns, whose episodes are independent; None: one was not measured."""
        values = [self.value(column) for column in columns]
        found = [value for value in values if value is not None]
        if len(found) < len(columns):
            return None
        seeds = [[result.values.mean() for result in self.results[column]] for column in columns]
        alike = len({len(own) for own in seeds}) == 1 and len(seeds[0]) > 1
        deviation = float(np.std(np.mean(seeds, axis=0), ddof=1)) if alike else None
        means, halves, _ = zip(*found, strict=True)
        return float(np.mean(means)), float(np.linalg.norm(halves)) / len(columns), deviation

    def precision_recall(self, column: str) -> tuple[float, float] | None:
        """Mean over runs of both, where words are tagged, counted as the F1 is."""
        results = self.results.get(column)
        if not results or results[0].metric != "f1":
            return None
        found = [result.metrics[result.settings["convention"]] for result in results]
        return float(np.mean([f["precision"] for f in found])), float(np.mean([f["recall"] for f in found]))

    def to_json(self, averages: Sequence[Average]) -> dict[str, Any]:
        """All of it: over seeds, and run by run; and the averages over columns."""
        columns, over = {}, {}
        for column, results in self.results.items():
            mean, ci95, deviation = self.value(column) or (None, None, None)
            own = {results[0].metric: mean, "ci95": ci95, "sd_between_seeds": deviation}
            columns[column] = {**own, "runs": [result.to_json() for result in results]}
        for each in averages:
            if (value := self.average(each.columns)) is not None:
                over[each.name] = dict(zip(("mean", "ci95", "sd_between_seeds"), value, strict=True))
        return {"label": self.label, "columns": columns, **({"averages": over} if over else {})}


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs that differ only in their seed, and what was measured on them: their own method first."""

    runs: list[TableRun]
    variants: dict[str, Variant] = field(default_factory=dict)  # by label

    @property
    def label(self) -> str:
        """What the table calls it."""
        return self.runs[0].label([run.seed for run in self.runs])

    @property
    def paper(self) -> Paper:
        """The row that it reproduces."""
        return self.runs[0].paper

    @property
    def own(self) -> Variant:
        """The method that the runs were trained for, with the closed form that their recipe names."""
        return next(iter(self.variants.values()))

    def add(self, column: str, results: Sequence[Result]) -> None:
        """Take in the results of one run."""
        for result in results:
            variant = self.variants.setdefault(result.label, Variant(result.label))
            variant.results.setdefault(column, []).append(result)

    def to_json(self, averages: Sequence[Average]) -> dict[str, Any]:
        """Return the runs, and what was measured on them."""
        return {
            "label": self.label,
            "recipe": self.runs[0].name or None,
            "note": self.paper.note,
            "runs": [{"folder": str(r.folder), "training_seed": r.seed, "finished": r.finished} for r in self.runs],
            "results": [variant.to_json(averages) for variant in self.variants.values()],
        }


@dataclass(frozen=True, eq=False)
class TableReport:
    """All that a report shows."""

    table: PaperTable
    episodes: int
    groups: list[RunGroup]
    started: list[TableRun]  # runs that have no model yet
    to_run: dict[str, Paper]  # recipes that nobody has run
    remarks: list[str]  # what was left out, and why
    hashes: dict[str, str] = field(default_factory=dict)  # of the episodes, by column; none where nothing was run

    def of(self, row: Published) -> tuple[list[RunGroup], list[TableRun], list[str]]:
        """Return what belongs to a published row: what was measured, what has begun, what can be run."""

        def here(paper: Paper) -> bool:
            return (paper.method, paper.backbone) == (row.method, row.backbone)

        groups = [group for group in self.groups if here(group.paper)]
        started = [run for run in self.started if here(run.paper)]
        return groups, started, [name for name, paper in self.to_run.items() if here(paper)]

    def table_text(self, kind: str = "markdown") -> str:
        """The table as Markdown, LaTeX, CSV or HTML: "markdown", "latex", "csv" or "html"."""
        from hyperproto.reports.table_text import sheet

        return sheet(self).text(kind)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints: published numbers in percent, as printed; ours are fractions."""
        rows = []
        for row in self.table.published:
            groups, started, to_run = self.of(row)
            published: dict[str, Any] = {"method": row.method, "backbone": row.backbone, "percent": row.numbers}
            published |= {"note": row.note}
            if row.precision:
                published |= {"precision": row.precision, "recall": row.recall}
            ours = [group.to_json(self.table.averages) for group in groups]
            begun = [{"folder": str(run.folder), "step": run.step} for run in started]
            rows.append({"published": published, "ours": ours, "started": begun, "to_run": to_run})
        columns = [{**c.model_dump(), "episode_hash": self.hashes.get(c.name)} for c in self.table.columns]
        return {
            "table": self.table.name,
            "version": __version__,
            "title": self.table.title,
            "metric": self.table.metric,
            "notes": self.table.notes,
            "episodes": self.episodes,
            "query": self.table.query,
            "seed": self.table.seed,
            "columns": columns,
            "rows": rows,
            "comparisons": [{"column": c.name, **pair} for c in self.table.columns for pair in self._pairs(c.name)],
            "left_out": self.remarks,
        }

    def _pairs(self, column: str) -> list[dict[str, Any]]:
        """Compare the groups' own methods on their common episodes: the first ones, where some have fewer."""
        results = []
        for group in self.groups:
            if column in group.own.results:
                own = group.own.over_seeds(column)
                results.append(Result(f"{group.label}: {own.label}", {}, own.values))
        rows = []
        for pair in combinations(results, 2):
            common = min(len(result.values) for result in pair)
            rows += compare([Result(result.label, {}, result.values[:common]) for result in pair])
            rows[-1]["episodes"] = common
        return rows
