"""Classes as points: the mean of the support (Prototypical Networks, Snell et al. 2017)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from hyperproto.errors import ConfigError
from hyperproto.regions.arrays import Array, Doubles, Indices, root, squared_distance
from hyperproto.regions.base import ClosedForm, LinearForm, Region, check_mode
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import ClassStatistics, Statistics, extent_radius


@dataclass(frozen=True, eq=False)
class Point(Region):
    """Prototypes z_n, with M(x) = ||x - z_n||^2, or ||x - z_n|| if not `squared`."""

    modes: ClassVar[tuple[str, ...]] = ("point",)

    center: Array
    extent_radius: Array = None
    squared: bool = True
    bias_radius: Array = field(init=False, default=None)  # zeros

    def __post_init__(self) -> None:
        """Set the radii to 0."""
        self._fill("bias_radius")

    @classmethod
    def fit(cls, support: Array, labels: Array, way: int, *, mode: str = "point", squared: bool = True) -> Self:
        """Take the mean of each class."""
        check_mode(cls, mode)
        return cls.from_statistics(ClassStatistics.of(support, labels, way), mode=mode, squared=squared)

    @classmethod
    def from_statistics(cls, stats: Statistics, *, mode: str = "point", squared: bool = True) -> Self:
        """Take the means of the statistics."""
        check_mode(cls, mode)
        return cls(stats.mean, extent_radius(stats.squares, stats.count), squared)

    @classmethod
    def options(cls, mode: str) -> tuple[str, ...]:
        """Name the form of the measure."""
        return ("squared",)

    @classmethod
    def needs_examples(cls, mode: str, **options: Any) -> str | None:
        """Return None: means are enough."""
        return None

    def measure(self, x: Array) -> Array:
        """Return the distance to each centre (..., Q, N), squared or not."""
        return self.measure_at(squared_distance(x, self.center))

    def measure_at(self, distance2: Array) -> Array:
        """Return the measure at squared distances (..., Q, N)."""
        return distance2 if self.squared else root(distance2)

    def distance(self, x: Array) -> Array:
        """Return ||x - z_n|| (..., Q, N)."""
        return root(squared_distance(x, self.center))

    @property
    def is_linear(self) -> bool:
        """True if the measure is linear in x: true if `squared`."""
        return self.squared

    def linear(self, middle: Array = None) -> LinearForm:
        """Return weights and bias with x @ weights + bias = ||x||^2 - M(x)."""
        if not self.squared:
            raise ConfigError("only the squared measure is linear in x up to a common term; fit with squared=True")
        return LinearForm.of_distances(self.center, self.bias_radius, middle=middle)

    def left_out(self, out: LeftOut, index: Indices, form: ClosedForm, fair: bool = False) -> Doubles:
        """Measure each example to the means without it; if `fair`, without the bias of a mean of K - 1."""
        measured: Doubles = self.measure_at(out.squared_distances(index, fair))
        return measured
