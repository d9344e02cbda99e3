"""Count, mean and scatter of classes, which regions are fitted to.

    Statistics              count (..., N), mean (..., N, D) and squares (..., N): enough for most fit modes
    ├── Moments             these three alone, in float64; added to, subtracted from and merged, as Welford does
    └── ExampleStatistics   with the examples
        ├── ClassStatistics    one or many support sets, by products with memberships; any array library
        └── FlatStatistics     one support set of any size, by index; NumPy

Squares are about the mean, not about the origin, so that nothing cancels far from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, device

from hyperproto.errors import ConfigError, DataError
from hyperproto.regions.arrays import (
    Array,
    Doubles,
    Floats,
    Indices,
    at_least,
    means_of,
    positive,
    root,
    squares_about,
    sum_by_label,
)

NOTHING = 1e-9  # share of the examples of a class below which it is empty, up to rounding
PRIOR_EXAMPLES = 16.0  # prior weight, in examples, of the pooled scatter in the scatter of a class
MANY = 16_384  # rows of a block that is mapped
FAR = 100.0  # distance of the middle from 0, in units of the spread, beyond which squares lose digits


class Statistics:
    """Count, mean and sum of squared deviations of each class. An example of weight w counts as w examples."""

    count: Array  # (..., N) examples, or the sum of their weights
    mean: Array  # (..., N, D)
    squares: Array  # (..., N) sum over each class of ||x - mean||^2

    @property
    def filled(self) -> Array:
        """Number of classes that have examples, (...)."""
        xp = array_namespace(self.count)
        return xp.sum(xp.astype(self.count > 0, self.count.dtype), axis=-1)

    @property
    def dof(self) -> Array:
        """Degrees of freedom of the pooled scatter, the sum of K - 1 over these classes, (...)."""
        return degrees_of_freedom(self.count)

    @property
    def length(self) -> Array:
        """Length of the mean of each class, (..., N)."""
        xp = array_namespace(self.mean)
        return xp.linalg.vector_norm(self.mean, axis=-1)

    @property
    def energy(self) -> Array:
        """Sum of ||x||^2 (...), the scale of rounding errors in the scatter."""
        xp = array_namespace(self.mean)
        return xp.sum(self.squares + self.count * self.length**2, axis=-1)

    @property
    def scattered(self) -> Array:
        """True if any class has examples that differ by more than rounding, (...)."""
        xp = array_namespace(self.squares)
        return xp.sum(self.squares, axis=-1) > 1e-12 * self.energy


@dataclass(frozen=True, eq=False)
class Moments(Statistics):
    """Statistics without examples, which can be merged. An empty class has 0 in all three.

        moments = Moments.of(support, labels, way=3)
        moments = moments.merged(Moments.of(more, more_labels, way=3))     # as if fitted to both at once
        moments = moments.without(Moments.of(some, some_labels, way=3))    # as if `some` had never been there

    Keep them in float64, where a million updates lose no more than a few digits.
    """

    count: Array
    mean: Array
    squares: Array

    @classmethod
    def of(cls, x: Array, labels: Array, way: int, weight: Array = None) -> Self:
        """Measure `x` (..., S, D) with integer `labels` (..., S), negative for padding; `weight` (..., S) if any."""
        plain = ClassStatistics.of(x, labels, way)  # which ignores padding
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
        """Return the statistics of the examples of both (Chan, Golub and LeVeque 1979)."""
        xp = array_namespace(self.mean)
        count = self.count + other.count
        share = other.count / positive(count)  # (..., N)
        step = other.mean - self.mean
        return type(self)(
            count,
            self.mean + share[..., None] * step,
            self.squares + other.squares + self.count * share * xp.sum(step * step, axis=-1),
        )

    def without(self, other: "Moments") -> Self:
        """Return the statistics without the examples of `other`, which must be among them."""
        xp = array_namespace(self.mean)
        count = self.count - other.count
        if bool(xp.any(count < -NOTHING * positive(self.count))):
            raise DataError("more examples of a class would be removed than it has; check their labels")
        empty = count <= NOTHING * positive(self.count)
        count = xp.where(empty, 0.0, count)
        step = (self.mean - other.mean) * (other.count / positive(count))[..., None]  # from the old mean to the new
        away = self.mean + step - other.mean
        loss = other.count * count / positive(self.count) * xp.sum(away * away, axis=-1)
        mean = xp.where(empty[..., None], 0.0, self.mean + step)
        return type(self)(count, mean, xp.where(empty, 0.0, at_least(self.squares - other.squares - loss, 0.0)))


class ExampleStatistics(Statistics, ABC):
    """Statistics with their examples, for "bayes", mean distances and mean angles."""

    residual: Array  # (..., S, D) x - mean of its class
    weighted_residual: Array  # (..., S, D) times the root of the weight

    @abstractmethod
    def sum(self, values: Array) -> Array:
        """Sum `values` (..., S) over the examples: (...)."""

    @abstractmethod
    def total(self, values: Array) -> Array:
        """Sum `values` (..., S) over the examples of each class: (..., N)."""

    @abstractmethod
    def spread(self, values: Array) -> Array:
        """Return the value of its class (..., N, D) for each example: (..., S, D)."""

    @abstractmethod
    def memberships(self) -> tuple[Array, Array]:
        """Return the examples (..., S, D) and their weights in each class (..., S, N)."""

    def mapped_lengths(self, linear_map: Callable[[Array], Array]) -> Array:
        """Return ||A r||^2 (..., S) of the residuals r, mapped by A."""
        xp = array_namespace(self.mean)
        residual = linear_map(self.residual)
        return xp.sum(residual * residual, axis=-1)

    def average(self, values: Array) -> Array:
        """Average `values` (..., S) over the examples of each class: (..., N)."""
        return self.total(values) / positive(self.count)


MEAN_DISTANCE = (  # a reason of `Region.needs_examples`
    "the mean distance of fit_mode='paper' is no statistic; use 'unbiased', or mean squared distances "
    "(squared=True, radius_distance='squared')"
)


def with_examples(stats: Statistics) -> ExampleStatistics:
    """Return the statistics; refuse those without examples."""
    if not isinstance(stats, ExampleStatistics):
        raise ConfigError(
            "this fit needs the examples themselves, and only their statistics were kept; "
            "keep the examples, or use a mode that needs statistics only, such as 'unbiased'"
        )
    return stats


@dataclass(frozen=True, eq=False)
class ClassStatistics(ExampleStatistics):
    """Statistics of one or many support sets, by products with the matrix of memberships.

    A row whose label is negative is padding and is ignored, whatever it holds. An empty class has count 0 and mean 0.
    """

    support: Array  # (..., S, D); 0 for padding
    member: Array  # (..., S, N) 1 where the example is of the class, else 0
    count: Array  # (..., N) in the dtype of the support
    mean: Array  # (..., N, D)

    @classmethod
    def of(cls, support: Array, labels: Array, way: int) -> "ClassStatistics":
        """Measure `support` (..., S, D) with integer `labels` (..., S) in 0 to way - 1, or negative for padding."""
        xp = array_namespace(support, labels)
        check_support(xp, support, labels, way)
        classes = xp.arange(way, dtype=labels.dtype, device=device(labels))
        member = xp.astype(labels[..., None] == classes, support.dtype)  # (..., S, N)
        real = xp.any(labels[..., None] == classes, axis=-1)[..., None]  # (..., S, 1)
        support = xp.where(real, support, 0.0)  # padding may hold anything, NaN included
        count = xp.sum(member, axis=-2)
        mean = member.mT @ support / at_least(count, 1.0)[..., None]
        return cls(support, member, count, mean)

    @cached_property
    def residual(self) -> Array:
        """Difference x - mean of its class (..., S, D); 0 for padding and for the only example of a class."""
        return self.support - self.member @ self.mean

    @cached_property
    def squares(self) -> Array:
        """Sum of ||x - mean||^2 over each class, (..., N)."""
        xp = array_namespace(self.support)
        return self.total(xp.sum(self.residual * self.residual, axis=-1))

    @cached_property
    def energy(self) -> Array:
        """Sum of ||x||^2 (...), the scale of rounding errors in the scatter."""
        xp = array_namespace(self.support)
        return xp.sum(self.support * self.support, axis=(-2, -1))

    @property
    def weighted_residual(self) -> Array:
        """Residual of each example, which counts once."""
        return self.residual

    def sum(self, values: Array) -> Array:
        """Sum over the examples; padding must hold 0."""
        xp = array_namespace(values)
        return xp.sum(values, axis=-1)

    def total(self, values: Array) -> Array:
        """Sum over each class."""
        return sum_by_class(self.member, values)

    def spread(self, values: Array) -> Array:
        """Return the value of its class for each example; 0 for padding."""
        return self.member @ values

    def memberships(self) -> tuple[Array, Array]:
        """Return examples and memberships; padding has weight 0."""
        return self.support, self.member


@dataclass(frozen=True, eq=False)
class FlatStatistics(ExampleStatistics):
    """Statistics of N classes and any number of examples: no array has the size (S, N)."""

    count: Doubles
    mean: Doubles
    squares: Doubles
    rows: Floats  # (S, D)
    labels: Indices  # (S,) from 0 to N - 1
    weights: Doubles  # (S,)

    @classmethod
    def of(cls, rows: Floats, labels: Indices, weights: Doubles, moments: Moments) -> "FlatStatistics":
        """Join examples and the moments of their classes."""
        return cls(moments.count, moments.mean, moments.squares, rows, labels, weights)

    @cached_property
    def residual(self) -> Doubles:
        """Difference x - mean of its class (S, D), in float64."""
        return self.rows - self.mean[self.labels]

    @cached_property
    def weighted_residual(self) -> Doubles:
        """Residual times the root of the weight, (S, D)."""
        return self.residual if (self.weights == 1).all() else self.residual * np.sqrt(self.weights)[:, None]

    def mapped_lengths(self, linear_map: Callable[[Doubles], Doubles]) -> Doubles:
        """Return ||A r||^2 (S,) of the residuals, in blocks."""
        lengths = np.empty(len(self.rows))
        for start in range(0, len(lengths), MANY):
            residual = linear_map(self.residual[start : start + MANY])
            lengths[start : start + MANY] = np.sum(residual * residual, axis=-1)
        return lengths

    @cached_property
    def length(self) -> Doubles:
        """Length of the mean of each class, (N,)."""
        length: Doubles = np.linalg.norm(self.mean, axis=-1)
        return length

    @cached_property
    def lengths(self) -> Doubles:
        """Squared distance of each example to the mean of its class, (S,)."""
        lengths: Doubles = np.vecdot(self.residual, self.residual)
        return lengths

    def sum(self, values: Doubles) -> Any:
        """Sum over the examples."""
        return self.weights @ values

    def total(self, values: Doubles) -> Doubles:
        """Sum over each class."""
        return sum_by_label(self.labels, self.weights * values, len(self.count))

    def spread(self, values: Floats) -> Floats:
        """Return the value of its class for each example."""
        return values[self.labels]

    def memberships(self) -> tuple[Floats, Floats]:
        """Return examples and memberships, the only array of the size (S, N), in the precision of the rows."""
        member = np.zeros((len(self.rows), len(self.count)), self.rows.dtype)
        member[np.arange(len(member)), self.labels] = self.weights
        return self.rows, member


def check_support(xp: Array, support: Array, labels: Array, way: int) -> None:
    """Refuse arrays that no region can be fitted to."""
    if not xp.isdtype(support.dtype, "real floating"):
        raise DataError(
            f"support has dtype {support.dtype}; regions need real floating point numbers: convert it first"
        )
    if not xp.isdtype(labels.dtype, "integral"):
        raise DataError(f"labels have dtype {labels.dtype}; give integers from 0 to way - 1, negative for padding")
    if tuple(support.shape[:-1]) != tuple(labels.shape):
        raise DataError(
            f"support has shape {tuple(support.shape)} but labels {tuple(labels.shape)}; give one label a support row"
        )
    if way < 1:
        raise DataError(f"way is {way}; there must be at least one class")


def sum_by_class(member: Array, values: Array) -> Array:
    """Sum `values` (..., S) over the members (..., S, N) of each class: (..., N)."""
    return (member.mT @ values[..., None])[..., 0]


def degrees_of_freedom(count: Array) -> Array:
    """Return the sum of K - 1 over the classes that have examples, (...)."""
    xp = array_namespace(count)
    return xp.sum(xp.where(count < 1, 0.0, count - 1), axis=-1)


def pooled_scatter(squares: Array, count: Array) -> Array:
    """Return v = SS / (n - N) (...), the within-class scatter of all classes; 0 if no class has two examples."""
    xp = array_namespace(squares)
    return xp.sum(squares, axis=-1) / at_least(degrees_of_freedom(count), 1.0)


def class_scatter(squares: Array, count: Array) -> Array:
    """Return v_n = SS_n / (K_n - 1) (..., N); a class of fewer than two examples takes the pooled scatter."""
    xp = array_namespace(squares)
    return xp.where(count > 1, squares / at_least(count - 1, 1.0), pooled_scatter(squares, count)[..., None])


def scatter_weight(count: Array) -> Array:
    """Return the posterior weight of a class's own scatter, (K - 1) / (K - 1 + 16); the rest is the pooled scatter."""
    xp = array_namespace(count)
    spare = xp.where(count < 1, 0.0, count - 1)
    return spare / (spare + PRIOR_EXAMPLES)


def shrunk_scatter(own: Array, pooled: Array, count: Array) -> Array:
    """Return the mean (..., N) of a class's own scatter and the pooled one, by `scatter_weight`."""
    weight = scatter_weight(count)
    return weight * own + (1 - weight) * pooled


def extent_radius(squares: Array, count: Array) -> Array:
    """Return the extent (..., N): extent^2 = v_n (1 + 1/K_n), the mean squared distance of a new example to the centre.

    It is 0 if no class has two examples.
    """
    return root(class_scatter(squares, count) * (1 + 1 / at_least(count, 1.0)))


def far_middle(moments: Moments) -> Doubles | None:
    """Return the middle (D,) of classes that lie far from 0 for their spread; None if they do not. NumPy only.

    Squares of x then lose the digits of x - z, and squares about the middle do not. The middle is rounded to float32,
    so that subtracting it from rows of either precision loses nothing.
    """
    middle = moments.mean.mean(axis=0)
    away = moments.mean - middle
    spread = (moments.squares.sum() + moments.count @ np.vecdot(away, away)) / moments.count.sum()
    if middle @ middle <= FAR**2 * spread:
        return None
    largest = float(np.finfo(np.float32).max)
    found: Doubles = np.where(np.abs(middle) < largest, np.clip(middle, -largest, largest).astype(np.float32), middle)
    return found


def moments_of(rows: Floats, labels: Indices, weights: Doubles | None, way: int) -> Moments:
    """Return count, mean and squares of each class in float64; labels are from 0 to way - 1."""
    count, mean = means_of(rows, labels, weights, way)
    return Moments(count, mean, squares_about(mean, rows, labels, weights))
