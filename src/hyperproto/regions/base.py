"""What every region has: closed forms, a measure, a linear form, an extent, novelty, and one example left out.

A new region is one file: a frozen dataclass with `center`, `bias_radius` and `extent_radius` that inherits from
`Region` and defines `modes`, `from_statistics`, `measure` and `distance`. The rest has a default here, which a region
replaces where it knows better. `hyperproto.testing.check_region` holds it to this contract.
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
    """The classes of one or many episodes, each a region of embedding space.

    `bias_radius` is what the measure subtracts. `extent_radius` is how far the class reaches: what a drawing shows, and
    what "inside" means. The two are never the same thing: a point of the class is almost never inside the first.

    Fitting takes `support` (..., S, D), integer `labels` (..., S) from 0 to way - 1 (negative: padding, which takes
    part in nothing) and `way`. A class without examples has its centre at 0, or at the common mean in mode "bayes":
    mask its column if that can happen.
    """

    modes: ClassVar[tuple[str, ...]]  # the fit modes that have a meaning here, the default first
    directions: ClassVar[bool] = False  # whether it is of unit vectors only, so that rows are scaled to length 1
    measure_options: ClassVar[Mapping[str, Any]] = {}  # how a classifier calls `measure`: ties should be broken

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
        """Estimate the classes from statistics that are already there."""

    @classmethod
    def options(cls, mode: str) -> tuple[str, ...]:
        """Name the options of `from_statistics` that a classifier's parameters of the same names choose."""
        return ()

    @classmethod
    def needs_examples(cls, mode: str, **options: Any) -> str | None:
        """Say why a closed form needs more than count, mean and squares of each class; None if it does not."""
        return f"the region {cls.__name__} is fitted to them; use a region that lives on statistics, such as 'sphere'"

    @abstractmethod
    def measure(self, x: Array) -> Array:
        """M(x, B): for queries (..., Q, D), lower is more likely: (..., Q, N)."""

    @abstractmethod
    def distance(self, x: Array) -> Array:
        """Distance (or angle) of each query to each centre, in the unit of `extent_radius`: (..., Q, N)."""

    @property
    def is_linear(self) -> bool:
        """Whether the measure is linear in x, up to a term that all classes share or one in ||x||^2."""
        return False

    def linear(self, middle: Array = None) -> "LinearForm":
        """The same classifier as weights and bias; with products about `middle` (D,), which loses less to rounding."""
        raise ConfigError(f"the measure of this {type(self).__name__} is not linear in x; use `measure`")

    def moved(self, by: Array) -> Self:
        """The same region, all of whose points are moved by `by` (D,)."""
        return replace(self, center=self.center + by)  # type: ignore[type-var] # every region is a dataclass

    def inside(self, x: Array) -> Array:
        """Whether each query lies within the reach of each class: booleans (..., Q, N)."""
        return self.distance(x) <= self._extent[..., None, :]

    def novelty(self, x: Array, count: Array) -> Array:
        """How little each query belongs to any class (..., Q); `count` (..., N) examples were seen of each."""
        return self.beyond_extent(x, count)

    def beyond_extent(self, x: Array, count: Array) -> Array:
        """Distance to the nearest class in units of its extent, (..., Q): at most 1 is inside.

        Extents are shrunk to the common one, the more so the fewer examples a class has: few examples tell little of
        how far their class reaches. Where nothing is known of extents, as with one example a class, it is the plain
        distance.
        """
        xp = array_namespace(x)
        grow = 1 + 1 / at_least(count, 1.0)  # a new example misses the centre by more than the class scatters
        own = self._extent**2 / grow
        spare = at_least(count - 1, 0.0)
        common = (xp.sum(spare * own, axis=-1) / at_least(xp.sum(spare, axis=-1), 1.0))[..., None]
        reach = shrunk_scatter(own, common, count) * grow
        scale = xp.sqrt(xp.where(common > 0, reach, 1.0))
        return xp.min(self.distance(x) / scale[..., None, :], axis=-1)

    def left_out(self, out: LeftOut, index: Indices, form: "ClosedForm", fair: bool = False) -> Doubles:
        """The measure of the examples `index` to every class (B, N), each as if it had not been there.

        This region was fitted to all of them, by `form`. The default fits again for each; a region should know a
        closed form. See `hyperproto.regions.left_out.left_out_measures` for `fair`, which the default does not need.
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
        """Give the per-class array `name` its neutral value if it is None."""
        if getattr(self, name) is None:
            xp = array_namespace(self.center)
            object.__setattr__(self, name, xp.full_like(self.center[..., 0], value))  # (..., N); frozen, but newborn


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """A way to fit: the region, its mode, and the options of `from_statistics`."""

    region: type[Region]
    mode: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a mode that the region does not have."""
        check_mode(self.region, self.mode)

    def fit(self, stats: Statistics) -> Region:
        """Fit the region."""
        return self.region.from_statistics(stats, mode=self.mode, **self.options)

    @property
    def by_folds(self) -> bool:
        """Whether leave-one-out needs new fits: unlabelled rows are assigned by all examples together."""
        evidence = self.options.get("evidence")
        return evidence is not None and evidence.unlabelled is not None

    @property
    def needs_examples(self) -> str | None:
        """Why it needs more than count, mean and squares of each class; None if it does not."""
        return self.region.needs_examples(self.mode, **self.options)


@dataclass(frozen=True, eq=False)
class LinearForm:
    """M_n(x) = common(x) - scores_n(x) with scores = x @ weights + bias, less curve_n ||x - middle||^2 if curved.

    `common` is ||A x - middle||^2, or 0 if the form is curved or not `squared`. It is the same for all classes: to
    compare them the scores alone are enough, for one matrix product.
    """

    weights: Array  # (..., D, N)
    bias: Array  # (..., N)
    middle: Array = None  # (D,) None: the origin
    whiten: Whitening | None = None  # A
    curve: Array = None  # (..., N)
    squared: bool = True

    @classmethod
    def of_distances(
        cls, center: Array, radius: Array = 0.0, whiten: Whitening | None = None, middle: Array = None
    ) -> "LinearForm":
        """||A x - z_n||^2 - eps_n.

        With c the middle, ||x - z||^2 = ||x - c||^2 - 2 x . (z - c) + ||z - c||^2 + 2 c . (z - c). The product is with
        z - c, not with z, so that float32 loses nothing in it that x has not lost already, however far from the origin
        x lies. `whiten` is symmetric, so that the weights are 2 A (z - c).
        """
        xp = array_namespace(center)
        away = center if middle is None else center - middle
        bias = radius - xp.sum(away * away, axis=-1)
        if middle is not None:
            bias = bias - 2 * (away @ middle)
        return cls(2 * (away if whiten is None else whiten(away)).mT, bias, middle, whiten)

    def shifted(self, by: Array) -> "LinearForm":
        """The scores of x - by (..., 1, D), as a form of x: for regions that were fitted about `by`."""
        return LinearForm(self.weights, (self.bias[..., None, :] - by @ self.weights)[..., 0, :])

    def scores(self, x: Array) -> Array:
        """Larger is more likely (..., Q, N); right up to a number that all classes of a row share."""
        scores = x @ self.weights
        scores += self.bias[..., None, :]
        if self.curve is not None:
            scores -= row_squares(self._moved(x))[..., None] * self.curve[..., None, :]
        return scores

    def measure(self, x: Array) -> Array:
        """The measure itself (..., Q, N)."""
        if self.curve is not None or not self.squared:
            return -self.scores(x)
        return row_squares(self._moved(x))[..., None] - self.scores(x)

    def _moved(self, x: Array) -> Array:
        x = x if self.whiten is None else self.whiten(x)
        return x if self.middle is None else x - self.middle


def check_mode(region: type[Region], mode: str) -> None:
    """Refuse a fit mode that does not exist, or that has no meaning for the region."""
    if mode not in FIT_MODES:
        raise ConfigError(unknown_name("fit mode", mode, FIT_MODES))
    if mode not in region.modes:
        raise ConfigError(
            f"the fit mode {mode!r} has no meaning for the region {region.__name__}; "
            f"use {' or '.join(repr(name) for name in region.modes)}"
        )
