"""The statistics of one support set in plain NumPy: by index where `ClassStatistics` multiplies by memberships."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.estimators.labels import IntArray
from hyperproto.estimators.sums import sum_by_label
from hyperproto.estimators.vectors import row_squares
from hyperproto.regions import Statistics


@dataclass(frozen=True, eq=False)
class FlatStatistics(Statistics):
    """Statistics of N classes, and the examples they are of, however many: nothing here has the size (S, N)."""

    count: NDArray[np.float64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    rows: NDArray[Any]  # (S, D)
    labels: IntArray  # (S,) from 0 to N - 1
    weights: NDArray[np.float64]  # (S,)

    @cached_property
    def residual(self) -> NDArray[np.float64]:
        """x - mean of its class (S, D), in float64."""
        return self.rows - self.mean[self.labels]

    @cached_property
    def weighted_residual(self) -> NDArray[np.float64]:
        """The residual times the root of the weight."""
        return self.residual if (self.weights == 1).all() else self.residual * np.sqrt(self.weights)[:, None]

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """||x - mean of its class||^2 (S,)."""
        lengths: NDArray[np.float64] = row_squares(self.residual)
        return lengths

    def sum(self, values: NDArray[np.float64]) -> Any:
        """Sum over the examples."""
        return self.weights @ values

    def total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over each class."""
        return sum_by_label(self.labels, self.weights * values, len(self.count))

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Give each example the value of its class."""
        return values[self.labels]
