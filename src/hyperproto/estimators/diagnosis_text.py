"""A diagnosis as lines of text."""

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperproto.estimators.diagnosis import Diagnosis

MOST = 10  # examples of each kind that are listed
WIDEST = 40  # characters of a label
LONGEST = 100  # and of an example


def diagnosis_table(diagnosis: "Diagnosis") -> str:
    """Classes, the one that would gain most first, then the examples that look wrong."""
    head = ("class", "examples", "extent", "nearest rival", "distance", "overlap", "gain of one more")
    ordered = sorted(diagnosis.classes, key=lambda report: -(report.gain or 0.0))
    rows = [
        (
            _short(report.label),
            f"{report.count:g}",
            f"{report.extent:.3f}",
            "-" if report.rival is None else _short(report.rival),
            _number(report.distance, ".3f"),
            _number(report.overlap, ".1%"),
            _number(report.gain, ".2%"),
        )
        for report in ordered
    ]
    lines = _columns([head, *rows], left=(0, 3))
    lines += ["", f"Another example would help most in: {_short(diagnosis.would_gain_most)}"]
    wrong = [
        f"  example {report.example}, labelled {_short(report.label)}: rather {_short(report.suggestion)} "
        f"({report.odds:,.0f} times as likely){_item(diagnosis, report.example)}"
        for report in diagnosis.mislabelled
    ]
    far = [
        f"  example {report.example} of {_short(report.label)}: {report.score:.1f} times as far as is usual"
        f"{_item(diagnosis, report.example)}"
        for report in diagnosis.outlying
    ]
    lines += _listed("Possibly mislabelled:", wrong) + _listed("Far from the rest of their class:", far)
    return "\n".join(lines)


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return ["", f"{title} none"]
    more = [f"  ... and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return ["", title, *lines[:MOST], *more]


def _columns(rows: Sequence[Sequence[str]], left: tuple[int, ...]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if n in left else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _item(diagnosis: "Diagnosis", example: int) -> str:
    """What an example was, on a line of its own."""
    item = diagnosis.items.get(example)
    return "" if item is None else f"\n    {shorten(item, LONGEST, placeholder=' …')}"


def _short(label: Any) -> str:
    text = str(label)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
