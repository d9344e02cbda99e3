"""What every region has: a centre, two radii, a measure, a distance and an inside."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from array_api_compat import array_namespace

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.regions.arrays import Array
from hyperproto.regions.statistics import Statistics

FIT_MODES = ("bayes", "unbiased", "paper", "point")


class Region(ABC):
    """The classes of one or many episodes, each a region of embedding space.

    `bias_radius` is what the measure subtracts. `extent_radius` is how far the class reaches: what a drawing shows, and
    what "inside" means. The two are never the same thing: a point of the class is almost never inside the first.

    Fitting takes `support` (..., S, D), integer `labels` (..., S) from 0 to way - 1 (negative: padding, which takes
    part in nothing) and `way`. A class without examples has its centre at 0, or at the common mean in mode "bayes":
    mask its column if that can happen.
    """

    modes: ClassVar[tuple[str, ...]]  # the fit modes that have a meaning here, the default first

    center: Array  # (..., N, D)
    bias_radius: Array  # (..., N)
    extent_radius: Array  # (..., N), or None for a region built by hand

    @classmethod
    @abstractmethod
    def fit(cls, support: Array, labels: Array, way: int, *, mode: str = ...) -> Self:
        """Estimate the classes of a support set in closed form."""

    @classmethod
    @abstractmethod
    def from_statistics(cls, stats: Statistics, *, mode: str = ...) -> Self:
        """Estimate the classes from statistics that are already there."""

    @abstractmethod
    def measure(self, x: Array) -> Array:
        """M(x, B): for queries (..., Q, D), lower is more likely: (..., Q, N)."""

    @abstractmethod
    def distance(self, x: Array) -> Array:
        """Distance (or angle) of each query to each centre, in the unit of `extent_radius`: (..., Q, N)."""

    def inside(self, x: Array) -> Array:
        """Whether each query lies within the reach of each class: booleans (..., Q, N)."""
        if self.extent_radius is None:
            raise ConfigError(
                f"this {type(self).__name__} was built without an extent_radius, so it has no inside; "
                "fit it to a support set, or give extent_radius"
            )
        return self.distance(x) <= self.extent_radius[..., None, :]

    def _fill(self, name: str, value: float = 0.0) -> None:
        """Give the per-class array `name` its neutral value if it is None."""
        if getattr(self, name) is None:
            xp = array_namespace(self.center)
            object.__setattr__(self, name, xp.full_like(self.center[..., 0], value))  # (..., N); frozen, but newborn


def check_mode(region: type[Region], mode: str) -> None:
    """Refuse a fit mode that does not exist, or that has no meaning for the region."""
    if mode not in FIT_MODES:
        raise ConfigError(unknown_name("fit mode", mode, FIT_MODES))
    if mode not in region.modes:
        raise ConfigError(
            f"the fit mode {mode!r} has no meaning for the region {region.__name__}; "
            f"use {' or '.join(repr(name) for name in region.modes)}"
        )
