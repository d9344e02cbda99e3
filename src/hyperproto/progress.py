"""Progress callbacks, and a progress bar on standard error with the estimated time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

BAR_WIDTH = 12


class Show(Protocol):
    """Progress callback `(done, total, note)`, called during long work.

    `note` says what is counted; `total` may change when another part of the work begins.
    """

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Report that `done` of `total` units are done."""


def noted(show: Show | None, words: str) -> Callable[[int, int], None]:
    """Return a callback `(done, total)` for one part of the work; `words` is the note of what it counts."""

    def report(done: int, total: int) -> None:
        if show is not None:
            show(done, total, words)

    return report


def silent(done: int, total: int, note: str = "") -> None:
    """Ignore progress."""


@contextmanager
def progress_bar(title: str) -> Iterator[Show]:
    """Show a bar inside the block, which yields its callback; the bar disappears at the end, also after an error."""
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
