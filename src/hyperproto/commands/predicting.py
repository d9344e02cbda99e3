"""`hyperproto predict`: rows in, the same rows out with a label and its probability, a few at a time, however many."""

import csv
import json
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from hyperproto.commands.cells import reader_for
from hyperproto.commands.examples import read_cell
from hyperproto.data.filetree import FileTree
from hyperproto.data.image_files import is_image
from hyperproto.errors import DataError
from hyperproto.estimators import FewShotImageClassifier, HypersphereClassifier, load_classifier
from hyperproto.estimators.kinds import kind_of
from hyperproto.estimators.tables import Table, open_table
from hyperproto.files import atomic_write

PREDICTED = ("predicted", "probability")


def predict(folder: Path, source: str, out: Path | None, column: str | None, form: str | None, batch: int) -> None:
    """Write the rows of `source` with what the saved classifier makes of them, `batch` at a time."""
    model = load_classifier(folder)
    with _open(source, form, model) as table, _target(out) as target:
        column = column or ("text" if table.format == "lines" else kind_of(model).items)
        table.check_column(column, "--text")
        _check_free(table.columns or (), table.name)
        write = _Writer(target, table)
        while rows := list(islice(table.rows, batch)):
            items = [_item(table, line, row, column, model) for line, row in rows]
            for (_, row), answer in zip(rows, answers(model, items), strict=True):
                write({**row, **dict(zip(PREDICTED, answer, strict=True))})
            target.flush()


def answers(model: HypersphereClassifier, items: list[Any]) -> list[tuple[Any, float | None]]:
    """A label for each item, and how likely it is; none of these has no probability."""
    labels, probability = model.predict(items).tolist(), model.predict_proba(items).tolist()
    place = {label: n for n, label in enumerate(model.classes_.tolist())}
    return [
        (label, round(row[place[label]], 4) if label in place else None)
        for label, row in zip(labels, probability, strict=True)
    ]


def _check_free(names: Collection[str], where: str) -> None:
    taken = [name for name in PREDICTED if name in names]
    if taken:
        raise DataError(f"{where}: there is a {taken[0]!r} already, where the answer would go; rename it")


def _item(table: Table, line: int, row: dict[str, Any], column: str, model: HypersphereClassifier) -> Any:
    _check_free(row, table.where(line))
    try:
        return read_cell(row, column, reader_for(model))
    except ValueError as error:
        raise DataError(f"{table.where(line)}: {error}") from None


@contextmanager
def _open(source: str, form: str | None, model: HypersphereClassifier) -> Iterator[Table]:
    """A table; for a classifier of images also a folder, or a single image."""
    if isinstance(model, FewShotImageClassifier) and form is None:
        path = Path(source)
        if path.is_dir():
            found = [f"{source.rstrip('/')}/{name}" for name in FileTree(path).names if is_image(name)]
            yield _images(source, found)
            return
        if is_image(source):
            yield _images(source, [source])
            return
    with open_table(source, form) as table:
        yield table


def _images(source: str, paths: list[str]) -> Table:
    return Table(source, "csv", ["image"], ((number, {"image": path}) for number, path in enumerate(paths, 1)))


class _Writer:
    """Writes rows as they came: CSV as CSV, plain lines with the answer in front, all else as JSON lines."""

    def __init__(self, target: TextIO, table: Table) -> None:
        self.target = target
        self.format = table.format
        self.names = [*(table.columns or ()), *PREDICTED]
        if self.format in ("csv", "tsv"):
            self(dict(zip(self.names, self.names, strict=True)))

    def __call__(self, row: dict[str, Any]) -> None:
        """Write a row with its answer."""
        if self.format == "csv":
            csv.writer(self.target, lineterminator="\n").writerow([_cell(row[name]) for name in self.names])
        elif self.format == "tsv":
            self.target.write("\t".join(_flat(row[name]) for name in self.names) + "\n")
        elif self.format == "lines":
            answer = [_flat(row[name]) for name in PREDICTED]
            self.target.write("\t".join([*answer, row["text"]]) + "\n")
        else:
            self.target.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _flat(value: Any) -> str:
    """A cell without separators: a label may hold them."""
    return re.sub(r"[\t\r\n]+", " ", _cell(value))


@contextmanager
def _target(out: Path | None) -> Iterator[TextIO]:
    """Standard output, as it goes; or a file, whole or not at all."""
    if out is None:
        yield sys.stdout
        return
    with atomic_write(out) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()
