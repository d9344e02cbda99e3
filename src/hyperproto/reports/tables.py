"""Tables of text: on a terminal of any width (`TextTable`), and in files of several formats (`Sheet`).

A table that is too wide for the terminal folds its text columns at spaces; one that is still too wide is replaced by a
narrower form, if it has one, and else by a list with one cell a line: no number is cut and no word is broken. In LaTeX
and HTML numbers stand as in Markdown, `69.20 ± 0.20, sd 0.30`; CSV gives each part of a number a column of its own.
"""

import csv
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.files import atomic_write
from hyperproto.reports.page import Page


@dataclass(frozen=True)
class TextTable:
    """Rows below a head. A cell may hold several lines; a row of one cell is a heading of its own.

    Examples
    --------
    >>> print(TextTable("Accuracy, %", ["", "5-way"], [["ProtoNet", "98.10 ± 0.12"]]).text(width=40))
    Accuracy, %
    ┏━━━━━━━━━━┳━━━━━━━━━━━━━━┓
    ┃          ┃        5-way ┃
    ┡━━━━━━━━━━╇━━━━━━━━━━━━━━┩
    │ ProtoNet │ 98.10 ± 0.12 │
    └──────────┴──────────────┘
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1  # leading columns that hold words, and may be folded; the others hold numbers
    bold: Collection[int] = ()  # numbers of the rows that stand out
    narrower: "TextTable | None" = field(default=None, repr=False)  # says the same in fewer columns

    def text(self, width: int = 100) -> str:
        """Return the table as plain text of at most `width` columns, unless a single word is longer."""
        console = Console(width=width, file=StringIO(), color_system=None, force_terminal=False, legacy_windows=False)
        with console.capture() as capture:
            console.print(self, crop=False)
        return "\n".join(line.rstrip() for line in capture.get().splitlines())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose the form that fits."""
        width = options.max_width
        if self.title:
            yield _plain(folded(self.title, width), "italic")
        fitting = self
        while fitting.narrower is not None and sum(fitting._least()) + fitting._frame() > width:
            fitting = fitting.narrower
        if sum(fitting._least()) + fitting._frame() <= width:
            yield fitting._grid(width)
        else:
            yield from fitting._records(width)

    def _frame(self) -> int:
        """Return the width of borders and padding."""
        return 3 * len(self.head) + 1

    def _columns(self) -> list[list[str]]:
        """Return the cells of each column, its head first."""
        return [[name, *(row[n] for row in self.rows if len(row) > n)] for n, name in enumerate(self.head)]

    def _least(self) -> list[int]:
        """Return the smallest width of each column at which no word or number breaks."""
        widths = []
        for n, (name, *cells) in enumerate(self._columns()):
            whole = [part for cell in cells for part in (_words(cell) if n < self.texts else cell.split("\n"))]
            widths.append(max(map(cell_len, [*_words(name), *whole, ""])))
        return widths

    def _widths(self, width: int) -> list[int]:
        """Return column widths: what each needs or, if that is too much, shares of the available width."""
        least = self._least()
        asked = [max(cell_len(line) for cell in cells for line in cell.split("\n")) for cells in self._columns()]
        left = width - self._frame() - sum(least)
        wishes = [b - a for a, b in zip(least, asked, strict=True)]
        if sum(wishes) <= left:
            return asked
        return [a + left * wish // sum(wishes) for a, wish in zip(least, wishes, strict=True)]

    def _grid(self, width: int) -> RenderableType:
        table = Table()
        widths = self._widths(width)
        for n, (name, size) in enumerate(zip(self.head, widths, strict=True)):
            table.add_column(Text(folded(name, size)), justify="left" if n < self.texts else "right", width=size)
        for number, row in enumerate(self.rows):
            cells = [folded(cell, size) for cell, size in zip(row, widths, strict=False)]
            stands_out = number in self.bold or (len(row) == 1 and len(self.head) > 1)
            table.add_row(*map(Text, cells), style="bold" if stands_out else None)
        return table

    def _records(self, width: int) -> Iterator[Text]:
        """Yield one cell a line, below the first cell of its row."""
        for first, *cells in self.rows:
            if first:
                yield _plain(folded(first, width), "bold")
            for name, cell in zip(self.head[1:], cells, strict=False):
                if cell:
                    yield _plain(folded(f"  {name}: {' '.join(cell.split())}", width, "    "))


def _words(text: str) -> list[str]:
    return [word.lstrip() for word in _WORD.findall(text)]


def _plain(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ignore")


# A word with the spaces before it; the optional parts of a data spec, FOLDER[,size=84][,seed=0], are words, too.
_WORD = re.compile(r"\s*(?:\[,)?(?:(?!\[,)\S)+")


def folded(text: str, width: int, indent: str = "") -> str:
    """Fold lines between words; a word that is longer than the line stays whole."""
    lines = []
    for line in text.split("\n"):
        filled = ""
        for word in _WORD.findall(line):
            if filled.strip() and cell_len(filled + word) > width:
                lines.append(filled)
                filled = indent + word.lstrip()
            else:
                filled += word
        lines.append(filled)
    return "\n".join(lines)


def write_results(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with a line for each entry, and for each row of a list."""
    lines = []
    for name, value in content.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list):
            text = "[\n  " + ",\n  ".join(json.dumps(row, allow_nan=False) for row in value) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    with atomic_write(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


@dataclass(frozen=True)
class Number:
    """A value in percent with half an interval, a deviation between seeds, precision and recall.

    Examples
    --------
    >>> Number(87.421, 0.69, deviation=0.3).text()
    '87.42 ± 0.69, sd 0.30'
    """

    mean: float
    half: float | None = None
    deviation: float | None = None
    parts: tuple[float, float] | None = None  # precision and recall
    parts_apart: bool = False  # they stand in a line of their own

    def text(self) -> str:
        """Return the number as text."""
        words = f"{self.mean:.2f}" + ("" if self.half is None else f" ± {self.half:.2f}")
        words += "" if self.deviation is None else f", sd {self.deviation:.2f}"
        if self.parts is None or self.parts_apart:
            return words
        return f"{words} ({self.parts[0]:.2f} / {self.parts[1]:.2f})"

    def lines(self) -> list[str]:
        """Return the text in lines: the mean, then what belongs to it."""
        return self.text().replace(", sd", "\nsd").replace(" (", "\n(").split("\n")

    def columns(self) -> dict[str, float | None]:
        """Return the parts by the suffixes of their column names in CSV."""
        precision, recall = self.parts or (None, None)
        parts = {" precision": precision, " recall": recall}
        return {"": self.mean, " ±": self.half, " sd": self.deviation, **parts}


Cell = str | Number


@dataclass(frozen=True)
class SheetRow:
    """A row; `strong` ones are bold. An empty label repeats the one above."""

    cells: Sequence[Cell]
    strong: bool = False

    def texts(self) -> list[str]:
        """Return every cell as text."""
        return [cell if isinstance(cell, str) else cell.text() for cell in self.cells]


@dataclass(frozen=True)
class Sheet:
    """Rows below a head, with a title and notes; the first `labels` columns hold words, the others numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[SheetRow]
    notes: Sequence[str] = ()
    labels: int = 1

    def text(self, kind: str) -> str:
        """Return the sheet in one of `FORMATS`."""
        return FORMATS[checked_format(kind)](self)

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write the sheet into a folder in every format: NAME.md, NAME.tex, NAME.csv and NAME.html."""
        paths = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
        for path, kind in zip(paths, SUFFIXES.values(), strict=True):
            with atomic_write(path) as file:
                file.write(self.text(kind).encode())
        return paths

    def labelled(self) -> list[list[Cell]]:
        """Return the cells of every row, an empty label replaced by the one above, so that rows can be sorted."""
        rows, label = [], ""
        for row in self.rows:
            first, *rest = row.cells
            label = first if isinstance(first, str) and first else label
            rows.append([label, *rest])
        return rows


def checked_format(kind: str) -> str:
    """Refuse an unknown format."""
    if kind not in FORMATS:
        raise ConfigError(f"--format: {unknown_name('format', kind, FORMATS)}")
    return kind


def format_of(path: Path | None, kind: str | None) -> str:
    """Return the given format, or that of the file's suffix; Markdown by default."""
    if kind is not None:
        return checked_format(kind)
    return SUFFIXES.get(path.suffix.lower(), "markdown") if path is not None else "markdown"


def markdown(sheet: Sheet) -> str:
    """Return a heading, a table and a list of notes."""
    rules = [" --- "] * sheet.labels + [" ---: "] * (len(sheet.head) - sheet.labels)
    rows = ["| " + " | ".join(map(markdown_cell, sheet.head)) + " |", "|" + "|".join(rules) + "|"]
    for row in sheet.rows:
        cells = [markdown_cell(text) for text in row.texts()]
        rows.append("| " + " | ".join(f"**{cell}**" if row.strong and cell else cell for cell in cells) + " |")
    notes = [f"- {words}" for words in sheet.notes]
    return "\n".join([f"## {sheet.title}", "", *rows, *(["", *notes] if notes else []), ""])


def markdown_cell(text: str) -> str:
    """Escape characters that Markdown would read as the end of a cell, emphasis, code or HTML."""
    return re.sub(r"([|*`\\])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # after a line's end it would open an option of \\
    "*": "{*}",
    "-": "{-}",  # two of them would become a dash
    '"': "{''}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
LABEL_WIDTH = "4.5cm"  # of the first column, whose words fold


def latex_text(text: str) -> str:
    """Escape characters that LaTeX would read as commands."""
    escaped = "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<!\{-\})\{-\}(?!\{-\})", "-", escaped)  # a single hyphen is itself


def latex(sheet: Sheet) -> str:
    """Return a floating table in the style of booktabs, which the document must load, with notes below."""
    columns = f"p{{{LABEL_WIDTH}}}" + "l" * (sheet.labels - 1) + "r" * (len(sheet.head) - sheet.labels)
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{latex_text(sheet.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(latex_text, sheet.head)) + r" \\",
        r"\midrule",
    ]
    for number, row in enumerate(sheet.rows):
        cells = [latex_text(text) for text in row.texts()]
        lines += [r"\addlinespace"] if row.strong and number else []
        lines.append(" & ".join(rf"\textbf{{{c}}}" if row.strong and c else c for c in cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\raggedright {latex_text(words)}" for words in sheet.notes]
    return "\n".join([*lines, r"\end{table}", ""])


def comma_separated(sheet: Sheet) -> str:
    """Return a line for each row that has a number, each part of a number in its own column (RFC 4180)."""
    rows = [row for row in sheet.labelled() if any(isinstance(cell, Number) for cell in row)]
    named: dict[tuple[int, str], None] = {}  # (column, part), where a row has it
    for place in range(sheet.labels, len(sheet.head)):
        found = [cell.columns() for row in rows if isinstance(cell := row[place], Number)]
        parts = Number(0.0).columns()
        named |= {(place, part): None for part in parts if not part or any(own[part] is not None for own in found)}
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*sheet.head[: sheet.labels], *(f"{sheet.head[place]}{part}" for place, part in named)])
    for row in rows:
        numbers = [_part(row[place], part) for place, part in named]
        writer.writerow([*row[: sheet.labels], *numbers])
    return text.getvalue()


def _part(cell: Cell, part: str) -> str:
    if isinstance(cell, str):
        return "" if part else cell
    value = cell.columns()[part]
    return "" if value is None else f"{value:.2f}"


def html(sheet: Sheet) -> str:
    """Write a page that needs no other file and no network; cells without a number are sorted last."""
    page = Page(sheet.title, "Click a column's head to sort by it.")
    rows = [
        (row.strong, bool(cells[0]) and not row.cells[0], cells)
        for row, cells in zip(sheet.rows, sheet.labelled(), strict=True)
    ]
    page.add("sheet", sheet.head, sheet.labels, rows)
    for words in sheet.notes:
        page.note(words)
    return page.html()


FORMATS: dict[str, Callable[[Sheet], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "html": html,
}
SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html"}
