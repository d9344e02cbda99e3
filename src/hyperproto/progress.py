"""Progress by a callback, and a bar on standard error that shows it with an estimate. It needs no torch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

BAR_WIDTH = 12


class Show(Protocol):
    """Called while something long is done: so much of so much, and what is counted, in a few words.

    A function `(done: int, total: int, note: str = "") -> None`; `total` may change when another part of the work
    begins.
    """

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Take note."""


def noted(show: Show | None, words: str) -> Callable[[int, int], None]:
    """Return a callback for one part of the work; `words` say what it counts."""

    def report(done: int, total: int) -> None:
        if show is not None:
            show(done, total, words)

    return report


def silent(done: int, total: int, note: str = "") -> None:
    """Ignore progress."""


@contextmanager
def progress_bar(title: str) -> Iterator[Show]:
    """Show a bar until the block ends, well or not: nothing of it stays above a result or an error.

    Call what it yields with (done, total, what is counted).
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=BAR_WIDTH),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=False)),
        TextColumn("left:", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(title, total=None, note="getting ready")  # until the first report

        def report(done: int, total: int, note: str = "") -> None:
            display.update(task, completed=done, total=total, note=note)

        yield report
