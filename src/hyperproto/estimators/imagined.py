"""Examples that could be there: what the classes are like before two examples of one have been seen.

If the variance within classes is k times that between them, a fresh example of a class of K examples with mean z is
expected at m + K / (K + k) (z - m), m being the middle of the means, and scatters about that with variance
v (1 + 1 / (K + k)). Which way is anybody's guess, so the way from m to another class's mean is taken, at the right
length, and that class does not compete. A handful of such examples keeps the temperature sensible where the support
says little.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperproto.estimators.memory import unit_rows
from hyperproto.estimators.settings import Settings
from hyperproto.regions import Statistics
from hyperproto.regions.arrays import Floats, Indices
from hyperproto.regions.bayes import variance_ratio
from hyperproto.regions.statistics import pooled_scatter

MOST_SCORES = 500_000  # examples times classes


@dataclass(frozen=True, eq=False)
class Imagined:
    """Rows (R, D), the class of each, and the class whose direction it borrowed, -1 for none."""

    rows: Floats
    labels: Indices
    borrowed: Indices


def imagine(stats: Statistics, settings: Settings, ratio: float) -> Imagined:
    """Imagine examples of each class; `ratio` is k. Two classes have no third to borrow from: they get their means."""
    way = len(stats.count)
    if way < 3:
        return Imagined(stats.mean, np.arange(way), np.full(way, -1))
    number = max(1, min(way - 1, MOST_SCORES // way**2))
    offsets = np.linspace(1, way - 1, number).astype(np.intp)
    labels = np.repeat(np.arange(way), number)
    borrowed = (labels + np.tile(offsets, way)) % way
    middle = stats.mean.mean(axis=0)
    away, own, other = stats.mean - middle, stats.count[labels], stats.count[borrowed]
    length = np.sqrt((1 + 1 / (own + ratio)) / (1 / ratio + 1 / other))  # of v (1 + 1 / (K + k)) to v (1 / k + 1 / K')
    rows = middle + (own / (own + ratio))[:, None] * away[labels] + length[:, None] * away[borrowed]
    directions = settings.unit or settings.transform == "center-unit"
    return Imagined(unit_rows(rows) if directions else rows, labels, borrowed)


def spread_ratio(stats: Statistics, prior_ratio: float) -> Any:
    """k, as far as the support tells, otherwise the prior."""
    if not stats.scattered or len(stats.count) < 2:
        return prior_ratio
    scatter = pooled_scatter(stats.squares, stats.count)
    return variance_ratio(stats.mean, stats.count, scatter, np.asarray(float(len(stats.count))), prior_ratio)
