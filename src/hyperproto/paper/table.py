"""Results for a table of the paper by published row, group of runs, method and column; as text and in files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto import __version__
from hyperproto.evaluation import Result, compare
from hyperproto.problems import mean_interval
from hyperproto.recipes import Average, Paper, PaperTable, Published, Recipe
from hyperproto.reports.comparison import describe
from hyperproto.reports.tables import Cell, Number, Sheet, SheetRow, TextTable
from hyperproto.training import Run

FEW = 4  # recipes to run that are listed in the table itself, and not below it
HEAD = ("row", "backbone, or how it was evaluated")


@dataclass(frozen=True, eq=False)
class TableRun:
    """A run, and the published row that it reproduces."""

    folder: Path
    recipe: Recipe
    paper: Paper
    name: str  # FILE:ROW, if it was trained exactly as that says; "" if it was not
    data_digest: str
    step: int  # the last one logged
    finished: bool

    @property
    def seed(self) -> int:
        """Seed of the training."""
        return self.recipe.training.seed

    @property
    def has_model(self) -> bool:
        """True if the run has a model, which the first validation writes."""
        return Run(self.folder).model.exists()

    def label(self, seeds: list[int]) -> str:
        """Return a short description of runs with these seeds."""
        words = [self.name or f"{self.recipe.name} with other settings ({self.folder})"]
        words.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
        if not self.finished:
            words.append(f"not finished: step {self.step} of {self.recipe.training.steps}")
        notes = [self.paper.note] if self.paper.note else []
        notes += [f"at most {self.paper.episodes:,} episodes"] if self.paper.episodes else []
        return "; ".join([", ".join(words), *notes])


@dataclass(frozen=True, eq=False)
class Variant:
    """A method with its closed form and transform, on the encoders of one group of runs."""

    label: str
    results: dict[str, list[Result]] = field(default_factory=dict)  # by column, one for each run

    def over_seeds(self, column: str) -> Result:
        """Average the runs episode by episode, since all of them are measured on the same episodes."""
        results = self.results[column]
        values = np.mean([result.values for result in results], axis=0)
        return Result(self.label, results[0].settings, values, metric=results[0].metric)

    def value(self, column: str) -> tuple[float, float, float | None] | None:
        """Return mean over runs, 95 % interval over episodes, deviation between runs; None if not measured."""
        if column not in self.results:
            return None
        means = [result.values.mean() for result in self.results[column]]
        deviation = float(np.std(means, ddof=1)) if len(means) > 1 else None
        return *mean_interval(self.over_seeds(column).values), deviation

    def average(self, columns: Sequence[str]) -> tuple[float, float, float | None] | None:
        """Return `value` for the mean over columns with independent episodes; None if one was not measured."""
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
        """Return mean precision and recall over runs, counted as the F1; None where words are not tagged."""
        results = self.results.get(column)
        if not results or results[0].metric != "f1":
            return None
        found = [result.metrics[result.settings["convention"]] for result in results]
        return float(np.mean([f["precision"] for f in found])), float(np.mean([f["recall"] for f in found]))

    def to_json(self, averages: Sequence[Average]) -> dict[str, Any]:
        """Return values over seeds and of each run, and averages over columns."""
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
    """Runs that differ only in their seed, and their results, the paper's closed form first."""

    runs: list[TableRun]
    variants: dict[str, Variant] = field(default_factory=dict)  # by label

    @property
    def label(self) -> str:
        """Label in the table."""
        return self.runs[0].label([run.seed for run in self.runs])

    @property
    def paper(self) -> Paper:
        """Published row that the runs reproduce."""
        return self.runs[0].paper

    @property
    def own(self) -> Variant:
        """Results of the method that the runs were trained for."""
        return next(iter(self.variants.values()))

    def add(self, column: str, results: Sequence[Result]) -> None:
        """Add the results of one run."""
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
    """Content of a report on a table of the paper."""

    table: PaperTable
    episodes: int
    groups: list[RunGroup]
    started: list[TableRun]  # runs that have no model yet
    to_run: dict[str, Paper]  # recipes without a run
    remarks: list[str]  # what was left out, and why
    hashes: dict[str, str] = field(default_factory=dict)  # of the episodes, by column; none where nothing was run

    def of(self, row: Published) -> tuple[list[RunGroup], list[TableRun], list[str]]:
        """Return measured groups, started runs and recipes to run for a published row."""

        def here(paper: Paper) -> bool:
            return (paper.method, paper.backbone) == (row.method, row.backbone)

        groups = [group for group in self.groups if here(group.paper)]
        started = [run for run in self.started if here(run.paper)]
        return groups, started, [name for name, paper in self.to_run.items() if here(paper)]

    def table_text(self, kind: str = "markdown") -> str:
        """Return the table as "markdown", "latex", "csv" or "html"."""
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
        """Compare the groups' own methods on their common episodes: the first ones, if some have fewer."""
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


@dataclass(frozen=True)
class TableLine:
    """A line of the table; published ones are bold."""

    label: str
    how: str
    values: list[Cell]  # one for each column of the table, and for each average
    published: bool = False

    @property
    def cells(self) -> list[str]:
        """Printed text of each column."""
        return self.row().texts()[len(HEAD) :]

    def row(self) -> SheetRow:
        """Return the line as a row of a sheet."""
        return SheetRow([self.label, self.how, *self.values], strong=self.published)


def lines(report: TableReport) -> list[TableLine]:
    """Return the lines of the table: each published row, then its measured, started and possible runs."""
    columns, averages = [column.name for column in report.table.columns], report.table.averages
    empty: list[Cell] = [""] * (len(columns) + len(averages))
    found = []
    for row in report.table.published:
        groups, started, to_run = report.of(row)
        printed = [_published(row, name) for name in columns] + [_average(row, each) for each in averages]
        found.append(TableLine(row.method, row.backbone, printed, published=True))
        if row.precision:
            parts: list[Cell] = [_parts(row, name) for name in columns]
            found.append(TableLine("", "precision / recall", parts + [""] * len(averages)))
        for group in groups:
            found += _group(group, columns, averages)
        found += [TableLine(f"{run.label([run.seed])}; no model yet", str(run.folder), empty) for run in started]
        found += [TableLine(f"to run: {name}", "", empty) for name in to_run if len(to_run) <= FEW]
    return found


def _group(group: RunGroup, columns: Sequence[str], averages: Sequence[Average]) -> list[TableLine]:
    """Return a line for each way of evaluating a group; the first names the runs."""
    labels = [group.label] + [""] * (len(group.variants) - 1)
    found = []
    for label, variant in zip(labels, group.variants.values(), strict=True):
        cells = [_measured(variant.value(name), variant.precision_recall(name)) for name in columns]
        cells += [_measured(variant.average(each.columns)) for each in averages]
        found.append(TableLine(label, variant.label, cells))
    return found


def _published(row: Published, column: str) -> Cell:
    """Return a number as the paper prints it; its precision and recall stand in the line below."""
    if column not in row.numbers:
        return ""
    mean, half = [*row.numbers[column], None][:2]
    assert mean is not None
    parts = (row.precision[column][0], row.recall[column][0]) if {column} <= {*row.precision} & {*row.recall} else None
    return Number(mean, half, parts=parts, parts_apart=True)


def _parts(row: Published, column: str) -> str:
    """Return precision and recall as the paper prints them."""
    parts = [row.printed(column, "precision"), row.printed(column, "recall")]
    return " / ".join(parts) if all(parts) else ""


def _average(row: Published, average: Average) -> Cell:
    """Return the mean of the numbers that the paper prints."""
    mean = row.average(average.columns)
    return "" if mean is None else Number(mean)


def _measured(value: tuple[float, float, float | None] | None, parts: tuple[float, float] | None = None) -> Cell:
    """Return our number in percent: mean over seeds, interval over episodes, deviation between seeds."""
    if value is None:
        return ""
    mean, ci95, deviation = (None if part is None else 100 * part for part in value)
    assert mean is not None
    return Number(mean, ci95, deviation, parts and (100 * parts[0], 100 * parts[1]))


def caption(report: TableReport) -> list[str]:
    """Return notes: what the numbers are, their episodes, contradictions in the paper, and what was left out."""
    table = report.table
    fewer = any(group.paper.episodes for group in report.groups)
    words = [
        "Published: as printed. Ours: mean ± 95 % interval over episodes, the same ones for all rows of a column"
        f"{', of some rows the first of them' if fewer else ''}; of "
        "several seeds, the mean over them and sd, the standard deviation between them. An empty cell: nothing was run."
    ]
    for column in table.columns:
        task = {"query": column.query or table.query, "episodes": report.episodes, "seed": table.seed}
        drawn = {"episode_hash": report.hashes.get(column.name, "none (nothing was run)")}
        tagged = {"convention": "toolkit"} if table.metric == "f1" else {}
        words.append(f"{column.name}: {describe({**column.model_dump(), **task, **drawn, **tagged})}")
    words += [f"{each.name}: the mean over {', '.join(each.columns)}" for each in table.averages]
    for row in table.published:
        *_, to_run = report.of(row)
        words += [f"{row.method}, {row.backbone}: {row.note}"] if row.note else []
        words += [f"{row.method}, {row.backbone}, to run: {', '.join(to_run)}"] if len(to_run) > FEW else []
    return [*words, *table.notes, *report.remarks]


def _head(report: TableReport) -> list[str]:
    columns = [column.name for column in report.table.columns]
    return [*HEAD, *columns, *(average.name for average in report.table.averages)]


def text_table(report: TableReport) -> TextTable:
    """Make the table for the terminal."""
    found = lines(report)
    head = _head(report)
    labels = [line.label if line.published or not line.label else f"  {line.label}" for line in found]
    bold = {number for number, line in enumerate(found) if line.published}
    rows = [[label, line.how, *line.cells] for label, line in zip(labels, found, strict=True)]
    folded = [[label, how, *(_folded(cell) for cell in cells)] for label, how, *cells in rows]
    narrower = TextTable("", head, folded, texts=len(HEAD), bold=bold)
    return TextTable(report.table.title, head, rows, texts=len(HEAD), bold=bold, narrower=narrower)


def _folded(cell: str) -> str:
    """Break a cell into lines: a mean with its interval, and the rest below."""
    return cell.replace(", sd", "\nsd").replace(" (", "\n(").replace(" / ", " /\n" if "(" not in cell else " / ")


def sheet(report: TableReport) -> Sheet:
    """Return the table as a sheet, for files."""
    rows = [line.row() for line in lines(report)]
    return Sheet(report.table.title, _head(report), rows, caption(report), labels=len(HEAD))


def markdown(report: TableReport) -> str:
    """Return the table in Markdown."""
    return sheet(report).text("markdown")
