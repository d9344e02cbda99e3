"""Soft k-means prototypes: class means refined by unlabelled examples."""

from math import log
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import LEAST_TEMPERATURE
from hyperproto.methods.parts import masked_softmax
from hyperproto.methods.protonet import ProtoNet
from hyperproto.methods.task import Task
from hyperproto.regions.arrays import squared_distance


class SoftKMeans(ProtoNet):
    """Ren et al., "Meta-Learning for Semi-Supervised Few-Shot Classification", ICLR 2018: refined prototypes.

    Prototypes start as the class means, p_n. An unlabelled example u has responsibilities
    `z_un ~ exp(-scale ||u - p_n||^2)`, by which it counts in the means beside the support:

        p_n = (sum of the support of n + sum_u z_un u) / (K_n + sum_u z_un)

    This is repeated `steps` times. The score of a query is minus its squared distance to p_n, as in ProtoNet. The paper
    has `scale = 1` for vectors trained with it; 50 suits vectors of length 1. `distractors=True` adds a cluster for
    examples of none of the classes (section 3.1.2): `z ~ exp(-scale ||u - m||^2 / radius^2 - log radius)`. In the paper
    m is the origin and the radius is learned; here m is the mean of the unlabelled examples and the radius an option
    (0.8, as 50, was chosen on HWU64's `valid` split, with and without distractors). Without unlabelled examples this is
    ProtoNet. A class without support has no responsibilities.
    """

    uses_evidence = frozenset({"unlabelled"})

    def __init__(
        self, *, scale: float = 50.0, steps: int = 1, distractors: bool = False, radius: float = 0.8, **options: Any
    ) -> None:
        super().__init__(**options)
        for name, value in {"scale": scale, "radius": radius}.items():
            if not LEAST_TEMPERATURE <= value <= 1 / LEAST_TEMPERATURE:
                raise ConfigError(f"{name} {value} must be a number above 0, such as 1.0")
        if steps < 1:
            raise ConfigError(f"steps {steps} must be at least 1")
        self.scale, self.steps, self.distractors, self.radius = scale, steps, distractors, radius

    def _means(self, task: Task) -> Tensor:
        """Return the refined prototypes, (B, N, D)."""
        found = super()._means(task)
        if task.unlabelled is None:
            return found
        rows = task.unlabelled
        count = task.counts()[..., None].to(rows)  # (B, N, 1)
        total = count * found
        for _ in range(self.steps):
            shares = self._shares(rows, found, count.mT > 0)  # (B, U, N)
            size = count + shares.sum(1)[..., None]
            found = (total + shares.mT @ rows) / size.where(size > 0, 1.0)
        return found

    def _shares(self, rows: Tensor, center: Tensor, real: Tensor) -> Tensor:
        """Return the responsibilities (B, U, N) of rows (B, U, D); `real` (B, 1, N) marks classes with support."""
        logits = -self.scale * squared_distance(rows, center)
        if self.distractors:
            away = squared_distance(rows, rows.mean(1, keepdim=True))  # (B, U, 1)
            logits = torch.cat([logits, -self.scale * away / self.radius**2 - log(self.radius)], -1)
            real = F.pad(real, (0, 1), value=True)
        return masked_softmax(logits, real)[..., : center.shape[1]]
