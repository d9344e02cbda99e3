"""Labelled examples and unlabelled items, read from tables and from folders of images by class."""

import math
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from pathlib import Path, PurePosixPath
from reprlib import repr as short
from typing import Any
from warnings import warn

import numpy as np

from hyperproto.data.folder import files_by_class
from hyperproto.data.formats.images import FileTree, image_names, is_image
from hyperproto.data.formats.items import text_problem
from hyperproto.data.formats.tables import SUFFIXES, OpenTable, open_table
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.estimators import (
    FewShotImageClassifier,
    FewShotTextClassifier,
    HypersphereClassifier,
    MultiLabelClassifier,
)
from hyperproto.files import is_folder, is_there, is_utf8

MOST = 10  # wrong rows that a message names
DESCRIPTION = "description"  # column of the description of a class

Examples = tuple[list[Any], list[str | int]]
CellReader = Callable[[Any], Any]  # refuses a cell by a ValueError that says what is wrong


def item_column(model: HypersphereClassifier) -> str:
    """Return what a classifier reads, "text", "image" or "vector": also the usual column of a table of such items."""
    if isinstance(model, MultiLabelClassifier):
        return model.item_kind
    if isinstance(model, FewShotTextClassifier):
        return "text"
    return "image" if isinstance(model, FewShotImageClassifier) else "vector"


def read_examples(
    model: HypersphereClassifier,
    source: str,
    column: str | None,
    label_column: str,
    form: str | None,
    check_label: Callable[[str | int], None] | None = None,
) -> Examples:
    """Read labelled items of the kind that `model` takes; `check_label` may refuse a label by a ValueError."""
    if is_folder(source):
        _check_folder(model, source)
        if isinstance(model, MultiLabelClassifier):
            raise ConfigError(
                f"{source}: a folder gives each image one label; write a table with the columns image and label"
            )
        return _from_folder(source, check_label)
    _check_text(source, "write texts and their labels into a table, such as a CSV file with columns text and label")
    with open_table(source, form) as table:
        return _from_table(table, model, column or item_column(model), label_column, check_label)


def _from_table(
    table: OpenTable,
    model: HypersphereClassifier,
    column: str,
    label_column: str,
    check_label: Callable[[str | int], None] | None,
) -> Examples:
    table.check_column(column, "--text")
    table.check_column(label_column, "--label")
    read_item = reader_for(model)
    separator = model.separator if isinstance(model, MultiLabelClassifier) else None
    read_answer = read_label if separator is None else LabelsReader(separator)

    def read_example(row: dict[str, Any]) -> tuple[Any, Any]:
        item = read_cell(row, column, read_item)
        answer = read_cell(row, label_column, read_answer)
        for label in answer if isinstance(answer, list) else [answer]:
            if check_label is not None:
                check_label(label)
        return item, answer

    examples = _read_rows(table, read_example, "examples")
    first = separator is not None and not hasattr(model, "classes_")  # later examples may well be of one label each
    if first and all(len(labels) < 2 for _, labels in examples):
        warn(
            f"{table.name}: no {label_column!r} holds the separator {separator!r}, so that every row has at most one "
            "label; if labels stand between other signs, name them with --label-separator",
            stacklevel=3,
        )
    return [item for item, _ in examples], [label for _, label in examples]


def read_items(model: HypersphereClassifier, source: str, column: str | None) -> list[Any]:
    """Read unlabelled items of the kind that `model` takes."""
    with open_items(source, None, model, "write such texts into a file, a line each", option=None) as table:
        column = column or ("text" if table.format == "lines" else item_column(model))
        table.check_column(column, "--text")
        read_item = reader_for(model)
        return _read_rows(table, lambda row: read_cell(row, column, read_item), "items")


def read_descriptions(source: str, label_column: str) -> dict[str | int, str]:
    """Read a description for each class."""
    found: dict[str | int, str] = {}

    def read_description(row: dict[str, Any]) -> None:
        label = read_cell(row, label_column, read_label)
        if label in found:
            raise ValueError(f"{label_column!r} is {label!r} once more; describe a class once")
        found[label] = read_cell(row, DESCRIPTION, read_text)

    with open_table(source, option=None) as table:
        table.check_column(label_column, "--label")
        if table.columns is not None and DESCRIPTION not in table.columns:
            raise DataError(
                f"{source}: it needs a column {DESCRIPTION!r}, and has {', '.join(map(repr, table.columns))}"
            )
        _read_rows(table, read_description, "descriptions")
    return found


def single_labels(labels: list[Any]) -> list[str | int]:
    """Return the labels of all rows, each of which may have a list of them."""
    return [label for each in labels for label in (each if isinstance(each, list) else [each])]


def warn_of_descriptions(source: str, described: Collection[str | int], labels: list[str | int]) -> None:
    """Warn of labels that have a description and no example: they may be typing errors."""
    alone = sorted({*described} - {*labels}, key=str)
    if alone:
        shown = ", ".join(map(repr, alone[:5])) + (", ..." if len(alone) > 5 else "")
        warn(
            f"{source}: described labels without an example: {shown} ({len(alone)} of {len(described)}); each "
            "becomes a class by its description alone: correct it if it is a typing error",
            stacklevel=3,
        )


def _read_rows(table: OpenTable, read: Callable[[dict[str, Any]], Any], what: str) -> list[Any]:
    """Apply `read` to each row; one error names all rows that it refuses by a ValueError."""
    found, problems, unknown = [], Problems(table), _UnknownLabels()
    for line, row in table.rows:
        try:
            found.append(read(row))
        except UnknownLabelError as error:
            unknown.add(error, line)
        except ValueError as error:
            problems.add(line, str(error))
    _refuse([*unknown.sentences(table.name, table.where), *problems.sentences()])
    if not found:
        raise DataError(f"{table.name}: holds no {what}")
    return found


def read_cell(row: dict[str, Any], column: str, read: Callable[[Any], Any]) -> Any:
    """Read one cell; a ValueError names the column."""
    if column not in row:
        raise ValueError(f"there is no {column!r}, only {', '.join(map(repr, row)) or 'nothing'}")
    try:
        return read(row[column])
    except ValueError as error:
        raise ValueError(f"{column!r} {error}") from None


def _from_folder(source: str, check_label: Callable[[str | int], None] | None) -> Examples:
    """Read images, one folder a class; warn of folders without images."""
    items, labels, unknown = [], [], _UnknownLabels()
    classes = files_by_class(FileTree(Path(source)), source)
    if empty := _empty_folders(source, classes):
        shown = ", ".join(empty[:5]) + (", ..." if len(empty) > 5 else "")
        warn(
            f"{source}: no images in {shown} (empty folders: {len(empty)}), so that these become no classes; add "
            "images, or remove them",
            stacklevel=3,
        )
    for label, names in classes.items():
        try:
            if check_label is not None:
                check_label(label)
        except UnknownLabelError as error:
            unknown.add(error, 0)
        items += [f"{source.rstrip('/')}/{name}" for name in names]
        labels += [label] * len(names)
    _refuse(unknown.sentences(source, None))
    return items, list(labels)


def _empty_folders(source: str, classes: Collection[str]) -> list[str]:
    """Return the folders below `source` that hold no images at any depth; hidden ones do not count."""
    filled = {name for each in classes for name in (each, *map(str, PurePosixPath(each).parents))}
    empty: list[str] = []
    for folder, below, _ in os.walk(source, followlinks=True):  # `FileTree` has refused circles of links
        inside = Path(folder).relative_to(source)
        below[:] = sorted(name for name in below if not name.startswith((".", "__MACOSX")))
        bare = [name for name in below if (inside / name).as_posix() not in filled]
        empty += [(inside / name).as_posix() for name in bare]
        below[:] = [name for name in below if name not in bare]
    return empty


def _refuse(problems: list[str]) -> None:
    if problems:
        raise DataError("\n".join(problems))


class Problems:
    """Rows of a table that cannot be used, grouped by reason."""

    def __init__(self, table: OpenTable) -> None:
        self.table = table
        self.count = 0
        self.lines: dict[str, list[int]] = {}  # by reason, for the first reasons

    def add(self, line: int, reason: str) -> None:
        """Count a row."""
        self.count += 1
        if reason in self.lines or len(self.lines) < MOST:
            self.lines.setdefault(reason, []).append(line)

    def sentences(self) -> list[str]:
        """Return a line for each reason, and one for the rows with other reasons than the first."""
        found = [f"{self.table.where(*lines)}: {reason}" for reason, lines in self.lines.items()]
        more = self.count - sum(map(len, self.lines.values()))
        return found + ([f"and {more} more rows"] if more else [])


class UnknownLabelError(ValueError):
    """A label that is none of the known classes."""

    def __init__(self, label: str | int, known: Collection[str | int]) -> None:
        super().__init__(unknown_name("class", str(label), map(str, known)))
        self.label = label
        self.known = known


@dataclass
class _UnknownLabels:
    """Labels that are none of the known classes, with their rows."""

    lines: dict[str | int, list[int]] = field(default_factory=dict)
    first: UnknownLabelError | None = None

    def add(self, error: UnknownLabelError, line: int) -> None:
        """Add a label and its line."""
        self.first = self.first or error
        self.lines.setdefault(error.label, []).append(line)

    def sentences(self, name: str, where: Callable[..., str] | None) -> list[str]:
        """Return an error that lists the unknown and the known labels; `where` names lines, None in a folder."""
        if self.first is None:
            return []
        if len(self.lines) == 1:
            [(label, lines)] = self.lines.items()
            place = f"{name}/{label}" if where is None else where(*lines)
            return [f"{place}: {self.first}; add --new-classes if it is a new class"]
        names = sorted(map(str, self.first.known))
        listed = []
        for label, lines in islice(self.lines.items(), MOST):
            near = get_close_matches(str(label), names, n=1, cutoff=0.5)
            notes = [] if where is None else [where(*lines).removeprefix(f"{name}, ")]
            notes += [f"did you mean {near[0]!r}?"] if near else []
            listed.append(f"{label!r} ({'; '.join(notes)})" if notes else repr(label))
        more = [f"and {len(self.lines) - MOST} more"] if len(self.lines) > MOST else []
        return [
            f"{name}: {len(self.lines)} labels are unknown: {', '.join(listed + more)}. Known: {', '.join(names)}; if "
            "they are new classes, add --new-classes"
        ]


def reader_for(model: HypersphereClassifier) -> CellReader:
    """Return the function that reads the cells of items for a classifier."""
    items = item_column(model)
    if items != "vector":
        return read_text if items == "text" else read_image
    return VectorReader(getattr(model, "n_features_in_", None))


def read_text(cell: Any) -> str:
    """Return a text that is not empty."""
    if problem := text_problem(cell):
        raise ValueError(problem)
    return str(cell)


def read_image(cell: Any) -> str:
    """Return the path of an existing file."""
    path = read_text(cell)
    if not Path(path).is_file():
        raise ValueError(f"is {path!r}, where there is no file")
    return path


class VectorReader:
    """Reader of vectors: lists of numbers, or texts of numbers separated by spaces or commas, all of one length."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size

    def __call__(self, cell: Any) -> list[float]:
        """Read a vector."""
        try:
            numbers = cell.strip("[] ").replace(",", " ").split() if isinstance(cell, str) else list(cell)
            vector = [float(number) for number in numbers]
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"is {short(cell)}; a vector is a list of numbers") from None
        if not vector:
            raise ValueError(f"is an empty vector ({cell!r})")
        if not all(map(math.isfinite, vector)):
            place = next(n for n, number in enumerate(vector) if not math.isfinite(number))
            raise ValueError(f"holds {vector[place]} at position {place}; every number must be finite")
        self.size = self.size or len(vector)
        if len(vector) != self.size:
            raise ValueError(f"has {len(vector)} numbers where {self.size} belong")
        return vector


def read_label(cell: Any) -> str | int:
    """Return a label: a string, or a whole number of at most 64 bits."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if cell is None or cell != cell:
        raise ValueError(f"is missing ({cell!r})")
    if isinstance(cell, bool) or not isinstance(cell, str | int):
        raise ValueError(f"is {cell!r} ({type(cell).__name__}); a label is a string or a whole number")
    if isinstance(cell, str) and not cell.strip():
        raise ValueError(f"is empty ({cell!r})")
    if isinstance(cell, str) and not is_utf8(cell):
        raise ValueError(f"is {short(cell)}, which holds half a character (a lone surrogate)")
    if isinstance(cell, int) and not -(2**63) <= cell < 2**63:
        raise ValueError(f"is {short(cell)}, a number of more than 64 bits; write it as a string")
    return cell


class LabelsReader:
    """Reader of the labels of a row: a text with separators, a list, or an empty text for no label."""

    def __init__(self, separator: str) -> None:
        self.separator = separator

    def __call__(self, cell: Any) -> list[str | int]:
        """Read labels."""
        if isinstance(cell, np.ndarray):
            cell = cell.tolist()
        if isinstance(cell, str):
            parts: list[Any] = [part.strip() for part in cell.split(self.separator)] if cell.strip() else []
            if not all(parts):
                raise ValueError(f"is {short(cell)}, with nothing between two separators {self.separator!r}")
        else:
            parts = cell if isinstance(cell, list) else [cell]
        return [read_label(part) for part in parts]


def _check_folder(model: HypersphereClassifier, source: str) -> None:
    """Refuse a folder where it is not read as images."""
    if (items := item_column(model)) != "image":
        raise ConfigError(
            f"{source}: a folder is read as images by class, and this model takes {items}s; name a table, such as "
            f"FILE.csv with a column {items}, or use an encoder of images"
        )


def _check_text(source: str, advice: str) -> None:
    """Refuse a name that is no file and looks like a text, with advice."""
    if source != "-" and not is_there(source) and "/" not in source and Path(source).suffix.lower() not in SUFFIXES:
        raise DataError(f"{short(source)}: there is no file of this name; {advice}")


@contextmanager
def open_items(
    source: str,
    form: str | None,
    model: HypersphereClassifier,
    advice: str,
    option: str | None = "--format",
    keep_bad: bool = False,
) -> Iterator[OpenTable]:
    """Open a table or, for a classifier of images, a folder or a single image."""
    if isinstance(model, FewShotImageClassifier) and form is None:
        path = Path(source)
        if path.is_dir():
            found = [f"{source.rstrip('/')}/{name}" for name in image_names(FileTree(path))]
            yield _images(source, found)
            return
        if is_image(source):
            if not is_there(source):
                raise DataError(f"{source}: there is no such image; check the path")
            yield _images(source, [source])
            return
    if is_folder(source):
        _check_folder(model, source)
    _check_text(source, advice)
    with open_table(source, form, option, keep_bad=keep_bad) as table:
        yield table


def _images(source: str, paths: list[str]) -> OpenTable:
    return OpenTable(source, "csv", ["image"], ((number, {"image": path}) for number, path in enumerate(paths, 1)))
