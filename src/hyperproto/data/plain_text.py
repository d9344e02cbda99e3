"""Plain text, a sentence a line, to words that know where they stand."""

import re
from dataclasses import dataclass
from pathlib import Path

from hyperproto.data.tagged import text_lines
from hyperproto.errors import DataError

_WORD = re.compile(r"\w+|[^\w\s]")  # letters and digits in a row, or one mark of punctuation


@dataclass(frozen=True)
class Line:
    """A line of a file, cut into words: word `i` is `text[spans[i][0] : spans[i][1]]`."""

    number: int  # in the file, from 1
    text: str
    spans: list[tuple[int, int]]

    @property
    def words(self) -> list[str]:
        """The words themselves."""
        return [self.text[start:end] for start, end in self.spans]


def read_plain(path: Path) -> list[Line]:
    """Read a file of plain text; lines without words are passed over."""
    lines = [
        Line(number, text, [match.span() for match in _WORD.finditer(text)])
        for number, text in enumerate(text_lines(path), start=1)
    ]
    lines = [line for line in lines if line.spans]
    if not lines:
        raise DataError(f"{path}: no words in it; write plain text, a sentence a line")
    return lines
