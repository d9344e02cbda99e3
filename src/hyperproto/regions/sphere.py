"""A class is a hypersphere B(z, eps): eq. 1-3 of the paper, and what replaces its closed form."""

from dataclasses import dataclass
from typing import ClassVar, Self

from array_api_compat import array_namespace

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.regions.arrays import Array, positive, root, squared_distance
from hyperproto.regions.base import Region, check_mode
from hyperproto.regions.bayes import PRIOR_RATIO, fit_bayes
from hyperproto.regions.groups import effective_count
from hyperproto.regions.statistics import (
    ClassStatistics,
    ExampleStatistics,
    Statistics,
    extent_radius,
    pooled_scatter,
    with_examples,
)
from hyperproto.regions.whitening import Whitening

RADIUS_DISTANCES = ("squared", "plain")  # what eq. 3's "mean distance" averages beside the squared measure


@dataclass(frozen=True, eq=False)
class Sphere(Region):
    """Hyperspheres, with M(x, B_n) = ||A x - z_n||^2 - eps_n (eq. 2; A is the identity but in mode "bayes").

    If not `squared`, M = ||A x - z_n|| - eps_n; or, with `under_root`, sqrt(max(||A x - z_n||^2 - eps_n, 0)), for a
    bias that belongs to the squared distance.
    """

    modes: ClassVar[tuple[str, ...]] = ("bayes", "unbiased", "paper", "point")

    center: Array
    bias_radius: Array = None
    extent_radius: Array = None
    squared: bool = True
    under_root: bool = False
    whiten: Whitening | None = None
    scatter: Array = None  # (...) the pooled within-class scatter v
    ratio: Array = None  # (...) k, the ratio of within- to between-class variance
    gain: Array = None  # (...) how strongly A whitens, see `hyperproto.regions.whitening`

    def __post_init__(self) -> None:
        """A sphere built without a radius is a point."""
        self._fill("bias_radius")

    @classmethod
    def fit(
        cls,
        support: Array,
        labels: Array,
        way: int,
        *,
        mode: str = "bayes",
        squared: bool = True,
        radius_distance: str = "squared",
        radius_weight: float = 1.0,
        prior_ratio: float = PRIOR_RATIO,
        groups: Array = None,
        correlation: float = 0.0,
    ) -> Self:
        """Estimate centres and radii from the support.

        - "bayes": shrunken centres in a whitened space, see `hyperproto.regions.bayes`; `prior_ratio` is the ratio of
          within- to between-class variance that it expects. Examples of one of the `groups` (..., S) may correlate:
          see `hyperproto.regions.groups`.
        - "unbiased": eps_n = v / K_n, since E||x - z_n||^2 = ||x - mu_n||^2 + v / K_n; v is the pooled scatter.
        - "paper": eq. 3, eps_n = the mean distance of the support to its centre, times `radius_weight`. Of the
          squared distances if the measure is `squared` too; `radius_distance="plain"` averages the distances
          themselves beside the squared measure.
        - "point": eps_n = 0.
        """
        check_mode(cls, mode)  # before the support is looked at
        stats = ClassStatistics.of(support, labels, way)
        if correlation and mode != "bayes":
            raise ConfigError(f"only the fit mode 'bayes' asks how far examples are to be believed; {mode!r} does not")
        return cls.from_statistics(
            stats,
            mode=mode,
            squared=squared,
            radius_distance=radius_distance,
            radius_weight=radius_weight,
            prior_ratio=prior_ratio,
            worth=effective_count(stats.member, groups, correlation) if correlation else None,
        )

    @classmethod
    def from_statistics(
        cls,
        stats: Statistics,
        *,
        mode: str = "bayes",
        squared: bool = True,
        radius_distance: str = "squared",
        radius_weight: float = 1.0,
        prior_ratio: float = PRIOR_RATIO,
        worth: Array = None,
    ) -> Self:
        """Estimate centres and radii, as `fit` does; only "bayes" and mean distances of "paper" need the examples."""
        check_mode(cls, mode)
        check_radius_distance(radius_distance, squared)
        if radius_distance != "squared" and mode != "paper":
            raise ConfigError(
                f"radius_distance is a reading of eq. 3; the fit mode {mode!r} has no such radius: use 'paper'"
            )
        if radius_weight != 1.0 and mode != "paper":
            raise ConfigError(f"radius_weight weighs the radius of eq. 3; the fit mode {mode!r} has none: use 'paper'")
        if prior_ratio <= 0 or (prior_ratio != PRIOR_RATIO and mode != "bayes"):
            raise ConfigError(f"prior_ratio {prior_ratio} must be above 0, and is only for the fit mode 'bayes'")
        if mode == "bayes":
            return cls(**vars(fit_bayes(with_examples(stats), prior_ratio, worth)), squared=squared, under_root=True)
        scatter = pooled_scatter(stats.squares, stats.count)
        eps = None
        if mode == "unbiased":
            eps = scatter[..., None] / positive(stats.count)
        elif mode == "paper":
            of_squares = squared and radius_distance == "squared"
            eps = radius_weight * (
                stats.squares / positive(stats.count) if of_squares else mean_distance(with_examples(stats))
            )
        extent = extent_radius(stats.squares, stats.count)
        return cls(stats.mean, eps, extent, squared, under_root=mode == "unbiased", scatter=scatter)

    def measure(self, x: Array) -> Array:
        """Eq. 2: how far outside the sphere."""
        return self.measure_at(self._squared_distance(x))

    def measure_at(self, distance2: Array) -> Array:
        """The measure at squared distances ||A x - z_n||^2 (..., Q, N)."""
        eps = self.bias_radius[..., None, :]
        if self.squared:
            return distance2 - eps
        return root(distance2 - eps) if self.under_root else root(distance2) - eps

    def distance(self, x: Array) -> Array:
        """||A x - z_n||."""
        return root(self._squared_distance(x))

    def linear(self) -> tuple[Array, Array]:
        """Weights (..., D, N) and bias (..., N) of the same classifier: x @ weights + bias = ||A x||^2 - M(x).

        The first term is the same for every class, so argmax is argmin of the measure, for one matrix product.
        """
        if not self.squared:
            raise ConfigError("only the squared measure is linear in x up to a common term; fit with squared=True")
        xp = array_namespace(self.center)
        center = self.center if self.whiten is None else self.whiten(self.center)  # A z, A being symmetric
        return 2 * center.mT, self.bias_radius - xp.sum(self.center * self.center, axis=-1)

    def _squared_distance(self, x: Array) -> Array:
        return squared_distance(x if self.whiten is None else self.whiten(x), self.center)


def check_radius_distance(name: str, squared: bool) -> None:
    """Refuse a reading of eq. 3's radius that does not exist, or that the unsquared measure has already."""
    if name not in RADIUS_DISTANCES:
        raise ConfigError(unknown_name("radius_distance", name, RADIUS_DISTANCES))
    if name == "plain" and not squared:
        raise ConfigError(
            "radius_distance='plain' goes with the squared measure; with squared=False the radius is a mean of plain "
            "distances already: leave radius_distance out"
        )


def mean_distance(stats: ExampleStatistics) -> Array:
    """Mean ||x - z|| of each class: (..., N)."""
    xp = array_namespace(stats.mean)
    return stats.average(xp.linalg.vector_norm(stats.residual, axis=-1))
