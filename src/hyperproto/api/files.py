"""Files of examples: fit a classifier to one, add one to a saved classifier, label the rows of one.

A file is a table (see `data.formats.tables`) with a column of texts, image paths or vectors, or a folder of images by
class. Either all of its examples are used, or an error names the wrong ones and nothing changes.
"""

import shlex
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TextIO

from hyperproto.api.examples import (
    Problems,
    UnknownLabelError,
    item_column,
    open_items,
    read_cell,
    read_descriptions,
    read_examples,
    read_items,
    reader_for,
    single_labels,
    warn_of_descriptions,
)
from hyperproto.data.formats.table_output import output_format, row_writer
from hyperproto.data.formats.tables import BadRow, OpenTable
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.estimators import (
    FewShotImageClassifier,
    FewShotTextClassifier,
    HypersphereClassifier,
    ImageEncoder,
    MultiLabelClassifier,
    load_classifier,
)
from hyperproto.estimators.export import export_classifier
from hyperproto.estimators.few_shot import FewShotClassifier
from hyperproto.estimators.items import run_folder
from hyperproto.estimators.label_sets import check_separator
from hyperproto.estimators.rejection import rule_of
from hyperproto.estimators.storage import model_lock
from hyperproto.files import is_folder, read_json
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

ERROR = "error"  # column of the reason why a row has no label
LABEL, PROBABILITY = "predicted", "probability"  # columns of the answer
EXPLANATION = "explanation"  # column of the reasons for a label
ON_ERROR = ("stop", "skip", "blank")
VECTORS = "identity"  # encoder name that stands for rows that are vectors already


def fit(
    examples: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    encoder: str | None = None,
    text: str | None = None,
    label: str = "label",
    label_separator: str | None = None,
    unlabelled: str | PathLike[str] | None = None,
    outside: str | PathLike[str] | None = None,
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
    out : folder for the model; an existing one is replaced. None: the model is not saved.
    encoder : minilm, mpnet, a folder, a name on the hub; efficientnet-lite0; identity for vectors. None: by the
        examples.
    text, label : columns of the items (None: text, image or vector) and of the labels.
    label_separator : text between two labels of a cell, such as "|". With it the classifier is a
        `MultiLabelClassifier`: a row carries any number of labels, and none if the cell is empty.
    unlabelled : more items of the same kind, without a label: a table, or images; used by the fit, not stored.
    outside : items of none of the classes, in the same form; they set the threshold of rejection.
    descriptions : for texts, a table with the columns of the labels and `description`, a text about each class. A
        described label without an example is a class, too, with a warning. None: the labels themselves, in words.
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
    model = new_classifier(encoder, is_folder(source), label_separator, **settings)
    items, labels = read_examples(model, source, text, label, format)
    given: dict[str, Any] = {}
    if descriptions is not None:
        if item_column(model) != "text":
            raise ConfigError(f"{fspath(descriptions)}: descriptions are for classifiers of texts")
        described = read_descriptions(fspath(descriptions), label)
        warn_of_descriptions(fspath(descriptions), described.keys(), single_labels(labels))
        if isinstance(model, MultiLabelClassifier):
            given["names"] = described
        else:
            model.set_params(names=described)
    if outside is not None:
        if isinstance(model, MultiLabelClassifier):
            raise ConfigError(f"{fspath(outside)}: with several labels a row of none of them has an empty label cell")
        given["outside"] = read_items(model, fspath(outside), text)
    more = None if unlabelled is None else read_items(model, fspath(unlabelled), text)
    with encoding_bar(model, bar):
        model.fit(items, labels, unlabelled=more, **given)
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
    """Add examples to a saved classifier, as if they had been there from the start; an error changes nothing.

    Any number of processes may add to one model at once: they take turns.

    Parameters
    ----------
    model : the folder that `fit` wrote.
    new_classes : accept labels that are not among the classes of the model.
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
        found = load_classifier(model)  # again: another process may have changed it
        if not new_classes and (gone := sorted({*single_labels(labels)} - {*found.classes_.tolist()}, key=str)):
            raise DataError(f"{fspath(model)}: class {gone[0]!r} was removed while the examples were read")
        with encoding_bar(found, bar):
            found.partial_fit(items, labels)
        found.save(model)
    return found


def export(
    model: str | PathLike[str], to: str | PathLike[str] | None = None, *, int8: bool = False, trust: Trust = None
) -> Path:
    """Write a saved classifier of texts or vectors for onnxruntime; return the folder.

    `ExportedClassifier` reads it without torch and scikit-learn, and gives the same answers.

    Parameters
    ----------
    model : the folder that `fit` wrote.
    to : folder to write. None: `export` in the folder of the model.
    int8 : store the weights of the encoder in 8 bits: a quarter of the size, and slightly different answers.
    trust : .py files that a run, where that is the encoder, may import.

    Examples
    --------
    >>> export("model")  # doctest: +SKIP
    """
    folder = Path(model) / "export" if to is None else Path(to)
    export_classifier(load_classifier(model, trust=trust), folder, int8)
    return folder


@dataclass(frozen=True)
class Labelled:
    """Summary of a file that was labelled."""

    rows: int  # number of rows read
    failed: int  # number of rows without an answer
    problems: tuple[str, ...]  # the first ten reasons, each with its lines


def predict(
    model: str | PathLike[str],
    source: str | PathLike[str],
    out: str | PathLike[str] | TextIO,
    *,
    text: str | None = None,
    format: str | None = None,  # noqa: A002 # as the command line calls it
    batch: int = 64,
    on_error: str = "blank",
    explain: bool = False,
    safe_cells: bool = False,
    trust: Trust = None,
) -> Labelled:
    """Label the rows of a file of any size: write the same rows, each with a label and its probability.

    A multi-label model writes all labels of a row, joined by its separator, and in the same way their probabilities.

    Parameters
    ----------
    model : the folder that `fit` wrote.
    source : a table, images, or "-" for lines of standard input.
    out : a path, written atomically in the format of its ending (.csv, .tsv, .jsonl, .parquet); or an open text file,
        which gets the rows as they are read, in the format of the source (JSON lines for Parquet).
    text, format, trust : as `fit` takes them; `format` is that of the source.
    batch : number of rows labelled at once.
    on_error : for a row that cannot be labelled, such as an empty text. "blank": it is written without a label, and
        with the reason in a column `error`, which CSV, TSV and Parquet always have then. "skip": it is left out.
        "stop": it is an error, and a file `out` is not written.
    explain : add a column `explanation`: the runner-up, the nearest example and the parts of the decision, as a text.
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
        raise ConfigError(f"batch={batch}: label at least 1 row at once")
    if on_error not in ON_ERROR:
        raise ConfigError(f"--on-error: {unknown_name('way', str(on_error), ON_ERROR)}")
    if isinstance(out, str | PathLike):
        output_format(out, "lines")  # refuse a wrong ending before any work
    found = load_classifier(model, trust=trust)
    done = 0
    piped = f"to label one text, write: echo {shlex.quote(fspath(source))} | hyperproto predict MODEL -"
    with open_items(fspath(source), format, found, piped, keep_bad=on_error != "stop") as table:
        problems = Problems(table)
        column = text or ("text" if table.format == "lines" else item_column(found))
        table.check_column(column, "--text")
        added = _added_columns(found, on_error, explain)
        check_free(table.columns or (), added, table.name)
        with row_writer(out, table, added, optional=(EXPLANATION, ERROR), safe_cells=safe_cells) as write:
            while rows := list(islice(table.rows, min(batch, sys.maxsize))):
                for (line, row), answer in zip(rows, _label(found, table, rows, column, added, on_error), strict=True):
                    done += 1
                    if answer.problem is not None:
                        problems.add(line, answer.problem)
                    if answer.problem is None or on_error == "blank":
                        write({**row, **answer.cells(added)})
                write.flush()
    return Labelled(done, problems.count, tuple(problems.sentences()))


@dataclass(frozen=True)
class _Answer:
    """Label of a row and its probability (None for none of these), or the reason why it has none.

    Several labels, and their probabilities, are texts with separators.
    """

    label: Any = None
    probability: float | str | None = None
    problem: str | None = None
    explanation: str | None = None

    def cells(self, columns: Collection[str]) -> dict[str, Any]:
        """Return the values of these columns."""
        every = {LABEL: self.label, PROBABILITY: self.probability, EXPLANATION: self.explanation, ERROR: self.problem}
        return {name: every[name] for name in columns}


def _label(
    model: HypersphereClassifier,
    table: OpenTable,
    rows: list[tuple[int, dict[str, Any]]],
    column: str,
    added: Collection[str],
    on_error: str,
) -> list[_Answer]:
    """Label some rows at once; a row that cannot be read, or that the model refuses, gets the reason as its answer."""
    read_item, explains = reader_for(model), EXPLANATION in added
    items, answers = {}, {}
    for place, (line, row) in enumerate(rows):
        check_free(row, added, table.where(line))
        try:
            if isinstance(row, BadRow):
                raise ValueError(row.problem)
            items[place] = read_cell(row, column, read_item)
        except ValueError as error:
            if on_error == "stop":
                raise DataError(f"{table.where(line)}: {error}") from None
            answers[place] = _Answer(problem=str(error))
    try:
        found = _answers(model, list(items.values()), explains) if items else []
    except DataError:
        if on_error == "stop":
            raise
        found = [_answer_alone(model, item, explains) for item in items.values()]
    answers |= dict(zip(items, found, strict=True))
    return [answers[place] for place in range(len(rows))]


def _answers(model: HypersphereClassifier, items: list[Any], explains: bool) -> list[_Answer]:
    if explains:
        return [
            _Answer(each.label, None if each.rejected else round(each.probability, 4), explanation=each.text())
            for each in model.explain(items, nearest=1)
        ]
    if isinstance(model, MultiLabelClassifier):
        return _label_sets(model, items)
    labels, probability = model.predict(items).tolist(), model.predict_proba(items).tolist()
    place = {label: n for n, label in enumerate(model.classes_.tolist())}
    return [
        _Answer(label, round(row[place[label]], 4) if label in place else None)
        for label, row in zip(labels, probability, strict=True)
    ]


def _label_sets(model: MultiLabelClassifier, items: list[Any]) -> list[_Answer]:
    """Return the labels of each item, joined by the separator, and their probabilities."""
    labels, predicted = model.classes_.tolist(), model.decision_function(items) > 0
    answers = []
    for chosen, row in zip(predicted, model.predict_proba(items), strict=True):
        own = chosen.nonzero()[0].tolist()
        both = [str(labels[place]) for place in own], [f"{row[place]:.4f}" for place in own]
        answers.append(_Answer(*map(model.separator.join, both)))
    return answers


def _answer_alone(model: HypersphereClassifier, item: Any, explains: bool) -> _Answer:
    """Label one item of a batch that was refused, perhaps for a single damaged image."""
    try:
        [answer] = _answers(model, [item], explains)
    except DataError as error:
        return _Answer(problem=str(error).removeprefix("X[0]").lstrip(", "))
    return answer


def _added_columns(model: HypersphereClassifier, on_error: str, explain: bool) -> dict[str, str]:
    """Return the columns of the answer, and their types in Parquet: labels are whole numbers only if all are."""
    several = isinstance(model, MultiLabelClassifier)
    whole = not several and rule_of(model._snapshot()) is None
    whole = whole and all(type(label) is int for label in model.classes_.tolist())
    columns = {LABEL: "int64" if whole else "string", PROBABILITY: "string" if several else "double"}
    columns |= {EXPLANATION: "string"} if explain else {}
    return columns | ({ERROR: "string"} if on_error == "blank" else {})


def check_free(names: Collection[str], added: Collection[str], where: str) -> None:
    """Refuse a table that has a column of the answer already."""
    taken = [name for name in added if name in names]
    if taken == [ERROR]:
        raise DataError(
            f"{where}: there is an {ERROR!r} already, where reasons would go; rename it, or say --on-error skip or stop"
        )
    if taken:
        raise DataError(f"{where}: there is a {taken[0]!r} already, where the answer would go; rename it")


def new_classifier(
    encoder: str | None = None, images: bool = False, label_separator: str | None = None, **settings: Any
) -> HypersphereClassifier:
    """Make the classifier for an encoder: of vectors ("identity"), of images or of texts.

    Items are images if `images` says so, if the encoder is one of images, or if it is a run that was trained on images.
    """
    of_images = images or encoder == FewShotImageClassifier().encoder or _is_image_run(encoder)
    if label_separator is not None:
        model: Any = _several_labels(encoder, of_images, label_separator, settings)
        return model  # type: ignore[no-any-return] # has the methods that are used here
    if "long" in settings and (encoder == VECTORS or of_images):
        raise ConfigError(f"long={settings['long']!r} is for classifiers of texts; leave it out")
    if encoder == VECTORS:
        return HypersphereClassifier(**settings)
    if of_images:
        cls: type[FewShotClassifier] = FewShotImageClassifier
    else:
        cls = FewShotTextClassifier
    return cls(**({} if encoder is None else {"encoder": encoder}), **settings)


def _several_labels(
    encoder: str | None, of_images: bool, separator: str, settings: dict[str, Any]
) -> MultiLabelClassifier:
    """Make a `MultiLabelClassifier` for an encoder."""
    known = MultiLabelClassifier().get_params().keys() - {"encoder", "separator", "progress"}
    if wrong := sorted(settings.keys() - known):
        raise ConfigError(
            f"{wrong[0]}={settings[wrong[0]]!r} is for classifiers of one label a row; leave it out, or leave out the "
            "separator of labels"
        )
    check_separator(separator)
    chosen: Any = None if encoder == VECTORS else encoder or FewShotTextClassifier().encoder
    if of_images:
        chosen = ImageEncoder(encoder or FewShotImageClassifier().encoder)
    return MultiLabelClassifier(encoder=chosen, separator=separator, **settings)


def _is_image_run(encoder: str | None) -> bool:
    """Return whether the encoder is a run that was trained on images."""
    folder = run_folder(encoder)
    try:
        return folder is not None and "channels" in read_json(folder / "config.json")["recipe"]["encoder"]
    except (DataError, LookupError, TypeError):  # damaged: loading the run says so
        return False


@contextmanager
def encoding_bar(model: HypersphereClassifier, wanted: bool) -> Iterator[None]:
    """Show a progress bar inside the block while items are encoded."""
    if isinstance(model, FewShotClassifier | MultiLabelClassifier):
        before, model.progress = model.progress, wanted
        yield
        model.progress = before
    else:
        yield
