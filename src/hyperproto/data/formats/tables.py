"""Readers of rows from files or standard input: CSV, TSV, JSON lines, Parquet, plain lines.

Every row has its line number, which error messages show.
"""

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto.data.pool import OUTSIDE, Pool
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import is_there, open_file, parse_json

Row = tuple[int, dict[str, Any]]  # number of the line (or Parquet row) from 1, and the cells by column
LabelledTexts = list[tuple[str, str]]  # text and label; the label is "" if there is none

SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
            ".pq": "parquet", ".txt": "lines"}  # fmt: skip
DELIMITERS = (",", ";", "\t")  # of CSV, the most common first
SHOWN = 5  # number of rows with the same problem listed in a message
LONGEST = 1 << 30  # largest number of characters in a cell; Python's default is too small for texts


class BadRow(dict[str, Any]):
    """Readable cells of a damaged row, and its problem."""

    def __init__(self, cells: Iterable[tuple[str, Any]], problem: str) -> None:
        super().__init__(cells)
        self.problem = problem


@dataclass(frozen=True)
class OpenTable:
    """Rows of a table, to be iterated once; `columns` is None if each row has its own columns."""

    name: str
    format: str
    columns: list[str] | None
    rows: Iterator[Row]
    delimiter: str = ","  # of CSV
    schema: Any = None  # of Parquet: pyarrow's

    def where(self, *lines: int) -> str:
        """Return the location of one row, or of the first of several, for messages."""
        word = f"{'row' if self.format == 'parquet' else 'line'}{'s' if len(lines) > 1 else ''}"
        more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        return f"{self.name}, {word} {', '.join(map(str, lines[:SHOWN]))}{more}"

    def check_column(self, column: str, option: str) -> None:
        """Raise a DataError if the table has no such column; no check if rows have their own columns."""
        if self.columns is not None and column not in self.columns:
            raise DataError(f"{self.name}: {unknown_name('column', column, self.columns)}; name it with {option}")


@contextmanager
def open_table(
    source: str, form: str | None = None, option: str | None = "--format", *, keep_bad: bool = False
) -> Iterator[OpenTable]:
    """Open a file, or standard input for "-". The format follows from the suffix unless it is given.

    `option` is the command-line option for the format, shown in messages; None if there is none. With `keep_bad`, a row
    with too many or too few cells, or a line that is not a JSON object, becomes a `BadRow`; otherwise it raises an
    error.
    """
    name = "standard input" if source == "-" else source
    form = form or _format_of(source, option)
    if form not in (*FORMATS, "parquet"):
        raise ConfigError(f"{name}: {unknown_name('format', form, (*FORMATS, 'parquet'))}")
    if form == "parquet":
        yield _parquet(source)
        return
    if source == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file")
        yield FORMATS[form](_decoded(sys.stdin.buffer, name), name, keep_bad)
        return
    with open_file(source, pipes=True) as file:
        yield FORMATS[form](_decoded(file, name), name, keep_bad)


def _format_of(source: str, option: str | None) -> str:
    if source == "-":
        return "lines"
    suffix = Path(source).suffix.lower()
    if suffix not in SUFFIXES and not is_there(source):
        raise DataError(f"{source}: there is no such file; check the path")
    if suffix not in SUFFIXES:
        endings = ", ".join(SUFFIXES)
        advice = (
            f"rename it so that its ending says its format: {endings}"
            if option is None
            else f"name its format with {option} ({', '.join((*FORMATS, 'parquet'))})"
        )
        raise ConfigError(f"{source}: the suffix {suffix or 'nothing'!r} names no format; {advice}")
    return SUFFIXES[suffix]


def _decoded(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 stream as they arrive."""
    for number, line in enumerate(file, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{name}, line {number}: not UTF-8 ({error}); save the file as UTF-8") from None


def _csv(lines: Iterator[str], name: str, keep_bad: bool) -> OpenTable:
    csv.field_size_limit(LONGEST)
    head: list[str] = []  # leading blank lines and the first other line
    for line in lines:
        head.append(line)
        if line.strip("\r\n"):
            break
    delimiter = _delimiter(head[-1] if head else "")
    return _separated(chain(head, lines), name, "csv", keep_bad, delimiter=delimiter, strict=True)


def _tsv(lines: Iterator[str], name: str, keep_bad: bool) -> OpenTable:
    """Open TSV, in which quotes have no meaning and a tab always separates cells."""
    return _separated(lines, name, "tsv", keep_bad, delimiter="\t", quoting=csv.QUOTE_NONE)


def _delimiter(header: str) -> str:
    """Return the separator of the first line: a comma, or, if it has none, a semicolon or a tab."""
    for delimiter in DELIMITERS:
        try:
            if len(next(csv.reader([header], delimiter=delimiter), [])) > 1:
                return delimiter
        except csv.Error:  # bad quotes: the reader of the file reports them
            break
    return DELIMITERS[0]


def _separated(lines: Iterator[str], name: str, form: str, keep_bad: bool, **dialect: Any) -> OpenTable:
    csv.field_size_limit(LONGEST)
    reader = csv.reader(lines, **dialect)
    header = next(_records(reader, name), (0, []))[1]
    if not header:
        raise DataError(f"{name}: is empty; its first line must name the columns")
    twice = {column for column, times in Counter(header).items() if times > 1}
    if twice:
        raise DataError(f"{name}: two columns are called {min(twice)!r}; rename one")

    def rows() -> Iterator[Row]:
        for line, cells in _records(reader, name):
            if len(cells) != len(header):
                problem = (
                    f"{len(cells)} cells where the first line names {len(header)}; "
                    "put a cell that holds a separator into quotes"
                )
                if not keep_bad:
                    raise DataError(f"{name}, line {line}: {problem}")
                yield line, BadRow(zip(header, cells, strict=False), problem)
            else:
                yield line, dict(zip(header, cells, strict=True))

    return OpenTable(name, form, header, rows(), delimiter=dialect["delimiter"])


def _records(reader: Any, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield records that are not blank, with the number of their first line."""
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{name}, line {start}: not readable ({error}); check its quotes") from None
        if cells:
            yield start, cells


def _jsonl(lines: Iterator[str], name: str, keep_bad: bool) -> OpenTable:
    def rows() -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{name}, line {number}"
            try:
                row = parse_json(line.strip(), where, damaged="write one object on each line")
                if not isinstance(row, dict):
                    raise DataError(f'{where}: not an object like {{"text": ...}}, but {line.strip()[:40]}')
            except DataError as error:
                if not keep_bad:
                    raise
                row = BadRow((), str(error).removeprefix(f"{where}: "))
            yield number, row

    return OpenTable(name, "jsonl", None, rows())


def _lines(lines: Iterator[str], name: str, keep_bad: bool) -> OpenTable:
    rows = ((number, {"text": line.rstrip("\r\n")}) for number, line in enumerate(lines, 1))
    return OpenTable(name, "lines", ["text"], rows)


def _parquet(source: str) -> OpenTable:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ConfigError(f"{source}: Parquet is read with pyarrow ({error}); pip install pyarrow") from error
    if source == "-":
        raise ConfigError("Parquet cannot be read from standard input; name a file")
    open_file(source).close()  # raises the proper error if the file does not exist
    try:
        file = parquet.ParquetFile(source)
    except Exception as error:  # any error of the reader on a damaged file
        raise _damaged_parquet(source, error) from None

    def rows() -> Iterator[Row]:
        batches = file.iter_batches(1024)
        number = 0
        while True:
            try:
                batch = next(batches, None)
                found = None if batch is None else batch.to_pylist()
            except Exception as error:  # as above
                raise _damaged_parquet(source, error) from None
            if found is None:
                return
            for row in found:
                number += 1
                yield number, row

    return OpenTable(source, "parquet", file.schema_arrow.names, rows(), schema=file.schema_arrow)


def _damaged_parquet(source: str, error: Exception) -> DataError:
    return DataError(f"{source}: not readable as Parquet ({str(error).strip()}); is it whole?")


FORMATS: dict[str, Callable[[Iterator[str], str, bool], OpenTable]] = {
    "csv": _csv,
    "tsv": _tsv,
    "jsonl": _jsonl,
    "lines": _lines,
}


def text_pool(lines: LabelledTexts, name: str, split: str) -> Pool:
    """Return a pool of labelled texts; a text without a label belongs to no class."""
    classes = sorted({label for _, label in lines if label})
    place = {label: n for n, label in enumerate(classes)} | {"": OUTSIDE}
    labels = np.array([place[label] for _, label in lines], np.int64)
    return Pool([text for text, _ in lines], labels, tuple(classes), name=name, split=split)
