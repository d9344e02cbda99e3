"""A fifth region, as a third party would write it: classes are ellipsoids along the axes, of one shape."""

from dataclasses import dataclass
from typing import ClassVar, Self

from array_api_compat import array_namespace

from hyperproto.regions import Array, Region, Statistics, check_mode
from hyperproto.regions.arrays import at_least, root, squared_distance
from hyperproto.regions.statistics import extent_radius, with_examples


@dataclass(frozen=True, eq=False)
class Ellipsoid(Region):
    """M(x) = sum_d (x_d - z_nd)^2 / s_d: the squared distance in units of the scatter s (..., D) along each axis."""

    modes: ClassVar[tuple[str, ...]] = ("point",)

    center: Array
    scatter: Array
    extent_radius: Array = None
    bias_radius: Array = None

    def __post_init__(self) -> None:
        """An ellipsoid subtracts nothing."""
        self._fill("bias_radius")

    @classmethod
    def from_statistics(cls, stats: Statistics, *, mode: str = "point") -> Self:
        """Means, and the scatter of all classes along each axis, half of it taken for round; 1 if there is none."""
        check_mode(cls, mode)
        stats = with_examples(stats)
        xp = array_namespace(stats.mean)
        dof = at_least(xp.sum(at_least(stats.count - 1, 0.0), axis=-1, keepdims=True), 1.0)
        scatter = xp.sum(stats.weighted_residual**2, axis=-2) / dof  # (..., D)
        scatter = (scatter + xp.mean(scatter, axis=-1, keepdims=True)) / 2
        scatter = xp.where(stats.scattered[..., None], scatter, 1.0)
        squares = stats.total(xp.sum(stats.residual**2 / scatter[..., None, :], axis=-1))
        return cls(stats.mean, scatter, extent_radius(squares, stats.count))

    def measure(self, x: Array) -> Array:
        """The squared distance in units of the scatter."""
        scale = array_namespace(x).sqrt(self.scatter)[..., None, :]
        return squared_distance(x / scale, self.center / scale)

    def distance(self, x: Array) -> Array:
        """Its root."""
        return root(self.measure(x))
