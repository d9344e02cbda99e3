"""A report on a table of the paper for the eye: on the terminal, and in Markdown."""

from dataclasses import dataclass

from hyperproto.recipes import Published
from hyperproto.reports.comparison import describe, percent
from hyperproto.reports.table_results import RunGroup, TableReport
from hyperproto.reports.text_table import TextTable

FEW = 4  # recipes to run that are listed in the table itself, and not below it
HEAD = ("row", "backbone, or how it was evaluated")


@dataclass(frozen=True)
class TableLine:
    """One line of the table; the published ones stand out."""

    label: str
    how: str
    cells: list[str]
    published: bool = False


def lines(report: TableReport) -> list[TableLine]:
    """Lay the table out: each published row, then what was measured for it, has begun, or can be run."""
    columns = [column.name for column in report.table.columns]
    empty = [""] * len(columns)
    found = []
    for row in report.table.published:
        groups, started, to_run = report.of(row)
        found.append(TableLine(row.method, row.backbone, [row.printed(name) for name in columns], published=True))
        if row.precision:
            found.append(TableLine("", "precision / recall", [_parts(row, name) for name in columns]))
        for group in groups:
            found += _group(group, columns)
        found += [TableLine(f"{run.label([run.seed])}; no model yet", str(run.folder), empty) for run in started]
        found += [TableLine(f"to run: {name}", "", empty) for name in to_run if len(to_run) <= FEW]
    return found


def _group(group: RunGroup, columns: list[str]) -> list[TableLine]:
    """One line for each way of evaluating; the first names the runs."""
    labels = [group.label] + [""] * (len(group.variants) - 1)
    variants = group.variants.values()
    return [
        TableLine(
            label, variant.label, [_cell(variant.value(name), variant.precision_recall(name)) for name in columns]
        )
        for label, variant in zip(labels, variants, strict=True)
    ]


def _parts(row: Published, column: str) -> str:
    """Precision and recall as the paper prints them."""
    parts = [row.printed(column, "precision"), row.printed(column, "recall")]
    return " / ".join(parts) if all(parts) else ""


def _cell(value: tuple[float, float, float | None] | None, parts: tuple[float, float] | None) -> str:
    if value is None:
        return ""
    mean, ci95, deviation = value
    words = f"{percent(mean)} ± {percent(ci95)}" + ("" if deviation is None else f", sd {percent(deviation)}")
    return words if parts is None else f"{words} ({percent(parts[0])} / {percent(parts[1])})"


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
    for row in table.published:
        *_, to_run = report.of(row)
        words += [f"{row.method}, {row.backbone}: {row.note}"] if row.note else []
        words += [f"{row.method}, {row.backbone}, to run: {', '.join(to_run)}"] if len(to_run) > FEW else []
    return [*words, *table.notes, *report.remarks]


def text_table(report: TableReport) -> TextTable:
    """Make the table for the terminal."""
    found = lines(report)
    head = [*HEAD, *(column.name for column in report.table.columns)]
    labels = [line.label if line.published or not line.label else f"  {line.label}" for line in found]
    bold = {number for number, line in enumerate(found) if line.published}
    rows = [[label, line.how, *line.cells] for label, line in zip(labels, found, strict=True)]
    folded = [[label, how, *(_folded(cell) for cell in cells)] for label, how, *cells in rows]
    narrower = TextTable("", head, folded, texts=len(HEAD), bold=bold)
    return TextTable(report.table.title, head, rows, texts=len(HEAD), bold=bold, narrower=narrower)


def _folded(cell: str) -> str:
    """A mean with its interval, and below it what else there is."""
    return cell.replace(", sd", "\nsd").replace(" (", "\n(").replace(" / ", " /\n" if "(" not in cell else " / ")


def markdown(report: TableReport) -> str:
    """Make the same table in Markdown."""
    columns = [column.name for column in report.table.columns]
    rows = ["| " + " | ".join((*HEAD, *columns)) + " |", "| --- | --- |" + " ---: |" * len(columns)]
    for line in lines(report):
        cells = [cell.replace("|", r"\|") for cell in (line.label, line.how, *line.cells)]
        rows.append("| " + " | ".join(f"**{c}**" if line.published and c else c for c in cells) + " |")
    notes = [f"- {words}" for words in caption(report)]
    return "\n".join([f"## {report.table.title}", "", *rows, "", *notes, ""])
