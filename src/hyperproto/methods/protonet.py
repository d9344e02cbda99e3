"""Prototypical networks: a class is the mean of its support."""

from typing import Any

import torch
from torch import Tensor

from hyperproto.methods.base import Method
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics, Point, Sphere


class ProtoNet(Method):
    """Snell et al., "Prototypical Networks for Few-shot Learning", 2017: minus the squared distance to the mean.

    `squared=False` takes the distance itself, a variant that changes the scale of the logits more than the geometry.
    """

    def __init__(self, *, squared: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.squared = squared

    def scores(self, task: Task) -> Tensor:
        """Score by the distance of each query to each mean."""
        task = task.centred()
        center = ClassStatistics.of(task.support, task.support_y, task.way).mean  # (B, N, D)
        if not self.squared:
            distance: Tensor = Point(center, squared=False).measure(task.query)
            return -distance
        weights, bias = Sphere(center).linear()  # minus the squared distance, up to a term that all classes share
        return torch.baddbmm(bias[:, None, :], task.query, weights)  # (B, Q, N)
