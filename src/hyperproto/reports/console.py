"""Tables of results for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from hyperproto.evaluation import Result, mean_interval, paired_difference


def percent(value: float) -> str:
    """Show a fraction as percent."""
    return f"{100 * value:.2f}"


def results_table(title: str, results: Sequence[Result]) -> Table:
    """One row a result, with the paired difference to the first."""
    table = Table(title=title, title_justify="left")
    for name in ("", "accuracy %", "± 95 %", "- first", "± 95 %"):
        table.add_column(name, justify="left" if not name else "right")
    first = results[0]
    for result in results:
        accuracy, ci95 = mean_interval(result.accuracies)
        difference = ["", ""]
        if result is not first:
            difference = [f"{100 * value:+.2f}" for value in paired_difference(result.accuracies, first.accuracies)]
            difference[1] = difference[1].lstrip("+")
        table.add_row(result.label, percent(accuracy), percent(ci95), *difference)
    return table


def columns_table(titles: Sequence[str], columns: Sequence[Sequence[Result]]) -> Table:
    """One row a contender, one column for each list of episodes; in brackets the paired difference to the first row."""
    table = Table(title="\n".join(titles), title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(f"shots {_shots(column[0].settings['shot'])}", justify="right")
    for row in zip(*columns, strict=True):
        cells = []
        for result, column in zip(row, columns, strict=True):
            cell = " ± ".join(percent(value) for value in mean_interval(result.accuracies))
            if result is not column[0]:
                difference, ci95 = paired_difference(result.accuracies, column[0].accuracies)
                cell += f"\n({100 * difference:+.2f} ± {percent(ci95)})"
            cells.append(cell)
        table.add_row(row[0].label, *cells)
    return table


def _shots(shot: int | list[int]) -> str:
    return ",".join(map(str, shot)) if isinstance(shot, list) else str(shot)


def describe(settings: dict[str, Any]) -> str:
    """Say in one line which episodes a table is about."""
    return (
        f"{settings['data']} {settings['split']}, {settings['way']}-way, shots {_shots(settings['shot'])}, "
        f"{settings['query']} queries a class, {settings['episodes']} episodes, "
        f"seed {settings['seed']}, hash {settings['episode_hash']}"
    )
