"""Progress with an estimate, on standard error. It needs no torch: downloads show it, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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
