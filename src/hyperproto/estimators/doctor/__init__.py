"""Diagnosis of a classifier: classes that are small, wide or close to another, and examples that look wrong."""

import math
from typing import Any

import numpy as np

from hyperproto.estimators.doctor.changes import merges, splits
from hyperproto.estimators.doctor.confusion import Confusion
from hyperproto.estimators.doctor.examples import (
    example_numbers,
    left_out_probabilities,
    mislabelled_examples,
    outlying_examples,
)
from hyperproto.estimators.doctor.report import (
    ClassReport,
    Diagnosis,
    MergeSuggestion,
    MislabelledExample,
    OutlyingExample,
    Plane,
    SplitSuggestion,
)
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.regions.arrays import Indices, row_squares
from hyperproto.regions.statistics import FlatStatistics

__all__ = [
    "ClassReport",
    "Confusion",
    "Diagnosis",
    "MergeSuggestion",
    "MislabelledExample",
    "OutlyingExample",
    "SplitSuggestion",
    "diagnose",
    "left_out_probabilities",
]

MOST_DRAWN = 25  # classes in one figure; of more, the most confused


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
        nothing = np.full(len(filled), np.nan)
        mean, low, high = found.overlaps() if found.stats.scattered else (nothing, nothing, nothing)
        overlaps = mean, found.gain, low, high
        for place, n in enumerate(filled):
            rival = labels[filled[found.rival[place]]]
            numbers = (or_none(values[place]) for values in (found.distance, *overlaps))
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
        outlying=outlying_examples(model, labels),
        mislabelled=mislabelled_examples(model, labels),
        would_gain_most=labels[int(gain.argmax())],
        plane=Plane.of(placed, example_numbers(model), _drawn(reports)),
        merges=merges(model, reports),
        splits=splits(model, labels, example_numbers(model)),
    )


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


def or_none(value: float) -> float | None:
    """Return None for NaN, which JSON does not have."""
    return None if math.isnan(value) else float(value)
