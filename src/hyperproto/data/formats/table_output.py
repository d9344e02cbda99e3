"""Writers of rows to files and streams: CSV, TSV, JSON lines, Parquet, plain lines, chosen by the suffix."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from itertools import islice
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Self, TextIO

from hyperproto.data.formats.tables import OpenTable
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import atomic_write, is_utf8

ENDINGS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
           ".pq": "parquet"}  # fmt: skip
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # first characters of cells that spreadsheets interpret as formulas
CHUNK = 4096  # number of rows written to Parquet at a time

Row = Mapping[str, Any]


def output_format(out: str | PathLike[str], source: str) -> str:
    """Return the format for the suffix of `out`; .txt means plain lines if `source` is "lines"."""
    suffix = Path(out).suffix.lower()
    if suffix == ".txt" and source == "lines":
        return "lines"
    if suffix not in ENDINGS:
        raise ConfigError(
            f"{out}: the ending {suffix!r} names no format to write; use one of {', '.join(ENDINGS)} (.txt for plain "
            "lines, if the input has such)"
        )
    return ENDINGS[suffix]


class RowWriter:
    """Writer of one row at a time; `close` completes the output."""

    def __call__(self, row: Row) -> None:
        """Write a row."""
        raise NotImplementedError

    def flush(self) -> None:
        """Flush buffered rows of a stream."""

    def close(self) -> None:
        """Write the remaining rows and complete the output."""

    def discard(self) -> None:
        """Abandon an incomplete output."""

    @contextmanager
    def used(self) -> Iterator[Self]:
        """Close the writer at the end of the block, or discard it after an error."""
        try:
            yield self
            self.close()
        except BaseException:
            self.discard()
            raise


@contextmanager
def row_writer(
    out: str | PathLike[str] | TextIO,
    table: OpenTable,
    added: Mapping[str, str],
    *,
    optional: Sequence[str] = (),
    safe_cells: bool = False,
) -> Iterator[RowWriter]:
    """Open an output for the rows of a table with additional columns.

    Parameters
    ----------
    out : a path, written atomically in the format of its suffix; or an open text file, to which rows are written
        immediately in the format of the table (JSON lines for Parquet).
    added : new columns, and their types in Parquet: "string", "int64" or "double".
    optional : new columns that plain lines and JSON lines contain only if they are not None.
    safe_cells : in CSV and TSV, put an apostrophe before a cell that a spreadsheet would interpret as a formula.
    """
    if isinstance(out, str | PathLike):
        form = output_format(out, table.format)
        _check_safe(safe_cells, form)
        with atomic_write(Path(out)) as file:
            if form == "parquet":
                with _parquet(file, str(out), table, added).used() as writer:
                    yield writer
            else:
                text = TextIOWrapper(file, encoding="utf-8", newline="")
                with _text(text, form, table, added, optional, safe_cells).used() as writer:
                    yield writer
                text.flush()
                text.detach()
        return
    form = "jsonl" if table.format == "parquet" else table.format
    _check_safe(safe_cells, form)
    with _text(out, form, table, added, optional, safe_cells).used() as writer:
        yield writer
    out.flush()


def _check_safe(safe_cells: bool, form: str) -> None:
    if safe_cells and form not in ("csv", "tsv"):
        raise ConfigError(f"--safe-cells is for CSV and TSV, but the output is {form}; leave it out")


def _text(
    target: TextIO, form: str, table: OpenTable, added: Mapping[str, str], optional: Sequence[str], safe: bool
) -> RowWriter:
    if form == "lines":
        return _Lines(target, added, optional)
    if form == "jsonl":
        return _JsonLines(target, optional)
    delimiter = table.delimiter if table.format == "csv" else ","

    def separated(columns: Sequence[str], _: Any = None) -> RowWriter:
        return _Separated(target, columns, None if form == "tsv" else delimiter, safe)

    return _Spooled(added, separated) if table.columns is None else separated([*table.columns, *added])


class _Separated(RowWriter):
    """CSV writer; TSV if `delimiter` is None, with tabs and line ends removed from cells."""

    def __init__(self, target: TextIO, columns: Sequence[str], delimiter: str | None, safe: bool) -> None:
        self.target = target
        self.columns = columns
        self.safe = safe
        self.writer = None if delimiter is None else csv.writer(target, delimiter=delimiter, lineterminator="\n")
        self(dict(zip(columns, columns, strict=True)))

    def __call__(self, row: Row) -> None:
        cells = [self._cell(row.get(name)) for name in self.columns]
        if self.writer is None:
            self.target.write("\t".join(map(_flat, cells)) + "\n")
        else:
            self.writer.writerow(cells)

    def _cell(self, value: Any) -> str:
        text = _cell(value)
        return f"'{text}" if self.safe and isinstance(value, str) and text.startswith(FORMULAS) else text

    def flush(self) -> None:
        self.target.flush()


class _Lines(RowWriter):
    """Writer of plain lines: added columns, text, then optional columns, separated by tabs."""

    def __init__(self, target: TextIO, added: Mapping[str, str], optional: Sequence[str]) -> None:
        self.target = target
        self.before = [name for name in added if name not in optional]
        self.optional = optional

    def __call__(self, row: Row) -> None:
        after = [name for name in self.optional if row.get(name) is not None]
        cells = [_flat(_cell(row.get(name))) for name in self.before]
        self.target.write("\t".join([*cells, row["text"], *(_flat(_cell(row[name])) for name in after)]) + "\n")

    def flush(self) -> None:
        self.target.flush()


class _JsonLines(RowWriter):
    """Writer of one JSON object a line."""

    def __init__(self, target: TextIO, optional: Sequence[str]) -> None:
        self.target = target
        self.optional = optional

    def __call__(self, row: Row) -> None:
        kept = {name: value for name, value in row.items() if value is not None or name not in self.optional}
        line = json.dumps(kept, ensure_ascii=False, default=str)
        self.target.write((line if is_utf8(line) else json.dumps(kept, default=str)) + "\n")

    def flush(self) -> None:
        self.target.flush()


class _Spooled(RowWriter):
    """Temporary file for rows with differing columns, written when all columns are known."""

    def __init__(self, added: Mapping[str, str], make: Callable[[Sequence[str], "_Spooled"], RowWriter]) -> None:
        self.added = added
        self.make = make
        self.seen: dict[str, None] = {}
        self.file = TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 # closed, and so removed, with this object

    def __call__(self, row: Row) -> None:
        self.seen |= dict.fromkeys(name for name in row if name not in self.added)
        self.file.write(json.dumps(row) + "\n")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows from the start."""
        self.file.seek(0)
        return map(json.loads, self.file)

    def close(self) -> None:
        with self.file, self.make([*self.seen, *self.added], self).used() as writer:
            for row in self.rows():
                writer(row)

    def discard(self) -> None:
        self.file.close()


def _parquet(file: BinaryIO, name: str, table: OpenTable, added: Mapping[str, str]) -> RowWriter:
    """Open a Parquet writer. Columns of Parquet input keep their types; those of text files are strings.

    Types of JSON columns are inferred.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(f"{name}: Parquet is written with pyarrow ({error}); pip install pyarrow") from error
    new = [pyarrow.field(column, pyarrow.type_for_alias(kind)) for column, kind in added.items()]
    if table.columns is None:
        return _Spooled(added, lambda columns, rows: _Parquet(file, name, _inferred(rows, columns, new, name)))
    if table.schema is not None:
        return _Parquet(file, name, pyarrow.schema([*table.schema, *new]))
    return _Parquet(file, name, pyarrow.schema([*((column, pyarrow.string()) for column in table.columns), *new]))


def _inferred(spooled: "_Spooled", columns: Sequence[str], new: list[Any], name: str) -> Any:
    """Return a schema for all rows; a column with whole numbers and floats has floats, nulls fit any type."""
    import pyarrow

    own = columns[: len(columns) - len(new)]
    rows, schemas = spooled.rows(), [pyarrow.schema([])]
    while chunk := list(islice(rows, CHUNK)):
        with _problems_named(name):
            arrays = [pyarrow.array([_writable(row.get(column)) for row in chunk]) for column in own]
            found = pyarrow.schema([(column, array.type) for column, array in zip(own, arrays, strict=True)])
            schemas.append(pyarrow.unify_schemas([schemas.pop(), found], promote_options="permissive"))
    return pyarrow.schema([*schemas[0], *new])


class _Parquet(RowWriter):
    """Parquet writer of `CHUNK` rows at a time."""

    def __init__(self, file: BinaryIO, name: str, schema: Any) -> None:
        from pyarrow import parquet

        self.name, self.schema = name, schema
        with _problems_named(name):
            self.writer = parquet.ParquetWriter(file, schema)
        self.rows: list[Row] = []

    def __call__(self, row: Row) -> None:
        self.rows.append(row)
        if len(self.rows) >= CHUNK:
            self._write()

    def _write(self) -> None:
        import pyarrow

        with _problems_named(self.name):
            columns = [
                pyarrow.array([_writable(row.get(field.name)) for row in self.rows], field.type)
                for field in self.schema
            ]
            self.writer.write_table(pyarrow.Table.from_arrays(columns, schema=self.schema))
        self.rows = []

    def close(self) -> None:
        if self.rows:
            self._write()
        self.writer.close()

    def discard(self) -> None:
        with suppress(Exception):  # else the footer would be written at garbage collection, to a closed file
            self.writer.close()


@contextmanager
def _problems_named(name: str) -> Iterator[None]:
    """Raise a DataError with advice in place of pyarrow's errors."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # values of several types in one column, nested objects, numbers of more than 64 bits
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{name}: these rows do not fit into Parquet ({reason}); write .jsonl instead") from None


def _writable(value: Any) -> Any:
    """Escape lone surrogates, which UTF-8 cannot encode."""
    if isinstance(value, str) and not is_utf8(value):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, default=str)
    return str(_writable(str(value)))


def _flat(text: str) -> str:
    """Return a cell with tabs and line ends replaced by spaces."""
    return re.sub(r"[\t\r\n]+", " ", text)
