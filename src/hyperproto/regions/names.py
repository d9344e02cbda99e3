"""Class names as prior means of the closed form "bayes".

With a vector P_n of the name of each class, the prior mean of class n is m + g P_n. The class mean z_n has variance
(v / k) / w_n about it, w_n = K_n / (K_n + k), so m and g are weighted least squares over the classes. With w-weighted
means z' and P', S_pp = sum w_n ||P_n - P'||^2 and S_zp = sum w_n <z_n - z', P_n - P'>, the estimate S_zp / S_pp has
precision t = d S_pp / Q. Q is the residual variance of the z_n, and d = min(D, 100) the effective dimension.

The prior of g is a spike and a slab. With probability 0.05 names mean nothing, and g = 0. Otherwise g = N(0.4, 0.2^2).
The posterior weight p of the slab is from the Bayes factor of g = 0.1, 0.2, 0.4 and 0.8 against 0; then g = p g_1, g_1
the posterior mean in the slab.

Names tell k, too. A small g_1 means that classes lie close together for their scatter, so that k is large: the prior of
k is multiplied by (0.4 / g_1)^p. In these terms a name counts as k g = 1.6 examples, whatever the classes are. One
example a class does not determine k, and few classes hardly do.
"""

import math
from dataclasses import dataclass, replace

from array_api_compat import array_namespace

from hyperproto.regions.arrays import Array, at_least, at_most, row_squares
from hyperproto.regions.bayes import (
    LEAST_RATIO,
    MOST_RATIO,
    PRIOR_CLASSES,
    BayesFit,
    fixed_point_ratio,
    weighted_mean,
)

PRIOR_MEANINGFUL = 0.95  # probability that names mean something, before any data
PRIOR_WEIGHT = 0.4  # g of names that mean something: distance of a class from the common mean along its name
PRIOR_WEIGHT_STD = 0.2  # its standard deviation
TESTED_WEIGHTS = tuple(PRIOR_WEIGHT * 2.0**power for power in (-2, -1, 0, 1))  # of the Bayes factor against g = 0
MOST_DIM = 100.0  # d of class means, effective dimension
MOST_FACTOR = 4.0  # of the change of the prior of k
LEAST_RESIDUAL = 1e-6  # of the class means about m + g P_n, as a share of their variance
LARGEST = 50.0  # log odds


@dataclass(frozen=True, eq=False)
class NamePrior:
    """Prior means m + g P_n of classes, and what the names tell about k."""

    middle: Array  # (..., 1, D) m
    weight: Array  # (...) g
    log_factor: Array  # (...) log of the factor of the prior of k

    def means(self, names: Array) -> Array:
        """Return the prior means (..., N, D)."""
        return self.middle + self.weight[..., None, None] * names


def with_names(fit: BayesFit, mean: Array, count: Array, names: Array, prior_ratio: float) -> tuple[BayesFit, Array]:
    """Return a fit with prior means m + g P_n in place of m, and g (...).

    `mean` and `names` (..., N, D) are whitened; k is measured again, about the new prior means.
    """
    xp = array_namespace(mean)
    filled = xp.sum(xp.astype(count > 0, count.dtype), axis=-1)

    def spread(w: Array, _: Array) -> Array:
        prior = prior_of_names(mean, w, count, names)
        return xp.sum(w * row_squares(mean - prior.means(names)), axis=-1)

    known = fit.scatter > 0
    start = xp.full_like(fit.scatter, prior_ratio)
    v = xp.where(known, fit.scatter, 1.0)
    measured = fixed_point_ratio(count, v, filled, start, spread, least=LEAST_RATIO, most=MOST_RATIO)
    measured = xp.where(known, measured, start)
    prior = prior_of_names(mean, count / (count + measured[..., None]), count, names)
    expected = xp.log(start) + prior.log_factor
    shrunk = ((filled - 1) * xp.log(measured) + PRIOR_CLASSES * expected) / (filled - 1 + PRIOR_CLASSES)
    ratio = xp.exp(xp.where(known, shrunk, expected))
    center, name_weight = posterior_centers(mean, count, names, ratio)
    return replace(fit, center=center, ratio=ratio), name_weight


def posterior_centers(
    mean: Array, count: Array, names: Array, ratio: Array, name_weight: Array = None
) -> tuple[Array, Array]:
    """Return c_n (..., N, D) about the prior means m + g P_n, and g (...), which `name_weight` fixes if given."""
    weight = count / (count + ratio[..., None])
    if name_weight is None:
        found = prior_of_names(mean, weight, count, names)
        prior, name_weight = found.means(names), found.weight
    else:
        along = name_weight[..., None, None] * names
        prior = weighted_mean(weight, mean - along) + along
    return prior + weight[..., None] * (mean - prior), name_weight


def prior_of_names(mean: Array, weight: Array, count: Array, names: Array) -> NamePrior:
    """Return m, g >= 0 and the factor of k, from class means of weights w (..., N) and counts (..., N).

    Names that are all the same give g = 0.
    """
    xp = array_namespace(mean)
    middle, origin = weighted_mean(weight, mean), weighted_mean(weight, names)  # (..., 1, D)
    away, about = mean - middle, names - origin
    product = xp.sum(weight * xp.sum(away * about, axis=-1), axis=-1)  # S_zp
    length = row_squares(about)
    square = xp.sum(weight * length, axis=-1)  # S_pp
    rounding = (8 * float(xp.finfo(mean.dtype).eps)) ** 2 * xp.mean(row_squares(names), axis=-1)
    differ = xp.mean(length, axis=-1) > rounding
    filled = xp.sum(xp.astype(count > 0, count.dtype), axis=-1)
    certain = differ & (square > 0) & (filled > 1)
    estimate = xp.where(certain, product, 0.0) / xp.where(certain, square, 1.0)

    total = xp.sum(weight * row_squares(away), axis=-1)
    left = total - at_least(estimate, 0.0) * product
    left = xp.where(left < LEAST_RESIDUAL * total, LEAST_RESIDUAL * total, left)
    certain = certain & (left > 0)
    residual = xp.where(certain, left, 1.0) / at_least(filled - 1, 1.0)  # Q
    precision = xp.where(certain, min(MOST_DIM, mean.shape[-1]) * square / residual, 0.0)

    slab = PRIOR_WEIGHT_STD**-2
    inside = at_least((precision * estimate + slab * PRIOR_WEIGHT) / (precision + slab), 0.0)  # g_1
    log_ratios = [precision * g * (estimate - g / 2) for g in TESTED_WEIGHTS]
    top = log_ratios[0]
    for each in log_ratios[1:]:
        top = xp.where(each > top, each, top)
    power = sum(xp.exp(each - top) for each in log_ratios) / len(log_ratios)
    log_odds = top + xp.log(power) + math.log(PRIOR_MEANINGFUL / (1 - PRIOR_MEANINGFUL))
    meaningful = 1 / (1 + xp.exp(-at_least(at_most(log_odds, LARGEST), -LARGEST)))  # p
    meaningful = xp.where(differ, meaningful, 0.0)
    factor = PRIOR_WEIGHT / at_least(inside, PRIOR_WEIGHT / MOST_FACTOR)
    name_weight = meaningful * inside
    log_factor = meaningful * xp.log(at_least(factor, 1 / MOST_FACTOR))
    return NamePrior(middle - name_weight[..., None, None] * origin, name_weight, log_factor)
