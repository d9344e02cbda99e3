"""The measure of every example to every class, as if the example had not been there.

The formulas are those of the regions, on statistics with one axis more: each example meets its own.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyperproto.estimators.bayes_left_out import bayes_measures
from hyperproto.estimators.left_out import LeftOut
from hyperproto.estimators.mean_left_out import radii_left_out
from hyperproto.estimators.settings import Settings
from hyperproto.regions import Cone, Moments, Region, Sphere
from hyperproto.regions.arrays import Doubles, Indices, squared_distance, unit
from hyperproto.regions.cone import LEAST_CONCENTRATION
from hyperproto.regions.statistics import pooled_scatter

BLOCK = 1 << 20  # numbers of one array in memory at once


def left_out_measures(
    left_out: LeftOut, region: Region, settings: Settings, index: Indices, fair: bool = False
) -> Doubles:
    """The measure of the examples `index` to every class (len(index), N), each left out of its own.

    `region` was fitted to all of them, by `settings`. Its own class is then one example short, and the modes "point"
    and "paper" take a class for the farther the fewer examples it has. If `fair`, what that adds on average is taken
    off, and the radius of eq. 3 is that of the whole class.
    """
    if not len(index):
        return np.empty((0, len(left_out.stats.count)))
    size = max(1, BLOCK // len(left_out.stats.count))
    blocks = [index[start : start + size] for start in range(0, len(index), size)]
    whitened = isinstance(region, Sphere) and settings.fit_mode == "bayes"
    if whitened:
        return np.concatenate([bayes_measures(left_out, region, block) for block in blocks])
    fair = fair and settings.fit_mode in ("point", "paper")
    return np.concatenate([_measures(left_out, region, settings, block, fair) for block in blocks])


def _measures(left_out: LeftOut, region: Any, settings: Settings, index: Indices, fair: bool) -> Doubles:
    stats, at = left_out.stats, np.arange(len(index))
    own = stats.labels[index]
    means = stats.mean[own] - left_out.step[index, None] * stats.residual[index]  # of the others (B, D)
    if isinstance(region, Cone):
        place = stats.rows[index] @ region.center.T  # cosines
        place[at, own] = np.einsum("ij,ij->i", stats.rows[index], unit(means)) * (_gain(left_out, index) if fair else 1)
    else:
        middle = stats.mean.mean(axis=0)
        place = squared_distance(stats.rows[index] - middle, stats.mean - middle)
        place[at, own] = left_out.distance2[index]
        if fair:
            place[at, own] = np.maximum(place[at, own] - _excess(left_out, index), 0.0)
    whole = fair and settings.fit_mode == "paper" and settings.region != "gaussian"
    met = region if whole else _regions(left_out, region, settings, index, means)
    measured: Doubles = met.measure_at(place[:, None, :], **settings.measure_options)[:, 0]
    return measured


def _excess(left_out: LeftOut, index: Indices) -> Doubles:
    """How much farther a mean of one example less is on average: v / (K - 1) - v / K."""
    stats = left_out.stats
    excess: Doubles = pooled_scatter(stats.squares, stats.count) * (
        1 / left_out.rest[index] - 1 / stats.count[stats.labels[index]]
    )
    return excess


def _gain(left_out: LeftOut, index: Indices) -> Doubles:
    """How much smaller the cosine with a mean direction of one example less is: it goes by the length of the mean."""
    stats = left_out.stats
    rho2 = max(1 - float(pooled_scatter(stats.squares, stats.count)), LEAST_CONCENTRATION)
    short, whole = (rho2 + (1 - rho2) / count for count in (left_out.rest[index], stats.count[stats.labels[index]]))
    gain: Doubles = np.sqrt(short / whole)
    return gain


def _regions(left_out: LeftOut, region: Any, settings: Settings, index: Indices, means: Doubles) -> Any:
    """What each example of `index` meets: radii (B, N); the centres are those of everyone."""
    stats, at = left_out.stats, np.arange(len(index))
    own = stats.labels[index]
    if settings.averages_distances:
        radii = np.tile(region.bias_radius, (len(index), 1))
        radii[at, own] = radii_left_out(left_out, isinstance(region, Cone), index)
        return replace(region, bias_radius=radii)
    count, squares, lengths = (np.tile(part, (len(index), 1)) for part in (stats.count, stats.squares, stats.length))
    count[at, own] = left_out.rest[index]
    squares[at, own] = left_out.squares[index]
    lengths[at, own] = np.linalg.norm(means, axis=1)
    return settings.fit(_Without(count, stats.mean, squares, lengths))


@dataclass(frozen=True, eq=False)
class _Without(Moments):
    """Statistics that differ from example to example: count, squares and lengths (B, N); the means are everyone's."""

    lengths: Doubles

    @property
    def length(self) -> Doubles:
        """||mean|| of each class (B, N)."""
        return self.lengths
