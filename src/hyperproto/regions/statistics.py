"""Counts, means and scatter of classes: what regions are fitted to, and the one place where classes are summed.

    Statistics           count (..., N), mean (..., N, D) and squares (..., N): all that most fit modes need
    ├── Moments          these three alone, in float64; can be added to, taken from and merged, as Welford does
    └── ExampleStatistics   with the examples they are of
        ├── ClassStatistics    of one or many support sets, by products with memberships; any array library
        └── FlatStatistics     of one support set of any size, by index; NumPy

Squares are about the mean, never about the origin, so nothing cancels however far from it the examples lie.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, device

from hyperproto.errors import ConfigError, DataError
from hyperproto.regions.arrays import Array, Doubles, Floats, Indices, at_least, positive, root

NOTHING = 1e-9  # of a class's examples: what is left when all are taken away, but for rounding
PRIOR_EXAMPLES = 16.0  # how many examples' worth of evidence the pooled scatter counts for in a class's own scatter
MANY = 16_384  # rows that are mapped at once
BLOCK = 1024  # rows whose differences from their means are in memory at once
FEW = 32  # float32 numbers that may be summed in float32
FAR = 100.0  # how many times the spread of the examples their middle is from 0 where digits would be lost
SAMPLE = 256  # rows that tell how far from the origin all lie


class Statistics:
    """Count, mean and sum of squared deviations of each class. An example of weight w counts as w examples."""

    count: Array  # (..., N) examples, or the sum of their weights
    mean: Array  # (..., N, D)
    squares: Array  # (..., N) sum over each class of ||x - mean||^2

    @property
    def length(self) -> Array:
        """||mean|| of each class: (..., N)."""
        xp = array_namespace(self.mean)
        return xp.linalg.vector_norm(self.mean, axis=-1)

    @property
    def energy(self) -> Array:
        """Sum of ||x||^2, the scale below which scatter is rounding error: (...)."""
        xp = array_namespace(self.mean)
        return xp.sum(self.squares + self.count * self.length**2, axis=-1)

    @property
    def scattered(self) -> Array:
        """Whether any class has examples that differ by more than rounding: (...)."""
        xp = array_namespace(self.squares)
        return xp.sum(self.squares, axis=-1) > 1e-12 * self.energy


@dataclass(frozen=True, eq=False)
class Moments(Statistics):
    """Statistics without examples, which can be merged. A class without examples has 0 in all three.

        moments = Moments.of(support, labels, way=3)
        moments = moments.merged(Moments.of(more, more_labels, way=3))     # as if fitted to both at once
        moments = moments.without(Moments.of(some, some_labels, way=3))    # as if `some` had never been there

    Keep them in float64: a million updates then cost no more than a few digits.
    """

    count: Array
    mean: Array
    squares: Array

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
        """The statistics of the examples that remain when those of `other`, which were among them, are taken away."""
        xp = array_namespace(self.mean)
        count = self.count - other.count
        if bool(xp.any(count < -NOTHING * positive(self.count))):
            raise DataError("more examples of a class would be taken away than it has; check their labels")
        empty = count <= NOTHING * positive(self.count)
        count = xp.where(empty, 0.0, count)
        step = (self.mean - other.mean) * (other.count / positive(count))[..., None]  # from the old mean to the new
        away = self.mean + step - other.mean
        loss = other.count * count / positive(self.count) * xp.sum(away * away, axis=-1)
        mean = xp.where(empty[..., None], 0.0, self.mean + step)
        return type(self)(count, mean, xp.where(empty, 0.0, at_least(self.squares - other.squares - loss, 0.0)))


class ExampleStatistics(Statistics, ABC):
    """Statistics with the examples that they are of: what "bayes", mean distances and mean angles need."""

    residual: Array  # (..., S, D) x - mean of its class
    weighted_residual: Array  # (..., S, D) the same times the root of the weight

    @abstractmethod
    def sum(self, values: Array) -> Array:
        """Sum `values` (..., S) of the examples: (...)."""

    @abstractmethod
    def total(self, values: Array) -> Array:
        """Sum `values` (..., S) of the examples over each class: (..., N)."""

    @abstractmethod
    def spread(self, values: Array) -> Array:
        """Give each example (..., S, D) the value of its class (..., N, D)."""

    @abstractmethod
    def memberships(self) -> tuple[Array, Array]:
        """The examples (..., S, D), and how often each counts in each class (..., S, N)."""

    def mapped_lengths(self, linear_map: Callable[[Array], Array]) -> Array:
        """||A r||^2 of the residuals r, mapped by A: (..., S)."""
        xp = array_namespace(self.mean)
        residual = linear_map(self.residual)
        return xp.sum(residual * residual, axis=-1)

    def average(self, values: Array) -> Array:
        """Average `values` (..., S) of the examples over each class: (..., N)."""
        return self.total(values) / positive(self.count)


MEAN_DISTANCE = (  # why a closed form may need the examples, as `Region.needs_examples` says it
    "the mean distance of fit_mode='paper' is no statistic; use 'unbiased', or mean squared distances "
    "(squared=True, radius_distance='squared')"
)


def with_examples(stats: Statistics) -> ExampleStatistics:
    """Refuse statistics whose examples were not kept."""
    if not isinstance(stats, ExampleStatistics):
        raise ConfigError(
            "this fit needs the examples themselves, and only their statistics were kept; "
            "keep the examples, or use a mode that lives on statistics, such as 'unbiased'"
        )
    return stats


@dataclass(frozen=True, eq=False)
class ClassStatistics(ExampleStatistics):
    """The statistics of a support set, or of many at once: everything by products with the matrix of memberships.

    A row whose label is negative is padding: it takes part in nothing, whatever it holds. A class without examples has
    count 0 and mean 0.
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
        """x - mean of its class (..., S, D); 0 for padding. From differences, so that one example gives exactly 0."""
        return self.support - self.member @ self.mean

    @cached_property
    def squares(self) -> Array:
        """Sum over each class of ||x - mean||^2: (..., N)."""
        xp = array_namespace(self.support)
        return self.total(xp.sum(self.residual * self.residual, axis=-1))

    @cached_property
    def energy(self) -> Array:
        """Sum of ||x||^2, the scale below which scatter is rounding error: (...)."""
        xp = array_namespace(self.support)
        return xp.sum(self.support * self.support, axis=(-2, -1))

    @property
    def weighted_residual(self) -> Array:
        """The residual: every example counts once."""
        return self.residual

    def sum(self, values: Array) -> Array:
        """Sum over the examples; padding must hold 0."""
        xp = array_namespace(values)
        return xp.sum(values, axis=-1)

    def total(self, values: Array) -> Array:
        """Sum over each class."""
        return sum_by_class(self.member, values)

    def spread(self, values: Array) -> Array:
        """Give each example the value of its class; padding gets 0."""
        return self.member @ values

    def memberships(self) -> tuple[Array, Array]:
        """As they are; padding counts in no class."""
        return self.support, self.member


@dataclass(frozen=True, eq=False)
class FlatStatistics(ExampleStatistics):
    """Statistics of N classes, and the examples they are of, however many: no array here has the size (S, N)."""

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
        """x - mean of its class (S, D), in float64."""
        return self.rows - self.mean[self.labels]

    @cached_property
    def weighted_residual(self) -> Doubles:
        """The residual times the root of the weight."""
        return self.residual if (self.weights == 1).all() else self.residual * np.sqrt(self.weights)[:, None]

    def mapped_lengths(self, linear_map: Callable[[Doubles], Doubles]) -> Doubles:
        """||A r||^2 of the residuals, in blocks."""
        lengths = np.empty(len(self.rows))
        for start in range(0, len(lengths), MANY):
            residual = linear_map(self.residual[start : start + MANY])
            lengths[start : start + MANY] = np.sum(residual * residual, axis=-1)
        return lengths

    @cached_property
    def length(self) -> Doubles:
        """||mean|| of each class (N,)."""
        length: Doubles = np.linalg.norm(self.mean, axis=-1)
        return length

    @cached_property
    def lengths(self) -> Doubles:
        """||x - mean of its class||^2 (S,)."""
        lengths: Doubles = np.vecdot(self.residual, self.residual)
        return lengths

    def sum(self, values: Doubles) -> Any:
        """Sum over the examples."""
        return self.weights @ values

    def total(self, values: Doubles) -> Doubles:
        """Sum over each class."""
        return sum_by_label(self.labels, self.weights * values, len(self.count))

    def spread(self, values: Floats) -> Floats:
        """Give each example the value of its class."""
        return values[self.labels]

    def memberships(self) -> tuple[Floats, Floats]:
        """The one array here of the size (S, N), in the precision of the rows."""
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


def pooled_scatter(squares: Array, count: Array) -> Array:
    """v = SS / (n - N), the within-class scatter of all classes together, 0 if no class has two examples: (...)."""
    xp = array_namespace(squares)
    spare = xp.sum(at_least(count - 1, 0.0), axis=-1)  # an empty class costs no degree of freedom
    return xp.sum(squares, axis=-1) / at_least(spare, 1.0)


def class_scatter(squares: Array, count: Array) -> Array:
    """v_n = SS_n / (K_n - 1); a class of fewer than two examples takes the pooled scatter: (..., N)."""
    xp = array_namespace(squares)
    return xp.where(count > 1, squares / at_least(count - 1, 1.0), pooled_scatter(squares, count)[..., None])


def scatter_weight(count: Array) -> Array:
    """Return the posterior weight of a class's own scatter, (K - 1) / (K - 1 + 16); the rest is the pooled scatter."""
    spare = at_least(count - 1, 0.0)
    return spare / (spare + PRIOR_EXAMPLES)


def shrunk_scatter(own: Array, pooled: Array, count: Array) -> Array:
    """Scatter of each class as far as its examples can tell, and the pooled one for the rest: (..., N)."""
    weight = scatter_weight(count)
    return weight * own + (1 - weight) * pooled


def extent_radius(squares: Array, count: Array) -> Array:
    """How far a class reaches: extent^2 = v_n (1 + 1/K_n), the mean squared distance of a new example to the centre.

    It is 0 where no class has two examples: nothing is known about reach then.
    """
    return root(class_scatter(squares, count) * (1 + 1 / at_least(count, 1.0)))


def far_middle(moments: Moments) -> Doubles | None:
    """The middle (D,) of classes that lie far from 0 for their spread; None if they do not. NumPy only.

    Squares of x then hold little of x - z: about the middle they hold all of it. Its numbers are those of float32, so
    that subtracting it from rows of either precision, which lie about it, loses nothing.
    """
    middle = moments.mean.mean(axis=0)
    away = moments.mean - middle
    spread = (moments.squares.sum() + moments.count @ np.vecdot(away, away)) / moments.count.sum()
    if middle @ middle <= FAR**2 * spread:
        return None
    largest = float(np.finfo(np.float32).max)
    found: Doubles = np.where(np.abs(middle) < largest, np.clip(middle, -largest, largest).astype(np.float32), middle)
    return found


# Sums of many rows in plain NumPy, by index: in two passes, sums by sparse products, then squares about the means.


def moments_of(rows: Floats, labels: Indices, weights: Doubles | None, way: int) -> Moments:
    """Count, mean and squares of each class in float64; labels are from 0 to way - 1."""
    count, mean = means_of(rows, labels, weights, way)
    return Moments(count, mean, squares_about(mean, rows, labels, weights))


def means_of(rows: Floats, labels: Indices, weights: Doubles | None, way: int) -> tuple[Doubles, Doubles]:
    """Count (N,) and mean (N, D) of each class, in float64.

    Sparse products are fast in the type of the rows. So that float32 loses nothing, they sum few rows of a class at a
    time, and what they sum lies about the origin.
    """
    if not len(rows):
        return np.zeros(way), np.zeros((way, rows.shape[1]))
    count = sum_by_label(labels, weights, way)
    middle = _middle(rows)
    sums = _sums(rows, middle, labels, weights, way)
    return count, sums / np.where(count > 0, count, 1.0)[:, None] + middle * (count > 0)[:, None]


def squares_about(mean: Doubles, rows: Floats, labels: Indices, weights: Doubles | None) -> Doubles:
    """Sum over each class of ||x - mean||^2 (N,), `mean` being theirs."""
    near, way = mean.astype(rows.dtype), len(mean)
    squares = np.zeros(way)
    room = np.empty((min(BLOCK, len(rows)), rows.shape[1]), rows.dtype)  # one for all blocks: fresh memory costs time
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        difference = room[: len(labels[part])]
        np.take(near, labels[part], axis=0, out=difference, mode="clip")
        np.subtract(rows[part], difference, out=difference)
        lengths = np.vecdot(difference, difference)
        squares += sum_by_label(labels[part], lengths if weights is None else weights[part] * lengths, way)
    rounded = mean - near
    rounding = sum_by_label(labels, weights, way) * np.vecdot(rounded, rounded)
    exact: Doubles = np.maximum(squares - rounding, 0.0)
    return exact


def sum_by_label(labels: Indices, values: Doubles | None, way: int) -> Doubles:
    """Sum a number of each row, or count the rows, by label (N,)."""
    return np.bincount(labels, values, way).astype(np.float64, copy=False)


def covering_radii(distances: Doubles, labels: Indices, weights: Doubles | None, way: int, share: float) -> Doubles:
    """The least radius (N,) within which a `share` of each class's own examples lies; `distances` (S,) to its centre.

    This is what a picture shows of a class: a quantile, not a root mean square. A class without examples has 0.
    """
    weights = np.ones(len(labels)) if weights is None else weights
    order = np.argsort(distances, kind="stable")
    radii = np.zeros(way)
    for label in range(way):
        own = order[labels[order] == label]
        if len(own):
            reached = np.cumsum(weights[own])
            place = int(np.searchsorted(reached, share * reached[-1] * (1 - NOTHING)))
            radii[label] = distances[own[min(place, len(own) - 1)]]
    return radii


def _middle(rows: Floats) -> Floats:
    """A point that float32 rows lie about, or 0 if that is near enough: moving them takes time."""
    sample = rows[:: max(1, len(rows) // SAMPLE)].astype(np.float64)
    middle = sample.mean(axis=0)
    far = rows.dtype != np.float64 and middle @ middle > 4 * np.vecdot(sample - middle, sample - middle).mean()
    found: Floats = (middle if far else np.zeros_like(middle)).astype(rows.dtype)
    return found


def _sums(rows: Floats, middle: Floats, labels: Indices, weights: Doubles | None, way: int) -> Doubles:
    """Sum rows less `middle` over each class (N, D), as exact as float64, whatever the type of the rows."""
    from scipy.sparse import csr_array  # only estimators come here: the equations do not wait for it

    sums = np.zeros((way, rows.shape[1]))
    start = 0
    while start < len(rows):
        size = max(FEW * way, BLOCK)
        heavy = rows.dtype != np.float64 and np.bincount(labels[start : start + size]).max() > 8 * FEW
        part = slice(start, start + (max(BLOCK, way) if heavy else size))
        block = rows[part].astype(np.float64) if heavy else rows[part]  # too many of one class for float32
        block = block - middle if middle.any() else block
        values = np.ones(len(block), block.dtype) if weights is None else weights[part].astype(block.dtype)
        member = csr_array((values, labels[part], np.arange(len(block) + 1)), shape=(len(block), way))
        sums += member.T @ block
        start = part.stop
    return sums
