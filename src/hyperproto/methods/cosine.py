"""Cosine prototypes: the strong simple baseline."""

from torch import Tensor

from hyperproto.methods.base import Method
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics
from hyperproto.regions.arrays import unit


class Cosine(Method):
    """The cosine of the angle between a query and the mean of a class's support, at temperature 0.1 in training.

    Gidaris & Komodakis 2018; Chen et al., "Meta-Baseline", 2021.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})
    start_temperature = 0.1

    def scores(self, task: Task) -> Tensor:
        """Cosine of each query with each mean."""
        center = ClassStatistics.of(task.support, task.support_y, task.way).mean  # (B, N, D)
        cosine: Tensor = unit(task.query) @ unit(center).mT
        return cosine

    def doubt(self, task: Task, scores: Tensor) -> Tensor:
        """Minus the largest cosine. It has a meaning of its own, and tells more than its softmax at any temperature."""
        return -scores.amax(-1)
