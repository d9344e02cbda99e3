"""Advice from a saved classifier about a file of items: what to label next."""

from dataclasses import dataclass
from os import PathLike, fspath
from typing import TextIO

from hyperproto.api.examples import Problems, item_column, open_items, read_cell, reader_for
from hyperproto.api.files import check_free, encoding_bar
from hyperproto.data.formats.table_output import output_format, row_writer
from hyperproto.data.formats.tables import BadRow
from hyperproto.errors import DataError
from hyperproto.estimators import load_classifier
from hyperproto.estimators.suggestion import Suggestion
from hyperproto.registry import Trust

COLUMNS = {"score": "double", "reason": "string"}  # and their types in Parquet


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
