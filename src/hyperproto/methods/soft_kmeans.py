"""Soft k-means prototypes: class means that unlabelled examples refine."""

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

    Prototypes start as the class means, p_n. An unlabelled example u is shared among the classes,
    `z_un ~ exp(-scale ||u - p_n||^2)`, and with its shares belongs to them as the support does:

        p_n = (sum of the support of n + sum_u z_un u) / (K_n + sum_u z_un)

    `steps` times; a query's score is minus its squared distance to p_n, as ProtoNet's. The paper has `scale = 1` for
    vectors that are trained so; 50 suits vectors of length 1. `distractors=True` adds a cluster that is no class, for
    examples of none of them (section 3.1.2): `z ~ exp(-scale ||u - m||^2 / radius^2 - log radius)`. The paper's m is
    the origin and its radius is learned; ours are the mean of the unlabelled examples, which moves with the vectors,
    and an option (0.8, as 50, is from intents of HWU64's `valid` split, with and without strangers). Without unlabelled
    examples this is ProtoNet. A class without support takes no shares.
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
        """The refined prototypes, (B, N, D)."""
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
        """How much of each row (B, U, D) belongs to each class, (B, U, N); `real` (B, 1, N) says which have support."""
        logits = -self.scale * squared_distance(rows, center)
        if self.distractors:
            away = squared_distance(rows, rows.mean(1, keepdim=True))  # (B, U, 1)
            logits = torch.cat([logits, -self.scale * away / self.radius**2 - log(self.radius)], -1)
            real = F.pad(real, (0, 1), value=True)
        return masked_softmax(logits, real)[..., : center.shape[1]]
