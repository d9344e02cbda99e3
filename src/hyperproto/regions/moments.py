"""Class statistics that can be added to, taken from and merged: (count, mean, M2), as Welford keeps them.

    moments = Moments.of(support, labels, way=3)
    moments = moments.merged(Moments.of(more, more_labels, way=3))     # as if fitted to both at once
    moments = moments.without(Moments.of(some, some_labels, way=3))    # as if `some` had never been there

Squares are about the mean, never about the origin, so nothing cancels however far from it the examples lie. Keep them
in float64: a million updates then cost no more than a few digits.
"""

from dataclasses import dataclass
from typing import Self

from array_api_compat import array_namespace

from hyperproto.errors import ConfigError, DataError
from hyperproto.regions.arrays import Array, at_least, positive
from hyperproto.regions.statistics import ClassStatistics, Statistics, sum_by_class

NOTHING = 1e-9  # of a class's examples: what is left when all are taken away, but for rounding


@dataclass(frozen=True, eq=False)
class Moments(Statistics):
    """Count (..., N), mean (..., N, D) and sum of squared deviations from it (..., N) of each class, and no examples.

    A class without examples has 0 in all three.
    """

    count: Array
    mean: Array
    squares: Array

    has_examples = False

    @classmethod
    def of(cls, x: Array, labels: Array, way: int, weight: Array = None) -> Self:
        """Measure `x` (..., S, D) with integer `labels` (..., S), negative for padding; `weight` (..., S) if any."""
        plain = ClassStatistics.of(x, labels, way)  # knows padding
        if weight is None:
            return cls(plain.count, plain.mean, plain.squares)
        xp = array_namespace(x, weight)
        weight = xp.where(labels >= 0, weight, 0.0)
        if bool(xp.any(weight < 0)):
            raise DataError("a weight is negative; a weight is how often an example counts: use 0 or more")
        member = plain.member * weight[..., None]  # (..., S, N)
        count = xp.sum(member, axis=-2)
        mean = member.mT @ plain.support / positive(count)[..., None]
        residual = plain.support - plain.member @ mean
        return cls(count, mean, sum_by_class(member, xp.sum(residual * residual, axis=-1)))

    def merged(self, other: "Moments") -> Self:
        """The statistics of the examples of both (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        share = other.count / positive(count)  # (..., N)
        step = other.mean - self.mean
        return type(self)(
            count,
            self.mean + share[..., None] * step,
            self.squares + other.squares + self.count * share * squared_length(step),
        )

    def without(self, other: "Moments") -> Self:
        """The statistics of the examples that remain when those of `other`, which were among them, are taken away."""
        xp = array_namespace(self.mean)
        count = self.count - other.count
        if bool(xp.any(count < -NOTHING * positive(self.count))):
            raise DataError("more examples of a class would be taken away than it has; check their labels")
        empty = count <= NOTHING * positive(self.count)
        count = xp.where(empty, 0.0, count)
        step = (self.mean - other.mean) * (other.count / positive(count))[..., None]  # from the old mean to the new
        away = squared_length(self.mean + step - other.mean)
        squares = self.squares - other.squares - other.count * count / positive(self.count) * away
        mean = xp.where(empty[..., None], 0.0, self.mean + step)
        return type(self)(count, mean, xp.where(empty, 0.0, at_least(squares, 0.0)))

    def sum(self, values: Array) -> Array:
        """Not to be had."""
        raise _no_examples()

    def total(self, values: Array) -> Array:
        """Not to be had."""
        raise _no_examples()

    def spread(self, values: Array) -> Array:
        """Not to be had."""
        raise _no_examples()

    @property
    def residual(self) -> Array:
        """Not to be had."""
        raise _no_examples()

    @property
    def weighted_residual(self) -> Array:
        """Not to be had."""
        raise _no_examples()


def squared_length(x: Array) -> Array:
    """||x||^2 of rows (..., D)."""
    xp = array_namespace(x)
    return xp.sum(x * x, axis=-1)


def _no_examples() -> ConfigError:
    return ConfigError(
        "this fit needs the examples themselves, and only their statistics were kept; "
        "keep the examples, or use a mode that lives on statistics, such as 'unbiased'"
    )
