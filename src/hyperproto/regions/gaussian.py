"""Classes as isotropic Gaussians: the paper's probabilistic variant (section 3.3), and an unbiased log likelihood."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from array_api_compat import array_namespace

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.regions.arrays import Array, Doubles, Indices, at_least, positive, root, squared_distance
from hyperproto.regions.base import ClosedForm, LinearForm, Region, check_mode
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import ClassStatistics, Statistics, class_scatter, extent_radius, pooled_scatter

SIGMA_FLOOR = 1e-6  # of a stored sigma, which may pass through 0 in training
VARIANCE_FLOOR = 0.01  # of a class's fitted variance, in units of the pooled one
LEAST_DOF = 3.0  # of the factor (nu - 2) / nu, which is positive only above 2


@dataclass(frozen=True, eq=False)
class Gaussian(Region):
    """Gaussians N(z_n, sigma_n^2 I).

    M(x) = shrink_n ||x - z_n||^2 / (2 sigma_n^2) + D log|sigma_n| + D/2 log 2 pi - eps_n. In the paper shrink = 1 and
    eps = 0: minus the log likelihood. sigma counts by its absolute value, at least SIGMA_FLOOR.
    """

    modes: ClassVar[tuple[str, ...]] = ("unbiased", "paper")

    center: Array
    sigma: Array  # (..., N)
    bias_radius: Array = None
    extent_radius: Array = None
    shrink: Array = None  # (..., N)

    def __post_init__(self) -> None:
        """Measure as the paper does, if built from centre and sigma."""
        self._fill("bias_radius")
        self._fill("shrink", 1.0)

    @classmethod
    def fit(cls, support: Array, labels: Array, way: int, *, mode: str = "unbiased", sigma: str = "ml") -> Self:
        """Estimate centres and sigmas.

        - "unbiased": with nu = D (K - 1) and s2 = SS / nu, M has the expectation of the true minus log likelihood:
          shrink = (nu - 2) / nu undoes E[1 / s2], eps = D/(2K) - D/2 [log(nu/2) - psi(nu/2)] the noise of z and log s2.
        - "paper": sigma^2 = mean ||x - z||^2 / D (`sigma` = "ml"), or eq. 3 to the letter, without the D ("eq3").

        Limits: a class of one example takes the pooled variance (and its nu); the variance of a class is at least
        VARIANCE_FLOOR times the pooled one, also for identical examples; if no examples differ at all, sigma = 1,
        shrink = 1 and eps = 0; where nu <= 2, shrink is that of nu = LEAST_DOF.
        """
        check_mode(cls, mode)  # before the support is looked at
        return cls.from_statistics(ClassStatistics.of(support, labels, way), mode=mode, sigma=sigma)

    @classmethod
    def from_statistics(cls, stats: Statistics, *, mode: str = "unbiased", sigma: str = "ml") -> Self:
        """Estimate centres and sigmas, as `fit` does."""
        check_mode(cls, mode)
        if sigma not in ("ml", "eq3"):
            raise ConfigError(unknown_name("reading of sigma", sigma, ("ml", "eq3")))
        if sigma == "eq3" and mode != "paper":
            raise ConfigError(f"sigma='eq3' is a reading of the paper; the fit mode {mode!r} has its own: use 'paper'")
        xp = array_namespace(stats.mean)
        dim = stats.mean.shape[-1]
        known = stats.scattered[..., None]  # (..., 1)
        extent = extent_radius(stats.squares, stats.count)
        if mode == "paper":
            variance = mean_square(stats) / (dim if sigma == "ml" else 1)
            return cls(stats.mean, root(xp.where(known, variance, 1.0)), extent_radius=extent)
        pooled = pooled_scatter(stats.squares, stats.count)[..., None]
        variance = at_least(class_scatter(stats.squares, stats.count), VARIANCE_FLOOR * pooled) / dim
        spare = at_least(stats.count - 1, 0.0)
        nu = dim * xp.where(spare > 0, spare, xp.sum(spare, axis=-1, keepdims=True))  # (..., N)
        shrink = 1 - 2 / at_least(nu, LEAST_DOF)
        half = at_least(nu, 1.0) / 2
        eps = dim / 2 * (1 / positive(stats.count) - xp.log(half) + digamma(half))
        return cls(
            stats.mean,
            root(xp.where(known, variance, 1.0)),
            xp.where(known, eps, 0.0),
            extent,
            xp.where(known, shrink, 1.0),
        )

    @classmethod
    def needs_examples(cls, mode: str, **options: Any) -> str | None:
        """Return None: count, mean and squares are enough."""
        return None

    def measure(self, x: Array) -> Array:
        """Return minus the log likelihood (..., Q, N); in mode "unbiased", an unbiased estimate of it."""
        return self.measure_at(squared_distance(x, self.center))

    def measure_at(self, distance2: Array) -> Array:
        """Return the measure at squared distances (..., Q, N)."""
        slope, constant = self.slope_and_constant()
        return slope[..., None, :] * distance2 + constant[..., None, :]

    def slope_and_constant(self) -> tuple[Array, Array]:
        """Return slope and constant (..., N) of M = slope_n ||x - z_n||^2 + constant_n."""
        xp = array_namespace(self.center)
        dim = self.center.shape[-1]
        sigma = at_least(xp.abs(self.sigma), SIGMA_FLOOR)
        slope = self.shrink / (2 * sigma * sigma)
        return slope, dim * xp.log(sigma) + dim / 2 * math.log(2 * math.pi) - self.bias_radius

    def distance(self, x: Array) -> Array:
        """Return ||x - z_n|| (..., Q, N)."""
        return root(squared_distance(x, self.center))

    @property
    def is_linear(self) -> bool:
        """True if the measure is linear in x: true, up to slope_n ||x - middle||^2."""
        return True

    def linear(self, middle: Array = None) -> LinearForm:
        """Return weights, bias and curve with x @ weights + bias - curve ||x - middle||^2 = -M(x)."""
        slope, constant = self.slope_and_constant()
        plain = LinearForm.of_distances(self.center, middle=middle)
        return LinearForm(plain.weights * slope[..., None, :], plain.bias * slope - constant, middle, curve=slope)

    def left_out(self, out: LeftOut, index: Indices, form: ClosedForm, fair: bool = False) -> Doubles:
        """Fit again to count and squares without each example, all at once along a leading axis."""
        met: Any = form.fit(out.statistics(index))
        place = out.squared_distances(index, fair and form.mode == "paper")
        measured: Doubles = met.measure_at(place[:, None, :])[:, 0]
        return measured


def mean_square(stats: Statistics) -> Array:
    """Return mean ||x - z||^2 of each class (..., N); a class of one example takes the pooled one of the others."""
    xp = array_namespace(stats.count)
    several = xp.where(stats.count > 1, stats.count, 0.0)
    pooled = xp.sum(stats.squares, axis=-1, keepdims=True) / at_least(xp.sum(several, axis=-1, keepdims=True), 1.0)
    own = stats.squares / positive(stats.count)
    return at_least(xp.where(stats.count > 1, own, pooled), VARIANCE_FLOOR * pooled)


def digamma(x: Array) -> Array:
    """Return psi(x) for x > 0: psi(x) = psi(x + 1) - 1/x up to x >= 8, then the asymptotic series, to about 1e-12."""
    xp = array_namespace(x)
    below = xp.zeros_like(x)
    for _ in range(8):
        small = x < 8
        below = below + xp.where(small, 1 / x, 0.0)
        x = xp.where(small, x + 1, x)
    y = 1 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))  # Bernoulli numbers B_2k / 2k
    return xp.log(x) - 1 / (2 * x) - series - below
