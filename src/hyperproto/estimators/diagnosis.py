"""The class doctor: which classes are small, wide or close to another, and which examples look wrong."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hyperproto.estimators.confusion import Confusion, or_none
from hyperproto.estimators.diagnosis_text import diagnosis_table
from hyperproto.estimators.head import blocks
from hyperproto.estimators.left_out_measures import left_out_measures
from hyperproto.estimators.model import Model
from hyperproto.estimators.plane import Plane
from hyperproto.regions.arrays import Indices

MOST_DRAWN = 25  # classes in one figure; of more, the most confused
LEAST_ODDS = 10.0  # of another label to the given one, where the given one is doubted
OUTLYING = 3.5  # how many robust standard deviations above the median a score is out of the ordinary


@dataclass(frozen=True)
class ClassReport:
    """One class. `overlap` is the share of it and its nearest rival that no line between the two can tell apart."""

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

    def table(self) -> str:
        """Return lines of text, the class that would gain most first."""
        return diagnosis_table(self)

    def figure(self) -> Any:
        """Draw the classes in a plane, with their extents and overlaps: a matplotlib Figure."""
        from hyperproto.estimators.diagnosis_figure import draw

        return draw(self)


def diagnose(model: Model) -> Diagnosis:
    """Look at a classifier; it must have kept its examples."""
    stats = model.stats
    labels: list[Any] = model.classes.tolist()
    counts, extents = stats.count.tolist(), np.asarray(model.whole_region.extent_radius).tolist()
    reports = [ClassReport(*each) for each in zip(labels, counts, extents, strict=True)]
    gain = -stats.count  # if nothing better is known, the smallest class needs an example most
    if len(labels) > 1:
        found = Confusion(stats)
        for n, report in enumerate(reports):
            rival = labels[found.rival[n]]
            overlap, saved = or_none(2 * found.error[n]), or_none(found.gain[n])
            reports[n] = ClassReport(
                report.label, report.count, report.extent, rival, float(found.distance[n]), overlap, saved
            )
        gain = gain if np.isnan(found.gain).any() else found.gain
    return Diagnosis(
        classes=tuple(reports),
        outlying=_outlying(model, labels),
        mislabelled=_mislabelled(model, labels),
        would_gain_most=labels[int(gain.argmax())],
        plane=Plane.of(stats, _numbers(model), _drawn(reports)),
    )


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


def _outlying(model: Model, labels: list[Any]) -> tuple[OutlyingExample, ...]:
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


def _mislabelled(model: Model, labels: list[Any]) -> tuple[MislabelledExample, ...]:
    """Examples whose label the others doubt."""
    stats, numbers, found = model.stats, _numbers(model), []
    judged = np.flatnonzero(model.left_out.several)
    if len(labels) == 1 or not len(judged):
        return ()
    for part in blocks(len(judged), len(labels)):
        index = judged[part]
        measures = left_out_measures(model.left_out, model.region, model.settings, index, fair=True)
        best = measures.argmin(axis=1)
        at, own = np.arange(len(index)), stats.labels[index]
        odds = np.exp(np.minimum((measures[at, own] - measures[at, best]) / model.temperature, math.log(1e6)))
        for row in np.flatnonzero(odds >= LEAST_ODDS):
            example = int(numbers[index[row]])
            found.append(MislabelledExample(example, labels[own[row]], labels[best[row]], float(odds[row])))
    return tuple(sorted(found, key=lambda report: -report.odds))


def _numbers(model: Model) -> Any:
    """The number of each example."""
    return model.memory.support.numbers  # type: ignore[union-attr] # model.stats would have refused
