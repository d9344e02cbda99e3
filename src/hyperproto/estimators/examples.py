"""Files of examples: fit a classifier to one, add one to a saved classifier, label the rows of one.

A file is a table (see `tables`) with a column of texts, paths of images, or vectors; or a folder of images by class.
All of its examples are used, or an error names the wrong ones and nothing changes.
"""

import math
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from reprlib import repr as short
from typing import Any, TextIO
from warnings import warn

import numpy as np

from hyperproto.data.filetree import FileTree
from hyperproto.data.folder import files_by_class
from hyperproto.data.image_files import image_names, is_image
from hyperproto.data.table_output import output_format, row_writer
from hyperproto.data.tables import SUFFIXES, BadRow, OpenTable, open_table
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.estimators.hypersphere import HypersphereClassifier
from hyperproto.estimators.image import FewShotImageClassifier
from hyperproto.estimators.items import FewShotClassifier
from hyperproto.estimators.kinds import kind_of, load_classifier, new_classifier
from hyperproto.estimators.storage import model_lock
from hyperproto.estimators.text import FewShotTextClassifier, text_problem
from hyperproto.files import is_folder, is_there, is_utf8
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

MOST = 10  # wrong rows that a message names
PREDICTED = ("predicted", "probability")
ERROR = "error"  # column of the reason why a row has no label
ON_ERROR = ("stop", "skip", "blank")
DESCRIPTION = "description"  # column of what a class is about

Examples = tuple[list[Any], list[str | int]]
CellReader = Callable[[Any], Any]  # refuses a cell by a ValueError that says what is wrong


def fit(
    examples: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    encoder: str | None = None,
    text: str | None = None,
    label: str = "label",
    unlabelled: str | PathLike[str] | None = None,
    descriptions: str | PathLike[str] | None = None,
    format: str | None = None,  # noqa: A002 # as the command line calls it
    bar: bool = False,
    trust: Trust = None,
    **settings: Any,
) -> HypersphereClassifier:
    """Fit a classifier to a file of labelled texts, images or vectors, and save it. One example a class is enough.

    Parameters
    ----------
    examples : a table (CSV, TSV, JSON lines, Parquet), "-" for standard input, or a folder of images by class.
    out : folder for the model; one that is there is replaced. None: it is not saved.
    encoder : minilm, mpnet, a folder, a name on the hub; efficientnet-lite0; identity for vectors. None: by the
        examples.
    text, label : columns of the items (None: text, image or vector) and of the labels.
    unlabelled : more items of the same kind, without a label: a table, or images. They are learned from, not stored.
    descriptions : for texts, a table with the columns of the labels and `description`: what the classes are about. A
        label that has no example is a class, too, and is warned of. None: the labels themselves, in words.
    format : csv, tsv, jsonl, parquet or lines, of the examples; None: by the file's name.
    bar : show a bar on standard error while items are encoded.
    trust : .py files that a run, where that is the encoder, may import.
    settings : parameters of the classifier, such as `coverage=0.95`.

    Examples
    --------
    >>> model = fit("examples.csv", "model", encoder="minilm", coverage=0.95)  # doctest: +SKIP
    >>> model.predict(["Where is my card?"])  # doctest: +SKIP
    """
    trust_files(trust)
    source = fspath(examples)
    model = new_classifier(encoder, is_folder(source), **settings)
    items, labels = read_examples(model, source, text, label, format)
    if descriptions is not None:
        if not isinstance(model, FewShotTextClassifier):
            raise ConfigError(f"{fspath(descriptions)}: descriptions are for classifiers of texts")
        described = _read_descriptions(fspath(descriptions), label)
        _warn_of_descriptions(fspath(descriptions), described.keys(), labels)
        model.set_params(names=described)
    more = None if unlabelled is None else _read_items(model, fspath(unlabelled), text)
    with _bar(model, bar):
        model.fit(items, labels, unlabelled=more)
    if out is not None:
        model.save(out)
    return model


def add(
    model: str | PathLike[str],
    examples: str | PathLike[str],
    *,
    text: str | None = None,
    label: str = "label",
    new_classes: bool = False,
    format: str | None = None,  # noqa: A002 # as the command line calls it
    bar: bool = False,
    trust: Trust = None,
) -> HypersphereClassifier:
    """Add examples to a saved classifier, as if they had been there from the start; it changes whole or not at all.

    Any number of processes may add to one model at once: they take turns.

    Parameters
    ----------
    model : the folder that `fit` wrote.
    new_classes : take labels that the model does not know.
    examples, text, label, format, bar, trust : as `fit` takes them.

    Examples
    --------
    >>> add("model", "more.jsonl", new_classes=True).classes_  # doctest: +SKIP
    """
    found = load_classifier(model, trust=trust)
    known = set(found.classes_.tolist())

    def check_label(given: str | int) -> None:
        if given not in known:
            raise UnknownLabelError(given, known)

    items, labels = read_examples(found, fspath(examples), text, label, format, None if new_classes else check_label)
    with model_lock(model):
        found = load_classifier(model)  # as it is now: another process may have changed it meanwhile
        if not new_classes and (gone := sorted({*labels} - {*found.classes_.tolist()}, key=str)):
            raise DataError(f"{fspath(model)}: class {gone[0]!r} was taken away while the examples were read")
        with _bar(found, bar):
            found.partial_fit(items, labels)
        found.save(model)
    return found


@dataclass(frozen=True)
class Labelled:
    """Summary of a file that was labelled."""

    rows: int  # that were read
    failed: int  # of them, those without an answer
    problems: tuple[str, ...]  # their reasons and lines, those with the same reason together; the first ten reasons


def predict(
    model: str | PathLike[str],
    source: str | PathLike[str],
    out: str | PathLike[str] | TextIO,
    *,
    text: str | None = None,
    format: str | None = None,  # noqa: A002 # as the command line calls it
    batch: int = 64,
    on_error: str = "blank",
    safe_cells: bool = False,
    trust: Trust = None,
) -> Labelled:
    """Label the rows of a file, however many: the same rows are written, each with a label and its probability.

    Parameters
    ----------
    model : the folder that `fit` wrote.
    source : a table, images, or "-" for lines of standard input.
    out : a path, which is written whole or not at all, in the format of its ending (.csv, .tsv, .jsonl, .parquet); or
        an open text file, which gets the rows as they come, in the format of the source (JSON lines for Parquet).
    text, format, trust : as `fit` takes them; `format` is that of the source.
    batch : rows answered at once.
    on_error : for a row that cannot be labelled, such as an empty text. "blank": it is written without a label, and
        with the reason in a column `error`, which CSV, TSV and Parquet always have then. "skip": it is left out.
        "stop": it is an error, and a file `out` is not written.
    safe_cells : in CSV and TSV, put an apostrophe before every cell that a spreadsheet would take for a formula: one
        that begins with =, +, -, @, a tab or a carriage return.

    Returns
    -------
    The number of rows, the number of rows that could not be labelled, and the reasons of the first of them.

    Examples
    --------
    >>> predict("model", "new.csv", "answers.csv")  # doctest: +SKIP
    """
    if batch < 1:
        raise ConfigError(f"batch={batch}: answer at least 1 row at once")
    if on_error not in ON_ERROR:
        raise ConfigError(f"--on-error: {unknown_name('way', str(on_error), ON_ERROR)}")
    if isinstance(out, str | PathLike):
        output_format(out, "lines")  # refuse a wrong ending before any work
    found = load_classifier(model, trust=trust)
    done = 0
    piped = f"to label one text, write: echo {shlex.quote(fspath(source))} | hyperproto predict MODEL -"
    with _open(fspath(source), format, found, piped, keep_bad=on_error != "stop") as table:
        problems = _Problems(table)
        column = text or ("text" if table.format == "lines" else kind_of(found).items)
        table.check_column(column, "--text")
        added = _added_columns(found, on_error)
        _check_free(table.columns or (), added, table.name)
        with row_writer(out, table, added, optional=(ERROR,), safe_cells=safe_cells) as write:
            while rows := list(islice(table.rows, min(batch, sys.maxsize))):
                for (line, row), answer in zip(rows, _label(found, table, rows, column, added, on_error), strict=True):
                    done += 1
                    if answer.problem is not None:
                        problems.add(line, answer.problem)
                    if answer.problem is None or on_error == "blank":
                        cells = (answer.label, answer.probability, answer.problem)
                        write({**row, **dict(zip(added, cells, strict=False))})
                write.flush()
    return Labelled(done, problems.count, tuple(problems.sentences()))


def read_examples(
    model: HypersphereClassifier,
    source: str,
    column: str | None,
    label_column: str,
    form: str | None,
    check_label: Callable[[str | int], None] | None = None,
) -> Examples:
    """Read items such as `model` takes, and their labels; `check_label` may refuse one by a ValueError."""
    if is_folder(source):
        _check_folder(model, source)
        return _from_folder(source, check_label)
    _check_text(source, "write texts and their labels into a table, such as a CSV file with columns text and label")
    with open_table(source, form) as table:
        return _from_table(table, model, column or kind_of(model).items, label_column, check_label)


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

    def read_example(row: dict[str, Any]) -> tuple[Any, str | int]:
        item = read_cell(row, column, read_item)
        label = read_cell(row, label_column, read_label)
        if check_label is not None:
            check_label(label)
        return item, label

    examples = _read_rows(table, read_example, "examples")
    return [item for item, _ in examples], [label for _, label in examples]


def _read_items(model: HypersphereClassifier, source: str, column: str | None) -> list[Any]:
    """Read items without their labels."""
    with _open(source, None, model, "write such texts into a file, a line each", option=None) as table:
        column = column or ("text" if table.format == "lines" else kind_of(model).items)
        table.check_column(column, "--text")
        read_item = reader_for(model)
        return _read_rows(table, lambda row: read_cell(row, column, read_item), "items")


def _read_descriptions(source: str, label_column: str) -> dict[str | int, str]:
    """Read what the classes are about."""
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


def _warn_of_descriptions(source: str, described: Collection[str | int], labels: list[str | int]) -> None:
    """Warn of labels that have a description and no example: classes, unless they are slips."""
    alone = sorted({*described} - {*labels}, key=str)
    if alone:
        shown = ", ".join(map(repr, alone[:5])) + (", ..." if len(alone) > 5 else "")
        warn(
            f"{source}: described labels without an example: {shown} ({len(alone)} of {len(described)}); each "
            "becomes a class by its description alone: correct it if it is a slip",
            stacklevel=3,
        )


def _read_rows(table: OpenTable, read: Callable[[dict[str, Any]], Any], what: str) -> list[Any]:
    """What `read` gives for each row; rows that it refuses by a ValueError are named together."""
    found, problems, unknown = [], _Problems(table), _UnknownLabels()
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
    """Read images, one folder a class; a folder without images is warned of."""
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


class _Problems:
    """Rows of a table that cannot be used, those with the same reason together."""

    def __init__(self, table: OpenTable) -> None:
        self.table = table
        self.count = 0
        self.lines: dict[str, list[int]] = {}  # of the first reasons

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
    """Labels that are none of the known classes, and the rows they stand in."""

    lines: dict[str | int, list[int]] = field(default_factory=dict)
    first: UnknownLabelError | None = None

    def add(self, error: UnknownLabelError, line: int) -> None:
        """Note a label and the line it stands on."""
        self.first = self.first or error
        self.lines.setdefault(error.label, []).append(line)

    def sentences(self, name: str, where: Callable[..., str] | None) -> list[str]:
        """Say which labels are unknown, and once which are known; `where` names lines, if there are any."""
        if self.first is None:
            return []
        if len(self.lines) == 1:
            [(label, lines)] = self.lines.items()
            place = f"{name}/{label}" if where is None else where(*lines)
            return [f"{place}: {self.first}; if it is to be a new class, say --new-classes"]
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
            "they are to be new classes, say --new-classes"
        ]


def reader_for(model: HypersphereClassifier) -> CellReader:
    """What reads the cells that a classifier takes."""
    items = kind_of(model).items
    if items != "vector":
        return read_text if items == "text" else read_image
    return VectorReader(getattr(model, "n_features_in_", None))


def read_text(cell: Any) -> str:
    """A string with something in it."""
    if problem := text_problem(cell):
        raise ValueError(problem)
    return str(cell)


def read_image(cell: Any) -> str:
    """The path of a file."""
    path = read_text(cell)
    if not Path(path).is_file():
        raise ValueError(f"is {path!r}, where there is no file")
    return path


class VectorReader:
    """A list of numbers, or a text that holds them, separated by spaces or commas; all are as long as the first."""

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
    """A string, or a whole number."""
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


@dataclass(frozen=True)
class _Answer:
    """Label of a row and its probability (None for none of these), or the reason why it has none."""

    label: Any = None
    probability: float | None = None
    problem: str | None = None


def _label(
    model: HypersphereClassifier,
    table: OpenTable,
    rows: list[tuple[int, dict[str, Any]]],
    column: str,
    added: Collection[str],
    on_error: str,
) -> list[_Answer]:
    """Answer some rows at once; a row that cannot be read, or that the model refuses, has a problem for an answer."""
    read_item = reader_for(model)
    items, answers = {}, {}
    for place, (line, row) in enumerate(rows):
        _check_free(row, added, table.where(line))
        try:
            if isinstance(row, BadRow):
                raise ValueError(row.problem)
            items[place] = read_cell(row, column, read_item)
        except ValueError as error:
            if on_error == "stop":
                raise DataError(f"{table.where(line)}: {error}") from None
            answers[place] = _Answer(problem=str(error))
    try:
        found = _answers(model, list(items.values())) if items else []
    except DataError:
        if on_error == "stop":
            raise
        found = [_answer_alone(model, item) for item in items.values()]
    answers |= dict(zip(items, found, strict=True))
    return [answers[place] for place in range(len(rows))]


def _answers(model: HypersphereClassifier, items: list[Any]) -> list[_Answer]:
    labels, probability = model.predict(items).tolist(), model.predict_proba(items).tolist()
    place = {label: n for n, label in enumerate(model.classes_.tolist())}
    return [
        _Answer(label, round(row[place[label]], 4) if label in place else None)
        for label, row in zip(labels, probability, strict=True)
    ]


def _answer_alone(model: HypersphereClassifier, item: Any) -> _Answer:
    """Answer one item of a batch that was refused, as one damaged image is enough for."""
    try:
        [answer] = _answers(model, [item])
    except DataError as error:
        return _Answer(problem=str(error).removeprefix("X[0]").lstrip(", "))
    return answer


def _added_columns(model: HypersphereClassifier, on_error: str) -> dict[str, str]:
    """Return the columns of the answer, and their types in Parquet: labels are whole numbers only if all are."""
    whole = model.coverage is None and all(type(label) is int for label in model.classes_.tolist())
    columns = {"predicted": "int64" if whole else "string", "probability": "double"}
    return columns | ({ERROR: "string"} if on_error == "blank" else {})


def _check_free(names: Collection[str], added: Collection[str], where: str) -> None:
    taken = [name for name in added if name in names]
    if taken == [ERROR]:
        raise DataError(
            f"{where}: there is an {ERROR!r} already, where reasons would go; rename it, or say --on-error skip or stop"
        )
    if taken:
        raise DataError(f"{where}: there is a {taken[0]!r} already, where the answer would go; rename it")


def _check_folder(model: HypersphereClassifier, source: str) -> None:
    """Refuse a folder where it is not read as images."""
    if (items := kind_of(model).items) != "image":
        raise ConfigError(
            f"{source}: a folder is read as images by class, and this model takes {items}s; name a table, such as "
            f"FILE.csv with a column {items}, or use an encoder of images"
        )


def _check_text(source: str, advice: str) -> None:
    """Refuse what is no file and looks like a text, with advice."""
    if source != "-" and not is_there(source) and "/" not in source and Path(source).suffix.lower() not in SUFFIXES:
        raise DataError(f"{short(source)}: there is no file of this name; {advice}")


@contextmanager
def _open(
    source: str,
    form: str | None,
    model: HypersphereClassifier,
    advice: str,
    option: str | None = "--format",
    keep_bad: bool = False,
) -> Iterator[OpenTable]:
    """A table; for a classifier of images also a folder, or a single image."""
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


@contextmanager
def _bar(model: HypersphereClassifier, wanted: bool) -> Iterator[None]:
    """Let the encoder show a bar, for a while."""
    if isinstance(model, FewShotClassifier):
        before, model.progress = model.progress, wanted
        yield
        model.progress = before
    else:
        yield
