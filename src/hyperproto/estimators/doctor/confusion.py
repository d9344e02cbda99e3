"""Confusion of neighbouring classes, with its uncertainty.

Two classes a and b. The nearest mean decides along w = z_a - z_b. The true means are delta apart:
D = ||w||^2 - v_a / K_a - v_b / K_b is an unbiased estimate of delta^2. Along w only delta^2 / ||w|| of that separates
them. More examples shorten ||w||, not delta.

*Posterior of delta^2.* D is noisy, and the nearest rival is the class whose D came out smallest. The prior of delta^2
is the distribution over all pairs of classes, estimated by EM on a grid (non-parametric maximum likelihood, one
pseudo-pair that is uniform). D has the variance 2 T c^2 + 4 delta^2 s^2 c + noise of v, with c = 1 / K_a + 1 / K_b (in
units of each class's scatter), T = tr(Sigma_n^2) averaged over the classes, and s^2 the variance along w.

*Error given delta.* s^2 is the variance of the examples of the two classes along w. Classes scatter more towards their
rivals than on average, so the ratio to the pooled variance is measured over all rivals. With Gaussian classes the share
on the wrong side is Phi(-u), u = delta^2 / (2 sqrt(delta^2 + v_a / K_a + v_b / K_b) s). Real classes have heavier
tails: Phi(TAIL_SHIFT - TAIL_SLOPE u) was chosen on training texts of HWU64.

*Counts.* Leave-one-out tells how many examples of the two lie on the wrong side (moved by the difference of the
posterior mean from D). They update a beta prior with the mean above and PRIOR_COUNT observations; each counts
COUNT_WEIGHT, since all share the same two means. The interval is that of the posterior.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betaincinv, ndtr

from hyperproto.estimators.conformal import class_scales
from hyperproto.regions.arrays import Doubles, Indices, row_squares
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import FlatStatistics

MOST_PAIRS = 100_000_000  # of classes that are compared; all pairs of 10,000 classes
PROBED = 8  # cells whose classes are compared with those of a cell, its own among them
ROUNDS = 3  # of Lloyd's algorithm
TAIL_SHIFT, TAIL_SLOPE = -0.2, 0.7  # of the error's probit; chosen on training texts of HWU64
PRIOR_COUNT, COUNT_WEIGHT = 12.0, 0.5  # observations of the prior, weight of an example; chosen there, too
LEAST_ERROR = 0.01  # of a prior mean
INTERVAL = 0.9  # probability of the interval of an overlap
GRID, EM_STEPS = 100, 40  # values of delta^2, and steps of EM, of the prior over pairs
MOST_PRIOR = 64  # classes whose pairs determine the prior
MOST_MEMBERS = 1000  # examples of a class whose covariance is compared
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
        """Expected probability that an example of the two is assigned to the other (N,); NaN without scatter."""
        return self._error(self.stats.count)

    @cached_property
    def gain(self) -> Doubles:
        """Decrease of `error` by one more example of the class (N,)."""
        return self.error - self._error(self.stats.count + 1)

    def overlaps(self) -> tuple[Doubles, Doubles, Doubles]:
        """Return the posterior mean and the 90 % interval of twice the error (N,), given leave-one-out counts."""
        wrong, number = self._counts()
        mean = np.clip(self.error, LEAST_ERROR, 0.5)
        a = PRIOR_COUNT * mean + COUNT_WEIGHT * wrong
        b = PRIOR_COUNT * (1 - mean) + COUNT_WEIGHT * (number - wrong)
        found = a / (a + b), betaincinv(a, b, (1 - INTERVAL) / 2), betaincinv(a, b, (1 + INTERVAL) / 2)
        mean, low, high = (np.minimum(2 * each, 1.0) for each in found)
        return mean, low, high

    @cached_property
    def _between(self) -> Doubles:
        between: Doubles = self.stats.mean - self.stats.mean[self.rival]
        return between

    @cached_property
    def _noise(self) -> Doubles:
        """Scatter of the two means, v_a / K_a + v_b / K_b (N,)."""
        noise: Doubles = self.scatter / self.stats.count + (self.scatter / self.stats.count)[self.rival]
        return noise

    @cached_property
    def _product(self) -> Doubles:
        """Pooled covariance within classes, scaled to trace 1 (D, D)."""
        product: Doubles = self.stats.weighted_residual.T @ self.stats.weighted_residual
        return product / max(float(np.trace(product)), 1e-300)

    @cached_property
    def _spread(self) -> tuple[float, float]:
        """tr(Sigma_n^2) over the squared scatter, and the variance of one v_n over it, averaged over the classes."""
        stats, squares, scatters = self.stats, [], []
        order = np.argsort(stats.labels, kind="stable")
        members = np.split(order, np.flatnonzero(np.diff(stats.labels[order])) + 1)
        for own in members[:: math.ceil(len(members) / MOST_PRIOR)]:
            dof = len(own) - 1
            if 2 <= dof < MOST_MEMBERS:
                product = stats.residual[own] @ stats.residual[own].T
                trace = np.trace(product) / dof
                squares.append(dof**2 / ((dof - 1) * (dof + 2)) * ((product**2).sum() / dof**2 - trace**2 / dof))
                scatters.append((trace, dof))
        pooled = float((self._product**2).sum())
        if len(squares) < 2:
            return pooled, 0.0
        trace, dof = np.array(scatters).T
        level = max(float(np.average(trace, weights=dof)), 1e-300)
        found = max(float(np.mean(squares)) / level**2, pooled)
        noise = 2 * found / float(dof.mean())
        between = max(float(trace.var()) / level**2 - noise, 0.0)
        return found, between * noise / max(between + noise, 1e-300)

    @cached_property
    def _pooled_along(self) -> Doubles:
        """Variance along the line to the rival if all classes scatter alike (N,)."""
        along: Doubles = self._share(self._between) * (self.scatter + self.scatter[self.rival]) / 2
        return along

    @cached_property
    def _ratio(self) -> float:
        """Variance of the examples along the line to the rival of their class, over `_pooled_along`; at least 1."""
        stats = self.stats
        direction = self._between / np.where(self.distance > 0, self.distance, 1.0)[:, None]
        own = stats.weights @ np.vecdot(stats.residual, direction[stats.labels]) ** 2
        pooled = np.maximum(stats.count - 1, 0) @ self._pooled_along
        return max(float(own / pooled), 1.0) if pooled > 0 else 1.0

    def _share(self, between: Doubles) -> Doubles:
        """Return the share of the pooled scatter along each row (N,)."""
        length = np.maximum(row_squares(between), 1e-300)
        share: Doubles = np.maximum(np.vecdot(between @ self._product, between), 0.0) / length
        return share

    @cached_property
    def _posterior(self) -> tuple[Doubles, Doubles]:
        """Grid of delta^2 (G,) and its posterior for each class and its rival (N, G)."""
        own = self._estimates(np.arange(len(self.rival)), self.rival)
        chosen = np.linspace(0, len(self.rival) - 1, min(len(self.rival), MOST_PRIOR)).astype(np.intp)
        a, b = (chosen[each] for each in np.triu_indices(len(chosen), 1))
        every, variance = self._estimates(a, b)
        grid = max(1.5 * float(every.max()), 1e-12) * np.linspace(0.0, 1.0, GRID) ** 2  # fine near 0
        likelihood = _normal(every, variance, grid)
        prior = np.full(GRID, 1 / GRID)
        for _ in range(EM_STEPS):
            share = likelihood * prior
            share /= share.sum(axis=1, keepdims=True)
            prior = (share.sum(axis=0) + 1 / GRID) / (len(share) + 1)
        posterior = _normal(*own, grid) * prior
        return grid, posterior / posterior.sum(axis=1, keepdims=True)

    def _estimates(self, a: Indices, b: Indices) -> tuple[Doubles, Doubles]:
        """Return D of each pair of classes and its variance (P,)."""
        stats, (spread, uncertain) = self.stats, self._spread
        part = self.scatter / stats.count
        between = stats.mean[a] - stats.mean[b]
        found = row_squares(between) - part[a] - part[b]
        along = self._ratio * self._share(between) * (self.scatter[a] + self.scatter[b]) / 2
        variance = 2 * spread * (part[a] + part[b]) ** 2 + uncertain * (part[a] ** 2 + part[b] ** 2)
        return found, variance + 4 * along * np.maximum(found, 0.0) * (
            1 / stats.count[a] + 1 / stats.count[b]
        ) + 1e-12 * found.max() ** 2

    def _error(self, count: Doubles) -> Doubles:
        if not self.stats.scattered:
            return np.full(len(count), np.nan)
        grid, posterior = self._posterior
        noise = self._noise + self.scatter * (1 / count - 1 / self.stats.count)
        length, sigma = np.sqrt(grid + noise[:, None]), np.sqrt(self._ratio * self._pooled_along)
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.nan_to_num(grid / (2 * length * sigma[:, None]), posinf=np.inf)
        error: Doubles = (posterior * ndtr(TAIL_SHIFT - TAIL_SLOPE * away)).sum(axis=1)
        return error

    def _counts(self) -> tuple[Doubles, Doubles]:
        """Return how many examples of each class and its rival lie nearer to the other, of how many (N,)."""
        stats, out = self.stats, LeftOut(self.stats)
        grid, posterior = self._posterior
        moved = posterior @ grid - (self.distance**2 - self._noise)
        excess = self.scatter[stats.labels] * out.step / stats.count[stats.labels]  # of a mean of fewer examples
        own = out.distance2 - excess
        wrong, number = np.zeros(len(moved)), np.zeros(len(moved))
        weights = np.where(out.has_siblings, stats.weights, 0.0)
        for n, rival in enumerate(self.rival.tolist()):
            for a, b in ((n, rival), (rival, n)):
                index = self._members[a]
                other = row_squares(stats.rows[index] - stats.mean[b])
                wrong[n] += weights[index] @ (other - own[index] + moved[n] < 0)
                number[n] += weights[index].sum()
        return wrong, number

    @cached_property
    def _members(self) -> list[Indices]:
        """Indices of the examples of each class."""
        labels = self.stats.labels
        order = np.argsort(labels, kind="stable")
        return np.split(order, np.searchsorted(labels[order], np.arange(1, len(self.stats.count))))


def _normal(found: Doubles, variance: Doubles, grid: Doubles) -> Doubles:
    """Return the normal likelihood of each estimate for each value of the grid (P, G), up to a factor a row."""
    power = -0.5 * (found[:, None] - grid) ** 2 / variance[:, None]
    likelihood: Doubles = np.exp(power - power.max(axis=1, keepdims=True))
    return likelihood


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
