"""Base class of regions: closed forms, measure, linear form, extent, novelty and leave-one-out.

A new region is one file: a frozen dataclass with `center`, `bias_radius` and `extent_radius` that inherits from
`Region` and defines `modes`, `from_statistics`, `measure` and `distance`. All else has a default here.
`hyperproto.testing.check_region` tests this contract.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from array_api_compat import array_namespace

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.regions.arrays import Array, Doubles, Indices, at_least, row_squares
from hyperproto.regions.left_out import LeftOut, measures_by_refitting
from hyperproto.regions.statistics import ClassStatistics, Statistics, shrunk_scatter
from hyperproto.regions.whitening import Whitening

FIT_MODES = ("bayes", "unbiased", "paper", "point")


class Region(ABC):
    """Classes of one or many episodes, each a region of embedding space.

    The measure subtracts `bias_radius`. `extent_radius` is how far a class reaches: a drawing shows it, and "inside"
    means within it. The two differ: an example of a class is hardly ever within the bias radius.

    Fitting takes `support` (..., S, D), integer `labels` (..., S) from 0 to way - 1 (negative: padding, which is
    ignored) and `way`. A class without examples has its centre at 0, or at the common mean in mode "bayes": mask its
    column if that can happen.
    """

    modes: ClassVar[tuple[str, ...]]  # fit modes of this region, the default first
    directions: ClassVar[bool] = False  # whether rows are to be scaled to length 1
    measure_options: ClassVar[Mapping[str, Any]] = {}  # keyword arguments of `measure` in a classifier

    center: Array  # (..., N, D)
    bias_radius: Array  # (..., N)
    extent_radius: Array  # (..., N), or None for a region built by hand

    @classmethod
    def fit(cls, support: Array, labels: Array, way: int, *, mode: str = "") -> Self:
        """Estimate the classes of a support set in closed form."""
        mode = mode or cls.modes[0]
        check_mode(cls, mode)  # before the support is looked at
        return cls.from_statistics(ClassStatistics.of(support, labels, way), mode=mode)

    @classmethod
    @abstractmethod
    def from_statistics(cls, stats: Statistics, *, mode: str = ...) -> Self:
        """Estimate the classes from their statistics."""

    @classmethod
    def options(cls, mode: str) -> tuple[str, ...]:
        """Name the options of `from_statistics` that are parameters of a classifier."""
        return ()

    @classmethod
    def needs_examples(cls, mode: str, **options: Any) -> str | None:
        """Return why a closed form needs more than count, mean and squares of each class; None if it does not."""
        return f"the region {cls.__name__} is fitted to them; use a region of statistics, such as 'sphere'"

    @abstractmethod
    def measure(self, x: Array) -> Array:
        """Return M(x, B) (..., Q, N) of queries (..., Q, D); lower is more likely."""

    @abstractmethod
    def distance(self, x: Array) -> Array:
        """Return the distance (or angle) of each query to each centre (..., Q, N), in the unit of `extent_radius`."""

    @property
    def is_linear(self) -> bool:
        """True if the measure is linear in x, up to a term that all classes share or one in ||x||^2."""
        return False

    def linear(self, middle: Array = None) -> "LinearForm":
        """Return weights and bias of the classifier; products about `middle` (D,) lose less to rounding."""
        raise ConfigError(f"the measure of this {type(self).__name__} is not linear in x; use `measure`")

    def moved(self, by: Array) -> Self:
        """Return the region moved by `by` (D,)."""
        return replace(self, center=self.center + by)  # type: ignore[type-var] # every region is a dataclass

    def inside(self, x: Array) -> Array:
        """Return whether each query lies within the extent of each class, (..., Q, N)."""
        return self.distance(x) <= self._extent[..., None, :]

    def novelty(self, x: Array, count: Array) -> Array:
        """Score each query (..., Q) as out-of-class; `count` (..., N) are the examples of each class."""
        return self.beyond_extent(x, count)

    def beyond_extent(self, x: Array, count: Array) -> Array:
        """Return the distance to the nearest class in units of its extent (..., Q): at most 1 is inside.

        Extents are shrunk towards the common one, the more the fewer examples a class has. Where extents are not
        determined, as with one example a class, this is the plain distance.
        """
        xp = array_namespace(x)
        grow = 1 + 1 / at_least(count, 1.0)  # variance of a new example about a mean of K, in units of v
        own = self._extent**2 / grow
        spare = at_least(count - 1, 0.0)
        common = (xp.sum(spare * own, axis=-1) / at_least(xp.sum(spare, axis=-1), 1.0))[..., None]
        reach = shrunk_scatter(own, common, count) * grow
        scale = xp.sqrt(xp.where(common > 0, reach, 1.0))
        return xp.min(self.distance(x) / scale[..., None, :], axis=-1)

    def left_out(self, out: LeftOut, index: Indices, form: "ClosedForm", fair: bool = False) -> Doubles:
        """Return the leave-one-out measure of the examples `index` to every class (B, N).

        This region was fitted to all of them, by `form`. The default fits again for each example; a region should have
        a closed form. See `hyperproto.regions.left_out.left_out_measures` for `fair`, which the default ignores.
        """
        return measures_by_refitting(out, index, form)

    @property
    def _extent(self) -> Array:
        if self.extent_radius is None:
            raise ConfigError(
                f"this {type(self).__name__} was built without an extent_radius, so it has no inside; "
                "fit it to a support set, or give extent_radius"
            )
        return self.extent_radius

    def _fill(self, name: str, value: float = 0.0) -> None:
        """Fill the per-class array `name` (..., N) with `value` if it is None."""
        if getattr(self, name) is None:
            xp = array_namespace(self.center)
            object.__setattr__(self, name, xp.full_like(self.center[..., 0], value))  # frozen, but under construction


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """Region, fit mode and options of `from_statistics`."""

    region: type[Region]
    mode: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a mode that is not one of the region's."""
        check_mode(self.region, self.mode)

    def fit(self, stats: Statistics) -> Region:
        """Fit the region."""
        return self.region.from_statistics(stats, mode=self.mode, **self.options)

    @property
    def needs_examples(self) -> str | None:
        """Reason to need more than count, mean and squares of each class; None if there is none."""
        return self.region.needs_examples(self.mode, **self.options)


@dataclass(frozen=True, eq=False)
class LinearForm:
    """Measure as M_n(x) = common(x) - scores_n(x), scores = x @ weights + bias - curve_n ||x - middle||^2.

    Without `curve` its term is 0. `common` is ||A x - middle||^2, or 0 if there is a curve or the form is not
    `squared`. It is the same for all classes: to compare them, the scores suffice, by one matrix product.
    """

    weights: Array  # (..., D, N)
    bias: Array  # (..., N)
    middle: Array = None  # (D,); None: the origin
    whiten: Whitening | None = None  # A
    curve: Array = None  # (..., N)
    squared: bool = True

    @classmethod
    def of_distances(
        cls, center: Array, radius: Array = 0.0, whiten: Whitening | None = None, middle: Array = None
    ) -> "LinearForm":
        """Return the form of ||A x - z_n||^2 - eps_n, z (..., N, D), eps (..., N).

        With c the middle, ||x - z||^2 = ||x - c||^2 - 2 x . (z - c) + ||z - c||^2 + 2 c . (z - c). The product with
        z - c in place of z keeps the digits of float32 however far from the origin x lies. A is symmetric, so the
        weights are 2 A (z - c).
        """
        xp = array_namespace(center)
        away = center if middle is None else center - middle
        bias = radius - xp.sum(away * away, axis=-1)
        if middle is not None:
            bias = bias - 2 * (away @ middle)
        return cls(2 * (away if whiten is None else whiten(away)).mT, bias, middle, whiten)

    def shifted(self, by: Array) -> "LinearForm":
        """Return the scores of x - by (..., 1, D) as a form of x, for regions fitted about `by`."""
        return LinearForm(self.weights, (self.bias[..., None, :] - by @ self.weights)[..., 0, :])

    def scores(self, x: Array) -> Array:
        """Return scores (..., Q, N), up to a number that all classes of a row share; larger is more likely."""
        scores = x @ self.weights
        scores += self.bias[..., None, :]
        if self.curve is not None:
            scores -= row_squares(self._moved(x))[..., None] * self.curve[..., None, :]
        return scores

    def measure(self, x: Array) -> Array:
        """Return the measure (..., Q, N)."""
        if self.curve is not None or not self.squared:
            return -self.scores(x)
        return row_squares(self._moved(x))[..., None] - self.scores(x)

    def _moved(self, x: Array) -> Array:
        x = x if self.whiten is None else self.whiten(x)
        return x if self.middle is None else x - self.middle


def check_mode(region: type[Region], mode: str) -> None:
    """Refuse a fit mode that does not exist, or is not one of the region's."""
    if mode not in FIT_MODES:
        raise ConfigError(unknown_name("fit mode", mode, FIT_MODES))
    if mode not in region.modes:
        raise ConfigError(
            f"the fit mode {mode!r} has no meaning for the region {region.__name__}; "
            f"use {' or '.join(repr(name) for name in region.modes)}"
        )
