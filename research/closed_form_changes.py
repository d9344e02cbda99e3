"""A change of the closed form `bayes`, as a method: tried, measured, and not adopted (results/relations/relations.md).

    hyperproto compare --data fewrel --split val_wiki --encoder relation-transformer:minilm --transform unit \\
        --fit bayes --method hyperproto --method research/closed_form_changes.py:Predictive --shot 1 --shot 5
"""

from typing import Any

import torch
from torch import Tensor

from hyperproto.methods import Task
from hyperproto.methods.hyperproto import HyperProto
from hyperproto.regions import ClassStatistics
from hyperproto.regions.bayes import left_out_scatter


class Predictive(HyperProto):
    """HyperProto scored by the posterior predictive density, which has the tails of Student's t.

    M = (1 + h) log(1 + (||A x - z||^2 - eps) / (h v (1 + r))) + log(1 + r), r = 1 / (K + k), h = 2 / (D cv^2), cv the
    coefficient of variation of leave-one-out squared distances to the own class. Not linear in x. Without leave-one-out
    distances v cannot be estimated, and the measure is that of `bayes`.
    """

    fits = ("bayes",)
    uses_evidence: Any = frozenset()

    def scores(self, task: Task) -> Tensor:
        """Return -M (B, Q, N)."""
        task = self.placed(task)
        sphere = self.fitted(task)
        stats = ClassStatistics.of(task.support, task.support_y, task.way)
        left_out = left_out_scatter(stats, sphere.whiten, sphere.gain)  # type: ignore[arg-type]
        number = torch.where(stats.count > 1, stats.count, 0.0).sum(-1).clamp(min=1)
        mean, square = stats.sum(left_out) / number, stats.sum(left_out**2) / number
        variation = ((square - mean**2) / mean.clamp(min=1e-12) ** 2).clamp(min=1e-6)  # (B,) cv^2
        h = (2 / (task.query.shape[-1] * variation))[:, None, None]
        r = (1 / (stats.count + sphere.ratio[:, None]))[:, None, :]
        measure = sphere.measure(task.query)  # (B, Q, N)
        v = sphere.scatter[:, None, None]
        known = v > 0
        inside = (measure / (h * torch.where(known, v, 1.0) * (1 + r))).clamp(min=-0.99)
        return -torch.where(known, (1 + h) * torch.log1p(inside) + torch.log1p(r), measure)
