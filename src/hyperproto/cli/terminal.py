"""Where the answer of a command goes: JSON to a file or to standard output, tables to the terminal."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from hyperproto.files import atomic_write
from hyperproto.reports.text_table import TextTable, folded

PIPE_WIDTH = 160  # columns, where no terminal says how wide it is
NARROWEST = 20  # columns that are written to, also where a terminal, or COLUMNS=0, says less: rich would print nothing


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
    """Print a text to standard output as it is."""
    sys.stdout.write(f"{text}\n")


def say(message: str) -> None:
    """Print a line; a terminal folds it between words, a pipe gets it as it is."""
    echo(folded(message, width()) if has_width() else message)


def note(message: str) -> None:
    """Print a line to standard error while work goes on: standard output is for the answer."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def complain(kind: str, style: str, message: str) -> None:
    """Print a warning or an error to standard error, in the same way."""
    own = Console(stderr=True, width=max(NARROWEST, Console(stderr=True).width))
    words = folded(f"{kind}: {message}", own.width) if own.is_terminal else f"{kind}: {message}"
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
            console().print(table, crop=False)


def show_rows(rows: list[dict[str, Any]], json_file: str | None) -> None:
    """Show a list as a table, a column for each key, and write it as JSON where that is asked for."""
    head = list(rows[0])
    cells = [[str(value) for value in row.values()] for row in rows]
    show([TextTable("", head, cells, texts=len(head))], rows, json_file)
