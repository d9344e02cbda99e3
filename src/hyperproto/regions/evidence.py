"""Side evidence beside labelled examples: class names as prior means, and unlabelled rows by EM.

Names enter as prior means (`hyperproto.regions.names`). Unlabelled rows u enter by expectation-maximisation in the
whitened space. In d effective dimensions a row of class n has density N(c_n, v s), s = 1 + 1 / (mean K + k); an
out-of-class row has the background density N(mean of c, v (1 + 1 / k_0)), k_0 the variance ratio about the common mean.
The mean b_n of the rows of class n, weighted by their responsibilities, then counts as so many labelled examples:

    weight_n = h R_n / (R_n + R' + h) q_n,    q_n = F_n / (F_n + 8)

R_n is the sum of the responsibilities of class n, R' its mean over classes, h = 8. A cluster mean is off by sampling,
v / R_n, and by rows of other classes, which more rows do not cure: v / h (1 + R' / R_n), if wrong rows come in
proportion to the size of the cluster and to the mean size. F_n is the separation of the cluster from the nearest other
(`separation`). A class that the rows lack takes a part of the cluster of another: both then have a small F. q_n enters
after the last round. k and g are those of the examples, since clusters are no independent evidence for names.

Two guards bound the influence of bad data: rows far outside the others and the classes have weight 0
(`inlier_rows`), and names whose spread is of another order than that of the rows are scaled to it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, device

from hyperproto.errors import DataError
from hyperproto.regions.arrays import Array, at_least, positive, root, row_squares, squared_distance
from hyperproto.regions.bayes import PRIOR_RATIO, BayesFit, fit_bayes, weighted_mean
from hyperproto.regions.names import posterior_centers, with_names
from hyperproto.regions.statistics import ExampleStatistics
from hyperproto.regions.whitening import Whitening

MOST_WEIGHT = 8.0  # h, labelled examples that the unlabelled rows of a class count as at most
ROUNDS = 8  # of expectation-maximisation
BLOCK = 1 << 18  # responsibilities in memory at once
LEAST_ROWS = 64  # rows of a block at least, whatever the number of classes
FULL_SEPARATION = 8.0  # F at which a cluster counts half; 3.5 are two halves of one normal distribution
EMPTY = 1e-12  # a cluster of fewer rows has no mean
OUTLIER = 10.0  # distance from the middle, in units of the usual one, beyond which a row has weight 0
OTHER_UNIT = 30.0  # ratio of the spread of names to that of rows beyond which names are scaled to the rows


@dataclass(frozen=True, eq=False)
class Clusters:
    """Summary of unlabelled rows by class, enough to fit again without the rows."""

    mean: Array  # (..., N, D) b_n, in the space of the examples
    weight: Array  # (..., N) labelled examples that each cluster counts as
    spread: Array  # (...) trace of the covariance of the whitened rows; 0: the rows are identical
    dim: Array  # (...) d, their effective dimension


@dataclass(frozen=True, eq=False)
class Evidence:
    """Class names and unlabelled rows, as vectors in the space of the examples.

    In place of unlabelled rows there may be `clusters`, the summary of an earlier fit.
    """

    names: Array = None  # (..., N, D) P_n
    named: Array = None  # (..., N) bool, which classes have a name; None: all
    unlabelled: Array = None  # (..., U, D)
    clusters: Clusters | None = None

    def __bool__(self) -> bool:
        """Return whether there is any evidence."""
        return self.names is not None or self.has_rows

    @property
    def has_rows(self) -> bool:
        """True if there are unlabelled rows, or their summary."""
        return self.unlabelled is not None or self.clusters is not None

    def shifted(self, by: Array) -> Self:
        """Return evidence for examples moved by -`by` (..., 1, D) or (D,). Names have an origin of their own."""
        rows = None if self.unlabelled is None else self.unlabelled - by
        clusters = None if self.clusters is None else replace(self.clusters, mean=self.clusters.mean - by)
        return replace(self, unlabelled=rows, clusters=clusters)

    def check(self, mean: Array) -> None:
        """Refuse shapes that do not match class means (..., N, D)."""
        shape, leading = tuple(mean.shape), tuple(mean.shape[:-2])
        if self.names is not None and tuple(self.names.shape) != shape:
            raise DataError(f"names have shape {tuple(self.names.shape)}; the classes need {shape}: one vector a class")
        if self.named is not None and tuple(self.named.shape) != shape[:-1]:
            raise DataError(
                f"named has shape {tuple(self.named.shape)}; the classes need {shape[:-1]}: one truth value a class"
            )
        if self.unlabelled is not None:
            found = tuple(self.unlabelled.shape)
            if len(found) != len(shape) or found[:-2] != leading or found[-1] != shape[-1]:
                raise DataError(f"unlabelled rows have shape {found}; they need {(*leading, 'U', shape[-1])}")


@dataclass(frozen=True, eq=False)
class FittedEvidence(Evidence):
    """Evidence as a fit has used it: names prepared, unlabelled rows summarised by clusters."""

    name_weight: Array = None  # (...) g
    scatter: Array = None  # (...) v, also where the support does not determine it; 0 where nothing does
    common_ratio: Array = None  # (...) k_0, the variance ratio about the common mean

    def posterior_count(self, count: Array) -> Array:
        """Return the examples that each class (..., N) counts as: its own, and the weight of its cluster."""
        return count if self.clusters is None else count + self.clusters.weight

    def center(self, mean: Array, count: Array, ratio: Array) -> Array:
        """Return the posterior centres (..., N, D) in the space of the examples, of their means and counts."""
        xp = array_namespace(mean)
        both = mean if self.clusters is None else joined_means(mean, count, self.clusters.mean, self.clusters.weight)
        names = xp.zeros_like(mean) if self.names is None else self.names
        return posterior_centers(both, self.posterior_count(count), names, ratio, self.name_weight)[0]


NO_EVIDENCE = Evidence()


def fit_with_evidence(
    stats: ExampleStatistics,
    prior_ratio: float = PRIOR_RATIO,
    effective_count: Array = None,
    evidence: Evidence = NO_EVIDENCE,
) -> tuple[BayesFit, FittedEvidence]:
    """Fit with evidence; without any, the result is that of `fit_bayes` to the last bit.

    A class without a name has the common prior mean, a class without examples its prior mean as centre. If no class has
    examples, classes are ranked by their products with the names. Products with unlabelled rows are in their precision
    and in blocks: no array has the size (U, N).
    """
    evidence.check(stats.mean)
    base = fit_bayes(stats, prior_ratio, effective_count)
    xp = array_namespace(stats.mean)
    count, mean = stats.count if effective_count is None else effective_count, base.whiten(stats.mean)
    fit, name_weight, names = base, xp.zeros_like(base.scatter), None
    whitened_names = xp.zeros_like(stats.mean)
    rows, clusters, spread = None, evidence.clusters, total_spread(stats)
    if evidence.unlabelled is not None and evidence.unlabelled.shape[-2] > 1:
        rows = UnlabelledRows.of(*inlier_rows(evidence.unlabelled, stats, base.whiten), base.whiten, mean.dtype)
    if evidence.names is not None:
        others = rows if rows is not None else clusters
        names = _centered_names(evidence.names, evidence.named, mean.dtype)
        unit = spread if others is None else _first_positive(spread, others.spread)
        names = _scaled_names(names, evidence.named, unit)
        whitened_names = base.whiten(names)
        fit, name_weight = with_names(base, mean, count, whitened_names, prior_ratio)
    if rows is not None:
        clusters = clusters_of(rows, mean, count, whitened_names, name_weight, fit, base.ratio)
    if clusters is not None:
        both = joined_means(mean, count, base.whiten(clusters.mean), clusters.weight)
        center, _ = posterior_centers(both, count + clusters.weight, whitened_names, fit.ratio, name_weight)
        fit = replace(fit, center=center)
    spread = spread if clusters is None else _first_positive(clusters.spread, spread)
    scatter = scatter_by_spread(base.scatter, spread, fit.ratio)
    fitted = FittedEvidence(names, None, None, clusters, name_weight, scatter, base.ratio)
    if fit is not base:
        new, old = fitted.posterior_count(count) + fit.ratio[..., None], count + base.ratio[..., None]
        fit = replace(fit, extent_radius=base.extent_radius * root((1 + 1 / new) / (1 + 1 / old)))
    return fit, fitted


def _centered_names(names: Array, named: Array, dtype: Any) -> Array:
    """Return the names (..., N, D); if some class has none, minus the mean of the others, and 0 for that class."""
    xp = array_namespace(names)
    names = xp.astype(names, dtype)
    if named is None:
        return names
    names = xp.where(named[..., None], names, 0.0)
    number = xp.sum(xp.astype(named, dtype), axis=-1)[..., None, None]
    middle = xp.sum(names, axis=-2, keepdims=True) / at_least(number, 1.0)
    middle = xp.where(xp.all(named, axis=-1)[..., None, None], 0.0, middle)
    return xp.where(named[..., None], names - middle, 0.0)


def _scaled_names(names: Array, named: Array, spread: Array) -> Array:
    """Scale names (..., N, D) to the `spread` (...) of the rows, a mean square, where theirs is of another order."""
    xp = array_namespace(names)
    weight = xp.ones_like(names[..., 0]) if named is None else xp.astype(named, names.dtype)
    away = row_squares(names - weighted_mean(weight, names))
    own = xp.sum(weight * away, axis=-1) / at_least(xp.sum(weight, axis=-1), 1.0)  # (...)
    other_unit = (own > OTHER_UNIT**2 * spread) & (spread > 0)
    factor = xp.sqrt(xp.where(other_unit, spread, 1.0) / xp.where(other_unit, own, 1.0))
    return names * factor[..., None, None]


def scatter_by_spread(scatter: Array, spread: Array, ratio: Array) -> Array:
    """Return v (...), and where the support does not determine it, the part of the total spread within classes."""
    return _first_positive(scatter, spread / (1 + 1 / ratio))


def total_spread(stats: ExampleStatistics) -> Array:
    """Return the mean squared distance (...) of the examples to the mean of all of them."""
    xp = array_namespace(stats.mean)
    away = row_squares(stats.mean - weighted_mean(stats.count, stats.mean))
    return xp.sum(stats.squares + stats.count * away, axis=-1) / at_least(xp.sum(stats.count, axis=-1), 1.0)


def _first_positive(first: Array, second: Array) -> Array:
    xp = array_namespace(first)
    return xp.where(first > 0, first, second)


def joined_means(mean: Array, count: Array, cluster: Array, weight: Array) -> Array:
    """Return the mean (..., N, D) of the examples and the cluster of each class, by count and weight (..., N)."""
    total = at_least(count + weight, EMPTY)
    return (count[..., None] * mean + weight[..., None] * cluster) / total[..., None]


# Expectation-maximisation over unlabelled rows.


def predictive_scale(count: Array, ratio: Array) -> Array:
    """Return s = 1 + 1 / (mean K + k) (...), the variance of a new example about a posterior centre in units of v."""
    xp = array_namespace(count)
    return 1 + 1 / (xp.mean(count, axis=-1) + ratio)


@dataclass(frozen=True, eq=False)
class Responsibilities:
    """E step: class probabilities of a row, a softmax of one linear map and of the background density.

    Up to a common constant, the log density of class n is t (A u . (c_n - c') - (||c_n||^2 - ||c'||^2 - eps_n) / 2)
    with t = d / (v s) and c' the mean of the centres. That of the background is
    -t/2 (||A u - c'||^2 (s / s_0 - 1) + v s log(s_0 / s)) with s_0 = 1 + 1 / k_0.
    """

    weights: Array  # (..., D, N + 1); the last column gives A u . c'
    bias: Array  # (..., N)
    middle2: Array  # (...) ||c'||^2
    slope: Array  # (...) of the background in ||A u - c'||^2
    offset: Array  # (...) of the background

    @classmethod
    def of(cls, fit: Any, center: Array, count: Array, v: Array, dim: Array, common_ratio: Array, dtype: Any) -> Self:
        """Prepare the map for classes at `center` (..., N, D), each estimated from `count` (..., N) examples.

        Radii, whitening and k are those of `fit`, a `BayesFit` or a sphere.
        """
        xp = array_namespace(center)
        scale, background = predictive_scale(count, fit.ratio), 1 + 1 / common_ratio  # s, s_0
        middle = xp.mean(center, axis=-2, keepdims=True)
        sharp = dim / (v * scale)  # t
        away, middle2 = center - middle, row_squares(middle)  # (..., 1)
        weights = xp.concat([sharp[..., None, None] * fit.whiten(away), fit.whiten(middle)], axis=-2).mT
        bias = sharp[..., None] / 2 * (fit.bias_radius - row_squares(center) + middle2)
        slope = -sharp / 2 * (scale / background - 1)
        offset = -dim / 2 * xp.log(background / scale)
        return cls(*(xp.astype(part, dtype) for part in (weights, bias, middle2[..., 0], slope, offset)))

    def __call__(self, rows: Array, length: Array) -> Array:
        """Return the class probabilities (..., U, N) of rows (..., U, D), whose sum and the background's is 1.

        `length` (..., U) is ||A u||^2.
        """
        xp = array_namespace(rows)
        product = rows @ self.weights
        logits = product[..., :-1] + self.bias[..., None, :]
        away = length - 2 * product[..., -1] + self.middle2[..., None]
        background = (self.slope[..., None] * away + self.offset[..., None])[..., None]  # (..., U, 1)
        top = xp.max(logits, axis=-1, keepdims=True)
        top = xp.where(background > top, background, top)
        power = xp.exp(logits - top)
        return power / (xp.sum(power, axis=-1, keepdims=True) + xp.exp(background - top))


def inlier_rows(unlabelled: Array, stats: ExampleStatistics, whiten: Whitening) -> tuple[Array, Array]:
    """Return rows (..., U, D) and the weight of each (..., U): 1, or 0 for an outlier; None if all weights are 1.

    In the whitened space, an outlier is OUTLIER times as far from the middle of the class means as the larger of two
    distances: the median of the rows, and that of the farthest class. Without examples the middle is the median of the
    rows. An outlier is replaced by the row nearest to the middle, so that its numbers do no harm.
    """
    xp = array_namespace(unlabelled)
    size = unlabelled.shape[-2]
    dtype, cast = unlabelled.dtype, whiten.astype(unlabelled.dtype)
    among = xp.astype(stats.count > 0, stats.mean.dtype)
    mean = whiten(stats.mean)
    middle = weighted_mean(among, mean)  # (..., 1, D)
    none = xp.sum(among, axis=-1) <= 0
    if bool(xp.any(none)):
        median = xp.sort(cast(unlabelled), axis=-2)[..., (size - 1) // 2, :][..., None, :]
        middle = xp.where(none[..., None, None], xp.astype(median, middle.dtype), middle)
    reach = xp.max(among * (row_squares(mean - middle) + stats.squares / positive(stats.count)), axis=-1)  # (...)
    shift = xp.astype(middle, dtype)
    blocks = row_blocks(unlabelled, unlabelled.shape[-1])
    with np.errstate(over="ignore", invalid="ignore"):
        away = xp.concat([row_squares(cast(unlabelled[..., part, :]) - shift) for part in blocks], axis=-1)  # (..., U)
    usual = xp.sort(away, axis=-1)[..., (size - 1) // 2]
    usual = at_least(usual, xp.astype(reach, dtype))[..., None]
    inlier = (away <= OUTLIER**2 * usual) | (usual == 0)
    if bool(xp.all(inlier)):
        return unlabelled, None
    numbers = xp.arange(size, device=device(unlabelled))
    nearest = xp.astype(numbers == xp.argmin(xp.where(inlier, away, math.inf), axis=-1)[..., None], dtype)
    return xp.where(inlier[..., None], unlabelled, nearest[..., None, :] @ unlabelled), xp.astype(inlier, dtype)


@dataclass(frozen=True, eq=False)
class UnlabelledRows:
    """Unlabelled rows, and moments of the whitened rows, whose covariance is G."""

    rows: Array  # (..., U, D)
    weight: Array  # (..., U) 1 or 0; None if all are 1
    middle: Array  # (..., 1, D) their mean
    spread: Array  # (...) tr(G)
    dim: Array  # (...) d = tr(G)^2 / tr(G^2)
    length: Array  # (..., U) ||A u||^2

    def shared(self, probabilities: Responsibilities) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of rows (..., B, D), and how much of each row is of each class (..., B, N)."""
        for part in row_blocks(self.rows, probabilities.bias.shape[-1]):
            block = self.rows[..., part, :]
            share = probabilities(block, self.length[..., part])
            yield block, share if self.weight is None else share * self.weight[..., part, None]

    @classmethod
    def of(cls, rows: Array, weight: Array, whiten: Whitening, dtype: Any) -> Self:
        """Measure rows; both traces come from G or from the products of the rows, whichever matrix is smaller."""
        xp = array_namespace(rows)
        size, width = rows.shape[-2:]
        cast = whiten.astype(rows.dtype)
        parts = list(row_blocks(rows, width))
        number = size if weight is None else xp.astype(xp.sum(weight, axis=-1), dtype)[..., None, None]
        counted = rows if weight is None else rows * weight[..., None]
        middle = sum(xp.astype(xp.sum(counted[..., part, :], axis=-2, keepdims=True), dtype) for part in parts) / number
        shift, gram, length, kept = cast(xp.astype(middle, rows.dtype)), 0.0, [], []
        for part in parts:
            block = cast(rows[..., part, :])
            length.append(row_squares(block))
            block = block - shift if weight is None else (block - shift) * weight[..., part, None]
            if size < width:
                kept.append(block)
            else:
                gram = gram + xp.astype(block.mT @ block, dtype)  # (..., D, D)
        if size < width:
            block = xp.concat(kept, axis=-2)
            gram = xp.astype(block @ block.mT, dtype)  # (..., U, U)
        gram = gram / number
        spread = xp.sum(xp.linalg.diagonal(gram), axis=-1)
        differ = xp.any(rows != rows[..., :1, :], axis=(-2, -1)) & xp.isfinite(spread)
        spread = xp.where(differ, spread, 0.0)
        scaled = gram / xp.where(spread > 0, spread, 1.0)[..., None, None]  # so that no square overflows
        dim = 1 / xp.where(spread > 0, xp.sum(scaled * scaled, axis=(-2, -1)), 1.0)
        return cls(rows, weight, middle, spread, dim, xp.concat(length, axis=-1))


def clusters_of(
    rows: UnlabelledRows,
    mean: Array,
    count: Array,
    names: Array,
    name_weight: Array,
    fit: BayesFit,
    common_ratio: Array,
) -> Clusters:
    """Run EM from the centres of `fit`; `mean` and `names` (..., N, D) are whitened."""
    xp = array_namespace(mean)
    differ = rows.spread > 0
    v = scatter_by_spread(fit.scatter, xp.where(differ, rows.spread, 1.0), fit.ratio)
    none = (xp.sum(count, axis=-1) <= 0)[..., None, None]  # no examples: names about the mean of the rows
    moved = fit.center - xp.mean(fit.center, axis=-2, keepdims=True) + fit.whiten(rows.middle)
    center = xp.where(none, moved, fit.center)
    weight = cluster = xp.zeros_like(count)
    for number in range(ROUNDS):
        probabilities = Responsibilities.of(fit, center, count + weight, v, rows.dim, common_ratio, rows.rows.dtype)
        size, total = xp.zeros_like(count), xp.zeros_like(mean)
        for block, share in rows.shared(probabilities):
            size = size + xp.astype(xp.sum(share, axis=-2), mean.dtype)
            total = total + xp.astype(share.mT @ block, mean.dtype)
        cluster = total / at_least(size, EMPTY)[..., None]
        weight = MOST_WEIGHT * size / (size + xp.mean(size, axis=-1, keepdims=True) + MOST_WEIGHT)
        if number == ROUNDS - 1 and mean.shape[-2] > 1:
            apart = separation(rows, probabilities, size, cluster, fit.whiten)
            weight = weight * apart / (apart + FULL_SEPARATION)
        weight = xp.where(differ[..., None], weight, 0.0)
        both = joined_means(mean, count, fit.whiten(cluster), weight)
        center, _ = posterior_centers(both, count + weight, names, fit.ratio, name_weight)
    return Clusters(cluster, weight, rows.spread, rows.dim)


def separation(
    rows: UnlabelledRows, probabilities: Responsibilities, size: Array, cluster: Array, whiten: Whitening
) -> Array:
    """Return F_n (..., N), the squared distance of each cluster to the nearest other, over the variance between them.

    The variance is that of the rows of both clusters along the line through their means, in the whitened space. Two
    halves of one normal distribution have F about 3.5 wherever it is cut; clusters without rows have F = 0.
    """
    xp = array_namespace(size)
    place, numbers = whiten(cluster), xp.arange(size.shape[-1], device=device(size))
    inside = size > EMPTY  # (..., N)
    far = squared_distance(place, place)
    far = xp.where((numbers[:, None] == numbers) | ~inside[..., None, :], math.inf, far)
    nearest = numbers == xp.argmin(far, axis=-1)[..., None]  # (..., N, N)
    nearest = xp.astype(nearest, size.dtype)
    other = nearest @ place
    line = place - other
    distance = row_squares(line)  # (..., N)
    at, at_other = xp.sum(place * line, axis=-1), xp.sum(other * line, axis=-1)
    axes, mine, theirs = xp.astype(whiten(line), rows.rows.dtype), xp.zeros_like(size), xp.zeros_like(size)
    for block, share in rows.shared(probabilities):
        along, share = xp.astype(block @ axes.mT, size.dtype), xp.astype(share, size.dtype)  # (..., B, N)
        mine = mine + xp.sum(share * (along - at[..., None, :]) ** 2, axis=-2)
        theirs = theirs + xp.sum((share @ nearest.mT) * (along - at_other[..., None, :]) ** 2, axis=-2)
    size_other = (nearest @ size[..., None])[..., 0]
    variance = mine / at_least(size, EMPTY) + theirs / at_least(size_other, EMPTY)  # times the squared distance
    variance = at_least(variance, EMPTY * distance**2)
    found = distance**2 / xp.where(variance > 0, variance, 1.0)
    return xp.where(inside & (size_other > EMPTY), found, 0.0)


def row_blocks(rows: Array, width: int) -> Iterator[slice]:
    """Cut rows (..., U, D) into blocks so that `width` numbers a row of all episodes fit into the cache."""
    size = rows.shape[-2]
    step = max(LEAST_ROWS, BLOCK // max(1, width * math.prod(rows.shape[:-2])))
    return (slice(start, min(start + step, size)) for start in range(0, size, step))
