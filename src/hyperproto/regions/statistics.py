"""What a support set says about its classes: counts, means, and scatter about the means."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from array_api_compat import array_namespace, device

from hyperproto.errors import DataError
from hyperproto.regions.arrays import Array, at_least, positive, root


class Statistics(ABC):
    """What a region is fitted to: three numbers a class, and, where the examples are at hand, their place in them.

    The three can be kept up to date one example at a time (see `hyperproto.regions.moments`) and are all that most fit
    modes need. An example of weight w counts as w examples.
    """

    count: Array  # (..., N) examples, or the sum of their weights
    mean: Array  # (..., N, D)
    squares: Array  # (..., N) sum over each class of ||x - mean||^2
    residual: Array  # (..., S, D) x - mean of its class
    weighted_residual: Array  # (..., S, D) the same times the root of the weight

    has_examples = True  # whether `residual` and what follows from it can be had

    @abstractmethod
    def sum(self, values: Array) -> Array:
        """Sum `values` (..., S) of the examples: (...)."""

    @abstractmethod
    def total(self, values: Array) -> Array:
        """Sum `values` (..., S) of the examples over each class: (..., N)."""

    @abstractmethod
    def spread(self, values: Array) -> Array:
        """Give each example (..., S, D) the value of its class (..., N, D)."""

    def average(self, values: Array) -> Array:
        """Average `values` (..., S) of the examples over each class: (..., N)."""
        return self.total(values) / positive(self.count)

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
class ClassStatistics(Statistics):
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


def extent_radius(squares: Array, count: Array) -> Array:
    """How far a class reaches: extent^2 = v_n (1 + 1/K_n), the mean squared distance of a new example to the centre.

    It is 0 where no class has two examples: nothing is known about reach then.
    """
    return root(class_scatter(squares, count) * (1 + 1 / at_least(count, 1.0)))
