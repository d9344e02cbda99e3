"""Nearest neighbour."""

import torch
from torch import Tensor

from hyperproto.methods.base import Method
from hyperproto.methods.parts import in_blocks
from hyperproto.methods.task import Task


class NearestNeighbour(Method):
    """Nearest neighbour: the score is minus the squared distance to the nearest support example of a class."""

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})

    def scores(self, task: Task) -> Tensor:
        """Return minus the smallest squared distance to the examples of each class, (B, Q, N)."""
        task = task.centred()
        squares = (task.support * task.support).sum(-1)  # (B, S)

        def nearest(query: Tensor) -> Tensor:
            near = 2 * query @ task.support.mT - squares[:, None, :]  # (B, Q, S); ||query||^2 is common to all classes
            classes = torch.arange(task.way, device=near.device)
            best = [near.masked_fill((task.support_y != n)[:, None, :], -torch.inf).amax(-1) for n in classes]
            return torch.stack(best, -1) - (query * query).sum(-1, keepdim=True)

        return in_blocks(nearest, task.query, 2 * task.support.shape[1])
