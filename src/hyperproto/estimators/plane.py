"""Classes in two dimensions: the plane in which their means lie farthest apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.regions.arrays import Doubles, Indices
from hyperproto.regions.statistics import FlatStatistics, extent_radius, moments_of


@dataclass(frozen=True, eq=False)
class Plane:
    """Some classes, projected. A distance here is not one in the space, so the extents are those in the plane."""

    classes: Indices  # (M,) which classes these are
    means: Doubles  # (M, 2)
    extents: Doubles  # (M,)
    examples: NDArray[Any]  # (S, 2), those of these classes
    labels: Indices  # (S,) from 0 to M - 1
    numbers: NDArray[np.int64]  # (S,) which examples they are

    @classmethod
    def of(cls, stats: FlatStatistics, numbers: NDArray[np.int64], classes: Indices) -> "Plane":
        """Project on the first two principal axes of the means, or, if there are not as many, of the examples."""
        means = stats.mean[classes]
        middle = means.mean(axis=0)
        place = np.full(len(stats.count), -1)
        place[classes] = np.arange(len(classes))
        labels = place[stats.labels]
        here = labels >= 0
        axes = _axes(means - middle, 2)
        if len(axes) < 2:
            rest = stats.residual[here] - stats.residual[here] @ axes.T @ axes
            axes = np.vstack([axes, _axes(rest, 2 - len(axes))])
        if len(axes) < 2:  # the space itself is smaller, or there is one point
            axes = np.vstack([axes, np.zeros((2 - len(axes), means.shape[1]))])
        examples = (stats.rows[here] - middle) @ axes.T
        flat = moments_of(examples, labels[here], stats.weights[here], len(classes))
        extents = extent_radius(flat.squares, flat.count)
        return cls(classes, flat.mean, extents, examples, labels[here], numbers[here])


def _axes(rows: Doubles, most: int) -> Doubles:
    """The first principal axes of rows, only those along which they differ."""
    _, size, axes = np.linalg.svd(rows, full_matrices=False)
    found: Doubles = axes[:most][size[:most] > 1e-9 * size[0]]
    return found
