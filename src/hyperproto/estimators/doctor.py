"""Diagnosis of a classifier: classes that are small, wide or close to another, and examples that look wrong.

Confusion of two classes a and b is computed from their statistics. The nearest mean decides along w = z_a - z_b. The
true means are delta apart: delta^2 = ||w||^2 - v_a / K_a - v_b / K_b, as the sample means are noisy. Along w only
delta^2 / ||w|| of that separates them. With sigma the scatter along w, an example lies on the wrong side of the middle
with probability Phi(-delta^2 / (2 ||w|| sigma)). More examples shorten ||w||, not delta.
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
from hyperproto.estimators.snapshot import Snapshot, blocks
from hyperproto.regions.arrays import Doubles, Indices, covering_radii, row_squares, sum_by_label
from hyperproto.regions.left_out import left_out_measures
from hyperproto.regions.statistics import FlatStatistics, moments_of
from hyperproto.reports.tables import TextTable, folded

MOST_DRAWN = 25  # classes in one figure; of more, the most confused
COVERED = 0.8  # share of a class's examples inside its circle in a figure
LEAST_ODDS = 10.0  # of another label against the given one, from which an example counts as mislabelled
MOST_COMPARED = 50_000_000  # examples times classes that are compared to find wrong labels
OUTLYING = 3.5  # robust standard deviations above the median from which a score is an outlier
MOST_LISTED = 10  # examples of each kind in a table
WIDEST, LONGEST = 40, 100  # characters of a label and of an example in a table
MOST_PAIRS = 100_000_000  # of classes that are compared; all pairs of 10,000 classes
PROBED = 8  # cells whose classes are compared with those of a cell, its own among them
ROUNDS = 3  # of Lloyd's algorithm
BLOCK = 1 << 20  # distances in memory at once


@dataclass(frozen=True)
class ClassReport:
    """Report on one class.

    Attributes
    ----------
    rival : label of the class with the nearest mean; None if there is no other class.
    distance : distance to the rival's mean.
    overlap : share of examples of both classes that a linear boundary between them confuses; None without scatter.
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


def diagnose(model: Snapshot) -> Diagnosis:
    """Diagnose a classifier that stores its examples."""
    stats, placed = model.stats, model.placed_stats
    labels: list[Any] = model.classes.tolist()
    counts, extents = stats.count.tolist(), np.asarray(model.region_with_extent.extent_radius).tolist()
    reports = [ClassReport(*each) for each in zip(labels, counts, extents, strict=True)]
    gain = -stats.count  # without scatter, the smallest class needs an example most
    filled = np.flatnonzero(model.has_examples)
    if len(filled) > 1:
        found = Confusion(stats if len(filled) == len(labels) else _classes_of(stats, filled))
        for place, n in enumerate(filled):
            rival = labels[filled[found.rival[place]]]
            numbers = float(found.distance[place]), or_none(2 * found.error[place]), or_none(found.gain[place])
            reports[n] = ClassReport(labels[n], counts[n], extents[n], rival, *numbers)
        known = len(filled) == len(labels) and not np.isnan(found.gain).any()
        gain = found.gain if known else gain
    for n in np.flatnonzero(~model.has_examples):  # its confusion is unknown
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
    """Return the statistics of the classes that have examples."""
    labels = np.searchsorted(classes, stats.labels)
    parts = stats.count[classes], stats.mean[classes], stats.squares[classes]
    return FlatStatistics(*parts, stats.rows, labels, stats.weights)


def _drawn(reports: list[ClassReport]) -> Indices:
    """Return the classes to draw: all, or those with the largest overlaps and their rivals."""
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
    """Return examples with a likelier label; of very many, those farthest from their class are checked."""
    stats, numbers, found = model.stats, _numbers(model), []
    judged = np.flatnonzero(model.left_out.has_siblings)
    if len(labels) == 1 or not len(judged):
        return ()
    most = MOST_COMPARED // len(labels)
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
    """Confusion of each class (N,) with its nearest rival, of at least two classes."""

    stats: FlatStatistics

    @cached_property
    def scatter(self) -> Doubles:
        """v_n, shrunk towards the pooled scatter (N,); NaN without scatter."""
        count = self.stats.count
        return class_scales(self.stats) ** 2 / (1 + 1 / count) if self.stats.scattered else np.full(len(count), np.nan)

    @cached_property
    def rival(self) -> Indices:
        """Class whose true mean is nearest (N,)."""
        means = self.stats.mean - self.stats.mean.mean(axis=0)
        return nearest_others(means, np.nan_to_num(self.scatter / self.stats.count))

    @cached_property
    def distance(self) -> Doubles:
        """Distance between the means of each class and its rival (N,)."""
        distance: Doubles = np.sqrt(row_squares(self._between))
        return distance

    @cached_property
    def error(self) -> Doubles:
        """Probability that an example of one of the two is assigned to the other (N,); NaN without scatter."""
        return self._error(self.stats.count)

    @cached_property
    def gain(self) -> Doubles:
        """Decrease of `error` by one more example of the class (N,)."""
        return self.error - self._error(self.stats.count + 1)

    @cached_property
    def _between(self) -> Doubles:
        between: Doubles = self.stats.mean - self.stats.mean[self.rival]
        return between

    @cached_property
    def _sigma(self) -> Doubles:
        """Standard deviation of an example along the line to the rival (N,)."""
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


def nearest_others(means: Doubles, noise: Doubles) -> Indices:
    """Return the class m != n with the least ||z_n - z_m||^2 - noise_m for each n (N,).

    Up to MOST_PAIRS pairs, the search is exact. Beyond, the classes of a cell are compared with those of the nearest
    cells only, and the result may be a near class that is not the nearest.
    """
    way = len(means)
    if way * way <= MOST_PAIRS:
        return _nearest(means, noise, np.arange(way), np.arange(way))
    cell = cells_of(means)
    order = np.argsort(cell, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(cell[order])) + 1)
    middles = np.stack([means[own].mean(axis=0) for own in members])
    nearest = np.empty(way, dtype=np.intp)
    for own, middle in zip(members, middles, strict=True):
        probed = np.argsort(row_squares(middles - middle), kind="stable")[:PROBED]
        near = np.concatenate([members[each] for each in probed])
        if len(near) > MOST_PAIRS // way:
            away = row_squares(means[near] - middle)
            near = near[np.argpartition(away, MOST_PAIRS // way)[: MOST_PAIRS // way]]
        nearest[own] = _nearest(means, noise, own, near)
    return nearest


def cells_of(means: Doubles) -> Indices:
    """Return the cell of each class (N,): about sqrt(N) clusters, by a few rounds of Lloyd's algorithm."""
    way = len(means)
    middles = means[np.linspace(0, way - 1, math.isqrt(way)).astype(np.intp)]
    for _ in range(ROUNDS):
        cell = np.concatenate([_distances(means[part], middles).argmin(axis=1) for part in _parts(way, len(middles))])
        order = np.argsort(cell, kind="stable")
        starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
        sizes = np.diff(starts, append=way)
        middles = np.add.reduceat(means[order], starts, axis=0) / sizes[:, None]  # a cell without classes is dropped
    return cell


def _nearest(means: Doubles, noise: Doubles, rows: Indices, columns: Indices) -> Indices:
    """Return the nearest of `columns` to each of `rows`, except itself."""
    found = np.empty(len(rows), dtype=np.intp)
    for part in _parts(len(rows), len(columns)):
        apart = _distances(means[rows[part]], means[columns]) - noise[columns]
        apart[rows[part][:, None] == columns] = np.inf
        found[part] = columns[apart.argmin(axis=1)]
    return found


def _distances(x: Doubles, y: Doubles) -> Doubles:
    """Return ||x - y||^2 - ||x||^2 (n, m), which ranks each row."""
    distances: Doubles = row_squares(y) - 2 * (x @ y.T)
    return distances


def _parts(n_rows: int, n_columns: int) -> list[slice]:
    size = max(1, BLOCK // n_columns)
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def or_none(value: float) -> float | None:
    """Return None for NaN, which JSON does not have."""
    return None if math.isnan(value) else float(value)


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


def _item(diagnosis: Diagnosis, example: int) -> str:
    """Return the text or path of an example on a line of its own, or ""."""
    item = diagnosis.items.get(example)
    return "" if item is None else f"\n    {shorten(item, LONGEST, placeholder=' …')}"


def _short(label: Any) -> str:
    text = str(label)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
