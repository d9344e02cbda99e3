"""The class doctor: which classes are small, wide or close to another, and which examples look wrong.

How often two classes are taken for each other, and what another example would change, follow from statistics. Between
classes a and b the nearest mean decides along w = z_a - z_b. The true means are delta apart, which is ||w|| but for the
noise of the two means: delta^2 = ||w||^2 - v_a / K_a - v_b / K_b. Along the noisy w only delta^2 / ||w|| of it is left
to tell them apart. With sigma the scatter along w, an example is on the wrong side of the middle with probability
Phi(-delta^2 / (2 ||w|| sigma)). More examples make ||w|| shorter, not delta.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from textwrap import shorten
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from hyperproto.errors import ConfigError
from hyperproto.estimators.conformal import class_scales
from hyperproto.estimators.neighbours import nearest_others
from hyperproto.estimators.snapshot import Snapshot, blocks
from hyperproto.regions.arrays import Doubles, Indices, covering_radii, row_squares, sum_by_label
from hyperproto.regions.left_out import left_out_measures
from hyperproto.regions.statistics import FlatStatistics, moments_of
from hyperproto.reports.tables import TextTable, folded

MOST_DRAWN = 25  # classes in one figure; of more, the most confused
COVERED = 0.8  # share of a class's examples that its circle covers in a figure
LEAST_ODDS = 10.0  # of another label to the given one, where the given one is doubted
MOST_JUDGED = 50_000_000  # examples times classes that are compared to find wrong labels
OUTLYING = 3.5  # how many robust standard deviations above the median a score is out of the ordinary
MOST_LISTED = 10  # examples of each kind that a table lists
WIDEST = 40  # characters of a label
LONGEST = 100  # and of an example


@dataclass(frozen=True)
class ClassReport:
    """One class. `overlap` is the share of it and its nearest rival that no line between the two can tell apart.

    A class known by its name alone lies where that puts it; of its confusions nothing is known.
    """

    label: Any
    count: float
    extent: float
    rival: Any = None  # None: there is no other class
    distance: float | None = None  # to the rival's mean
    overlap: float | None = None  # None: no example differs from another, so nobody can tell
    gain: float | None = None  # how much the confusion with the rival would fall with one more example


@dataclass(frozen=True)
class OutlyingExample:
    """An example far from the rest of its class; `score` is its distance in units of what is usual."""

    example: int  # its number, counted from 0 over everything that was ever given to fit and partial_fit
    label: Any
    score: float


@dataclass(frozen=True)
class MislabelledExample:
    """An example for which the others, it being left out, find another label many times as likely as its own."""

    example: int
    label: Any
    suggestion: Any
    odds: float  # how many times as likely, at most 10^6


@dataclass(frozen=True, eq=False)
class Plane:
    """Some classes in the plane in which their means lie farthest apart.

    A distance here is not one in the space, so a circle's radius is taken in the plane: it covers the share `covered`
    of the class's own examples.
    """

    classes: Indices  # (M,) which classes these are
    means: Doubles  # (M, 2)
    radii: Doubles  # (M,)
    examples: NDArray[Any]  # (S, 2), those of these classes
    labels: Indices  # (S,) from 0 to M - 1
    numbers: NDArray[np.int64]  # (S,) which examples they are
    covered: float = COVERED

    @classmethod
    def of(cls, stats: FlatStatistics, numbers: NDArray[np.int64], classes: Indices) -> "Plane":
        """Project on the first two principal axes of the means, or, if there are not as many, of the examples."""
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
        if len(axes) < 2:  # the space itself is smaller, or there is one point
            axes = np.vstack([axes, np.zeros((2 - len(axes), means.shape[1]))])
        examples = (stats.rows[here] - middle) @ axes.T
        labels, weights = labels[here], stats.weights[here]
        there = sum_by_label(labels, weights, len(classes))[:, None] > 0
        means = np.where(there, moments_of(examples, labels, weights, len(classes)).mean, (means - middle) @ axes.T)
        away = np.sqrt(row_squares(examples - means[labels]))
        radii = covering_radii(away, labels, weights, len(classes), COVERED)
        return cls(classes, means, radii, examples, labels, numbers[here])


def _axes(rows: Doubles, most: int) -> Doubles:
    """The first principal axes of rows, only those along which they differ."""
    _, size, axes = np.linalg.svd(rows, full_matrices=False)
    found: Doubles = axes[:most][size[:most] > 1e-9 * size[0]]
    return found


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found: `table()` to read, `to_dict()` for JSON, `figure()` to see."""

    classes: tuple[ClassReport, ...]
    outlying: tuple[OutlyingExample, ...]  # the farthest first
    mislabelled: tuple[MislabelledExample, ...]  # the surest first
    would_gain_most: Any  # the label of the class that another example would help most
    plane: Plane = field(repr=False, compare=False)
    items: Mapping[int, str] = field(default_factory=dict, repr=False, compare=False)  # what examples were, if known

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dictionaries."""
        return {
            "classes": [asdict(report) for report in self.classes],
            "outlying": [self._named(report) for report in self.outlying],
            "mislabelled": [self._named(report) for report in self.mislabelled],
            "would_gain_most": self.would_gain_most,
        }

    def _named(self, report: OutlyingExample | MislabelledExample) -> dict[str, Any]:
        item = self.items.get(report.example)
        return asdict(report) if item is None else {**asdict(report), "item": item}

    def table(self, width: int | None = None) -> str:
        """Return lines of text, the class that would gain most first; with `width` folded to so many columns."""
        return diagnosis_table(self, width)

    def figure(self) -> Any:
        """Draw the classes in a plane, with circles about 80 % of each and overlaps: a matplotlib Figure."""
        try:
            import matplotlib  # noqa: F401

            from hyperproto.reports.pictures import draw_diagnosis
        except ImportError as error:
            raise ConfigError(
                f"figures are drawn with matplotlib ({error}); pip install 'hyperproto[plots]'"
            ) from error
        return draw_diagnosis(self)


def diagnose(model: Snapshot) -> Diagnosis:
    """Look at a classifier; it must have kept its examples."""
    stats, placed = model.stats, model.placed_stats
    labels: list[Any] = model.classes.tolist()
    counts, extents = stats.count.tolist(), np.asarray(model.region_with_extent.extent_radius).tolist()
    reports = [ClassReport(*each) for each in zip(labels, counts, extents, strict=True)]
    gain = -stats.count  # if nothing better is known, the smallest class needs an example most
    filled = np.flatnonzero(model.has_examples)
    if len(filled) > 1:
        found = Confusion(stats if len(filled) == len(labels) else _classes_of(stats, filled))
        for place, n in enumerate(filled):
            rival = labels[filled[found.rival[place]]]
            numbers = float(found.distance[place]), or_none(2 * found.error[place]), or_none(found.gain[place])
            reports[n] = ClassReport(labels[n], counts[n], extents[n], rival, *numbers)
        known = len(filled) == len(labels) and not np.isnan(found.gain).any()
        gain = found.gain if known else gain
    for n in np.flatnonzero(~model.has_examples):  # how often it is confused, examples would have to tell
        away = np.sqrt(row_squares(placed.mean - placed.mean[n]))
        away[n] = np.inf
        if len(labels) > 1:
            rival = int(away.argmin())
            reports[n] = ClassReport(labels[n], counts[n], extents[n], labels[rival], float(away[rival]))
    return Diagnosis(
        classes=tuple(reports),
        outlying=_outlying(model, labels),
        mislabelled=_mislabelled(model, labels),
        would_gain_most=labels[int(gain.argmax())],
        plane=Plane.of(placed, _numbers(model), _drawn(reports)),
    )


def _numbers(model: Snapshot) -> NDArray[np.int64]:
    """Return the numbers of the stored examples (n,)."""
    assert model.numbers is not None  # else `model.stats` has raised an error
    return model.numbers


def _classes_of(stats: FlatStatistics, classes: Indices) -> FlatStatistics:
    """The statistics of some classes, which all examples are of."""
    labels = np.searchsorted(classes, stats.labels)
    parts = stats.count[classes], stats.mean[classes], stats.squares[classes]
    return FlatStatistics(*parts, stats.rows, labels, stats.weights)


def _drawn(reports: list[ClassReport]) -> Indices:
    """Which classes a figure shows: all, or those of the largest overlaps, each with its rival."""
    if len(reports) <= MOST_DRAWN:
        return np.arange(len(reports))
    place = {report.label: n for n, report in enumerate(reports)}
    shown: dict[int, None] = {}
    for n in sorted(range(len(reports)), key=lambda n: -(reports[n].overlap or 0.0)):
        shown |= dict.fromkeys((n, place[reports[n].rival]))
        if len(shown) >= MOST_DRAWN:
            break
    return np.array(sorted(shown))


def _outlying(model: Snapshot, labels: list[Any]) -> tuple[OutlyingExample, ...]:
    scores = model.conformal.scores
    known = scores[np.isfinite(scores)]
    if not len(known):
        return ()
    middle = np.median(known)
    limit = middle + OUTLYING * 1.4826 * np.median(np.abs(known - middle))
    far = np.flatnonzero(np.isfinite(scores) & (scores > limit))
    numbers = _numbers(model)
    return tuple(
        OutlyingExample(int(numbers[i]), labels[model.stats.labels[i]], float(scores[i]))
        for i in far[np.argsort(-scores[far], kind="stable")]
    )


def _mislabelled(model: Snapshot, labels: list[Any]) -> tuple[MislabelledExample, ...]:
    """Examples whose label the others doubt; of very many, those farthest from their class are looked at."""
    stats, numbers, found = model.stats, _numbers(model), []
    judged = np.flatnonzero(model.left_out.has_siblings)
    if len(labels) == 1 or not len(judged):
        return ()
    most = MOST_JUDGED // len(labels)
    if len(judged) > most:
        judged = np.sort(judged[np.argsort(-model.conformal.scores[judged], kind="stable")[:most]])
    for part in blocks(len(judged), len(labels)):
        index = judged[part]
        measures = left_out_measures(model.left_out, model.region, model.form, index, fair=True)
        best = measures.argmin(axis=1)
        at, own = np.arange(len(index)), stats.labels[index]
        odds = np.exp(np.minimum((measures[at, own] - measures[at, best]) / model.temperature, math.log(1e6)))
        for row in np.flatnonzero(odds >= LEAST_ODDS):
            example = int(numbers[index[row]])
            found.append(MislabelledExample(example, labels[own[row]], labels[best[row]], float(odds[row])))
    return tuple(sorted(found, key=lambda report: -report.odds))


@dataclass(frozen=True, eq=False)
class Confusion:
    """Each class (N,) and its nearest rival; there must be two classes."""

    stats: FlatStatistics

    @cached_property
    def scatter(self) -> Doubles:
        """v_n (N,), shrunk towards the pooled scatter; not a number where no example differs from another."""
        count = self.stats.count
        return class_scales(self.stats) ** 2 / (1 + 1 / count) if self.stats.scattered else np.full(len(count), np.nan)

    @cached_property
    def rival(self) -> Indices:
        """The class whose true mean is nearest."""
        means = self.stats.mean - self.stats.mean.mean(axis=0)
        return nearest_others(means, np.nan_to_num(self.scatter / self.stats.count))

    @cached_property
    def distance(self) -> Doubles:
        """||z_a - z_b|| of each class and its rival."""
        distance: Doubles = np.sqrt(row_squares(self._between))
        return distance

    @cached_property
    def error(self) -> Doubles:
        """The probability that an example of the two is taken for one of the other; not a number if nobody can tell."""
        return self._error(self.stats.count)

    @cached_property
    def gain(self) -> Doubles:
        """How much of that another example of the class would save."""
        return self.error - self._error(self.stats.count + 1)

    @cached_property
    def _between(self) -> Doubles:
        between: Doubles = self.stats.mean - self.stats.mean[self.rival]
        return between

    @cached_property
    def _sigma(self) -> Doubles:
        """The scatter of an example along the line to the rival."""
        stats = self.stats
        direction = self._between / np.where(self.distance > 0, self.distance, 1.0)[:, None]
        product = stats.weighted_residual.T @ stats.weighted_residual  # (D, D)
        squares = np.maximum(np.vecdot(direction @ product, direction), 0.0)
        share = squares / stats.squares.sum() if stats.scattered else np.full(len(squares), np.nan)
        sigma: Doubles = np.sqrt(share * (self.scatter + self.scatter[self.rival]) / 2)
        return sigma

    def _error(self, count: Doubles) -> Doubles:
        rival, stats = self.rival, self.stats
        other = self.scatter[rival] / stats.count[rival]
        delta2 = np.maximum(self.distance**2 - self.scatter / stats.count - other, 0.0)
        length = np.sqrt(delta2 + self.scatter / count + other)
        with np.errstate(divide="ignore", invalid="ignore"):
            error: Doubles = ndtr(-delta2 / (2 * length * self._sigma))
        return error


def or_none(value: float) -> float | None:
    """A number for JSON, which has no other word for what is not one."""
    return None if math.isnan(value) else float(value)


def diagnosis_table(diagnosis: Diagnosis, width: int | None = None) -> str:
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
    if width is not None and max(map(len, lines)) > width:
        lines = TextTable("", head, rows).text(width).splitlines()
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


def _item(diagnosis: Diagnosis, example: int) -> str:
    """What an example was, on a line of its own."""
    item = diagnosis.items.get(example)
    return "" if item is None else f"\n    {shorten(item, LONGEST, placeholder=' …')}"


def _short(label: Any) -> str:
    text = str(label)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
