"""The radii of eq. 3 that are means of distances or angles, each example left out: what no statistic knows."""

import numpy as np

from hyperproto.estimators.left_out import LeftOut
from hyperproto.regions.arrays import Doubles, Indices

BLOCK = 1 << 20  # pairs of examples in memory at once


def radii_left_out(left_out: LeftOut, cone: bool, index: Indices) -> Doubles:
    """Mean distance (or angle) of the others to their own mean (or its direction), for each of `index`.

    With r_i the residual of the one that is taken away, and its mean moved by -t r_i, the others lie at r_j + t r_i, so
    that one product of residuals gives all distances of a class.
    """
    stats = left_out.stats
    labels = stats.labels[index]
    radii = np.zeros(len(index))
    for label in np.unique(labels):
        members = np.flatnonzero(stats.labels == label)
        wanted = np.flatnonzero(labels == label)
        size = max(1, BLOCK // len(members))
        for start in range(0, len(wanted), size):
            part = wanted[start : start + size]
            away = (_angles if cone else _distances)(left_out, index[part], members)  # (B, K)
            weights = np.where(index[part][:, None] == members, -left_out.taken[index[part]][:, None], 0.0)
            weights += stats.weights[members]
            rest = left_out.rest[index[part]]
            mean = (weights * away).sum(axis=1) / np.where(left_out.several[index[part]], rest, 1.0)
            radii[part] = np.where(rest > 1, mean, 0.0) if cone else mean
    return radii


def _distances(left_out: LeftOut, index: Indices, members: Indices) -> Doubles:
    residual, lengths = left_out.stats.residual, left_out.stats.lengths
    t = left_out.step[index, None]
    squared = lengths[members] + 2 * t * (residual[index] @ residual[members].T) + t * t * lengths[index, None]
    found: Doubles = np.sqrt(np.maximum(squared, 0.0))
    return found


def _angles(left_out: LeftOut, index: Indices, members: Indices) -> Doubles:
    stats = left_out.stats
    means = stats.mean[stats.labels[index]] - left_out.step[index, None] * stats.residual[index]
    length = np.linalg.norm(means, axis=1, keepdims=True)
    cosine = (means / np.where(length > 0, length, 1.0)) @ stats.rows[members].T
    found: Doubles = np.arccos(np.clip(cosine, -1.0, 1.0))
    return found
