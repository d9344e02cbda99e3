"""How often two classes are taken for each other, and what another example would change: from statistics, by a formula.

Between classes a and b the nearest mean decides along w = z_a - z_b. The true means are delta apart, which is ||w|| but
for the noise of the two means: delta^2 = ||w||^2 - v_a / K_a - v_b / K_b. Along the noisy w only delta^2 / ||w|| of it
is left to tell them apart. With sigma the scatter along w, an example is on the wrong side of the middle with
probability Phi(-delta^2 / (2 ||w|| sigma)). More examples make ||w|| shorter, not delta.
"""

from dataclasses import dataclass
from functools import cached_property
from math import isnan

import numpy as np
from scipy.special import ndtr

from hyperproto.estimators.conformal import class_scales
from hyperproto.estimators.head import blocks
from hyperproto.regions.arrays import Doubles, Indices, row_squares, squared_distance
from hyperproto.regions.statistics import FlatStatistics


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
        noise = np.nan_to_num(self.scatter / self.stats.count)
        apart = squared_distance(means, means) - noise - noise[:, None]
        np.fill_diagonal(apart, np.inf)
        nearest: Indices = apart.argmin(axis=1)
        return nearest

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
        squares = np.zeros(len(stats.count))
        for part in blocks(len(stats.rows), len(squares)):
            squares += stats.weights[part] @ (stats.residual[part] @ direction.T) ** 2
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
    return None if isnan(value) else float(value)
