"""Spheres that know more than examples: names of classes, and examples without a label, as prior knowledge.

`bayes` takes class means for draws around one common m. A name P_n says more: mu_n = m + g P_n, with noise of variance
v / k. Given m and g the centre is p_n + w_n (z_n - p_n) with p_n = m + g P_n and w_n = K_n / (K_n + k), so that a class
without examples (K_n = 0) lies at p_n. The mean z_n has variance (v / k) / w_n about p_n: m and g are weighted least
squares over the classes, and g falls to 0 where names say nothing. The origin and the scale of the names drop out.

Unlabelled rows enter by expectation-maximisation. A row of class n is N(c_n, v s), s = 1 + 1 / (mean K + k), and one of
no class known is N(mean of c, v (1 + 1/k_0)), each in d effective dimensions. The mean b_n of the cluster that class n
catches counts as so many examples more, R_n being its size and R' the mean size:

    worth_n = h R_n / (R_n + R' + h)

The mean of a cluster is off by sampling, v / R_n, and by rows that are not its own, which more rows do not cure:
v / h (1 + R' / R_n), if wrong rows come in proportion to its size and to the mean size.

A row that lies far outside the cloud of the others, and of the classes, has weight 0 (`near_rows`): no row moves a fit
without bound. Names whose spread is of another order than that of the rows are scaled to it.

Without names and unlabelled rows this is `fit_bayes`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from hyperproto.errors import DataError
from hyperproto.regions.arrays import Array, Doubles, Indices, at_least, positive, root, row_squares
from hyperproto.regions.bayes import (
    LEAST_LEVERAGE,
    LEAST_RATIO,
    MOST_RATIO,
    PRIOR_RATIO,
    BayesFit,
    fit_bayes,
    fixed_point_ratio,
    shrunk_ratio,
)
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import ExampleStatistics
from hyperproto.regions.whitening import Whitening

PRIOR_STRENGTH = 0.25  # g, how far a class lies from the others in the direction of its name, before any example
PRIOR_NAMES = 0.05  # how many exactly known classes' worth of evidence that counts for
WORTH = 8.0  # h, how many labelled examples the unlabelled ones of a class are worth at most
ROUNDS = 8  # of expectation-maximisation
BLOCK = 1 << 18  # shares in memory at once
LEAST_ROWS = 64  # rows at a time, however many classes there are
EMPTY = 1e-12  # a cluster of fewer rows has no mean
FAR_ROW = 10.0  # a row so many times as far from the middle as others, and as classes, counts for nothing
FOREIGN = 30.0  # names that spread so many times as far as the rows are in another unit: they are scaled to the rows


@dataclass(frozen=True, eq=False)
class Clusters:
    """What unlabelled rows say of the classes: enough to fit again without the rows."""

    mean: Array  # (..., N, D) b_n, in the space of the examples
    worth: Array  # (..., N) how many examples each counts for
    spread: Array  # (...) trace of the covariance of the whitened rows; 0: the rows say nothing
    dim: Array  # (...) d, their effective dimension


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a fit has made of names and unlabelled rows."""

    names: Array  # (..., N, D) P_n, in the space of the examples; 0 says nothing
    strength: Array  # (...) g
    clusters: Clusters | None
    scatter: Array  # (...) v, also where the support cannot tell; 0 where nothing can
    loose: Array  # (...) k_0, the variance ratio about the common mean

    def believed(self, count: Array) -> Array:
        """How many examples each class (..., N) counts for: its own, and what its cluster is worth."""
        return count if self.clusters is None else count + self.clusters.worth

    def center(self, mean: Array, count: Array, ratio: Array) -> Array:
        """The posterior centres (..., N, D) in the space of the examples, for their means and counts."""
        both = mean if self.clusters is None else _joined(mean, count, self.clusters.mean, self.clusters.worth)
        return _about_names(both, self.believed(count), self.names, ratio, self.strength)


def fit_known(
    stats: ExampleStatistics,
    prior_ratio: float = PRIOR_RATIO,
    worth: Array = None,
    *,
    names: Array = None,
    named: Array = None,
    unlabelled: Array = None,
    clusters: Clusters | None = None,
) -> tuple[BayesFit, Knowledge]:
    """Fit as `fit_bayes` does, with `names` (..., N, D) of the classes and `unlabelled` rows (..., U, D).

    `named` (..., N) says which classes have a name; others keep the common prior, and so do all without `names`. In
    place of the rows, `clusters` may be those of an earlier fit. Products with the rows are in their precision, and
    are made in blocks: no array has the size (U, N).

    A class may have no examples. If none has any, classes are ranked by their products with the names.
    """
    _check(stats.mean, names, named, unlabelled)
    base = fit_bayes(stats, prior_ratio, worth)
    xp = array_namespace(stats.mean)
    count, mean = stats.count if worth is None else worth, base.whiten(stats.mean)
    fit, strength, matrix = base, xp.zeros_like(base.scatter), xp.zeros_like(stats.mean)
    rows, spread = None, _total_spread(stats)
    if unlabelled is not None and unlabelled.shape[-2] > 1:
        rows = _Rows.of(*near_rows(unlabelled, stats, base.whiten), base.whiten, mean.dtype)
    if names is not None:
        others = rows if rows is not None else clusters
        matrix = _name_matrix(names, named, mean.dtype)
        matrix = _in_unit_of(matrix, named, spread if others is None else _either(spread, others.spread))
        known, name = base.scatter > 0, base.whiten(matrix)
        measured = _ratio_about_names(mean, count, name, xp.where(known, base.scatter, 1.0), prior_ratio)
        ratio = xp.where(known, measured, prior_ratio)
        center, strength = _centers(mean, count, name, ratio)
        fit = replace(base, center=center, ratio=ratio)
    if rows is not None:
        clusters = _learn(rows, mean, count, base.whiten(matrix), fit, base.ratio)
    if clusters is not None:
        both = _joined(mean, count, base.whiten(clusters.mean), clusters.worth)
        center, strength = _centers(both, count + clusters.worth, base.whiten(matrix), fit.ratio)
        fit = replace(fit, center=center)
    spread = spread if clusters is None else _either(clusters.spread, spread)
    scatter = _either(base.scatter, spread / (1 + 1 / fit.ratio))
    knowledge = Knowledge(matrix, strength, clusters, scatter, base.ratio)
    if fit is not base:
        grow = (1 + 1 / (knowledge.believed(count) + fit.ratio[..., None])) / (1 + 1 / (count + base.ratio[..., None]))
        fit = replace(fit, extent_radius=base.extent_radius * root(grow))
    return fit, knowledge


def _check(mean: Array, names: Array, named: Array, unlabelled: Array) -> None:
    """Refuse shapes that do not fit the examples."""
    shape, leading = tuple(mean.shape), tuple(mean.shape[:-2])
    if names is not None and tuple(names.shape) != shape:
        raise DataError(f"names have shape {tuple(names.shape)}; the classes need {shape}: one vector a class")
    if named is not None and tuple(named.shape) != shape[:-1]:
        raise DataError(f"named has shape {tuple(named.shape)}; the classes need {shape[:-1]}: one truth value a class")
    if unlabelled is not None:
        found = tuple(unlabelled.shape)
        if len(found) != len(shape) or found[:-2] != leading or found[-1] != shape[-1]:
            raise DataError(f"unlabelled rows have shape {found}; they need {(*leading, 'U', shape[-1])}")


def _name_matrix(names: Array, named: Array, dtype: Any) -> Array:
    """The names (..., N, D); if some class has none, about the mean of the others, and 0 for it, which says nothing."""
    xp = array_namespace(names)
    names = xp.astype(names, dtype)
    if named is None:
        return names
    names = xp.where(named[..., None], names, 0.0)
    number = xp.sum(xp.astype(named, dtype), axis=-1)[..., None, None]
    middle = xp.sum(names, axis=-2, keepdims=True) / at_least(number, 1.0)
    middle = xp.where(xp.all(named, axis=-1)[..., None, None], 0.0, middle)
    return xp.where(named[..., None], names - middle, 0.0)


def _in_unit_of(names: Array, named: Array, spread: Array) -> Array:
    """Scale names (..., N, D) to the `spread` (...) of the rows, a mean square, where theirs is of another order."""
    xp = array_namespace(names)
    weight = xp.ones_like(names[..., 0]) if named is None else xp.astype(named, names.dtype)
    away = row_squares(names - _weighted(weight, names))
    own = xp.sum(weight * away, axis=-1) / at_least(xp.sum(weight, axis=-1), 1.0)  # (...)
    foreign = (own > FOREIGN**2 * spread) & (spread > 0)
    factor = xp.sqrt(xp.where(foreign, spread, 1.0) / xp.where(foreign, own, 1.0))
    return names * factor[..., None, None]


def _prior(mean: Array, weight: Array, name: Array, among: Array) -> tuple[Array, Array]:
    """m (..., 1, D) and g >= 0 (...) of z_n ~ m + g P_n by weighted least squares; `among` (..., N) is 1 or 0.

    g has a weak prior: `PRIOR_NAMES` classes, of those `among`, that are known exactly and say PRIOR_STRENGTH.
    """
    xp = array_namespace(mean)
    middle, origin = _weighted(weight, mean), _weighted(weight, name)  # (..., 1, D)
    about = name - origin
    length = xp.sum(about * about, axis=-1)  # (..., N)
    prior = PRIOR_NAMES * xp.sum(among * length, axis=-1) / at_least(xp.sum(among, axis=-1), 1.0)
    product = xp.sum(weight * xp.sum((mean - middle) * about, axis=-1), axis=-1)
    square = xp.sum(weight * length, axis=-1)
    differ = prior > (8 * float(xp.finfo(mean.dtype).eps)) ** 2 * xp.mean(row_squares(name), axis=-1)
    found = (product + prior * PRIOR_STRENGTH) / xp.where(differ, square + prior, 1.0)
    strength = xp.where(differ, at_least(found, 0.0), 0.0)  # names that are all the same say nothing
    return middle - strength[..., None, None] * origin, strength


def _weighted(weight: Array, mean: Array) -> Array:
    """The weighted mean (..., 1, D); 0 where all weights are 0, however small they may be elsewhere."""
    xp = array_namespace(mean)
    total = xp.sum(weight, axis=-1)
    return (weight[..., None, :] @ mean) / xp.where(total > 0, total, 1.0)[..., None, None]


def _centers(mean: Array, count: Array, name: Array, ratio: Array) -> tuple[Array, Array]:
    """Posterior centres (..., N, D): few examples, closer to the place that the name gives; none, there. And g."""
    xp = array_namespace(mean)
    weight = count / (count + ratio[..., None])
    middle, strength = _prior(mean, weight, name, xp.ones_like(count))
    prior = middle + strength[..., None, None] * name
    return prior + weight[..., None] * (mean - prior), strength


def _about_names(mean: Array, count: Array, name: Array, ratio: Array, strength: Array) -> Array:
    """The same centres for a strength that is known."""
    weight, along = count / (count + ratio[..., None]), strength[..., None, None] * name
    prior = _weighted(weight, mean - along) + along
    return prior + weight[..., None] * (mean - prior)


def _ratio_about_names(mean: Array, count: Array, name: Array, scatter: Array, prior_ratio: float) -> Array:
    """k = within / between variance about m + g P_n, as `bayes.variance_ratio` finds it about m."""
    xp = array_namespace(mean)
    among = xp.astype(count > 0, count.dtype)
    filled = xp.sum(among, axis=-1)

    def spread(w: Array, _: Array) -> Array:
        middle, strength = _prior(mean, w, name, among)
        return xp.sum(w * row_squares(mean - middle - strength[..., None, None] * name), axis=-1)

    start = xp.full_like(scatter, prior_ratio)
    k = fixed_point_ratio(count, scatter, filled, start, spread, least=LEAST_RATIO, most=MOST_RATIO)
    return shrunk_ratio(k, filled, prior_ratio)


def _total_spread(stats: ExampleStatistics) -> Array:
    """Mean squared distance (...) of the examples to the mean of all of them."""
    xp = array_namespace(stats.mean)
    away = row_squares(stats.mean - _weighted(stats.count, stats.mean))
    return xp.sum(stats.squares + stats.count * away, axis=-1) / at_least(xp.sum(stats.count, axis=-1), 1.0)


def _either(first: Array, second: Array) -> Array:
    """The first where it is above 0."""
    xp = array_namespace(first)
    return xp.where(first > 0, first, second)


def _joined(mean: Array, count: Array, cluster: Array, worth: Array) -> Array:
    """The mean (..., N, D) of the examples of each class and of its cluster, which counts `worth` times."""
    total = at_least(count + worth, EMPTY)
    return (count[..., None] * mean + worth[..., None] * cluster) / total[..., None]


# Expectation-maximisation over rows without a label.


@dataclass(frozen=True, eq=False)
class Shares:
    """Which class a row is of: the softmax of a linear map of it, and of the squared distance to the middle.

    Up to a number that all share, the log odds of class n are t (A u . (c_n - c') - (||c_n||^2 - ||c'||^2 - eps_n) / 2)
    with t = d / (v s) and c' the mean of the centres, and those of no class known -t/2 (||A u - c'||^2 (s / s_0 - 1) +
    v s log(s_0 / s)).
    """

    weights: Array  # (..., D, N + 1); the last column gives A u . c'
    bias: Array  # (..., N)
    middle2: Array  # (...) ||c'||^2
    slope: Array  # (...)
    offset: Array  # (...)

    @classmethod
    def of(
        cls, fit: BayesFit, center: Array, believed: Array, v: Array, dim: Array, loose: Array, dtype: Any
    ) -> "Shares":
        """Those for classes at `center` (..., N, D), each of which `believed` (..., N) examples tell of."""
        xp = array_namespace(center)
        close, far = near(believed, fit.ratio), 1 + 1 / loose
        middle = xp.mean(center, axis=-2, keepdims=True)
        sharp = dim / (v * close)  # t
        away, middle2 = center - middle, row_squares(middle)  # (..., 1)
        weights = xp.concat([sharp[..., None, None] * fit.whiten(away), fit.whiten(middle)], axis=-2).mT
        bias = sharp[..., None] / 2 * (fit.bias_radius - row_squares(center) + middle2)
        slope = -sharp / 2 * (close / far - 1)
        offset = -dim / 2 * xp.log(far / close)
        return cls(*(xp.astype(part, dtype) for part in (weights, bias, middle2[..., 0], slope, offset)))

    def __call__(self, rows: Array, length: Array) -> Array:
        """Shares (..., U, N) of `rows` (..., U, D), given ||A u||^2 (..., U); the rest to 1 is of no class known."""
        xp = array_namespace(rows)
        product = rows @ self.weights
        logits = product[..., :-1] + self.bias[..., None, :]
        away = length - 2 * product[..., -1] + self.middle2[..., None]
        stranger = (self.slope[..., None] * away + self.offset[..., None])[..., None]  # (..., U, 1)
        top = xp.max(logits, axis=-1, keepdims=True)
        top = xp.where(stranger > top, stranger, top)
        power = xp.exp(logits - top)
        return power / (xp.sum(power, axis=-1, keepdims=True) + xp.exp(stranger - top))


def near(believed: Array, ratio: Array) -> Array:
    """s = 1 + 1 / (K + k) (...), how much wider than its class a new example lies about a centre of the mean K."""
    xp = array_namespace(believed)
    return 1 + 1 / (xp.mean(believed, axis=-1) + ratio)


def near_rows(unlabelled: Array, stats: ExampleStatistics, whiten: Whitening) -> tuple[Array, Array]:
    """Return rows (..., U, D) and the weight of each (..., U): 1, or 0 if it is far outside; None if all are 1.

    In the whitened space and from the middle of the class means, a row is far at FAR_ROW times the larger of two
    distances: the median of the rows, and that of the farthest class. Without examples the middle is the median of the
    rows. A row of weight 0 is replaced by the nearest one, so that its numbers do no harm.
    """
    xp = array_namespace(unlabelled)
    size = unlabelled.shape[-2]
    dtype, cast = unlabelled.dtype, whiten.astype(unlabelled.dtype)
    among = xp.astype(stats.count > 0, stats.mean.dtype)
    mean = whiten(stats.mean)
    middle = _weighted(among, mean)  # (..., 1, D)
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
    near = (away <= FAR_ROW**2 * usual) | (usual == 0)
    if bool(xp.all(near)):
        return unlabelled, None
    numbers = xp.arange(size, device=device(unlabelled))
    nearest = xp.astype(numbers == xp.argmin(xp.where(near, away, math.inf), axis=-1)[..., None], dtype)
    return xp.where(near[..., None], unlabelled, nearest[..., None, :] @ unlabelled), xp.astype(near, dtype)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Unlabelled rows and what is measured of them: of the covariance G of the whitened rows tr(G), and d."""

    rows: Array  # (..., U, D)
    weight: Array  # (..., U) 1 or 0; None if all are 1
    middle: Array  # (..., 1, D) their mean
    spread: Array  # (...) tr(G)
    dim: Array  # (...) d = tr(G)^2 / tr(G^2)
    length: Array  # (..., U) ||A u||^2

    @classmethod
    def of(cls, rows: Array, weight: Array, whiten: Whitening, dtype: Any) -> "_Rows":
        """Measure rows, each of which counts `weight` times.

        Both traces are those of the products of the rows with each other, too: the smaller of the two matrices is made.
        """
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


def _learn(given: _Rows, mean: Array, count: Array, name: Array, fit: BayesFit, loose: Array) -> Clusters:
    """Clusters by expectation-maximisation from the centres of `fit`; `mean` and `name` are whitened."""
    xp = array_namespace(mean)
    unlabelled, spread, dim = given.rows, given.spread, given.dim
    differ = spread > 0
    v = _either(fit.scatter, xp.where(differ, spread, 1.0) / (1 + 1 / fit.ratio))
    none = (xp.sum(count, axis=-1) <= 0)[..., None, None]  # names only: about the mean of the rows
    moved = fit.center - xp.mean(fit.center, axis=-2, keepdims=True) + fit.whiten(given.middle)
    center = xp.where(none, moved, fit.center)
    worth = cluster = xp.zeros_like(count)
    for _ in range(ROUNDS):
        shares = Shares.of(fit, center, count + worth, v, dim, loose, unlabelled.dtype)
        size, total = xp.zeros_like(count), xp.zeros_like(mean)
        for part in row_blocks(unlabelled, mean.shape[-2]):
            rows = unlabelled[..., part, :]
            share = shares(rows, given.length[..., part])  # (..., B, N)
            share = share if given.weight is None else share * given.weight[..., part, None]
            size = size + xp.astype(xp.sum(share, axis=-2), mean.dtype)
            total = total + xp.astype(share.mT @ rows, mean.dtype)
        worth = WORTH * size / (size + xp.mean(size, axis=-1, keepdims=True) + WORTH)
        worth = xp.where(differ[..., None], worth, 0.0)
        cluster = total / at_least(size, EMPTY)[..., None]
        center, _ = _centers(_joined(mean, count, fit.whiten(cluster), worth), count + worth, name, fit.ratio)
    return Clusters(cluster, worth, spread, dim)


def row_blocks(rows: Array, width: int) -> Iterator[slice]:
    """Cut rows (..., U, D) so that `width` numbers a row of all episodes fit into the cache."""
    size = rows.shape[-2]
    step = max(LEAST_ROWS, BLOCK // max(1, width * math.prod(rows.shape[:-2])))
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


# Each example left out.


def distances_left_out(
    out: LeftOut, index: Indices, knowledge: Knowledge, whiten: Whitening, ratio: Array, gain: Array
) -> Doubles:
    """||A x - centre||^2 of the examples `index` to every class (B, N), each left out, without refitting. NumPy only.

    Names take part, clusters of unlabelled rows do not: they would remember the example. Means, counts, m and the
    whitening are those without the example; k and g, which all examples estimate together, are taken as they are. With
    y_n = z_n - g P_n and M their mean, weighted by w_n, the centre of another class is C_m + (1 - w_m) (M' - M), M'
    being the mean without the example.
    """
    stats, own, at, k = out.stats, out.own(index), np.arange(len(index)), float(ratio)
    weight, y, along, center, middle = out.kept("known", knowledge, lambda: _from_names(out, knowledge, whiten, k))
    r, rest = whiten(stats.residual[index]), out.rest[index]  # (B, D), (B,)
    x = whiten(stats.mean[own] + stats.residual[index]) - middle
    mine = y[own] - out.step[index, None] * r - middle  # y of the own class without the example, from M
    weight_left = rest / (rest + k)
    left = weight.sum() - weight[own] + weight_left
    step = (weight_left[:, None] * mine - weight[own][:, None] * (y[own] - middle)) / left[:, None]  # M' - M

    lag, from_middle = 1 - weight, center - middle  # (N,), (N, D)
    distance2 = row_squares(x)[:, None] - 2 * x @ from_middle.T + row_squares(from_middle)
    distance2 -= 2 * lag * (np.vecdot(x, step)[:, None] - step @ from_middle.T)
    distance2 += lag * lag * row_squares(step)[:, None]
    along_r = np.vecdot(r, x)[:, None] - r @ from_middle.T - lag * np.vecdot(r, step)[:, None]
    away = x - (along[own] + step + weight_left[:, None] * (mine - step))
    distance2[at, own], along_r[at, own] = row_squares(away), np.vecdot(r, away)
    share = float(gain) * (out.taken[index] * (1 + out.step[index]))[:, None]
    distance2 += along_r * (share * along_r) / np.maximum(1 - share * row_squares(r)[:, None], LEAST_LEVERAGE)
    found: Doubles = np.maximum(distance2, 0.0)
    return found


def _from_names(out: LeftOut, knowledge: Knowledge, whiten: Whitening, k: float) -> tuple[Doubles, ...]:
    """Weights, y, g P, centres and M of all examples, whitened."""
    stats, along = out.stats, float(knowledge.strength) * whiten(knowledge.names)
    weight, y = stats.count / (stats.count + k), whiten(stats.mean) - along
    middle = _weighted(weight, y)
    return weight, y, along, along + middle + weight[:, None] * (y - middle), middle[0]
