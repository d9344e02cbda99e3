"""Work on (B, Q, S, ...) tensors in blocks of queries, so that memory stays below a bound, forward and backward."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

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
