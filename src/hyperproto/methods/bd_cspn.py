"""BD-CSPN: cosine prototypes rectified by unlabelled examples."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hyperproto.errors import ConfigError
from hyperproto.methods.base import LEAST_TEMPERATURE
from hyperproto.methods.cosine import Cosine
from hyperproto.methods.parts import masked_softmax
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics
from hyperproto.regions.arrays import unit


class BDCSPN(Cosine):
    """Liu, Song and Qin, "Prototype Rectification for Few-Shot Learning", ECCV 2020.

    All vectors have length 1, and a prototype P_n is the mean of its support. Two of its biases are reduced:

    - Cross-class bias: unlabelled examples and queries are shifted by the mean of the support minus the mean of the
      unlabelled examples. The mean of the support is that of the class means, so that classes with more examples have
      no larger weight; at equal shots there is no difference.
    - Intra-class bias: each unlabelled example is assigned to the class of the largest cosine, and up to `top` examples
      of each class with the largest cosines join its support. The new prototype is the mean of these rows x, weighted
      by the softmax over them of `scale cos(x, P_n)`.

    The score of a query is its cosine with the new prototype. In the paper the unlabelled examples are the queries.
    Without unlabelled examples the method is `cosine` on vectors of length 1.
    """

    uses_evidence = frozenset({"unlabelled"})

    def __init__(self, *, scale: float = 10.0, top: int = 8, **options: Any) -> None:
        super().__init__(**options)
        if not LEAST_TEMPERATURE <= scale <= 1 / LEAST_TEMPERATURE:
            raise ConfigError(f"scale {scale} must be a number above 0, such as 10.0")
        if top < 1:
            raise ConfigError(f"top {top} must be at least 1")
        self.scale, self.top = scale, top

    def scores(self, task: Task) -> Tensor:
        """Return the cosine of each shifted query with each rectified prototype, (B, Q, N)."""
        task = replace(task, support=unit(task.support))
        if task.unlabelled is None or not task.unlabelled.shape[1]:
            return super().scores(task)
        rows = unit(task.unlabelled)
        stats = ClassStatistics.of(task.support, task.support_y, task.way)
        there = (stats.count > 0)[..., None]  # (B, N, 1)
        shift = stats.mean.sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1) - rows.mean(1, keepdim=True)
        prototypes = self._rectified(stats, rows + shift)
        cosine: Tensor = unit(unit(task.query) + shift) @ unit(prototypes).mT
        return cosine

    def _rectified(self, stats: ClassStatistics, rows: Tensor) -> Tensor:
        """Return prototypes (B, N, D) of the support and shifted unlabelled rows (B, U, D)."""
        there = (stats.count > 0)[:, None]  # (B, 1, N)
        near = (unit(rows) @ unit(stats.mean).mT).masked_fill(~there, -torch.inf)  # (B, U, N)
        classes = torch.arange(near.shape[-1], device=near.device)
        own = (near.argmax(-1, keepdim=True) == classes) & there
        near, place = near.masked_fill(~own, -torch.inf).mT.topk(min(self.top, rows.shape[1]))  # (B, N, Z)
        support = (unit(stats.support) @ unit(stats.mean).mT).mT  # (B, N, S)
        cosine = torch.cat([support, near], -1)
        taken = torch.cat([stats.member.mT > 0, near > -torch.inf], -1)
        weight = masked_softmax(self.scale * cosine, taken)  # (B, N, S + Z)
        labelled, joined = weight[..., : support.shape[-1]], weight[..., support.shape[-1] :]
        shares = torch.zeros_like(own.mT, dtype=rows.dtype).scatter(-1, place, joined)  # (B, N, U)
        prototypes: Tensor = labelled @ stats.support + shares @ rows
        return prototypes
