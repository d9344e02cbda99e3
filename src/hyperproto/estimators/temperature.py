"""Softmax temperature of a classifier, fitted by leave-one-out.

The temperature T is the difference in measure that changes the odds of two classes by a factor of e. It minimises the
cross entropy of softmax(-measure / T) over the examples, each scored by a model fitted without it, and over a few
*pseudo-examples*, which regularise T while few classes have a second example.

Pseudo-examples. Let k be the ratio of within-class to between-class variance, m the mean of the class means, and z the
mean of a class with K examples. A new example of that class is expected at m + K / (K + k) (z - m), with variance
v (1 + 1 / (K + k)) around it. Its direction is unknown. We take the direction from m to the mean of another class, at
the expected length, and leave that other class out of the softmax.

Unlabelled rows. EM over unlabelled rows moves the clusters apart, which pseudo-examples do not account for. Where no
example can be left out, log T therefore moves most of the way (`UNLABELLED_STEP`) towards the temperature at which the
unlabelled rows leave the mean confidence unchanged.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from hyperproto.estimators.inputs import unit_rows
from hyperproto.regions.arrays import Doubles, Floats, Indices
from hyperproto.regions.base import ClosedForm, Region
from hyperproto.regions.bayes import variance_ratio
from hyperproto.regions.left_out import LeftOut, left_out_measures
from hyperproto.regions.statistics import Statistics, pooled_scatter

MOST_SCORES = 2_000_000  # examples times classes in one fit; beyond that, evenly spaced examples are used
LEAST_SAMPLE = 100  # evenly spaced examples, and pseudo-examples, however many classes there are
MOST_PSEUDO_SCORES = 500_000  # pseudo-examples times classes, where a class has more than one
BLOCK = 1 << 18  # scores in memory at once
PSEUDO_WEIGHT = 2.0  # total weight of the pseudo-examples, in examples; chosen on FewRel's validation sets
UNLABELLED_STEP = 0.75  # share of the way that log T moves for unlabelled rows; chosen on HWU64's validation texts
WIDEST = 1e4  # T lies within this factor of the mean difference between measures


def support_temperature(
    left_out: LeftOut,
    region: Region,
    form: ClosedForm,
    prior_ratio: float,
    directions: bool,
    centers: Doubles | None = None,
) -> float:
    """Fit the temperature to leave-one-out measures of the examples and to pseudo-examples.

    Examples without another one in their class are not used; if there are no others, the pseudo-examples decide.
    `region` was fitted by `form`. `directions` says that rows have length 1. `centers` (N, D) are the expected
    positions of the classes, if names or unlabelled rows changed them.
    """
    stats = left_out.stats
    way = len(stats.count)
    if way == 1:
        return 1.0
    index, measures, weights = sampled_measures(left_out, region, form)
    pseudo = pseudo_examples(stats, float(spread_ratio(stats, prior_ratio)), directions, centers)
    share = np.full(len(pseudo.labels), PSEUDO_WEIGHT / len(pseudo.labels))
    target = platt_target(weights.sum() + PSEUDO_WEIGHT)
    return fit_temperature(
        np.concatenate([measures, np.asarray(region.measure(pseudo.rows, **region.measure_options))]),
        np.concatenate([stats.labels[index], pseudo.labels]),
        np.concatenate([weights, share]),
        np.concatenate([np.full(len(index), target), np.full(len(share), 0.75 if way == 2 else target)]),
        np.concatenate([np.full(len(index), -1), pseudo.borrowed]),
    )


def sampled_measures(left_out: LeftOut, region: Region, form: ClosedForm) -> tuple[Indices, Doubles, Doubles]:
    """Return indices (n,), leave-one-out measures (n, N) and weights (n,) of all examples that have another in class.

    Of very many, an evenly spaced sample is returned, with weights of the same total. The result is kept.
    """
    found: tuple[Indices, Doubles, Doubles] = left_out.kept(
        "measures", region, lambda: _sampled_measures(left_out, region, form)
    )
    return found


def _sampled_measures(left_out: LeftOut, region: Region, form: ClosedForm) -> tuple[Indices, Doubles, Doubles]:
    stats = left_out.stats
    paired = np.flatnonzero(left_out.has_siblings)
    index = evenly_spaced(paired, len(stats.count), lambda: left_out.content_order)
    weights = stats.weights[index]
    if len(index) < len(paired):
        weights = weights * (stats.weights[paired].sum() / weights.sum())
    return index, left_out_measures(left_out, region, form, index, fair=True), weights


def evenly_spaced(examples: Indices, way: int, order: Callable[[], Indices]) -> Indices:
    """Return all `examples` (sorted indices) or, above `sample_size(way)`, every so-many-th of them in `order`.

    `order` returns a permutation of all rows; it is called only if a sample is taken.
    """
    step = max(1, math.ceil(len(examples) / sample_size(way)))
    if step == 1:
        return examples
    ordered = order()
    return np.sort(ordered[np.isin(ordered, examples)][::step])


def sample_size(way: int) -> float:
    """Return how many examples to score against `way` classes, so that work grows at most linearly in `way`."""
    return max(LEAST_SAMPLE, MOST_SCORES / way)


def platt_target(number: float) -> float:
    """Return the target probability of the given label after `number` observations (Platt 1999); below 1."""
    return (number + 1) / (number + 2)


def fit_temperature(
    measures: Doubles, labels: Indices, weights: Doubles, target: Doubles | float, without: Indices | None = None
) -> float:
    """Return the T that minimises the cross entropy of softmax(-measures / T) with smoothed labels.

    A label has probability `target`, and its nearest rival the rest. `without` (R,) names a class to leave out of the
    softmax of each row, -1 for none. The loss is convex in 1 / T.
    """
    at = np.arange(len(labels))
    out = np.full(len(labels), -1) if without is None else without  # (R,)
    masked = np.flatnonzero(out >= 0)
    gap = measures - measures[at, labels][:, None]  # (R, N) above the measure of the own class
    gap[masked, out[masked]] = 0.0
    size = max(1, BLOCK // gap.shape[1])
    parts = [slice(start, start + size) for start in range(0, len(gap), size)]
    spread = float(np.average(np.concatenate([np.abs(gap[part]).mean(axis=1) for part in parts]), weights=weights))
    if spread == 0:
        return 1.0  # all measures are equal: every temperature gives chance
    gap /= spread
    gap[masked, out[masked]] = np.inf
    gap[at, labels] = np.inf
    wanted = weights @ (gap.min(axis=1) * (1 - target))
    gap[masked, out[masked]] = 0.0
    gap[at, labels] = 0.0

    def expected(part: slice, log_beta: float) -> Doubles:
        """Return the expectation of the gap under the softmax at inverse temperature exp(log_beta), (B,)."""
        power = -np.exp(log_beta) * gap[part]
        here = np.flatnonzero(out[part] >= 0)
        power[here, out[part][here]] = -np.inf
        power -= power.max(axis=1, keepdims=True)
        np.exp(power, out=power)
        mean: Doubles = np.einsum("ij,ij->i", power, gap[part]) / power.sum(axis=1)
        return mean

    def slope(log_beta: float) -> float:
        """Return d loss / d beta at beta = exp(log_beta)."""
        return float(wanted - weights @ np.concatenate([expected(part, log_beta) for part in parts]))

    return _root(slope, spread)


def _root(rising: Callable[[float], float], spread: float) -> float:
    """Return the T within a factor WIDEST of `spread` at which a rising function of log(spread / T) is 0."""
    low, high = -math.log(WIDEST), math.log(WIDEST)
    if rising(low) >= 0:
        return spread * WIDEST
    if rising(high) <= 0:
        return spread / WIDEST
    return spread * math.exp(-brentq(rising, low, high, xtol=1e-8))


def matched_temperature(measures: Doubles, confidence: float) -> float:
    """Return the T at which the mean confidence on rows with these measures (R, N) is `confidence`."""
    gap = measures - measures.min(axis=1, keepdims=True)
    spread = float(gap.mean())
    if spread == 0:
        return 1.0  # all measures are equal: every temperature gives chance
    return _root(lambda log_beta: mean_confidence(gap, spread * math.exp(-log_beta)) - confidence, spread)


def mean_confidence(measures: Doubles, temperature: float) -> float:
    """Return the probability of the likeliest class, averaged over the rows of measures (R, N)."""
    gap = measures - measures.min(axis=1, keepdims=True)
    return float((1 / np.exp(-gap / temperature).sum(axis=1)).mean())


@dataclass(frozen=True, eq=False)
class PseudoExamples:
    """Rows (R, D), their classes (R,), and the class whose direction each one borrowed (R,), -1 for none."""

    rows: Floats
    labels: Indices
    borrowed: Indices


def pseudo_examples(
    stats: Statistics, ratio: float, directions: bool, centers: Doubles | None = None
) -> PseudoExamples:
    """Place pseudo-examples of each class as the module's text describes; `ratio` is k.

    With fewer than three classes there is no direction to borrow: the means themselves are returned. Of very many
    classes, evenly spaced ones get pseudo-examples. Classes without examples get none and lend no direction.
    """
    filled = np.flatnonzero(stats.count > 0)
    way = len(filled)
    if way < 3:
        rows = stats.mean if centers is None else centers
        return PseudoExamples(rows, np.arange(len(rows)), np.full(len(rows), -1))
    number = max(1, min(way - 1, MOST_PSEUDO_SCORES // way**2))
    offsets = np.linspace(1, way - 1, number).astype(np.intp)
    chosen = np.linspace(0, way - 1, min(way, int(sample_size(way)))).astype(np.intp)
    labels = np.repeat(chosen, number)
    borrowed = filled[(labels + np.tile(offsets, len(chosen))) % way]
    labels = filled[labels]
    middle = stats.mean[filled].mean(axis=0)
    away, own, other = stats.mean - middle, stats.count[labels], stats.count[borrowed]
    length = np.sqrt((1 + 1 / (own + ratio)) / (1 / ratio + 1 / other))  # of v (1 + 1 / (K + k)) to v (1 / k + 1 / K')
    place = centers[labels] if centers is not None else middle + (own / (own + ratio))[:, None] * away[labels]
    rows = place + length[:, None] * away[borrowed]
    return PseudoExamples(unit_rows(rows) if directions else rows, labels, borrowed)


def spread_ratio(stats: Statistics, prior_ratio: float) -> Any:
    """Estimate k, the ratio of within-class to between-class variance; `prior_ratio` if there is no scatter."""
    filled = np.count_nonzero(stats.count)
    if not stats.scattered or filled < 2:
        return prior_ratio
    scatter = pooled_scatter(stats.squares, stats.count)
    return variance_ratio(stats.mean, stats.count, scatter, np.asarray(float(filled)), prior_ratio)
