"""Prototypical networks: a class is the mean of its support."""

from typing import Any

from torch import Tensor

from hyperproto.methods.base import Method
from hyperproto.methods.task import Task
from hyperproto.regions import Point


class ProtoNet(Method):
    """Snell et al., "Prototypical Networks for Few-shot Learning", 2017: minus the squared distance to the mean.

    `squared=False` takes the distance itself, a variant that changes the scale of the logits more than the geometry.
    """

    def __init__(self, *, squared: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.squared = squared

    def scores(self, task: Task) -> Tensor:
        """Minus the distance of each query to each mean."""
        point = Point.fit(task.support, task.support_y, task.way, squared=self.squared)
        scores: Tensor = -point.measure(task.query)
        return scores
