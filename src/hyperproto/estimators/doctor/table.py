"""Text of a diagnosis: columns of classes, then lists of examples."""

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from hyperproto.reports.tables import TextTable, folded

if TYPE_CHECKING:
    from hyperproto.estimators.doctor.report import Diagnosis

MOST_LISTED = 10  # examples of each kind in a table
WIDEST, LONGEST = 40, 100  # characters of a label and of an example in a table


def diagnosis_table(diagnosis: "Diagnosis", width: int | None = None) -> str:
    """Return the text of `Diagnosis.table`."""
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
    if width is not None and max(map(len, lines)) > width:
        lines = TextTable("", head, rows).text(width).splitlines()
    lines += ["", f"Another example would help most in: {_short(diagnosis.would_gain_most)}"]
    wrong = [
        f"  example {report.example}, labelled {_short(report.label)}: rather {_short(report.suggestion)} "
        f"({report.odds:,.0f} times as likely){_item(diagnosis, report.example)}"
        for report in diagnosis.mislabelled
    ]
    far = [
        f"  example {report.example} of {_short(report.label)}: {report.score:.1f} times as far as usual"
        f"{_item(diagnosis, report.example)}"
        for report in diagnosis.outlying
    ]
    lines += _listed("Possibly mislabelled:", wrong) + _listed("Far from the rest of their class:", far)
    return "\n".join(lines if width is None else [folded(line, width, "    ") for line in lines])


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return ["", f"{title} none"]
    more = [f"  ... and {len(lines) - MOST_LISTED} more"] if len(lines) > MOST_LISTED else []
    return ["", title, *lines[:MOST_LISTED], *more]


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
    """Return the text or path of an example on a line of its own, or ""."""
    item = diagnosis.items.get(example)
    return "" if item is None else f"\n    {shorten(item, LONGEST, placeholder=' …')}"


def _short(label: Any) -> str:
    text = str(label)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
