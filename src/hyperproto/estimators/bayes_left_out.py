"""The default fit, each example left out: shrunken centres in a whitened space, without refitting.

What all examples estimate together - how strongly to whiten and to shrink, the scatter of a class - is taken as it is.
What an example moves itself - the mean of its class, the middle of all means, the whitening - moves. In the whitened
space, with the means zeta_m from their middle and the residual r of the example that is left out, all that moves is a
combination of zeta_n (n its class) and r, so that products of these are enough; the whitening without r follows from
the one with it by Sherman and Morrison's formula.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from hyperproto.estimators.left_out import LeftOut
from hyperproto.regions.arrays import Doubles, Indices
from hyperproto.regions.bayes import LEAST_LEVERAGE, trust, weighted_mean


def bayes_measures(left_out: LeftOut, sphere: Any, index: Indices) -> Doubles:
    """The measure of the examples `index` to every class (B, N); `sphere` was fitted to all of them."""
    stats = left_out.stats
    own, at = stats.labels[index], np.arange(len(index))
    k = float(sphere.ratio)
    weight = stats.count / (stats.count + k)  # (N,)
    mean = sphere.whiten(stats.mean)
    zeta = mean - weighted_mean(weight, mean)  # (N, D)
    r = sphere.whiten(stats.residual[index])  # (B, D)

    rest, step = left_out.rest[index], left_out.step[index]
    weight_left = rest / (rest + k)  # of the own class (B,)
    total = weight.sum() - weight[own] + weight_left
    p = ((weight_left - weight[own]) / total)[:, None]  # the middle moves by p zeta_n - q r
    q = (weight_left * step / total)[:, None]

    # A x - centre_m = e zeta_n + f r - g zeta_m; in the own class both parts in zeta_n are in e, and g is 0.
    e, f, g = 1 - p * (1 - weight), 1 + q * (1 - weight), np.tile(weight, (len(index), 1))
    e[at, own] = (1 - p[:, 0]) * (1 - weight_left)
    f[at, own] = 1 + q[:, 0] * (1 - weight_left) + weight_left * step
    g[at, own] = 0.0

    gram = zeta @ zeta.T  # (N, N)
    norm = np.diag(gram)
    cross = r @ zeta.T  # (B, N)
    mine = cross[at, own][:, None]
    rho = np.einsum("ij,ij->i", r, r)[:, None]
    distance2 = e * e * norm[own][:, None] + f * f * rho + g * g * norm
    distance2 += 2 * (e * f * mine - e * g * gram[own] - f * g * cross)
    along = e * mine + f * rho - g * cross  # r . (A x - centre_m)
    share = float(sphere.gain) * (left_out.taken[index] * (1 + step))[:, None]
    distance2 += share * along**2 / np.maximum(1 - share * rho, LEAST_LEVERAGE)

    radii = np.tile(sphere.bias_radius, (len(index), 1))
    believed = trust(stats.count)
    excess = sphere.bias_radius * stats.count / np.where(believed > 0, believed, 1.0)  # scatter above the pooled one
    radii[at, own] = trust(rest) * excess[own] / np.where(rest > 0, rest, 1.0)
    measured: Doubles = replace(sphere, bias_radius=radii).measure_at(np.maximum(distance2, 0.0)[:, None, :])[:, 0]
    return measured
