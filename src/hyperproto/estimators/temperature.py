"""The temperature of the softmax: how many units of the measure make one unit of log odds."""

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq

from hyperproto.estimators.imagined import imagine, spread_ratio
from hyperproto.estimators.left_out import LeftOut
from hyperproto.estimators.left_out_measures import left_out_measures
from hyperproto.estimators.settings import Settings
from hyperproto.regions.arrays import Doubles, Indices

MOST_SCORES = 2_000_000  # examples times classes that one number is fitted to; beyond, evenly spaced examples do
IMAGINED = 2.0  # how many examples the imagined ones count for; chosen on FewRel's validation sets
WIDEST = 1e4  # the temperature lies within this factor of the spread of the measure


def support_temperature(left_out: LeftOut, region: Any, settings: Settings) -> float:
    """Fit the temperature to the support, each example left out, and to a few examples that are only imagined.

    An example that is alone in its class cannot be left out. If all are, the imagined ones decide.
    """
    stats = left_out.stats
    way = len(stats.count)
    if way == 1:
        return 1.0
    index, measures, weights = _judged(left_out, region, settings)
    guess = imagine(stats, settings, float(spread_ratio(stats, settings.prior_ratio)))
    share = np.full(len(guess.labels), IMAGINED / len(guess.labels))
    target = platt_target(weights.sum() + IMAGINED)
    return fit_temperature(
        np.concatenate([measures, np.asarray(region.measure(guess.rows, **settings.measure_options))]),
        np.concatenate([stats.labels[index], guess.labels]),
        np.concatenate([weights, share]),
        np.concatenate([np.full(len(index), target), np.full(len(share), 0.75 if way == 2 else target)]),
        np.concatenate([np.full(len(index), -1), guess.borrowed]),
    )


def _judged(left_out: LeftOut, region: Any, settings: Settings) -> tuple[Indices, Doubles, Doubles]:
    """The examples that can be left out, or evenly spaced ones that stand for all: measures (n, N) and weights."""
    stats = left_out.stats
    several = np.flatnonzero(left_out.several)
    index = several[:: max(1, math.ceil(len(several) * len(stats.count) / MOST_SCORES))]
    weights = stats.weights[index]
    if len(index) < len(several):
        weights = weights * (stats.weights[several].sum() / weights.sum())
    return index, left_out_measures(left_out, region, settings, index, fair=True), weights


def platt_target(number: float) -> float:
    """How far a label is believed if `number` were seen (Platt 1999): never quite, so that T stays above 0."""
    return (number + 1) / (number + 2)


def fit_temperature(
    measures: Doubles, labels: Indices, weights: Doubles, target: Doubles | float, without: Indices | None = None
) -> float:
    """The T for which softmax(-measures / T) has the least cross entropy with the labels.

    Each label is believed with probability `target`, and the rest goes to its nearest rival. `without` names a class
    that does not compete for a row, -1 for none. The loss is convex in 1 / T.
    """
    at = np.arange(len(labels))
    out = np.zeros(measures.shape, dtype=bool)
    if without is not None:
        out[at[without >= 0], without[without >= 0]] = True
    gap = np.where(out, 0.0, measures - measures[at, labels][:, None])  # of each class above the own one
    spread = float(np.average(np.abs(gap).mean(axis=1), weights=weights))
    if spread == 0:
        return 1.0  # every class is measured alike: any temperature gives chance
    gap /= spread
    out[at, labels] = True
    wanted = weights @ (np.where(out, np.inf, gap).min(axis=1) * (1 - target))
    out[at, labels] = False

    def slope(log_beta: float) -> float:
        """d loss / d beta at inverse temperature beta."""
        power = np.where(out, -np.inf, -np.exp(log_beta) * gap)
        power -= power.max(axis=1, keepdims=True)
        np.exp(power, out=power)
        expected = np.einsum("ij,ij->i", power, gap) / power.sum(axis=1)
        return float(wanted - weights @ expected)

    low, high = -math.log(WIDEST), math.log(WIDEST)
    if slope(low) >= 0:
        return spread * WIDEST
    if slope(high) <= 0:
        return spread / WIDEST
    return spread * math.exp(-brentq(slope, low, high, xtol=1e-8))
