"""Rows of a file or of standard input, and back: CSV, TSV, JSON lines, Parquet, plain lines.

Every row comes with the line it stands on; damage is named by it.
"""

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import is_utf8, open_file, parse_json

Row = tuple[int, dict[str, Any]]  # a line, or a row of Parquet, counted from 1, and its cells

SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
            ".pq": "parquet", ".txt": "lines"}  # fmt: skip
LONGEST = 1 << 30  # characters of a cell; Python's own limit is short for a text


@dataclass(frozen=True)
class OpenTable:
    """Rows to be read once. `columns` is None where every row has its own."""

    name: str
    format: str
    columns: list[str] | None
    rows: Iterator[Row]

    def where(self, line: int) -> str:
        """Name a row in a message."""
        return f"{self.name}, {'row' if self.format == 'parquet' else 'line'} {line}"

    def check_column(self, column: str, option: str) -> None:
        """Refuse a column that is not there, where that can be known."""
        if self.columns is not None and column not in self.columns:
            raise DataError(f"{self.name}: {unknown_name('column', column, self.columns)}; name it with {option}")


@contextmanager
def open_table(source: str, form: str | None = None, option: str | None = "--format") -> Iterator[OpenTable]:
    """Open a file, or standard input for -. The format follows from the suffix unless it is named.

    `option` is what a user names a format with, for messages; None where only the suffix counts.
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
        yield FORMATS[form](_decoded(sys.stdin.buffer, name), name)
        return
    with open_file(source, pipes=True) as file:
        yield FORMATS[form](_decoded(file, name), name)


def _format_of(source: str, option: str | None) -> str:
    if source == "-":
        return "lines"
    suffix = Path(source).suffix.lower()
    if suffix not in SUFFIXES:
        endings = ", ".join(SUFFIXES)
        advice = (
            f"rename it so that its ending says its format: {endings}"
            if option is None
            else f"name its format with {option} ({', '.join((*FORMATS, 'parquet'))})"
        )
        raise ConfigError(f"{source}: a file that ends in {suffix or 'nothing'!r} may be anything; {advice}")
    return SUFFIXES[suffix]


def _decoded(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of UTF-8, as soon as they come."""
    for number, line in enumerate(file, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{name}, line {number}: not UTF-8 ({error}); save the file as UTF-8") from None


def _csv(lines: Iterator[str], name: str) -> OpenTable:
    return _separated(lines, name, "csv", delimiter=",", strict=True)


def _tsv(lines: Iterator[str], name: str) -> OpenTable:
    """Quotes mean nothing here: a tab is never part of a cell."""
    return _separated(lines, name, "tsv", delimiter="\t", quoting=csv.QUOTE_NONE)


def _separated(lines: Iterator[str], name: str, form: str, **dialect: Any) -> OpenTable:
    csv.field_size_limit(LONGEST)
    reader = csv.reader(lines, **dialect)
    header = next(_records(reader, name), (0, []))[1]
    if not header:
        raise DataError(f"{name}: is empty; its first line names the columns")
    twice = {column for column, times in Counter(header).items() if times > 1}
    if twice:
        raise DataError(f"{name}: two columns are called {min(twice)!r}; rename one")

    def rows() -> Iterator[Row]:
        for line, cells in _records(reader, name):
            if len(cells) != len(header):
                raise DataError(
                    f"{name}, line {line}: {len(cells)} cells where the first line names {len(header)}; "
                    "put a cell that holds a separator into quotes"
                )
            yield line, dict(zip(header, cells, strict=True))

    return OpenTable(name, form, header, rows())


def _records(reader: Any, name: str) -> Iterator[tuple[int, list[str]]]:
    """Records that are not blank, each with the line it begins on."""
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{name}, line {start}: not readable ({error}); see to its quotes") from None
        if cells:
            yield start, cells


def _jsonl(lines: Iterator[str], name: str) -> OpenTable:
    def rows() -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            row = parse_json(line.strip(), f"{name}, line {number}", damaged="write one object on each line")
            if not isinstance(row, dict):
                raise DataError(f'{name}, line {number}: not an object like {{"text": ...}}, but {line.strip()[:40]}')
            yield number, row

    return OpenTable(name, "jsonl", None, rows())


def _lines(lines: Iterator[str], name: str) -> OpenTable:
    rows = ((number, {"text": line.rstrip("\r\n")}) for number, line in enumerate(lines, 1))
    return OpenTable(name, "lines", ["text"], rows)


def _parquet(source: str) -> OpenTable:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ConfigError(f"{source}: Parquet is read with pyarrow ({error}); pip install pyarrow") from error
    if source == "-":
        raise ConfigError("Parquet cannot be read from standard input; name a file")
    open_file(source).close()  # a file that is not there is no damaged one
    try:
        file = parquet.ParquetFile(source)
    except Exception as error:  # whatever a reader makes of damage
        raise _damaged_parquet(source, error) from None

    def rows() -> Iterator[Row]:
        batches = file.iter_batches(1024)
        number = 0
        while True:
            try:
                batch = next(batches, None)
                found = None if batch is None else batch.to_pylist()
            except Exception as error:  # likewise
                raise _damaged_parquet(source, error) from None
            if found is None:
                return
            for row in found:
                number += 1
                yield number, row

    return OpenTable(source, "parquet", file.schema_arrow.names, rows())


def _damaged_parquet(source: str, error: Exception) -> DataError:
    return DataError(f"{source}: not readable as Parquet ({str(error).strip()}); is it whole?")


FORMATS: dict[str, Callable[[Iterator[str], str], OpenTable]] = {
    "csv": _csv,
    "tsv": _tsv,
    "jsonl": _jsonl,
    "lines": _lines,
}


class RowWriter:
    """Writes rows as they came: CSV as CSV, plain lines with what was added in front, all else as JSON lines."""

    def __init__(self, target: TextIO, table: OpenTable, added: Sequence[str]) -> None:
        self.target = target
        self.format = table.format
        self.added = added
        self.names = [*(table.columns or ()), *added]
        if self.format in ("csv", "tsv"):
            self(dict(zip(self.names, self.names, strict=True)))

    def __call__(self, row: dict[str, Any]) -> None:
        """Write a row, with what was added."""
        if self.format == "csv":
            csv.writer(self.target, lineterminator="\n").writerow([_cell(row[name]) for name in self.names])
        elif self.format == "tsv":
            self.target.write("\t".join(_flat(row[name]) for name in self.names) + "\n")
        elif self.format == "lines":
            added = [_flat(row[name]) for name in self.added]
            self.target.write("\t".join([*added, row["text"]]) + "\n")
        else:
            line = json.dumps(row, ensure_ascii=False, default=str)
            self.target.write((line if is_utf8(line) else json.dumps(row, default=str)) + "\n")


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _flat(value: Any) -> str:
    """A cell without separators: a label may hold them."""
    return re.sub(r"[\t\r\n]+", " ", _cell(value))
