"""Work on (B, Q, S, ...) tensors in blocks of queries, so that memory stays below a bound, forward and backward."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hyperproto.methods.task import Task
from hyperproto.regions import Sphere


def masked_softmax(x: Tensor, real: Tensor, dim: int = -1) -> Tensor:
    """Softmax over the real entries of an axis; the others get 0, and so does a row without any."""
    share = x.masked_fill(~real, -torch.inf).softmax(dim)
    return share.masked_fill(~real.any(dim, keepdim=True), 0.0)


def masked_mean(x: Tensor, real: Tensor, dim: int) -> Tensor:
    """Mean of the real entries of an axis; 0 where there are none."""
    return x.masked_fill(~real, 0.0).sum(dim) / real.sum(dim).clamp(min=1)


def masked_max(x: Tensor, real: Tensor, dim: int) -> Tensor:
    """Maximum of the real entries of an axis; 0 where there are none."""
    return x.masked_fill(~real, -torch.inf).amax(dim).masked_fill(~real.any(dim), 0.0)


BLOCK_BYTES = 32 << 20


def in_blocks(
    score: Callable[[Tensor], Tensor], query: Tensor, values_a_query: int, *, most_bytes: int | None = None
) -> Tensor:
    """Return `score(query)`, (B, Q, ...) for queries (B, Q, ...), computed for some queries at a time.

    `values_a_query` is how many numbers `score` holds at once for one query: S times D where it compares the query with
    every support example coordinate by coordinate. A block holds at most `most_bytes` of them (BLOCK_BYTES), but at
    least one query of each episode. Where gradients are needed nothing of a block but its result is kept: the backward
    pass computes it again, block by block, so that the bound holds there too. Queries must not depend on each other.
    """
    held = max(1, query.shape[0] * values_a_query * query.element_size())
    size = max(1, (BLOCK_BYTES if most_bytes is None else most_bytes) // held)
    if size >= query.shape[1]:
        return score(query)
    blocks = torch.split(query, size, dim=1)
    if not torch.is_grad_enabled():
        return torch.cat([score(block) for block in blocks], 1)
    again = [checkpoint(score, block, use_reentrant=False) for block in blocks]
    return torch.cat([block for block in again if isinstance(block, Tensor)], 1)


def linear_scores(task: Task, fit: Callable[[Task], Sphere]) -> Tensor:
    """Fit spheres to a task and score the queries, (B, Q, N).

    The spheres are fitted around the support's middle, so that their weights are small however far away the origin is;
    the queries, most of the data, need not move for that: the bias does.
    """
    middle = task.middle()  # (B, 1, D)
    moved = replace(task, support=task.support - middle, evidence=task.evidence.shifted(middle))
    form = fit(moved).linear().shifted(middle)
    return torch.baddbmm(form.bias[:, None, :], task.query, form.weights)


class Dropout(nn.Module):
    """Set coordinates to 0 with probability `rate` in training, and scale the others by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.keep = 1 - rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop coordinates of x, with a new mask each time."""
        if not self.training or self.keep == 1:
            return x
        return x * torch.rand_like(x).lt_(self.keep).div_(self.keep)
