"""The default closed form of a sphere: shrunken centres in a whitened space.

A centre that is a mean of K examples is off by noise of variance v / K. With class means drawn around a common m with
variance v / k, the best guess of the centre is m + K / (K + k) (z - m) (James and Stein), in a space where the scatter
of a class is round. Both k and that space are estimated from the support, each example judged as if it were left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace, device

from hyperproto.errors import ConfigError
from hyperproto.regions.arrays import Array, Doubles, Indices, at_least, at_most, positive, root, row_squares
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import ExampleStatistics, trust
from hyperproto.regions.whitening import Whitening, within_class_whitening

PRIOR_RATIO = 4.0  # k, the within/between variance ratio, before the support has said anything
PRIOR_CLASSES = 4.0  # how many classes' worth of evidence that counts for
LEAST_RATIO, MOST_RATIO = 1 / 4, 16.0  # between which k is measured
LEAST_LEVERAGE = 0.02  # 1 - leverage of an example on the covariance is never taken for less
SMALL = 1e-6  # below any sum of weights of a class that has an example
Spread = Callable[[Array, Array], Array]  # see `fixed_point_ratio`


@dataclass(frozen=True, eq=False)
class BayesFit:
    """The parts of a fitted sphere."""

    center: Array  # (..., N, D), in the whitened space
    bias_radius: Array  # (..., N)
    extent_radius: Array  # (..., N)
    whiten: Whitening
    scatter: Array  # (...) v, 0 where the support cannot tell
    ratio: Array  # (...) k
    gain: Array  # (...) b of A = (I + b R^T R)^(-1/2), R the residuals


def fit_bayes(stats: ExampleStatistics, prior_ratio: float = PRIOR_RATIO, worth: Array = None) -> BayesFit:
    """Estimate whitening, variance ratio, centres and radii from the statistics of a support set.

    `prior_ratio` is what k is taken for before the support has said anything: an encoder trained on such data, whose
    classes are compact, deserves less than the default, which fits frozen text encoders. `worth` (..., N) says how many
    independent examples those of a class are worth, where they are not: that is what its mean is believed by.

    Where the support tells nothing of scatter between and within classes (one class only, one example each, examples
    that do not differ), there is no whitening, no radius, and k is the prior.
    """
    xp = array_namespace(stats.mean)
    count = stats.count
    worth = count if worth is None else worth
    filled = xp.sum(xp.astype(count > 0, count.dtype), axis=-1)  # (...) classes that have examples
    dof = xp.sum(at_least(count - 1, 0.0), axis=-1)
    known = (dof > 0) & (filled > 1) & stats.scattered
    safe_dof = at_least(dof, 1.0)
    v = xp.where(known, xp.sum(stats.squares, axis=-1), 1.0) / safe_dof
    whiten, gain = within_class_whitening(stats.weighted_residual, v, safe_dof, known)
    mean = whiten(stats.mean)  # (..., N, D)

    distance = leave_one_out(stats, whiten, gain)  # (..., S), 0 for the only example of a class and for padding
    several = xp.sum(xp.where(count > 1, count, 0.0), axis=-1)
    pooled = stats.sum(distance) / at_least(several, 1.0)
    own = xp.where(count > 1, stats.average(distance), pooled[..., None])  # (..., N) scatter of each class
    # The common part v / K of the bias is absorbed by the shrunken centre; what is left is a class's own excess.
    eps = trust(worth) * (own - pooled[..., None]) / positive(worth)

    measured = variance_ratio(mean, worth, xp.where(known, pooled, 1.0), filled, prior_ratio)
    ratio = xp.where(known, measured, prior_ratio)
    weight = worth / (worth + ratio[..., None])
    middle = weighted_mean(weight, mean)  # (..., 1, D)
    return BayesFit(
        center=middle + weight[..., None] * (mean - middle),
        bias_radius=eps,
        extent_radius=root(own * (1 + 1 / (worth + ratio[..., None]))),
        whiten=whiten,
        scatter=xp.where(known, pooled, 0.0),
        ratio=ratio,
        gain=gain,
    )


def leave_one_out(stats: ExampleStatistics, whiten: Whitening, gain: Array) -> Array:
    """What each example (..., S) says of the scatter of its class, had it had no part in the mean or in the whitening.

    Leaving out an example of residual r takes K / (K - 1) r r^T from the squares about the mean, so its share of the
    scatter is d = K / (K - 1) ||A r||^2. A was fitted to that share too: by Sherman and Morrison's formula, A^-2 =
    I + b R^T R less that term makes it d / (1 - b d) in the space whitened without the example.
    """
    xp = array_namespace(stats.mean)
    count = stats.count
    factor = xp.where(count > 1, count / at_least(count - 1, 1.0), 0.0)  # (..., N)
    d = stats.mapped_lengths(whiten) * stats.spread(factor[..., None])[..., 0]
    return d / at_least(1 - gain[..., None] * d, LEAST_LEVERAGE)


def variance_ratio(mean: Array, count: Array, scatter: Array, filled: Array, prior_ratio: float) -> Array:
    """k = within / between variance (...) by moments, between 1/4 and 16, then shrunk in log towards the prior."""
    xp = array_namespace(mean)
    k = moment_ratio(
        mean, count, scatter, filled, xp.full_like(scatter, prior_ratio), least=LEAST_RATIO, most=MOST_RATIO
    )
    return shrunk_ratio(k, filled, prior_ratio)


def shrunk_ratio(ratio: Array, filled: Array, prior_ratio: float) -> Array:
    """A measured ratio (...) of `filled` classes, shrunk in log towards the prior."""
    xp = array_namespace(ratio)
    prior = PRIOR_CLASSES * math.log(prior_ratio)
    return xp.exp(((filled - 1) * xp.log(ratio) + prior) / (filled - 1 + PRIOR_CLASSES))


def moment_ratio(
    mean: Array, count: Array, scatter: Array, filled: Array, start: Array, *, least: float, most: float
) -> Array:
    """k = within / between variance (...) by moments, kept within bounds; see `fixed_point_ratio`."""
    xp = array_namespace(mean)
    away = mean - weighted_mean(count, mean)  # near their middle, so that little cancels below
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
    """k = within / between variance (...) by moments: five fixed-point steps from `start`, kept within bounds.

    `spread(w, sum of w)` gives the weighted squares (...) of the class means about where they are expected, the
    weights being w = K / (K + k).
    """
    xp = array_namespace(count)
    k = start
    for _ in range(5):
        w = count / (count + k[..., None])  # (..., N)
        total = at_least(xp.sum(w, axis=-1), SMALL)
        found = spread(w, total)
        share = w / positive(count)
        noise = scatter * (xp.sum(share, axis=-1) - xp.sum(w * share, axis=-1) / total)
        lone = filled < 2  # one class has no between: any denominator will do, the caller takes the prior
        between = (found - noise) / xp.where(lone, 1.0, total - xp.sum(w * w, axis=-1) / total)
        # The bounds of k, laid on `between`, which may be negative or 0.
        k = scatter / at_most(at_least(between, scatter / most), scatter / least)
    return k


def measured_ratio(stats: ExampleStatistics) -> Array:
    """Estimate k = within / between variance (...) of classes with many examples, by moments, without whitening.

    It serves as `prior_ratio` for other classes of the same encoder. Whitening first made it no better
    (`research.prior_ratio_choice`).
    """
    xp = array_namespace(stats.mean)
    filled = xp.sum(xp.astype(stats.count > 0, stats.count.dtype), axis=-1)
    dof = at_least(xp.sum(at_least(stats.count - 1, 0.0), axis=-1), 1.0)
    scatter = xp.sum(stats.squares, axis=-1) / dof
    start = xp.full_like(scatter, PRIOR_RATIO)
    return moment_ratio(stats.mean, stats.count, scatter, filled, start, least=1e-6, most=1e6)


def weighted_mean(weight: Array, mean: Array) -> Array:
    """The mean (..., 1, D) of class means (..., N, D) with weights (..., N); 0 if all weights are 0."""
    xp = array_namespace(mean)
    return (weight[..., None, :] @ mean) / at_least(xp.sum(weight, axis=-1), SMALL)[..., None, None]


def effective_count(member: Array, groups: Array, correlation: float) -> Array:
    """How many independent examples those of each class are worth: (..., N); words of one sentence are alike.

    `member` (..., S, N) is 1 where an example is of a class; `groups` (..., S) numbers the groups from 0. Where the
    examples of one class in one group correlate by r, the mean of m of them is as noisy as that of m / (1 + (m - 1) r)
    independent ones: the design effect of cluster samples (Kish, "Survey Sampling", 1965).
    """
    xp = array_namespace(member, groups)
    numbers = xp.arange(int(xp.max(groups)) + 1, dtype=groups.dtype, device=device(groups))
    inside = xp.astype(groups[..., None] == numbers, member.dtype)  # (..., S, G)
    size = inside.mT @ member  # (..., G, N) examples of each class in each group
    return xp.sum(size / (1 + at_least(size - 1, 0.0) * correlation), axis=-2)


def distances_left_out(out: LeftOut, index: Indices, whiten: Whitening | None, ratio: Array, gain: Array) -> Doubles:
    """||A x - centre||^2 of the examples `index` to every class (B, N), each left out, without refitting.

    What all examples estimate together - how strongly to whiten (`gain`) and to shrink (`ratio`) - is taken as it is.
    What an example moves itself - the mean of its class, the middle of all means, the whitening - moves. In the
    whitened space, with the means zeta_m from their middle and the residual r of the example that is left out, all that
    moves is a combination of zeta_n (n its class) and r, so that products of these are enough; the whitening without r
    follows from the one with it by Sherman and Morrison's formula.
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
    p = ((weight_left - weight[own]) / total)[:, None]  # the middle moves by p zeta_n - q r
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
    share = float(gain) * (out.taken[index] * (1 + step))[:, None]
    distance2 += along * (share * along) / np.maximum(1 - share * rho, LEAST_LEVERAGE)
    found: Doubles = np.maximum(distance2, 0.0)
    return found


def _from_middle(weight: Doubles, mean: Doubles) -> tuple[Doubles, Doubles]:
    """Means (N, D) from their weighted middle, and their squared lengths (N,)."""
    zeta = mean - weighted_mean(weight, mean)
    return zeta, row_squares(zeta)


def radii_left_out(out: LeftOut, index: Indices, radius: Doubles) -> Doubles:
    """The radii (B, N) that each of `index` meets: its own class is believed as far as one example less allows."""
    count, own, rest = out.stats.count, out.own(index), out.rest[index]
    believed = trust(count)
    excess = radius * count / np.where(believed > 0, believed, 1.0)  # scatter above the pooled one
    return out.with_own(radius, index, trust(rest) * excess[own] / np.where(rest > 0, rest, 1.0))
