"""Cosine prototypes."""

from torch import Tensor

from hyperproto.methods.base import Method
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics
from hyperproto.regions.arrays import unit


class Cosine(Method):
    """Gidaris & Komodakis 2018; Chen et al., "Meta-Baseline", 2021.

    The score is the cosine of a query and the mean of a class's support, at temperature 0.1 in training.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})
    start_temperature = 0.1

    def scores(self, task: Task) -> Tensor:
        """Return the cosine of each query with each class mean, (B, Q, N)."""
        center = ClassStatistics.of(task.support, task.support_y, task.way).mean  # (B, N, D)
        cosine: Tensor = unit(task.query) @ unit(center).mT
        return cosine

    def doubt(self, task: Task, scores: Tensor) -> Tensor:
        """Return minus the largest cosine, a better novelty score than the softmax at any temperature."""
        return -scores.amax(-1)
