"""A report on a table of the paper for the eye: on the terminal, and as a sheet in Markdown, LaTeX, CSV or HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from hyperproto.recipes import Average, Published
from hyperproto.reports.comparison import describe
from hyperproto.reports.sheet import Cell, Number, Sheet, SheetRow
from hyperproto.reports.table_results import RunGroup, TableReport
from hyperproto.reports.text_table import TextTable

FEW = 4  # recipes to run that are listed in the table itself, and not below it
HEAD = ("row", "backbone, or how it was evaluated")


@dataclass(frozen=True)
class TableLine:
    """One line of the table; the published ones stand out."""

    label: str
    how: str
    values: list[Cell]  # one for each column of the table, and for each average
    published: bool = False

    @property
    def cells(self) -> list[str]:
        """What is printed in each column."""
        return self.row().texts()[len(HEAD) :]

    def row(self) -> SheetRow:
        """The line as one of a sheet."""
        return SheetRow([self.label, self.how, *self.values], strong=self.published)


def lines(report: TableReport) -> list[TableLine]:
    """Lay the table out: each published row, then what was measured for it, has begun, or can be run."""
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
    """One line for each way of evaluating; the first names the runs."""
    labels = [group.label] + [""] * (len(group.variants) - 1)
    found = []
    for label, variant in zip(labels, group.variants.values(), strict=True):
        cells = [_measured(variant.value(name), variant.precision_recall(name)) for name in columns]
        cells += [_measured(variant.average(each.columns)) for each in averages]
        found.append(TableLine(label, variant.label, cells))
    return found


def _published(row: Published, column: str) -> Cell:
    """A number as the paper prints it; its precision and recall stand in the line below."""
    if column not in row.numbers:
        return ""
    mean, half = [*row.numbers[column], None][:2]
    assert mean is not None
    parts = (row.precision[column][0], row.recall[column][0]) if {column} <= {*row.precision} & {*row.recall} else None
    return Number(mean, half, parts=parts, parts_apart=True)


def _parts(row: Published, column: str) -> str:
    """Precision and recall as the paper prints them."""
    parts = [row.printed(column, "precision"), row.printed(column, "recall")]
    return " / ".join(parts) if all(parts) else ""


def _average(row: Published, average: Average) -> Cell:
    """The mean of the numbers that the paper prints."""
    mean = row.average(average.columns)
    return "" if mean is None else Number(mean)


def _measured(value: tuple[float, float, float | None] | None, parts: tuple[float, float] | None = None) -> Cell:
    """Ours, in percent: mean over seeds, its interval over episodes, the deviation between seeds."""
    if value is None:
        return ""
    mean, ci95, deviation = (None if part is None else 100 * part for part in value)
    assert mean is not None
    return Number(mean, ci95, deviation, parts and (100 * parts[0], 100 * parts[1]))


def caption(report: TableReport) -> list[str]:
    """Say what the numbers are, on which episodes, what the paper says that does not fit, and what was left out."""
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
    """A mean with its interval, and below it what else there is."""
    return cell.replace(", sd", "\nsd").replace(" (", "\n(").replace(" / ", " /\n" if "(" not in cell else " / ")


def sheet(report: TableReport) -> Sheet:
    """The same table for files: see `Sheet.text`."""
    rows = [line.row() for line in lines(report)]
    return Sheet(report.table.title, _head(report), rows, caption(report), labels=len(HEAD))


def markdown(report: TableReport) -> str:
    """The same table in Markdown."""
    return sheet(report).text("markdown")
