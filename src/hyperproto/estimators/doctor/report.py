"""Reports of the class doctor: dataclasses that hold numbers, and turn into text, JSON and a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import shorten
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from hyperproto.regions.arrays import Doubles, Indices, covering_radii, row_squares, sum_by_label
from hyperproto.regions.statistics import FlatStatistics, moments_of
from hyperproto.reports.tables import TextTable, folded

MOST_LISTED = 10  # examples of each kind in a table
WIDEST_INTERVAL = 0.5  # of an overlap that is shown
WIDEST, LONGEST = 40, 100  # characters of a label and of an example in a table
COVERED = 0.8  # share of a class's examples inside its circle in a figure


@dataclass(frozen=True)
class ClassReport:
    """Report on one class.

    Attributes
    ----------
    rival : label of the class with the nearest mean; None if there is no other class.
    distance : distance to the rival's mean.
    overlap : share of examples of both classes that a linear boundary between them confuses; None without scatter.
    overlap_low, overlap_high : 90 % interval of the overlap.
    gain : decrease of the confusion with the rival by one more example.

    A class without examples has no `overlap` and `gain`.
    """

    label: Any
    count: float
    extent: float
    rival: Any = None
    distance: float | None = None
    overlap: float | None = None
    gain: float | None = None
    overlap_low: float | None = None
    overlap_high: float | None = None


@dataclass(frozen=True)
class OutlyingExample:
    """Example far from the rest of its class; `score` is its distance relative to what is typical."""

    example: int  # number of the example, counted from 0 over all calls of fit and partial_fit
    label: Any
    score: float


@dataclass(frozen=True)
class MislabelledExample:
    """Example for which leave-one-out finds another label many times as likely as its own."""

    example: int
    label: Any
    suggestion: Any
    odds: float  # ratio of the two probabilities, at most 10^6


@dataclass(frozen=True)
class MergeSuggestion:
    """Two classes that leave-one-out cannot separate."""

    labels: tuple[Any, Any]
    overlap: float
    overlap_low: float
    confused: tuple[float, float]  # share of the examples of each that leave-one-out takes for the other


@dataclass(frozen=True)
class SplitSuggestion:
    """Class whose examples form two clusters."""

    label: Any
    sizes: tuple[int, int]  # examples of each cluster
    p_value: float  # that one Gaussian class looks so divided, corrected for the number of classes
    examples: tuple[tuple[int, ...], tuple[int, ...]]  # numbers of those nearest to the middle of each cluster


@dataclass(frozen=True, eq=False)
class Plane:
    """Projection of some classes on the plane of the first two principal axes of their means.

    The radius of a circle is measured in the plane: it covers the share `covered` of the class's examples.
    """

    classes: Indices  # (M,) indices of the classes
    means: Doubles  # (M, 2)
    radii: Doubles  # (M,)
    examples: NDArray[Any]  # (S, 2), of these classes
    labels: Indices  # (S,) from 0 to M - 1
    numbers: NDArray[np.int64]  # (S,) of the examples
    covered: float = COVERED

    @classmethod
    def of(cls, stats: FlatStatistics, numbers: NDArray[np.int64], classes: Indices) -> "Plane":
        """Project on the first two principal axes of the class means, or of the examples if the means span fewer."""
        means = stats.mean[classes]
        middle = means.mean(axis=0)
        place = np.full(len(stats.count), -1)
        place[classes] = np.arange(len(classes))
        labels = place[stats.labels]
        here = labels >= 0
        axes = _axes(means - middle, 2)
        if len(axes) < 2:
            rest = stats.residual[here] - stats.residual[here] @ axes.T @ axes
            axes = np.vstack([axes, _axes(rest, 2 - len(axes))])
        if len(axes) < 2:  # the space has fewer dimensions, or all points are equal
            axes = np.vstack([axes, np.zeros((2 - len(axes), means.shape[1]))])
        examples = (stats.rows[here] - middle) @ axes.T
        labels, weights = labels[here], stats.weights[here]
        there = sum_by_label(labels, weights, len(classes))[:, None] > 0
        means = np.where(there, moments_of(examples, labels, weights, len(classes)).mean, (means - middle) @ axes.T)
        away = np.sqrt(row_squares(examples - means[labels]))
        radii = covering_radii(away, labels, weights, len(classes), COVERED)
        return cls(classes, means, radii, examples, labels, numbers[here])


def _axes(rows: Doubles, most: int) -> Doubles:
    """Return at most `most` principal axes of rows, only those along which the rows differ."""
    _, size, axes = np.linalg.svd(rows, full_matrices=False)
    found: Doubles = axes[:most][size[:most] > 1e-9 * size[0]]
    return found


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`: `table()` returns text, `to_dict()` data for JSON, `figure()` a drawing."""

    classes: tuple[ClassReport, ...]
    outlying: tuple[OutlyingExample, ...]  # farthest first
    mislabelled: tuple[MislabelledExample, ...]  # largest odds first
    would_gain_most: Any  # label of the class that one more example would help most
    plane: Plane = field(repr=False, compare=False)
    items: Mapping[int, str] = field(default_factory=dict, repr=False, compare=False)  # by number
    merges: tuple[MergeSuggestion, ...] = ()  # largest overlap first
    splits: tuple[SplitSuggestion, ...] = ()  # least p-value first

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dictionaries."""
        return {
            "classes": [asdict(report) for report in self.classes],
            "outlying": [self._named(report) for report in self.outlying],
            "mislabelled": [self._named(report) for report in self.mislabelled],
            "would_gain_most": self.would_gain_most,
            "merges": [_listing(asdict(report)) for report in self.merges],
            "splits": [_listing(asdict(report)) for report in self.splits],
        }

    def _named(self, report: OutlyingExample | MislabelledExample) -> dict[str, Any]:
        item = self.items.get(report.example)
        return asdict(report) if item is None else {**asdict(report), "item": item}

    def table(self, width: int | None = None) -> str:
        """Return lines of text, the class with the largest gain first; with `width`, folded to that many columns."""
        return diagnosis_table(self, width)

    def figure(self) -> Any:
        """Return a matplotlib Figure of the classes in a plane, with a circle around 80 % of each class."""
        try:
            import matplotlib  # noqa: F401

            from hyperproto.reports.pictures import draw_diagnosis
        except ImportError as error:
            raise ConfigError(
                f"figures are drawn with matplotlib ({error}); pip install 'hyperproto[plots]'"
            ) from error
        return draw_diagnosis(self)


def diagnosis_table(diagnosis: Diagnosis, width: int | None = None) -> str:
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
            _overlap(report),
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
    lines += _changes(diagnosis)
    return "\n".join(lines if width is None else [folded(line, width, "    ") for line in lines])


def _changes(diagnosis: Diagnosis) -> list[str]:
    """Return the suggested changes of the classes; nothing if there are none."""
    merged = [
        f"  {_short(each.labels[0])} and {_short(each.labels[1])}: overlap {each.overlap:.0%}, at least "
        f"{each.overlap_low:.0%}"
        for each in diagnosis.merges
    ]
    split = [
        f"  {_short(each.label)}: {each.sizes[0]} and {each.sizes[1]} examples, such as {each.examples[0][0]} and "
        f"{each.examples[1][0]}"
        for each in diagnosis.splits
    ]
    found = (("Classes to merge, which are not told apart:", merged), ("Classes to split, of two clusters:", split))
    return [line for title, lines in found if lines for line in _listed(title, lines)]


def _listing(value: Any) -> Any:
    """Return a value with lists in place of tuples, as JSON gives it back."""
    if isinstance(value, dict):
        return {name: _listing(each) for name, each in value.items()}
    return [_listing(each) for each in value] if isinstance(value, tuple) else value


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


def _overlap(report: ClassReport) -> str:
    """Return the overlap with its interval; "unknown" if the examples cannot tell."""
    if report.overlap is None or report.overlap_low is None or report.overlap_high is None:
        return _number(report.overlap, ".0%")
    if report.overlap_high - report.overlap_low > WIDEST_INTERVAL:
        return "unknown"
    return f"{report.overlap:.0%} ({report.overlap_low:.0%} to {report.overlap_high:.0%})"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _item(diagnosis: Diagnosis, example: int) -> str:
    """Return the text or path of an example on a line of its own, or ""."""
    item = diagnosis.items.get(example)
    return "" if item is None else f"\n    {shorten(item, LONGEST, placeholder=' …')}"


def _short(label: Any) -> str:
    text = str(label)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
