"""Prototypical networks, and SimpleShot: the same on centred features of length 1 (CL2N)."""

from typing import Any

from torch import Tensor

from hyperproto.methods.base import Method
from hyperproto.methods.parts import linear_scores
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics, Point, Sphere


class ProtoNet(Method):
    """Snell et al., "Prototypical Networks for Few-shot Learning", 2017.

    The score is minus the squared distance of a query to the mean of a class's support; with `squared=False`, minus the
    distance.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})

    def __init__(self, *, squared: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.squared = squared

    def scores(self, task: Task) -> Tensor:
        """Return minus the (squared) distance of each query to each class mean, (B, Q, N)."""
        if self.squared:
            return linear_scores(task, lambda placed: Sphere(self._means(placed)))
        task = task.centred()
        distance: Tensor = Point(self._means(task), squared=False).measure(task.query)
        return -distance

    def _means(self, task: Task) -> Tensor:
        mean: Tensor = ClassStatistics.of(task.support, task.support_y, task.way).mean  # (B, N, D)
        return mean


class SimpleShot(ProtoNet):
    """Wang et al., "SimpleShot: Revisiting Nearest-Neighbor Classification for Few-Shot Learning", 2019.

    It is ProtoNet on transformed features: minus the mean of the training data (without training data, of the support),
    then scaled to length 1.
    """

    transforms = ("center-unit",)
