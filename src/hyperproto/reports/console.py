"""What the terminal shows: progress with an estimate on standard error, tables on standard output."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hyperproto.evaluation import Result, mean_interval, paired_difference


class Show(Protocol):
    """Moves a bar: so much done of so much, and a few words."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show it."""


@contextmanager
def progress_bar(title: str) -> Iterator[Show]:
    """Show a bar with an estimate of what is left; call what it yields with (done, total, a few words)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(title, total=None, note="")

        def report(done: int, total: int, note: str = "") -> None:
            display.update(task, completed=done, total=total, note=note)

        yield report


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
