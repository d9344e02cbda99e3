"""A table for a terminal of any width: no number is cut and no word is broken.

A table that is too wide folds its text columns at spaces; one that is still too wide is replaced by a narrower form, if
it has one, and else by a list with one cell a line.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text


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
        """The table as plain text of at most so many columns, unless one word alone is longer."""
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
        """Columns that borders and padding take."""
        return 3 * len(self.head) + 1

    def _columns(self) -> list[list[str]]:
        """The cells of each column, its head first."""
        return [[name, *(row[n] for row in self.rows if len(row) > n)] for n, name in enumerate(self.head)]

    def _least(self) -> list[int]:
        """The width of each column below which a word or a number would break."""
        widths = []
        for n, (name, *cells) in enumerate(self._columns()):
            whole = [part for cell in cells for part in (_words(cell) if n < self.texts else cell.split("\n"))]
            widths.append(max(map(cell_len, [*_words(name), *whole, ""])))
        return widths

    def _widths(self, width: int) -> list[int]:
        """Give each column what it asks for, or, where there is too little, share out what is left."""
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
        """One cell a line, below the first cell of its row."""
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
