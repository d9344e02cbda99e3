"""Labelled examples of a table, or of a folder of images: all of them, or an error that names the wrong ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyperproto.commands.cells import read_label, reader_for
from hyperproto.data.filetree import FileTree
from hyperproto.data.folder import files_by_class
from hyperproto.errors import DataError
from hyperproto.estimators import HypersphereClassifier
from hyperproto.estimators.kinds import kind_of
from hyperproto.estimators.tables import Table, open_table

MOST = 10  # wrong rows that a message names

Examples = tuple[list[Any], list[str | int]]


def read_examples(
    model: HypersphereClassifier,
    source: str,
    column: str | None,
    label_column: str,
    form: str | None,
    check_label: Callable[[str | int], None] | None = None,
) -> Examples:
    """Read items such as `model` takes, and their labels; `check_label` may refuse one by a ValueError."""
    if Path(source).is_dir():
        return _from_folder(source, check_label)
    with open_table(source, form) as table:
        return _from_table(table, model, column or kind_of(model).items, label_column, check_label)


def _from_table(
    table: Table,
    model: HypersphereClassifier,
    column: str,
    label_column: str,
    check_label: Callable[[str | int], None] | None,
) -> Examples:
    table.check_column(column, "--text")
    table.check_column(label_column, "--label")
    items: list[Any] = []
    labels: list[str | int] = []
    problems = []
    read_item = reader_for(model)
    for line, row in table.rows:
        try:
            item = read_cell(row, column, read_item)
            label = read_cell(row, label_column, read_label)
            if check_label is not None:
                check_label(label)
        except ValueError as error:
            problems.append(f"{table.where(line)}: {error}")
            continue
        items.append(item)
        labels.append(label)
    _refuse(problems)
    if not items:
        raise DataError(f"{table.name}: holds no examples")
    return items, labels


def read_cell(row: dict[str, Any], column: str, read: Callable[[Any], Any]) -> Any:
    """Read one cell; a ValueError names the column."""
    if column not in row:
        raise ValueError(f"there is no {column!r}, only {', '.join(map(repr, row)) or 'nothing'}")
    try:
        return read(row[column])
    except ValueError as error:
        raise ValueError(f"{column!r} {error}") from None


def _from_folder(source: str, check_label: Callable[[str | int], None] | None) -> Examples:
    """Images, one folder a class."""
    items, labels, problems = [], [], []
    for label, names in files_by_class(FileTree(Path(source)), source).items():
        try:
            if check_label is not None:
                check_label(label)
        except ValueError as error:
            problems.append(f"{source}/{label}: {error}")
        items += [f"{source.rstrip('/')}/{name}" for name in names]
        labels += [label] * len(names)
    _refuse(problems)
    return items, list(labels)


def _refuse(problems: list[str]) -> None:
    if problems:
        more = [f"and {len(problems) - MOST} more rows"] if len(problems) > MOST else []
        raise DataError("\n".join([*problems[:MOST], *more]))
