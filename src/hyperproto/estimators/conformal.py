"""Thresholds of "none of these" by conformal prediction, and the expected performance of a classifier.

The score of x for class n is its distance to the class mean in units of the class's scale. Leave-one-out scores of the
examples show how large scores of genuine members are. A threshold is the quantile of these scores at the coverage
(Vovk et al. 2005; Barber et al. 2021).

Scores are pooled over the classes. On request a class with enough examples gets a threshold of its own. Its coverage is
then right within the class, but the threshold is as uncertain as the maximum of a few numbers, and out-of-class items
are accepted by whichever class has a threshold that is too wide.

Means and scatter are the plain ones for every region and fit mode, because leave-one-out is then exact.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hyperproto.estimators.temperature import evenly_spaced
from hyperproto.regions.arrays import Doubles, Indices, sum_by_label
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import Statistics, class_scatter, pooled_scatter, shrunk_scatter

BLOCK = 1 << 18  # scores in memory at once
VACUOUS = 0.05  # a coverage is vacuous if it rejects at most this share of out-of-class items, or half of 1 - coverage
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Conformal:
    """Leave-one-out scores of the examples and the thresholds that follow from them."""

    left_out: LeftOut

    @cached_property
    def scale(self) -> Doubles:
        """Typical distance of a new example to its class mean (N,)."""
        return class_scales(self.left_out.stats)

    @cached_property
    def pooled(self) -> Doubles:
        """Pooled scatter without each example (S,); 0 if there is none."""
        stats, out = self.left_out.stats, self.left_out
        squares = stats.squares.sum() - stats.squares[stats.labels] + out.squares
        spare = np.maximum(stats.count - 1, 0)
        dof = spare.sum() - spare[stats.labels] + np.maximum(out.rest - 1, 0)
        found: Doubles = np.where(squares > 1e-12 * stats.energy, squares / np.maximum(dof, 1), 0.0)
        return found

    @cached_property
    def scores(self) -> Doubles:
        """Leave-one-out score of each example (S,); infinite if it has no other in its class."""
        out = self.left_out
        own = np.where(out.rest > 1, out.squares / np.maximum(out.rest - 1, 1), self.pooled)
        scored = out.has_siblings & (self.pooled > 0)
        unit = scale(own, self.pooled, np.where(scored, out.rest, 1.0))
        scores = np.full(len(scored), np.inf)
        scores[scored] = np.sqrt(out.distance2[scored]) / unit[scored]
        return scores

    def thresholds(self, coverage: float, by_class: bool = False, guarantee: bool = False) -> Doubles:
        """Return the largest distance to the mean at which a class is plausible (N,); infinite with too few scores."""
        stats, scores = self.left_out.stats, self.scores
        weights = stats.weights if guarantee else np.where(np.isfinite(scores), stats.weights, 0.0)
        number = sum_by_label(stats.labels, weights, len(stats.count))
        alone = by_class & (rank(coverage, number) <= number + ROUNDING)  # classes with enough examples of their own
        pooled = quantile(scores, weights, coverage)
        found = np.where(alone, np.inf, pooled * self.scale)
        for n in np.flatnonzero(alone):
            own = self.members(n)
            if guarantee:
                found[n] = quantile(self.jackknife_reach[own], weights[own], coverage)
            else:
                found[n] = quantile(scores[own], weights[own], coverage) * self.scale[n]
        if guarantee and not alone.all():
            reach = _PooledReach(self, weights, coverage)
            for n in np.flatnonzero(~alone):
                found[n] = reach.quantile(n)
        return found

    def members(self, n: Any) -> Indices:
        """Return the indices of the examples of class n."""
        order, borders = self._by_class
        return order[borders[n] : borders[n + 1]]

    @cached_property
    def _by_class(self) -> tuple[Indices, Indices]:
        labels = self.left_out.stats.labels
        order = np.argsort(labels, kind="stable")
        return order, np.searchsorted(labels[order], np.arange(len(self.left_out.stats.count) + 1))

    @cached_property
    def jackknife_reach(self) -> Doubles:
        """Distance to the class mean beyond which jackknife+ counts each example against a new row (S,).

        Jackknife+ measures the new row from the mean without that example. By the triangle inequality this distance
        differs from that to the full mean by at most the step between the two means.
        """
        out = self.left_out
        wider = np.sqrt(out.distance2) + out.step * np.sqrt(out.stats.lengths)
        found: Doubles = np.where(np.isfinite(self.scores), wider, np.inf)
        return found


class _PooledReach:
    """Quantile, for each class, over all examples of the distance beyond which jackknife+ counts an example.

    An example i of another class counts beyond s_i sqrt(a_n + b_n p_i), where s_i is its score and p_i the pooled
    scatter without it. All p_i are nearly equal, so that for every class the order is nearly that of s_i. Examples are
    sorted once, and only those that may change places around the quantile are compared again.
    """

    def __init__(self, conformal: Conformal, weights: Doubles, coverage: float) -> None:
        scores, stats = conformal.scores, conformal.left_out.stats
        self.conformal, self.all_weights, self.count = conformal, weights, stats.count
        self.own = class_scatter(stats.squares, stats.count)
        self.needed = float(rank(coverage, weights.sum())) - ROUNDING
        finite = np.flatnonzero(np.isfinite(scores))
        self.order = finite[np.argsort(scores[finite], kind="stable")]
        self.scores, self.scatter = scores[self.order], conformal.pooled[self.order]
        self.labels, self.weights = stats.labels[self.order], weights[self.order]
        self.reached = np.cumsum(self.weights)
        self.bounds = np.array([self.scatter.min(initial=np.inf), self.scatter.max(initial=0.0)])
        self.place = np.full(len(scores), len(scores))  # of each example in that order
        self.place[self.order] = np.arange(len(self.order))

    def quantile(self, n: Any) -> float:
        """Return the quantile of class n; infinite if there are too few examples."""
        if not len(self.order) or self.reached[-1] < self.needed:
            return math.inf
        members = self.conformal.members(n)
        weight, own = self.all_weights[members], self.conformal.jackknife_reach[members]
        total = weight[np.isfinite(own)].sum()
        least, most = self._reach(n, self.bounds)  # of an example of score 1
        # Whatever the ranks of the class's own examples, the quantile lies between these two scores.
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
    """Expected performance of a fitted classifier, estimated by leave-one-out on its own examples.

    Attributes
    ----------
    accuracy : share of examples that get their own label, without rejection. Mean, radius, count and the whitening of
        "bayes" are recomputed without the example; the strength of shrinkage, which all examples estimate together, is
        not.
    set_size : mean number of plausible classes of an example. Its own class is measured without it.
    outside_rejected : share of out-of-class items that are rejected, estimated by examples whose own class is removed
        (with a coverage: those without a plausible class). With `outside` items, the share of these.
    classes, examples : number of classes, and of examples that were left out.
    reason : why a number is None.
    rejected : share of examples that `reject_rate`, `precision` or `outside` rejects.
    precision : share of right answers among the others.

    Numbers of rules that are not set are None. An example that is alone in its class cannot be left
    out and counts in `outside_rejected` only. Of very many examples, evenly spaced ones are used.
    """

    accuracy: float | None
    set_size: float | None
    outside_rejected: float | None
    classes: int
    examples: int
    reason: str = ""
    rejected: float | None = None
    precision: float | None = None

    @property
    def strangers_rejected(self) -> float | None:
        """Former name of `outside_rejected`."""
        return self.outside_rejected

    def __str__(self) -> str:
        """Return the numbers in one line."""
        if self.accuracy is None:
            return f"leave-one-out accuracy unknown: {self.reason}"
        text = f"leave-one-out accuracy {self.accuracy:.0%}"
        if self.set_size is not None:
            text += f", a plausible set of {self.set_size:.1f} classes on average"
        if self.rejected is not None:
            text += f"; rejects {self.rejected:.0%} of items of the classes"
            if self.outside_rejected is not None:
                text += f" and about {self.outside_rejected:.0%} of others"
        return text if self.precision is None else f"{text}; {self.precision:.0%} of the answers are right"


@dataclass(frozen=True)
class PlausibleSets:
    """Statistics of the plausible sets of the examples; see `Expected`."""

    set_size: float | None  # None: no example can be left out
    outside_rejected: float | None  # None: there is one class
    classes: int

    def warning(self, coverage: float) -> str | None:
        """Return a warning if the coverage rejects almost nothing (see VACUOUS), else None."""
        if self.outside_rejected is None or self.outside_rejected > min(VACUOUS, (1 - coverage) / 2) + ROUNDING:
            return None
        size = "" if self.set_size is None else f", and {self.set_size:.1f} of {self.classes} are plausible on average"
        return (
            f"coverage={coverage} rejects almost nothing here: with their own class removed, "
            f"{self.outside_rejected:.0%} of the examples would have no plausible class{size}; add examples to "
            "small classes, use fewer classes, or lower the coverage"
        )


def plausible_sets(conformal: Conformal, thresholds: Doubles) -> PlausibleSets:
    """Count the plausible classes of the examples by leave-one-out; of very many, of evenly spaced ones."""
    out, way = conformal.left_out, len(thresholds)
    weights, paired = out.stats.weights, np.flatnonzero(out.has_siblings)

    def numbers(examples: Indices) -> tuple[Doubles, Doubles, Indices]:
        """Return whether the own class is plausible (n,), how many others are (n,), and the sampled examples (n,)."""
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

    own, others, index = numbers(paired)
    set_size = float(np.average(own + others, weights=weights[index])) if len(index) else None
    if len(paired) < len(weights):
        _, others, index = numbers(np.arange(len(weights)))
    rejected = float(np.average(others == 0, weights=weights[index])) if way > 1 else None
    return PlausibleSets(set_size, rejected, way)


def class_scales(stats: Statistics) -> Doubles:
    """Return the typical distance of a new example to its class mean (N,); 1 if all examples of a class are equal."""
    if not stats.scattered:
        return np.ones(len(stats.count))
    pooled = pooled_scatter(stats.squares, stats.count)
    return scale(class_scatter(stats.squares, stats.count), pooled, stats.count)


def scale(own: Doubles, pooled: Doubles, count: Doubles) -> Doubles:
    """Return sqrt(v (1 + 1 / K)), where v is the class scatter, shrunk towards the pooled one."""
    found: Doubles = np.sqrt(shrunk_scatter(own, pooled, count) * (1 + 1 / count))
    return found


def enough(coverage: float) -> int:
    """Return the least number of scores for a finite threshold: ceil(1 / alpha) - 1 with alpha = 1 - coverage."""
    return math.ceil(coverage / (1 - coverage) - ROUNDING)


def rank(coverage: float, number: Doubles | float) -> Doubles:
    """Return the rank of the threshold among `number` scores, from the least: ceil(coverage (number + 1))."""
    return np.ceil(coverage * (np.asarray(number) + 1) - ROUNDING)


def quantile(scores: Doubles, weights: Doubles, coverage: float) -> float:
    """Return the score of that rank, each counting `weights` times; infinite if there are too few."""
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weights[order])
    needed = float(rank(coverage, reached[-1])) if len(reached) else math.inf
    place = int(np.searchsorted(reached, needed - ROUNDING))
    return float(scores[order[place]]) if place < len(order) else math.inf
