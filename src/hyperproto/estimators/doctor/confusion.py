"""Confusion of neighbouring classes.

Two classes a and b. The nearest mean decides along w = z_a - z_b. The
true means are delta apart: delta^2 = ||w||^2 - v_a / K_a - v_b / K_b, as the sample means are noisy. Along w only
delta^2 / ||w|| of that separates them. With sigma the scatter along w, an example lies on the wrong side of the middle
with probability Phi(-delta^2 / (2 ||w|| sigma)). More examples shorten ||w||, not delta.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from hyperproto.estimators.conformal import class_scales
from hyperproto.regions.arrays import Doubles, Indices, row_squares
from hyperproto.regions.statistics import FlatStatistics

MOST_PAIRS = 100_000_000  # of classes that are compared; all pairs of 10,000 classes
PROBED = 8  # cells whose classes are compared with those of a cell, its own among them
ROUNDS = 3  # of Lloyd's algorithm
BLOCK = 1 << 20  # distances in memory at once


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
