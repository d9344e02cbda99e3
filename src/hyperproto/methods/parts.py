"""Functions shared by several methods: masked reductions, scoring in blocks, sphere scores, dropout, class means."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hyperproto.data import OUTSIDE, Pool
from hyperproto.encoders import Features, Units
from hyperproto.encoders.parts.cache import cached_units
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics, Sphere

BLOCK_BYTES = 32 << 20  # default memory of a block of queries
LEAST_DEVIATION = 1e-10


def masked_softmax(x: Tensor, real: Tensor, dim: int = -1) -> Tensor:
    """Return the softmax over the real entries of an axis; all others are 0."""
    share = x.masked_fill(~real, -torch.inf).softmax(dim)
    return share.masked_fill(~real.any(dim, keepdim=True), 0.0)


def masked_mean(x: Tensor, real: Tensor, dim: int) -> Tensor:
    """Return the mean of the real entries of an axis; 0 if there are none."""
    return x.masked_fill(~real, 0.0).sum(dim) / real.sum(dim).clamp(min=1)


def masked_max(x: Tensor, real: Tensor, dim: int) -> Tensor:
    """Return the maximum of the real entries of an axis; 0 if there are none."""
    return x.masked_fill(~real, -torch.inf).amax(dim).masked_fill(~real.any(dim), 0.0)


def in_blocks(
    score: Callable[[Tensor], Tensor], query: Tensor, values_a_query: int, *, most_bytes: int | None = None
) -> Tensor:
    """Return `score(query)`, (B, Q, ...) for queries (B, Q, ...), computed in blocks of queries to bound the memory.

    `values_a_query` is the number of intermediate values of `score` for one query, such as S times D. A block needs at
    most `most_bytes` (default BLOCK_BYTES), but has at least one query of each episode. With gradients, only results
    are kept and the backward pass recomputes each block (checkpointing), so that the bound holds there too. The score
    of a query must not depend on other queries.
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
    """Fit spheres to a task and return scores (B, Q, N) by one matrix product.

    A score is minus the measure, up to a term that all classes share. For precision, spheres are fitted to the support
    minus its mean; the bias is shifted back, so that the queries need not be moved.
    """
    middle = task.middle()  # (B, 1, D)
    moved = replace(task, support=task.support - middle, evidence=task.evidence.shifted(middle))
    form = fit(moved).linear().shifted(middle)
    return torch.baddbmm(form.bias[:, None, :], task.query, form.weights)


class Dropout(nn.Module):
    """Dropout whose random numbers are faster on a CPU than those of torch.

    In training, coordinates are set to 0 with probability `rate`, and the others scaled by 1 / (1 - rate).
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.keep = 1 - rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop coordinates of x with a new random mask."""
        if not self.training or self.keep == 1:
            return x
        return x * torch.rand_like(x).lt_(self.keep).div_(self.keep)


@torch.no_grad()
def class_means(pool: Pool, features: Features) -> Tensor:
    """Return the mean over all units of each class, (n_labels, D), encoded in eval mode and transformed.

    Where items have many units, those of no class form the class O, the last row. A class without units has mean 0.
    """
    encoder = features.encoder

    def encode() -> Units:
        return encoder.encode_all(features.prepared(pool))

    # training stores the same vectors of a frozen encoder, so they are read from its cache
    x = features.transform((cached_units(encoder, pool, None, encode) if encoder.frozen else encode()).x)
    outside = OUTSIDE if pool.outside_row is None else pool.outside_row
    labels = torch.from_numpy(np.where(pool.labels == OUTSIDE, outside, pool.labels)).to(x.device)
    means: Tensor = ClassStatistics.of(x, labels, pool.n_labels).mean
    return means


def weight_deviation(raw: Tensor) -> tuple[Tensor, Tensor]:
    """Return the deviation of sampled weights (..., N, D) from a network's raw output, and its derivative.

    It is exp(raw) - (1 - o), at least 1e-10, with o = sqrt(2 / (N + D)), so that its initial value is near o.
    """
    offset = math.sqrt(2 / sum(raw.shape[-2:]))
    grown = raw.exp()
    plain = grown - (1 - offset)
    return plain.clamp(min=LEAST_DEVIATION), grown * (plain > LEAST_DEVIATION)
