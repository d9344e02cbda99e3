"""Advice from a saved classifier, as files: what to label next, and its examples with corrected labels."""

from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, TextIO

from hyperproto.api.examples import Problems, item_column, open_items, read_cell, reader_for
from hyperproto.api.files import check_free, encoding_bar
from hyperproto.data.formats.table_output import output_format, row_writer
from hyperproto.data.formats.tables import BadRow, OpenTable
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import HypersphereClassifier, load_classifier
from hyperproto.estimators.doctor import Diagnosis
from hyperproto.estimators.suggestion import Suggestion
from hyperproto.registry import Trust

COLUMNS = {"score": "double", "reason": "string"}  # and their types in Parquet
KEEP, RELABEL, CHECK = "keep", "relabel", "check"  # reasons of `fix`


@dataclass(frozen=True)
class Suggested:
    """Suggestions for a file of items."""

    suggestions: tuple[Suggestion, ...]
    rows: int  # number of rows read
    failed: int  # number of rows that could not be read, and so are not suggested
    problems: tuple[str, ...]  # the first ten reasons, each with its lines


def suggest(
    model: str | PathLike[str],
    pool: str | PathLike[str],
    out: str | PathLike[str] | TextIO,
    *,
    n: int = 20,
    text: str | None = None,
    format: str | None = None,  # noqa: A002 # as the command line calls it
    safe_cells: bool = False,
    bar: bool = False,
    trust: Trust = None,
) -> Suggested:
    """Write the `n` rows of a file that are worth labelling next, the most useful first, each with score and reason.

    Parameters
    ----------
    model : the folder that `fit` wrote.
    pool : a table, images, or "-" for lines of standard input. Labels, if there are any, are not read.
    out : a path, written atomically in the format of its ending; or an open text file.
    text, format, safe_cells, trust : as `predict` takes them.
    bar : show a bar on standard error while items are encoded.

    Returns
    -------
    The suggestions, whose `index` is the position among the rows that could be read; the number of rows; the number of
    rows that could not be read, and the reasons of the first of them.

    Examples
    --------
    >>> suggest("model", "new.csv", "next.csv", n=50)  # doctest: +SKIP
    """
    if isinstance(out, str | PathLike):
        output_format(out, "lines")  # refuse a wrong ending before any work
    found = load_classifier(model, trust=trust)
    piped = "write the items into a file, a line each"
    with open_items(fspath(pool), format, found, piped, keep_bad=True) as table:
        column = text or ("text" if table.format == "lines" else item_column(found))
        table.check_column(column, "--text")
        check_free(table.columns or (), COLUMNS, table.name)
        problems, rows, items, read_item = Problems(table), [], [], reader_for(found)
        for line, row in table.rows:
            check_free(row, COLUMNS, table.where(line))
            try:
                if isinstance(row, BadRow):
                    raise ValueError(row.problem)
                items.append(read_cell(row, column, read_item))
                rows.append(row)
            except ValueError as error:
                problems.add(line, str(error))
        if not items:
            raise DataError("\n".join([f"{table.name}: holds no items", *problems.sentences()]))
        with encoding_bar(found, bar):
            suggestions = found.suggest(items, n)
        with row_writer(out, table, COLUMNS, safe_cells=safe_cells) as write:
            for each in suggestions:
                write({**rows[each.index], "score": float(f"{each.score:.3g}"), "reason": each.reason})
    return Suggested(tuple(suggestions), len(rows) + problems.count, problems.count, tuple(problems.sentences()))


@dataclass(frozen=True)
class Fixed:
    """Summary of the examples of a classifier that were written with corrected labels."""

    examples: int
    relabelled: int
    outlying: int  # number of examples that are kept and should be checked


def fix(model: str | PathLike[str], out: str | PathLike[str]) -> Fixed:
    """Write all examples of a saved classifier as a table, with corrected labels where they look wrong.

    `fit` reads the table. Its columns are `text`, `image` or `vector`; `label`, corrected by what `diagnose` suggests;
    `given`, the label of the fit; `reason`: "relabel", "check" (far from the rest of its class, label unchanged) or
    "keep"; `number` of the example; and `weight`, if any is not 1, which `fit` of a file does not read. Unlabelled and
    out-of-class items are not examples.

    Parameters
    ----------
    model : the folder that `fit` wrote.
    out : a path, written atomically in the format of its ending: .csv, .tsv, .jsonl or .parquet.

    Examples
    --------
    >>> fix("model", "corrected.csv")  # doctest: +SKIP
    """
    output_format(out, "csv")  # refuse a wrong ending before any work
    loaded = load_classifier(model, check_encoder=False)
    return write_fixed(loaded, loaded.diagnose(), out)


def write_fixed(model: HypersphereClassifier, found: Diagnosis, out: str | PathLike[str]) -> Fixed:
    """Write the examples of a classifier with the labels that its diagnosis suggests; see `fix`."""
    state, column = model._snapshot(), item_column(model)
    rows, numbers, labels, weights = state.rows, state.numbers, state.labels, state.weights
    if rows is None or numbers is None or labels is None or weights is None:
        raise ConfigError("store_support=False keeps no examples to write; fit again with store_support=True")
    items: dict[int, Any] = dict(model.examples_)
    if column == "vector":
        items = {number: row.tolist() for number, row in zip(numbers.tolist(), rows, strict=True)}
    if missing := [number for number in numbers.tolist() if number not in items]:
        raise DataError(
            f"{len(missing)} of {len(numbers)} examples are not stored as a {column}, the first is number "
            f"{missing[0]}; correct the labels where the {column}s come from: diagnose() lists them by number"
        )
    classes = [_label_cell(label) for label in model.classes_.tolist()]
    better = {each.example: _label_cell(each.suggestion) for each in found.mislabelled}
    far = {each.example for each in found.outlying} - better.keys()
    table = OpenTable(fspath(out), "csv", None, iter(()))
    with row_writer(out, table, {}) as write:
        for number, label, weight in zip(numbers.tolist(), labels.tolist(), weights.tolist(), strict=True):
            given = classes[label]
            reason = RELABEL if number in better else CHECK if number in far else KEEP
            row = {column: items[number], "label": better.get(number, given), "given": given, "reason": reason}
            write({**row, "number": number, **({} if (weights == 1).all() else {"weight": weight})})
    return Fixed(len(numbers), len(better), len(far))


def _label_cell(label: Any) -> str | int:
    """Return a label as tables hold it."""
    return label if isinstance(label, str) or type(label) is int else str(label)
