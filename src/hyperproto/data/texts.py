"""`texts`: labelled texts from a table, `texts:FILE.csv`; also .tsv, .jsonl and .parquet."""

from pathlib import Path

from hyperproto.data.formats.tables import LabelledTexts, open_table, text_pool
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import parse_argument
from hyperproto.errors import DataError

SUMMARY = (
    "texts and their labels from a table: texts:FILE.csv (or .tsv, .jsonl, .parquet), with columns text, label and, "
    "if there are splits, split; other names by [,text=COLUMN][,label=COLUMN][,split=COLUMN]"
)
OPTIONS = {"text": "text", "label": "label", "split": "split"}


def splits(argument: str) -> tuple[str, ...]:
    """Return `all` and the values of the file's split column."""
    return ("all", *(split for split in _read(argument) if split != "all"))


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Read the rows of `split`, or every row for `all`. A row without a label belongs to no class."""
    parts = _read(argument)
    lines = parts[split] if split in parts else [line for part in parts.values() for line in part]
    return text_pool(lines, f"texts:{argument}", split)


def _read(argument: str) -> dict[str, LabelledTexts]:
    """Return the rows of each split in the order of the file; without a split column, all are in `all`."""
    path, columns = parse_argument("texts", argument, OPTIONS)
    if not path:
        raise DataError("texts: no file named; write texts:FILE.csv")
    parts: dict[str, LabelledTexts] = {}
    with open_table(str(Path(path).expanduser()), option=None) as table:
        for key in ("text", "label"):
            table.check_column(columns[key], f"{key}=COLUMN after the file's name")
        if columns["split"] != OPTIONS["split"]:  # named by the user
            table.check_column(columns["split"], "split=COLUMN after the file's name")
        for line, row in table.rows:
            text, label, split = (row.get(columns[key]) for key in OPTIONS)
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"{table.where(line)}: no text in column {columns['text']!r}; remove the row")
            parts.setdefault(_word(split) or "all", []).append((text, _word(label)))
    if not parts:
        raise DataError(f"{path}: no rows below the header; add at least one")
    return parts


def _word(cell: object) -> str:
    """Return a label or split as text; labels may be numbers in JSON lines and Parquet."""
    return "" if cell is None else str(cell).strip()
