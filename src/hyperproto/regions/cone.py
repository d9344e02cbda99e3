"""Classes as cones about a direction: the angular variant of the paper (section 3.3), and an unbiased cosine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.regions.arrays import SHORTEST, Array, Doubles, Indices, arccos, arcsin, at_least, root, unit
from hyperproto.regions.base import ClosedForm, LinearForm, Region, check_mode
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import (
    MEAN_DISTANCE,
    ClassStatistics,
    ExampleStatistics,
    Statistics,
    class_scatter,
    extent_radius,
    pooled_scatter,
    with_examples,
)

TIE = 1e-3  # weight of an angle inside a cone in breaking ties: small beside 1, large beside rounding
MEANS_OF = ("unit", "raw")  # vectors whose mean is the direction of a cone
LEAST_CONCENTRATION = 0.01  # lower bound of rho^2, where directions are nearly uniform


@dataclass(frozen=True, eq=False)
class Cone(Region):
    """Cones of direction z_n and angle eps_n; theta is the angle of x and z_n.

    M = -cos(theta - eps_n) where theta >= |eps_n|, and -1 inside; or, with `gain`, M = -gain_n cos(theta).
    Neither centres nor queries need unit length. A zero vector has no direction: it is at a right angle to everything.
    """

    modes: ClassVar[tuple[str, ...]] = ("unbiased", "paper", "point")
    directions: ClassVar[bool] = True
    measure_options: ClassVar[Mapping[str, Any]] = {"break_ties": True}

    center: Array
    bias_radius: Array = None  # an angle
    extent_radius: Array = None  # an angle
    gain: Array = None  # (..., N)

    def __post_init__(self) -> None:
        """Set the angles to 0 if none are given."""
        self._fill("bias_radius")

    @classmethod
    def fit(cls, support: Array, labels: Array, way: int, *, mode: str = "unbiased", mean_of: str = "unit") -> Self:
        """Estimate directions and angles; the centre is the mean of unit vectors, zbar, scaled to length 1.

        `mean_of="raw"` takes the direction of the mean of vectors of any length, in which long ones count for more.

        - "unbiased": M = -u . zbar / rho. Unit vectors scatter, so E[zbar] is rho < 1 times the true direction, and the
          cosine is too small by that factor. rho^2 = (K ||zbar||^2 - 1) / (K - 1), 1 minus the scatter of the unit
          vectors; at least LEAST_CONCENTRATION. A class of one example takes the pooled rho; 1 if all are such.
        - "paper": eps_n = mean angle of the support to its centre.
        - "point": M = -cos(theta).

        The extent is the root mean square angle of a new example: theta^2 summed over the class / (K - 1) * (1 + 1/K).
        """
        check_mode(cls, mode)  # before the support is looked at
        if mean_of not in MEANS_OF:
            raise ConfigError(unknown_name("mean_of", mean_of, MEANS_OF))
        if mean_of == "raw" and mode == "unbiased":
            raise ConfigError(
                "the fit mode 'unbiased' rests on means of unit vectors; mean_of='raw' goes with 'paper', 'point'"
            )
        direction = ClassStatistics.of(support, labels, way).mean if mean_of == "raw" else None
        return cls.from_statistics(ClassStatistics.of(unit(support), labels, way), mode=mode, direction=direction)

    @classmethod
    def from_statistics(cls, stats: Statistics, *, mode: str = "unbiased", direction: Array = None) -> Self:
        """Estimate directions and angles, as `fit` does, from the statistics of *unit* vectors.

        `direction` (..., N, D) stands in for their means as the centre. Without the examples there is no extent, and no
        mode "paper".
        """
        check_mode(cls, mode)
        xp = array_namespace(stats.mean)
        center = unit(stats.mean, SHORTEST) if direction is None else unit(direction)
        extent = None
        if mode == "paper" or isinstance(stats, ExampleStatistics):
            stats = with_examples(stats)
            angle = angles(stats, center)
            extent = extent_radius(stats.total(angle * angle), stats.count)
            if mode == "paper":
                return cls(center, stats.average(angle), extent)
        gain = xp.ones_like(stats.count)
        if mode == "unbiased":
            rho = root(at_least(1 - class_scatter(stats.squares, stats.count), LEAST_CONCENTRATION))
            gain = stats.length / rho
        return cls(center, extent_radius=extent, gain=gain)

    @classmethod
    def needs_examples(cls, mode: str, **options: Any) -> str | None:
        """Say that a mean angle needs the examples."""
        return MEAN_DISTANCE if mode == "paper" else None

    def measure(self, x: Array, break_ties: bool = False) -> Array:
        """Return minus the cosine of the angle to the border of the cone (..., Q, N); -1 inside.

        With `break_ties` the measure falls slowly below -1 inside a cone, so that a point inside several cones belongs
        to the one where theta - |eps| is least.
        """
        return self.measure_at(self._cosine(x), break_ties)

    def measure_at(self, cosine: Array, break_ties: bool = False) -> Array:
        """Return the measure at cosines of theta (..., Q, N)."""
        if self.gain is not None:
            return -self.gain[..., None, :] * cosine
        xp = array_namespace(cosine)
        theta = arccos(cosine)
        eps = self.bias_radius[..., None, :]
        deep = theta - xp.abs(eps)
        return xp.where(deep >= 0, -xp.cos(theta - eps), TIE * deep - 1 if break_ties else -1.0)

    def distance(self, x: Array) -> Array:
        """Return the angle of x and z_n (..., Q, N)."""
        return arccos(self._cosine(x))

    @property
    def is_linear(self) -> bool:
        """True if the measure is linear in unit vectors: true without angles."""
        return self.gain is not None

    def linear(self, middle: Array = None) -> LinearForm:
        """Return weights with x @ weights = -M(x) for x of length 1; centres must have length 1, as fitted ones do."""
        if self.gain is None:
            raise ConfigError("the measure of cones of mode 'paper' is not linear in x; use `measure`")
        weights = (self.gain[..., None] * self.center).mT
        return LinearForm(weights, array_namespace(weights).zeros_like(self.gain), squared=False)

    def left_out(self, out: LeftOut, index: Indices, form: ClosedForm, fair: bool = False) -> Doubles:
        """Measure each example to cones without it; if `fair`, the paper's angle is that of the whole class."""
        stats, at, own = out.stats, np.arange(len(index)), out.own(index)
        fair = fair and form.mode in ("paper", "point")
        cosine = stats.rows[index] @ self.center.T
        cosine[at, own] = np.einsum("ij,ij->i", stats.rows[index], unit(out.means(index), SHORTEST))
        met: Any = self
        if fair:
            cosine[at, own] *= _cosine_gain(out, index)
        if form.mode == "paper" and not fair:
            angle = np.where(out.rest[index] > 1, out.mean_of_others(index, _angles_of_others), 0.0)
            met = replace(self, bias_radius=out.with_own(self.bias_radius, index, angle))
        elif form.mode != "paper":
            met = form.fit(out.statistics(index))
        measured: Doubles = met.measure_at(cosine[:, None, :], **self.measure_options)[:, 0]
        return measured

    def _cosine(self, x: Array) -> Array:
        return unit(x) @ unit(self.center, SHORTEST).mT


def angles(stats: ExampleStatistics, center: Array) -> Array:
    """Return the angle of each unit vector (..., S) to the direction of its class; 0 for the only one of a class.

    By chords, sin(theta / 2) = ||u - z|| / 2, which is exact near 0, where the cosine loses all digits.
    """
    xp = array_namespace(center)
    chord = xp.linalg.vector_norm(stats.residual + stats.spread(stats.mean - center), axis=-1)
    angle = 2 * arcsin(chord / 2)
    several = stats.spread(xp.astype(stats.count > 1, angle.dtype)[..., None])[..., 0] > 0
    return xp.where(several, angle, 0.0)


def _cosine_gain(out: LeftOut, index: Indices) -> Doubles:
    """Return the ratio (B,) of E||mean of K - 1 unit vectors|| to that of K, by which the cosine is smaller."""
    stats = out.stats
    rho2 = max(1 - float(pooled_scatter(stats.squares, stats.count)), LEAST_CONCENTRATION)
    short, whole = (rho2 + (1 - rho2) / count for count in (out.rest[index], stats.count[out.own(index)]))
    gain: Doubles = np.sqrt(short / whole)
    return gain


def _angles_of_others(out: LeftOut, index: Indices, members: Indices) -> Doubles:
    """Return the angle of each member of a class to its direction without each of `index` (B, K)."""
    means = out.means(index)
    length = np.linalg.norm(means, axis=1, keepdims=True)
    cosine = (means / np.where(length > 0, length, 1.0)) @ out.stats.rows[members].T
    found: Doubles = np.arccos(np.clip(cosine, -1.0, 1.0))
    return found


def cone_overlap_loss(center: Array, radius: Array, own_pair: bool = False) -> Array:
    """Return L_dis (...) = 1/N sum over ordered pairs i != j of max(|eps_i| + |eps_j| - theta(z_i, z_j), 0).

    The pair i = j adds 2 |eps_i| for every class, wherever it lies, and is counted only with `own_pair`.
    """
    xp = array_namespace(center, radius)
    direction = unit(center)
    theta = arccos(direction @ direction.mT)  # (..., N, N)
    reach = xp.abs(radius)
    overlap = at_least(reach[..., :, None] + reach[..., None, :] - theta, 0.0)
    way = center.shape[-2]
    same = xp.eye(way, dtype=center.dtype, device=device(center))
    own = 2 * xp.sum(reach, axis=-1) if own_pair else 0.0  # exactly: arccos is clamped short of 0
    return (xp.sum(overlap * (1 - same), axis=(-2, -1)) + own) / way
