"""`texts`: labelled texts of a table, `texts:FILE.csv`; also .tsv, .jsonl and .parquet."""

from pathlib import Path

import numpy as np

from hyperproto.data.formats.tables import open_table
from hyperproto.data.pool import OUTSIDE, Pool, Progress
from hyperproto.data.specs import parse_argument
from hyperproto.errors import DataError

SUMMARY = (
    "texts and their labels from a table: texts:FILE.csv (or .tsv, .jsonl, .parquet), with columns text, label and, "
    "if there are splits, split; other names by [,text=COLUMN][,label=COLUMN][,split=COLUMN]"
)
OPTIONS = {"text": "text", "label": "label", "split": "split"}

Lines = list[tuple[str, str]]  # a text, and its label: "" where it has none


def splits(argument: str) -> tuple[str, ...]:
    """`all`, or what the file's column of splits names."""
    return ("all", *(split for split in _read(argument) if split != "all"))


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Read the rows of `split`; `all` takes every row. A row without a label belongs to no class."""
    parts = _read(argument)
    lines = parts[split] if split in parts else [line for part in parts.values() for line in part]
    return text_pool(lines, f"texts:{argument}", split)


def text_pool(lines: Lines, name: str, split: str) -> Pool:
    """Make a pool of texts and their labels."""
    classes = sorted({label for _, label in lines if label})
    place = {label: n for n, label in enumerate(classes)} | {"": OUTSIDE}
    labels = np.array([place[label] for _, label in lines], np.int64)
    return Pool([text for text, _ in lines], labels, tuple(classes), name=name, split=split)


def _read(argument: str) -> dict[str, Lines]:
    """The rows of each split, in the order of the file; all under `all` where there is no column of splits."""
    path, columns = parse_argument("texts", argument, OPTIONS)
    if not path:
        raise DataError("texts: no file named; write texts:FILE.csv")
    parts: dict[str, Lines] = {}
    with open_table(str(Path(path).expanduser()), option=None) as table:
        for key in ("text", "label"):
            table.check_column(columns[key], f"{key}=COLUMN behind the file's name")
        if columns["split"] != OPTIONS["split"]:  # the user's own choice
            table.check_column(columns["split"], "split=COLUMN behind the file's name")
        for line, row in table.rows:
            text, label, split = (row.get(columns[key]) for key in OPTIONS)
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"{table.where(line)}: no text in column {columns['text']!r}; remove the row")
            parts.setdefault(_word(split) or "all", []).append((text, _word(label)))
    if not parts:
        raise DataError(f"{path}: no row below the names of the columns")
    return parts


def _word(cell: object) -> str:
    """A label or split; labels may be numbers in JSON lines and Parquet."""
    return "" if cell is None else str(cell).strip()
