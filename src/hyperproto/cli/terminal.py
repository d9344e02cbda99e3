"""Where the answer of a command goes: JSON to a file or to standard output, tables to the terminal."""

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from hyperproto.files import atomic_write
from hyperproto.reports.tables import TextTable, folded

PIPE_WIDTH = 160  # columns, where no terminal says how wide it is
NARROWEST = 20  # columns that are written to, also where a terminal, or COLUMNS=0, says less: rich would print nothing

# Control characters but tab and line feed, and those that change the direction of text.
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
    """Wide tables are for files and pipes as they are; a terminal folds them to its own width."""
    return Console(width=width() if has_width() else PIPE_WIDTH)


def has_width() -> bool:
    """Whether standard output is as wide as a terminal, or as a user says."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def width() -> int:
    """How wide the terminal is."""
    return max(NARROWEST, Console().width)


def echo(text: str) -> None:
    """Print a text to standard output, its control characters escaped."""
    sys.stdout.write(f"{printable(text)}\n")


def say(message: str) -> None:
    """Print a line; a terminal folds it between words, a pipe gets it as it is."""
    message = printable(message)
    echo(folded(message, width()) if has_width() else message)


def note(message: str) -> None:
    """Print a line to standard error while work goes on: standard output is for the answer."""
    sys.stderr.write(f"{printable(message)}\n")
    sys.stderr.flush()


def complain(kind: str, style: str, message: str) -> None:
    """Print a warning or an error to standard error, in the same way."""
    own = Console(stderr=True, width=max(NARROWEST, Console(stderr=True).width))
    words = f"{kind}: {printable(message)}"
    words = folded(words, own.width) if own.is_terminal else words
    text = Text(words, no_wrap=True, overflow="ignore")
    text.stylize(style, 0, len(kind) + 1)
    own.print(text, soft_wrap=True)


def write_json(content: Any, json_file: str) -> None:
    """Write the content there; - is standard output."""
    text = json.dumps(content, indent=2, allow_nan=False)
    if json_file == "-":
        echo(text)
        return
    with atomic_write(Path(json_file)) as file:
        file.write(text.encode() + b"\n")


def as_result(content: dict[str, Any]) -> dict[str, Any]:
    """A result as it is written to a file: the command that made it stands first."""
    return {"command": shlex.join(["hyperproto", *sys.argv[1:]]), **content}


def show(tables: Sequence[RenderableType], content: Any, json_file: str | None) -> None:
    """Print tables, and write the content as JSON where that is asked for; with - there is nothing but JSON."""
    if json_file:
        write_json(content, json_file)
    if json_file != "-":
        for table in tables:
            console().print(_printable(table), crop=False)


def show_rows(rows: list[dict[str, Any]], json_file: str | None) -> None:
    """Show a list as a table, a column for each key, and write it as JSON where that is asked for."""
    head = list(rows[0])
    cells = [[str(value) for value in row.values()] for row in rows]
    show([TextTable("", head, cells, texts=len(head))], rows, json_file)
