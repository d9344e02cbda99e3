"""Random episodes as a task, for tests of methods and decisions."""

import torch

from hyperproto.methods import PAD, Task


def make_task(
    counts: tuple[int, ...] = (3, 1, 5), queries: int = 4, dim: int = 6, batch: int = 2, seed: int = 0, pads: int = 0
) -> Task:
    """Random episodes, with unequal shots and, if asked for, padding."""
    random = torch.Generator().manual_seed(seed)
    way, shots = len(counts), sum(counts)
    labels = torch.repeat_interleave(torch.arange(way), torch.tensor(counts))
    means = 2 * torch.randn(batch, way, dim, generator=random)
    support = means[:, labels] + torch.randn(batch, shots, dim, generator=random)
    query_y = torch.arange(way).repeat_interleave(queries).expand(batch, -1)
    query = means[:, query_y[0]] + torch.randn(batch, way * queries, dim, generator=random)
    support_y = labels.expand(batch, -1)
    if pads:
        support = torch.cat([support, torch.randn(batch, pads, dim, generator=random)], 1)
        support_y = torch.cat([support_y, torch.full((batch, pads), PAD)], 1)
    classes = torch.stack([torch.randperm(8, generator=random)[:way] for _ in range(batch)])
    offsets = torch.arange(way * queries + 1).expand(batch, -1)
    return Task(support, support_y, query, query_y, classes, offsets)
