"""Standard output and standard error: tables and messages for the terminal, rows of data, and JSON.

Characters that a stream cannot encode are escaped, and so are control characters that would steer a terminal.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from io import BufferedWriter, FileIO, TextIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console, RenderableType
from rich.text import Text

from hyperproto.files import atomic_write
from hyperproto.reports.tables import TextTable, folded

PIPE_WIDTH = 160  # columns of a table in a file or a pipe
NARROWEST = 20  # least columns to write to: rich prints nothing to a terminal of width 0 (COLUMNS=0)

# Control characters except tab and line feed, and characters that change the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Escape control characters, so that a label or a text from a file cannot steer the terminal.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _printable_table(table: TextTable) -> TextTable:
    """Escape control characters in all cells of a table, and of its narrower form."""
    narrower = None if table.narrower is None else _printable_table(table.narrower)
    head, rows = [printable(name) for name in table.head], [[printable(cell) for cell in row] for row in table.rows]
    return replace(table, title=printable(table.title), head=head, rows=rows, narrower=narrower)


def _printable(part: RenderableType) -> RenderableType:
    """Escape control characters in a table or a line of text."""
    if isinstance(part, Text):
        return Text(printable(part.plain), style=part.style)
    return _printable_table(part) if isinstance(part, TextTable) else part


def console() -> Console:
    """Return a console as wide as the terminal, or `PIPE_WIDTH` columns wide in a file or a pipe."""
    return Console(width=width() if has_width() else PIPE_WIDTH)


def has_width() -> bool:
    """Return whether standard output is a terminal, or COLUMNS says how wide it is."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def width() -> int:
    """Return the width of the terminal in columns."""
    return max(NARROWEST, Console().width)


def echo(text: str) -> None:
    """Print a text to standard output, its control characters escaped."""
    sys.stdout.write(f"{printable(text)}\n")


def say(message: str) -> None:
    """Print a line; a terminal folds it between words, a file or a pipe gets it unchanged."""
    message = printable(message)
    echo(folded(message, width()) if has_width() else message)


def note(message: str) -> None:
    """Print a line to standard error during the work: standard output is for the answer."""
    sys.stderr.write(f"{printable(message)}\n")
    sys.stderr.flush()


def complain(kind: str, style: str, message: str) -> None:
    """Print a warning or an error to standard error, folded between words on a terminal."""
    own = Console(stderr=True, width=max(NARROWEST, Console(stderr=True).width))
    words = f"{kind}: {printable(message)}"
    words = folded(words, own.width) if own.is_terminal else words
    text = Text(words, no_wrap=True, overflow="ignore")
    text.stylize(style, 0, len(kind) + 1)
    own.print(text, soft_wrap=True)


def write_json(content: Any, json_file: str) -> None:
    """Write the content to a file, or to standard output where its name is -."""
    text = json.dumps(content, indent=2, allow_nan=False)
    if json_file == "-":
        echo(text)
        return
    with atomic_write(Path(json_file)) as file:
        file.write(text.encode() + b"\n")


def as_result(content: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the command that made it, as it is written to a file."""
    return {"command": shlex.join(["hyperproto", *sys.argv[1:]]), **content}


def show(tables: Sequence[RenderableType], content: Any, json_file: str | None) -> None:
    """Print tables, and write the content as JSON where a file is named; - prints the JSON instead of the tables."""
    if json_file:
        write_json(content, json_file)
    if json_file != "-":
        for table in tables:
            console().print(_printable(table), crop=False)


def show_rows(rows: list[dict[str, Any]], json_file: str | None) -> None:
    """Show a list as a table, a column for each key, and write it as JSON where a file is named."""
    head = list(rows[0])
    cells = [[str(value) for value in row.values()] for row in rows]
    show([TextTable("", head, cells, texts=len(head))], rows, json_file)


class _NamedOutput(FileIO):
    """Descriptor whose write errors carry a name, as those of files do."""

    words = ""

    def write(self, data: Any) -> Any:
        """Write bytes."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.words
            raise


def naming(stream: TextIO | None, words: str) -> TextIO | None:
    """Return a stream whose write errors carry a name; a stream without a descriptor is returned unchanged."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # no buffer with PYTHONUNBUFFERED
    if type(raw) is not FileIO or not isinstance(stream, TextIOWrapper):
        return stream
    stream.flush()
    output = _NamedOutput(raw.fileno(), "w", closefd=False)
    output.words = words
    binary = output if buffer is raw else BufferedWriter(output)
    return TextIOWrapper(
        binary,
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def escaping(stream: TextIO | None) -> TextIO:
    """Return a stream that escapes characters it cannot encode; a closed one (None) is replaced by the null device."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


class _TerminalRows(TextIOBase):
    """Terminal that shows rows of data with their control characters escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        return self._stream.write(printable(text))

    def flush(self) -> None:
        """Flush the terminal."""
        self._stream.flush()


def rows_output() -> TextIO:
    """Return standard output for rows of data: UTF-8 in a file or a pipe, escaped on a terminal."""
    if sys.stdout.isatty():
        return cast(TextIO, _TerminalRows(sys.stdout))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    return sys.stdout


def drop_unwritten(*streams: TextIO) -> None:
    """Discard buffered text that cannot be written: Python would try again at its exit, and print that it failed."""
    for stream in streams:
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
