"""Tables of results on tagged words: exact spans in both conventions, and what goes wrong."""

from collections.abc import Sequence

from rich.table import Table

from hyperproto.evaluation import Result
from hyperproto.evaluation.intervals import FloatArray
from hyperproto.reports.comparison import compared, percent

ERRORS = {
    "outside": "O, true %",
    "outside_predicted": "O, predicted %",
    "false_positive": "O called an entity %",
    "false_negative": "entity called O %",
    "within": "wrong fine type %",
    "outer": "wrong coarse type %",
}


def spans_table(title: str, results: Sequence[Result]) -> Table:
    """One row a result: F1 with the paired difference to the first, precision and recall, in either convention."""
    first = results[0]
    table = Table(title=title, title_justify="left")
    table.add_column("")
    conventions = [first.settings["convention"], *first.others]
    for convention in conventions:
        for name in (f"F1 %, {convention}", "± 95 %", "- first", "± 95 %", "P %", "R %"):
            table.add_column(name, justify="right")
    for result in results:
        cells = []
        for convention, values, best in zip(conventions, _values(result), _values(first), strict=True):
            found = result.metrics[convention]
            cells += compared(values, None if result is first else best)
            cells += [percent(found["precision"]), percent(found["recall"])]
        table.add_row(result.label, *cells)
    return table


def errors_table(results: Sequence[Result]) -> Table:
    """Shares of all words, and, for wrong types, of the spans that are where they should be."""
    table = Table(title="what goes wrong (types: of spans with the right borders)", title_justify="left")
    table.add_column("")
    for name in ERRORS.values():
        table.add_column(name, justify="right")
    for result in results:
        rates = result.metrics["errors"]["rates"]
        table.add_row(result.label, *(percent(rates[name]) for name in ERRORS))
    return table


def _values(result: Result) -> list[FloatArray]:
    return [result.values, *result.others.values()]
