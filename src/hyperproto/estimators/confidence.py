"""How sure a classifier may be: the temperature of its probabilities, and the threshold of "none of these".

**Temperature.** How many units of the measure make one unit of log odds. It is fitted to the support, each example left
out, and to a few pseudo-examples that regularise it while few classes have a second example. If the variance within
classes is k times that between them, a fresh example of a class of K examples with mean z is expected at
m + K / (K + k) (z - m), m being the middle of the means, and scatters about that with variance v (1 + 1 / (K + k)). The
direction is not known, so that from m to another class's mean is taken, at the right length, and that class does not
compete. Unlabelled rows draw clusters apart, of which pseudo-examples know nothing: where no example can be left out,
the temperature goes most of the way to the one by which the rows, as measured on themselves, make nobody surer.

**Threshold**, by conformal prediction. The score of x and class n is its distance to the mean of the class in units of
the class's scale. The support, each example left out, says how large the scores of genuine examples are, and a
threshold lets a share of them, the coverage, pass (Vovk et al. 2005; Barber et al. 2021). Scores are pooled over the
classes. If asked for, a class with enough examples has a threshold of its own: its coverage is then right too, but the
threshold is as uncertain as the largest of few numbers, and strangers find the class that has it too wide. This is done
with plain means and scatter, for every region and mode: leaving one out is then exact.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq

from hyperproto.estimators.memory import unit_rows
from hyperproto.regions.arrays import Doubles, Floats, Indices
from hyperproto.regions.base import ClosedForm, Region
from hyperproto.regions.bayes import variance_ratio
from hyperproto.regions.left_out import LeftOut, left_out_measures
from hyperproto.regions.statistics import Statistics, class_scatter, pooled_scatter, shrunk_scatter, sum_by_label

MOST_SCORES = 2_000_000  # examples times classes that one number is fitted to; beyond, evenly spaced examples do
LEAST_JUDGED = 100  # evenly spaced examples, and pseudo-examples, however many classes there are
MOST_PSEUDO_SCORES = 500_000  # pseudo-examples times classes, where a class has more than one
BLOCK = 1 << 18  # scores that are worked on at once
PSEUDO_WEIGHT = 2.0  # how many examples the pseudo-examples count for; chosen on FewRel's validation sets
DOUBT = 0.75  # how far log T goes to where unlabelled rows make nobody surer; chosen on HWU64's valid texts
WIDEST = 1e4  # the temperature lies within this factor of the spread of the measure
VACUOUS = 0.05  # the share of strangers rejected up to which a coverage is, or half of what it lets genuine ones be
ROUNDING = 1e-9


def support_temperature(
    left_out: LeftOut,
    region: Region,
    form: ClosedForm,
    prior_ratio: float,
    directions: bool,
    centers: Doubles | None = None,
) -> float:
    """Fit the temperature to the support, each example left out, and to a few pseudo-examples.

    An example that is alone in its class cannot be left out. If all are, the pseudo-examples decide. `region` was
    fitted by `form`; `directions` says that rows have length 1; `centers` (N, D) are where classes are expected, if
    more than their means tells of that.
    """
    stats = left_out.stats
    way = len(stats.count)
    if way == 1:
        return 1.0
    index, measures, weights = _judged(left_out, region, form)
    guess = pseudo_examples(stats, float(spread_ratio(stats, prior_ratio)), directions, centers)
    share = np.full(len(guess.labels), PSEUDO_WEIGHT / len(guess.labels))
    target = platt_target(weights.sum() + PSEUDO_WEIGHT)
    return fit_temperature(
        np.concatenate([measures, np.asarray(region.measure(guess.rows, **region.measure_options))]),
        np.concatenate([stats.labels[index], guess.labels]),
        np.concatenate([weights, share]),
        np.concatenate([np.full(len(index), target), np.full(len(share), 0.75 if way == 2 else target)]),
        np.concatenate([np.full(len(index), -1), guess.borrowed]),
    )


def _judged(left_out: LeftOut, region: Region, form: ClosedForm) -> tuple[Indices, Doubles, Doubles]:
    """The examples that can be left out, or evenly spaced ones that stand for all: measures (n, N) and weights."""
    stats = left_out.stats
    alike = np.flatnonzero(left_out.has_siblings)
    index = evenly_spaced(alike, len(stats.count), lambda: left_out.content_order)
    weights = stats.weights[index]
    if len(index) < len(alike):
        weights = weights * (stats.weights[alike].sum() / weights.sum())
    return index, left_out_measures(left_out, region, form, index, fair=True), weights


def evenly_spaced(examples: Indices, way: int, order: Callable[[], Indices]) -> Indices:
    """Return all of the `examples`, sorted indices, or as many as stand for them: each so many-th in their `order`.

    `order` gives an order of all rows, of which `examples` are some; it is not asked for if all are taken.
    """
    step = max(1, math.ceil(len(examples) / number_judged(way)))
    if step == 1:
        return examples
    ordered = order()
    return np.sort(ordered[np.isin(ordered, examples)][::step])


def number_judged(way: int) -> float:
    """How many examples stand for all of them, so that the work grows with the number of classes and no faster."""
    return max(LEAST_JUDGED, MOST_SCORES / way)


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
    out = np.full(len(labels), -1) if without is None else without  # (R,)
    left = np.flatnonzero(out >= 0)
    gap = measures - measures[at, labels][:, None]  # of each class above the own one
    gap[left, out[left]] = 0.0
    size = max(1, BLOCK // gap.shape[1])
    parts = [slice(start, start + size) for start in range(0, len(gap), size)]
    spread = float(np.average(np.concatenate([np.abs(gap[part]).mean(axis=1) for part in parts]), weights=weights))
    if spread == 0:
        return 1.0  # every class is measured alike: any temperature gives chance
    gap /= spread
    gap[left, out[left]] = np.inf
    gap[at, labels] = np.inf
    wanted = weights @ (gap.min(axis=1) * (1 - target))
    gap[left, out[left]] = 0.0
    gap[at, labels] = 0.0

    def expected(part: slice, log_beta: float) -> Doubles:
        """The mean of the gap over the classes (B,), each as likely as it is at inverse temperature beta."""
        power = -np.exp(log_beta) * gap[part]
        here = np.flatnonzero(out[part] >= 0)
        power[here, out[part][here]] = -np.inf
        power -= power.max(axis=1, keepdims=True)
        np.exp(power, out=power)
        mean: Doubles = np.einsum("ij,ij->i", power, gap[part]) / power.sum(axis=1)
        return mean

    def slope(log_beta: float) -> float:
        """d loss / d beta at inverse temperature beta."""
        return float(wanted - weights @ np.concatenate([expected(part, log_beta) for part in parts]))

    return _where_zero(slope, spread)


def _where_zero(rising: Callable[[float], float], spread: float) -> float:
    """The temperature, within WIDEST of the spread, where a function of log(spread / T) that rises comes to 0."""
    low, high = -math.log(WIDEST), math.log(WIDEST)
    if rising(low) >= 0:
        return spread * WIDEST
    if rising(high) <= 0:
        return spread / WIDEST
    return spread * math.exp(-brentq(rising, low, high, xtol=1e-8))


def matched_temperature(measures: Doubles, confidence: float) -> float:
    """The T for which the likeliest class has this probability on average over the rows of measures (R, N)."""
    gap = measures - measures.min(axis=1, keepdims=True)
    spread = float(gap.mean())
    if spread == 0:
        return 1.0  # every class is measured alike: any temperature gives chance

    def surer(log_beta: float) -> float:
        return mean_confidence(gap, spread * math.exp(-log_beta)) - confidence

    return _where_zero(surer, spread)


def mean_confidence(measures: Doubles, temperature: float) -> float:
    """The probability of the likeliest class, on average over the rows of measures (R, N)."""
    gap = measures - measures.min(axis=1, keepdims=True)
    return float((1 / np.exp(-gap / temperature).sum(axis=1)).mean())


@dataclass(frozen=True, eq=False)
class PseudoExamples:
    """Rows (R, D), the class of each, and the class whose direction it borrowed, -1 for none."""

    rows: Floats
    labels: Indices
    borrowed: Indices


def pseudo_examples(
    stats: Statistics, ratio: float, directions: bool, centers: Doubles | None = None
) -> PseudoExamples:
    """Place examples of each class; `ratio` is k. Two classes have no third to borrow from: they get their means.

    Of very many classes, evenly spaced ones get an example. Classes are expected at `centers` (N, D), if given. One
    without examples gets none here, and lends no direction, unless there are too few others.
    """
    filled = np.flatnonzero(stats.count > 0)
    way = len(filled)
    if way < 3:
        rows = stats.mean if centers is None else centers
        return PseudoExamples(rows, np.arange(len(rows)), np.full(len(rows), -1))
    number = max(1, min(way - 1, MOST_PSEUDO_SCORES // way**2))
    offsets = np.linspace(1, way - 1, number).astype(np.intp)
    chosen = np.linspace(0, way - 1, min(way, int(number_judged(way)))).astype(np.intp)
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
    """k, as far as the support tells, otherwise the prior."""
    filled = np.count_nonzero(stats.count)
    if not stats.scattered or filled < 2:
        return prior_ratio
    scatter = pooled_scatter(stats.squares, stats.count)
    return variance_ratio(stats.mean, stats.count, scatter, np.asarray(float(filled)), prior_ratio)


@dataclass(frozen=True, eq=False)
class Conformal:
    """The scores of the support and the thresholds that follow."""

    left_out: LeftOut

    @cached_property
    def scale(self) -> Doubles:
        """How far a new example of each class lies, typically (N,)."""
        return class_scales(self.left_out.stats)

    @cached_property
    def pooled(self) -> Doubles:
        """The pooled scatter without each example (S,); 0 if there is none."""
        stats, out = self.left_out.stats, self.left_out
        squares = stats.squares.sum() - stats.squares[stats.labels] + out.squares
        spare = np.maximum(stats.count - 1, 0)
        dof = spare.sum() - spare[stats.labels] + np.maximum(out.rest - 1, 0)
        found: Doubles = np.where(squares > 1e-12 * stats.energy, squares / np.maximum(dof, 1), 0.0)
        return found

    @cached_property
    def scores(self) -> Doubles:
        """The score of each example (S,), left out of its class; infinite where nothing is left to judge it by."""
        out = self.left_out
        own = np.where(out.rest > 1, out.squares / np.maximum(out.rest - 1, 1), self.pooled)
        known = out.has_siblings & (self.pooled > 0)
        reach = scale(own, self.pooled, np.where(known, out.rest, 1.0))
        scores = np.full(len(known), np.inf)
        scores[known] = np.sqrt(out.distance2[known]) / reach[known]
        return scores

    def thresholds(self, coverage: float, by_class: bool = False, guarantee: bool = False) -> Doubles:
        """The largest distance (N,) at which an example is still one of the class; infinite if too little is known."""
        stats, scores = self.left_out.stats, self.scores
        judged = stats.weights if guarantee else np.where(np.isfinite(scores), stats.weights, 0.0)
        number = sum_by_label(stats.labels, judged, len(stats.count))
        alone = by_class & (rank(coverage, number) <= number + ROUNDING)  # classes with enough examples of their own
        pooled = quantile(scores, judged, coverage)
        found = np.where(alone, np.inf, pooled * self.scale)
        for n in np.flatnonzero(alone):
            own = self.members(n)
            if guarantee:
                found[n] = quantile(self.reach_from_own[own], judged[own], coverage)
            else:
                found[n] = quantile(scores[own], judged[own], coverage) * self.scale[n]
        if guarantee and not alone.all():
            reach = _PooledReach(self, judged, coverage)
            for n in np.flatnonzero(~alone):
                found[n] = reach.quantile(n)
        return found

    def members(self, n: Any) -> Indices:
        """The examples of class n."""
        order, borders = self._by_class
        return order[borders[n] : borders[n + 1]]

    @cached_property
    def _by_class(self) -> tuple[Indices, Indices]:
        labels = self.left_out.stats.labels
        order = np.argsort(labels, kind="stable")
        return order, np.searchsorted(labels[order], np.arange(len(self.left_out.stats.count) + 1))

    @cached_property
    def reach_from_own(self) -> Doubles:
        """The distance to its own class (S,) beyond which jackknife+ counts each example against a new one.

        Jackknife+ measures the new one from the mean without that example. It is nearer to that than to the mean of all
        by no more than the step between the two.
        """
        out = self.left_out
        wider = np.sqrt(out.distance2) + out.step * np.sqrt(out.stats.lengths)
        found: Doubles = np.where(np.isfinite(self.scores), wider, np.inf)
        return found


class _PooledReach:
    """For each class, the quantile over all examples of the distance beyond which jackknife+ counts an example.

    An example i of another class counts beyond s_i sqrt(a_n + b_n p_i): s_i is its score, p_i the pooled scatter
    without it. All p_i are much alike, so that the order is almost that of s_i for every class: examples are sorted
    once, and only those that may change places about the quantile are looked at again.
    """

    def __init__(self, conformal: Conformal, judged: Doubles, coverage: float) -> None:
        scores, stats = conformal.scores, conformal.left_out.stats
        self.conformal, self.judged, self.count = conformal, judged, stats.count
        self.own = class_scatter(stats.squares, stats.count)
        self.needed = float(rank(coverage, judged.sum())) - ROUNDING
        known = np.flatnonzero(np.isfinite(scores))
        self.order = known[np.argsort(scores[known], kind="stable")]
        self.scores, self.scatter = scores[self.order], conformal.pooled[self.order]
        self.labels, self.weights = stats.labels[self.order], judged[self.order]
        self.reached = np.cumsum(self.weights)
        self.bounds = np.array([self.scatter.min(initial=np.inf), self.scatter.max(initial=0.0)])
        self.place = np.full(len(scores), len(scores))  # of each example in that order
        self.place[self.order] = np.arange(len(self.order))

    def quantile(self, n: Any) -> float:
        """That of class n; infinite if there are too few examples."""
        if not len(self.order) or self.reached[-1] < self.needed:
            return math.inf
        members = self.conformal.members(n)
        weight, own = self.judged[members], self.conformal.reach_from_own[members]
        total = weight[np.isfinite(own)].sum()
        least, most = self._reach(n, self.bounds)  # of an example of score 1
        # Wherever the class's own examples come, the quantile lies between those of these two scores.
        places = np.searchsorted(self.reached, [self.needed - total, self.needed + total])
        low, high = self.scores[np.minimum(places, len(self.order) - 1)]
        start = np.searchsorted(self.scores, low * least / most * (1 - ROUNDING))
        stop = np.searchsorted(self.scores, high * most / least * (1 + ROUNDING), side="right")
        others = start + np.flatnonzero(self.labels[start:stop] != n)
        reach = self.scores[others] * self._reach(n, self.scatter[others])
        below = (self.reached[start - 1] if start else 0.0) - weight[self.place[members] < start].sum()
        values, weights = np.concatenate([reach, own]), np.concatenate([self.weights[others], weight])
        order = np.argsort(values, kind="stable")
        place = int(np.searchsorted(below + np.cumsum(weights[order]), self.needed))
        return float(values[order[place]]) if place < len(order) else math.inf

    def _reach(self, n: Any, scatter: Doubles) -> Doubles:
        return scale(self.own[n], scatter, self.count[n])


@dataclass(frozen=True)
class Expected:
    """How a fitted classifier will do, as far as its own examples can tell, each left out.

    `accuracy` is the share of examples that the classifier would give their label had they not been there, rejecting
    none. Mean, radius and count of its own class are those without the example; so is the whitening of "bayes". How
    strongly that whitens and shrinks, which all examples estimate together, is taken as it is.

    `set_size` is how many classes are plausible for an example on average. Distance to and scale of its own class are
    those without the example; thresholds, and the other classes, are everyone's. `strangers_rejected` is the share of
    examples that would have no plausible class if their own were not among the classes: `predict` rejects at least
    these. Both are None without a coverage.

    Examples that are alone in their class cannot be left out: they count in `strangers_rejected` only. Of very many
    examples and classes, evenly spaced examples stand for all. `reason` says why a number is None.
    """

    accuracy: float | None
    set_size: float | None
    strangers_rejected: float | None
    classes: int
    examples: int  # that were left out
    reason: str = ""

    def __str__(self) -> str:
        """The numbers in a line."""
        if self.accuracy is None:
            return f"left-out accuracy unknown: {self.reason}"
        told = f"left-out accuracy {self.accuracy:.0%}"
        return told if self.set_size is None else f"{told}, a plausible set of {self.set_size:.1f} classes on average"


@dataclass(frozen=True)
class PlausibleSets:
    """Which part of `Expected` the thresholds decide."""

    set_size: float | None  # None: no example can be left out
    strangers_rejected: float | None  # None: there is one class
    classes: int

    def warning(self, coverage: float) -> str | None:
        """Say that a coverage rejects nothing, if it does not: see VACUOUS."""
        if self.strangers_rejected is None or self.strangers_rejected > min(VACUOUS, (1 - coverage) / 2) + ROUNDING:
            return None
        size = "" if self.set_size is None else f", and {self.set_size:.1f} of {self.classes} are plausible on average"
        return (
            f"coverage={coverage} protects from almost nothing here: if their own class were unknown, "
            f"{self.strangers_rejected:.0%} of the examples would have no plausible class{size}; give more examples of "
            "the classes that have few, take fewer classes, or a lower coverage"
        )


def plausible_sets(conformal: Conformal, thresholds: Doubles) -> PlausibleSets:
    """The plausible classes of examples, each left out, or evenly spaced ones of very many."""
    out, way = conformal.left_out, len(thresholds)
    weights, alike = out.stats.weights, np.flatnonzero(out.has_siblings)

    def numbers(examples: Indices) -> tuple[Doubles, Doubles, Indices]:
        """Of the own class (n,), 0 or 1, and of the others (n,)."""
        index = evenly_spaced(examples, way, lambda: out.content_order)
        own, others = np.empty(len(index)), np.empty(len(index))
        size = max(1, BLOCK // way)
        for start in range(0, len(index), size):
            rows = index[start : start + size]
            labels, at = out.own(rows), np.arange(len(rows))
            plausible = np.sqrt(out.squared_distances(rows, fair=False)) <= thresholds
            plausible[at, labels] = False
            others[start : start + size] = plausible.sum(axis=1)
            own[start : start + size] = conformal.scores[rows] * conformal.scale[labels] <= thresholds[labels]
        return own, others, index

    own, others, index = numbers(alike)
    set_size = float(np.average(own + others, weights=weights[index])) if len(index) else None
    if len(alike) < len(weights):
        _, others, index = numbers(np.arange(len(weights)))
    rejected = float(np.average(others == 0, weights=weights[index])) if way > 1 else None
    return PlausibleSets(set_size, rejected, way)


def left_out_accuracy(left_out: LeftOut, region: Region, form: ClosedForm) -> tuple[float | None, int]:
    """The share of examples, each left out, whose own class has the least measure, and how many were looked at."""
    index, measures, weights = _judged(left_out, region, form)
    if not len(index):
        return None, 0
    return float(np.average(measures.argmin(axis=1) == left_out.own(index), weights=weights)), len(index)


def class_scales(stats: Statistics) -> Doubles:
    """How far a new example of each class lies from its mean (N,); 1 where no example differs from another."""
    if not stats.scattered:
        return np.ones(len(stats.count))
    pooled = pooled_scatter(stats.squares, stats.count)
    return scale(class_scatter(stats.squares, stats.count), pooled, stats.count)


def scale(own: Doubles, pooled: Doubles, count: Doubles) -> Doubles:
    """scale^2 = v (1 + 1 / K): v is a class's own scatter as far as it is to be believed, else the pooled one."""
    found: Doubles = np.sqrt(shrunk_scatter(own, pooled, count) * (1 + 1 / count))
    return found


def enough(coverage: float) -> int:
    """How many scores a threshold needs: ceil(1 / alpha) - 1 with alpha = 1 - coverage."""
    return math.ceil(coverage / (1 - coverage) - ROUNDING)


def rank(coverage: float, number: Doubles | float) -> Doubles:
    """Which of `number` scores, from the least, is the threshold: the ceil(coverage (number + 1))-th."""
    return np.ceil(coverage * (np.asarray(number) + 1) - ROUNDING)


def quantile(scores: Doubles, weights: Doubles, coverage: float) -> float:
    """The score of that rank, each counting `weights` times; infinite if there are too few."""
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weights[order])
    needed = float(rank(coverage, reached[-1])) if len(reached) else math.inf
    place = int(np.searchsorted(reached, needed - ROUNDING))
    return float(scores[order[place]]) if place < len(order) else math.inf
