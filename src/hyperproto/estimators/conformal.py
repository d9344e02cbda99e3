"""How far from a class its own examples lie: the threshold of "none of these", by conformal prediction.

The score of x and class n is its distance to the mean of the class in units of the class's scale. The support, each
example left out, says how large the scores of genuine examples are, and a threshold lets a share of them, the
coverage, pass (Vovk et al. 2005; Barber et al. 2021). Scores are pooled over the classes. If asked for, a class with
enough examples has a threshold of its own: its coverage is then right too, but the threshold is as uncertain as the
largest of few numbers, and strangers find the class that has it too wide.

This is done with plain means and scatter, whatever region and mode classify: leaving one out is then exact.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hyperproto.estimators.left_out import LeftOut
from hyperproto.regions import Statistics
from hyperproto.regions.arrays import Doubles
from hyperproto.regions.bayes import trust
from hyperproto.regions.statistics import class_scatter, pooled_scatter, sum_by_label

ROUNDING = 1e-9


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
        known = out.several & (self.pooled > 0)
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
        for n in np.flatnonzero(alone | guarantee):
            own = stats.labels == n
            if guarantee:
                of = own if alone[n] else np.ones_like(own)
                found[n] = quantile(self._reach(n)[of], judged[of], coverage)
            else:
                found[n] = quantile(scores[own], judged[own], coverage) * self.scale[n]
        return found

    def _reach(self, n: Any) -> Doubles:
        """The distance to class n (S,) beyond which jackknife+ counts each example against a new one.

        For an example of the class, jackknife+ measures the new one from the mean without that example. It is nearer to
        that than to the mean of all by no more than the step between the two.
        """
        stats, out = self.left_out.stats, self.left_out
        own = class_scatter(stats.squares, stats.count)[n]
        known = np.isfinite(self.scores)
        reach = np.where(known, self.scores, 0.0) * scale(own, self.pooled, stats.count[n])
        wider = np.sqrt(out.distance2) + out.step * np.sqrt(stats.lengths)
        found: Doubles = np.where(known, np.where(stats.labels == n, wider, reach), np.inf)
        return found


def class_scales(stats: Statistics) -> Doubles:
    """How far a new example of each class lies from its mean (N,); 1 where no example differs from another."""
    if not stats.scattered:
        return np.ones(len(stats.count))
    pooled = pooled_scatter(stats.squares, stats.count)
    return scale(class_scatter(stats.squares, stats.count), pooled, stats.count)


def scale(own: Doubles, pooled: Doubles, count: Doubles) -> Doubles:
    """scale^2 = v (1 + 1 / K): v is a class's own scatter as far as it is to be believed, else the pooled one."""
    v = pooled + trust(count) * (own - pooled)
    found: Doubles = np.sqrt(v * (1 + 1 / count))
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
