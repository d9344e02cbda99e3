"""Default closed form of a sphere: shrunken centres in a whitened space.

The mean z_n of K_n examples of class n is off by noise of variance v / K_n. Class means are drawn about prior means p_n
with variance v / k, in a space where the scatter v of a class is the same in every direction. The posterior mean
(James and Stein) is

    c_n = p_n + w_n (z_n - p_n),    w_n = K_n / (K_n + k)

The prior means are one common m, the mean of the z_n with weights w_n, or follow the names of the classes
(`hyperproto.regions.names`). The whitening and k come from the support, by leave-one-out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace, device

from hyperproto.errors import ConfigError
from hyperproto.regions.arrays import Array, Doubles, Indices, at_least, positive, root, row_squares
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import ExampleStatistics, scatter_weight
from hyperproto.regions.whitening import Whitening, within_class_whitening

PRIOR_RATIO = 4.0  # k, the within/between variance ratio, before any data
PRIOR_CLASSES = 4.0  # classes that this prior of k counts as
LEAST_RATIO, MOST_RATIO = 1 / 4, 16.0  # bounds of a measured k
LEAST_LEVERAGE = 0.02  # lower bound of 1 - leverage of an example on the covariance
SMALL = 1e-6  # below the sum of weights of any class that has an example
Spread = Callable[[Array, Array], Array]  # see `fixed_point_ratio`


@dataclass(frozen=True, eq=False)
class BayesFit:
    """Parameters of spheres fitted by "bayes"."""

    center: Array  # (..., N, D), in the whitened space
    bias_radius: Array  # (..., N)
    extent_radius: Array  # (..., N)
    whiten: Whitening
    scatter: Array  # (...) v; 0 where the support does not determine it
    ratio: Array  # (...) k
    gain: Array  # (...) b of A = (I + b R^T R)^(-1/2), R the residuals


def fit_bayes(stats: ExampleStatistics, prior_ratio: float = PRIOR_RATIO, effective_count: Array = None) -> BayesFit:
    """Estimate whitening, variance ratio, centres and radii from the statistics of a support set, without evidence.

    `prior_ratio` is the prior value of k. The default suits frozen text encoders; an encoder trained on similar data
    has more compact classes and a smaller k. `effective_count` (..., N) replaces the counts where examples of a class
    correlate, see `effective_counts`.

    Where the support does not determine scatter (one class, one example each, identical examples), the whitening is the
    identity, radii are 0 and k is the prior.
    """
    xp = array_namespace(stats.mean)
    count, filled, dof = stats.count, stats.filled, stats.dof
    effective = count if effective_count is None else effective_count
    own_weight = scatter_weight(effective)
    known = (dof > 0) & (filled > 1) & stats.scattered
    safe_dof = xp.where(dof < 1, 1.0, dof)
    v = xp.where(known, xp.sum(stats.squares, axis=-1), 1.0) / safe_dof
    whiten, gain = within_class_whitening(stats.weighted_residual, v, safe_dof, known)
    mean = whiten(stats.mean)  # (..., N, D)

    distance = left_out_scatter(stats, whiten, gain)  # (..., S), 0 for the only example of a class and for padding
    several = xp.sum(xp.where(count > 1, count, 0.0), axis=-1)
    pooled = stats.sum(distance) / xp.where(several < 1, 1.0, several)
    own = xp.where(count > 1, stats.average(distance), pooled[..., None])  # (..., N) scatter of each class
    # The shrunken centre absorbs the common part v / K of the bias; the radius is the class's own excess.
    eps = own_weight * (own - pooled[..., None]) / positive(effective)

    measured = variance_ratio(mean, effective, xp.where(known, pooled, 1.0), filled, prior_ratio)
    ratio = xp.where(known, measured, prior_ratio)
    weight = effective / (effective + ratio[..., None])
    middle = weighted_mean(weight, mean)  # (..., 1, D)
    return BayesFit(
        center=middle + weight[..., None] * (mean - middle),
        bias_radius=eps,
        extent_radius=root(own * (1 + 1 / (effective + ratio[..., None]))),
        whiten=whiten,
        scatter=xp.where(known, pooled, 0.0),
        ratio=ratio,
        gain=gain,
    )


def left_out_scatter(stats: ExampleStatistics, whiten: Whitening, gain: Array) -> Array:
    """Return the leave-one-out contribution of each example (..., S) to the scatter of its class.

    Leaving out an example of residual r removes K / (K - 1) r r^T from the squares about the mean: its contribution is
    d = K / (K - 1) ||A r||^2. A was fitted to the example too. By Sherman and Morrison's formula, A^-2 = I + b R^T R
    minus that term gives d / (1 - b d) in the space whitened without the example.
    """
    xp = array_namespace(stats.mean)
    count, others = stats.count, stats.count - 1
    factor = xp.where(count > 1, count / xp.where(others < 1, 1.0, others), 0.0)  # (..., N)
    d = stats.mapped_lengths(whiten) * stats.spread(factor[..., None])[..., 0]
    left = 1 - gain[..., None] * d
    return d / xp.where(left < LEAST_LEVERAGE, LEAST_LEVERAGE, left)


def effective_counts(member: Array, groups: Array, correlation: float) -> Array:
    """Return the effective sample size of each class (..., N) where examples of one group correlate.

    `member` (..., S, N) is 1 where an example is of a class; `groups` (..., S) numbers the groups from 0, such as the
    sentence of each word. With correlation r within a group, m examples of one class and group have the variance of
    m / (1 + (m - 1) r) independent ones: the design effect of cluster samples (Kish, "Survey Sampling", 1965).
    """
    xp = array_namespace(member, groups)
    numbers = xp.arange(int(xp.max(groups)) + 1, dtype=groups.dtype, device=device(groups))
    inside = xp.astype(groups[..., None] == numbers, member.dtype)  # (..., S, G)
    size = inside.mT @ member  # (..., G, N) examples of each class in each group
    return xp.sum(size / (1 + at_least(size - 1, 0.0) * correlation), axis=-2)


def weighted_mean(weight: Array, mean: Array) -> Array:
    """Return the mean (..., 1, D) of class means (..., N, D) with weights (..., N); 0 if all weights are 0."""
    xp = array_namespace(mean)
    total = xp.sum(weight, axis=-1)
    return (weight[..., None, :] @ mean) / xp.where(total > 0, total, 1.0)[..., None, None]


# k, the ratio of within-class to between-class variance.


def variance_ratio(mean: Array, count: Array, scatter: Array, filled: Array, prior_ratio: float) -> Array:
    """Return k (...) by moments, between 1/4 and 16, then shrunk in log towards the prior.

    `mean` (..., N, D), `count` (..., N), `scatter` v (...), `filled` (...) the number of classes with examples.
    """
    xp = array_namespace(mean)
    k = moment_ratio(
        mean, count, scatter, filled, xp.full_like(scatter, prior_ratio), least=LEAST_RATIO, most=MOST_RATIO
    )
    return shrunk_ratio(k, filled, prior_ratio)


def measured_ratio(stats: ExampleStatistics) -> Array:
    """Return k (...) of classes with many examples, by moments alone: a `prior_ratio` for similar classes.

    It is measured without whitening: a support of few examples hardly whitens, and one of one example a class, where
    the prior alone decides, not at all.
    """
    xp = array_namespace(stats.mean)
    scatter = xp.sum(stats.squares, axis=-1) / at_least(stats.dof, 1.0)
    start = xp.full_like(scatter, PRIOR_RATIO)
    return moment_ratio(stats.mean, stats.count, scatter, stats.filled, start, least=1e-6, most=1e6)


def shrunk_ratio(ratio: Array, filled: Array, prior_ratio: float) -> Array:
    """Shrink the measured ratio (...) of `filled` classes in log towards the prior."""
    xp = array_namespace(ratio)
    prior = PRIOR_CLASSES * math.log(prior_ratio)
    return xp.exp(((filled - 1) * xp.log(ratio) + prior) / (filled - 1 + PRIOR_CLASSES))


def moment_ratio(
    mean: Array, count: Array, scatter: Array, filled: Array, start: Array, *, least: float, most: float
) -> Array:
    """Return k (...) about a common mean by moments, within bounds; see `fixed_point_ratio`."""
    xp = array_namespace(mean)
    away = mean - weighted_mean(count, mean)  # about their middle, so that little cancels below
    length = xp.sum(away * away, axis=-1)  # (..., N)
    few = mean.shape[-2] <= mean.shape[-1]
    products = away @ away.mT if few else None  # (..., N, N), unless that is larger than the means themselves

    def spread(w: Array, total: Array) -> Array:
        if products is not None:
            common = xp.sum(w * (products @ w[..., None])[..., 0], axis=-1)
        else:
            common = xp.sum((w[..., None, :] @ away)[..., 0, :] ** 2, axis=-1)
        return xp.sum(w * length, axis=-1) - common / total

    return fixed_point_ratio(count, scatter, filled, start, spread, least=least, most=most)


def fixed_point_ratio(
    count: Array, scatter: Array, filled: Array, start: Array, spread: Spread, *, least: float, most: float
) -> Array:
    """Return k = within / between variance (...) by moments: five fixed-point steps from `start`, within bounds.

    `spread(w, sum of w)` returns the squares (...) of the class means about their prior means, weighted by
    w = K / (K + k).
    """
    xp = array_namespace(count)
    k, divisor = start, positive(count)
    lower, upper = scatter / most, scatter / least  # the bounds of k as bounds of the between variance
    lone = filled < 2  # one class has no between variance: any denominator serves, the caller takes the prior
    for _ in range(5):
        w = count / (count + k[..., None])  # (..., N)
        total = xp.sum(w, axis=-1)
        total = xp.where(total < SMALL, SMALL, total)
        found = spread(w, total)
        share = w / divisor
        noise = scatter * (xp.sum(share, axis=-1) - xp.sum(w * share, axis=-1) / total)
        between = (found - noise) / xp.where(lone, 1.0, total - xp.sum(w * w, axis=-1) / total)
        between = xp.where(between < lower, lower, between)
        k = scatter / xp.where(between > upper, upper, between)
    return k


# Leave-one-out of a fitted sphere, without refitting. NumPy only.


def left_out_distances(out: LeftOut, index: Indices, whiten: Whitening | None, ratio: Array, gain: Array) -> Doubles:
    """Return ||A x - centre||^2 of the examples `index` to every class (B, N), each left out of the fit.

    What all examples estimate together stays as it is: k (`ratio`) and the strength of the whitening (`gain`). The mean
    of the example's class, the common mean and the whitening are those without the example. In the whitened space, with
    zeta_m the means minus the common mean and r the residual of the example, all changes are combinations of zeta_n (n
    its class) and r, so products of these suffice. The whitening without r follows by Sherman and Morrison's formula.
    """
    if whiten is None:
        raise ConfigError("this sphere was not fitted in mode 'bayes', so its whitening is not known; fit it again")
    stats, own, at = out.stats, out.own(index), np.arange(len(index))
    k = float(ratio)
    weight = stats.count / (stats.count + k)  # (N,)
    zeta, norm = out.kept("zeta", whiten, lambda: _from_middle(weight, whiten(stats.mean)))  # (N, D), (N,)
    r = whiten(stats.residual[index])  # (B, D)

    rest, step = out.rest[index], out.step[index]
    weight_left = rest / (rest + k)  # of the own class (B,)
    total = weight.sum() - weight[own] + weight_left
    p = ((weight_left - weight[own]) / total)[:, None]  # the common mean moves by p zeta_n - q r
    q = (weight_left * step / total)[:, None]

    # A x - centre_m = e zeta_n + f r - g zeta_m; in the own class both parts in zeta_n are in e, and g is 0.
    e, f, g = 1 - p * (1 - weight), 1 + q * (1 - weight), np.tile(weight, (len(index), 1))
    e[at, own] = (1 - p[:, 0]) * (1 - weight_left)
    f[at, own] = 1 + q[:, 0] * (1 - weight_left) + weight_left * step
    g[at, own] = 0.0

    gram = zeta[own] @ zeta.T  # (B, N)
    cross = r @ zeta.T  # (B, N)
    mine = cross[at, own][:, None]
    rho = np.einsum("ij,ij->i", r, r)[:, None]
    distance2 = e * e * norm[own][:, None] + f * f * rho + g * g * norm
    distance2 += 2 * (e * f * mine - e * g * gram - f * g * cross)
    along = e * mine + f * rho - g * cross  # r . (A x - centre_m)
    return whitened_without(out, index, distance2, along, rho, gain)


def left_out_distances_with_names(
    out: LeftOut, index: Indices, names: Doubles, name_weight: Array, whiten: Whitening, ratio: Array, gain: Array
) -> Doubles:
    """Return the distances of `left_out_distances` (B, N) where prior means are m + g P_n.

    g (`name_weight`), too, stays as it is. With y_n = z_n - g P_n and M their mean, weighted by w_n, the centre of
    another class becomes C_m + (1 - w_m) (M' - M), where M' is the mean without the example.
    """
    stats, own, at, k = out.stats, out.own(index), np.arange(len(index)), float(ratio)

    def shared() -> tuple[Doubles, ...]:
        """Weights (N,), y, g P and centres (N, D), and M (D,) of all examples, whitened."""
        weight, along = stats.count / (stats.count + k), float(name_weight) * whiten(names)
        y = whiten(stats.mean) - along
        middle = weighted_mean(weight, y)
        return weight, y, along, along + middle + weight[:, None] * (y - middle), middle[0]

    weight, y, along, center, middle = out.kept("names", names, shared)
    r, rest = whiten(stats.residual[index]), out.rest[index]  # (B, D), (B,)
    x = whiten(stats.mean[own] + stats.residual[index]) - middle
    mine = y[own] - out.step[index, None] * r - middle  # y of the own class without the example, minus M
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
    return whitened_without(out, index, distance2, along_r, row_squares(r)[:, None], gain)


def left_out_radii(out: LeftOut, index: Indices, radius: Doubles) -> Doubles:
    """Return the radii (B, N) without each of `index`: the weight of the own class's scatter is that of K - 1."""
    count, own, rest = out.stats.count, out.own(index), out.rest[index]
    weight = scatter_weight(count)
    excess = radius * count / np.where(weight > 0, weight, 1.0)  # scatter above the pooled one
    return out.with_own(radius, index, scatter_weight(rest) * excess[own] / np.where(rest > 0, rest, 1.0))


def _from_middle(weight: Doubles, mean: Doubles) -> tuple[Doubles, Doubles]:
    """Return means (N, D) minus their weighted mean, and their squared lengths (N,)."""
    zeta = mean - weighted_mean(weight, mean)
    return zeta, row_squares(zeta)


def whitened_without(
    out: LeftOut, index: Indices, distance2: Doubles, along: Doubles, rho: Doubles, gain: Array
) -> Doubles:
    """Correct squared distances (B, N) for the whitening without each example.

    `along` (B, N) is r . (A x - centre) and `rho` (B, 1) is ||r||^2, of the whitened residual r.
    """
    share = float(gain) * (out.taken[index] * (1 + out.step[index]))[:, None]
    distance2 += along * (share * along) / np.maximum(1 - share * rho, LEAST_LEVERAGE)
    found: Doubles = np.maximum(distance2, 0.0)
    return found
