"""Nearest neighbour; NNShot, the same for words in bounded memory; StructShot, NNShot with Viterbi decoding."""

from typing import ClassVar

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


class NNShot(Method):
    """Yang & Katiyar, "Simple and Effective Few-Shot Named Entity Recognition with Structured Nearest Neighbor
    Learning", EMNLP 2020.

    The score of a word is minus its squared distance to the nearest support word of each class, as in `nearest`, but
    computed for thousands of words: in blocks of queries, by one matrix product each, keeping only the nearest word of
    each class. A class without support has the score -inf.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})

    def scores(self, task: Task) -> Tensor:
        """Return the scores (B, Q, N), computed episode by episode."""
        task = task.centred()
        episodes = zip(task.query, task.support, task.support_y, strict=True)
        return torch.stack([self._episode(*episode, task.way) for episode in episodes])

    def _episode(self, query: Tensor, support: Tensor, labels: Tensor, way: int) -> Tensor:
        """Score the queries (Q, D) of one episode, (Q, N)."""
        labels, order = labels.sort(stable=True)  # padding first, then the classes in order
        order = order[labels >= 0]
        support = support[order]  # (S, D)
        counts = torch.bincount(labels[labels >= 0], minlength=way).tolist()
        largest = max(len(support), way * support.shape[1])

        def scores(block: Tensor) -> Tensor:
            nearest = support[_nearest(block[0].detach(), support.detach(), counts)]  # (rows, N, D)
            return -((block[0, :, None] - nearest) ** 2).sum(-1)[None]

        empty = torch.tensor([not count for count in counts], device=query.device)
        return in_blocks(scores, query[None], largest)[0].masked_fill(empty, -torch.inf)


class StructShot(NNShot):
    """Yang & Katiyar, EMNLP 2020: NNShot's probabilities and abstract transitions, decoded by Viterbi.

    It is NNShot with the decision `path = true`, which every method can use. `tau` is the exponent of the transition
    probabilities, `temperature` that of the words' softmax; tune both on validation data. The Few-NERD toolkit has

    | episodes | tau |
    | 1~2 shots | 0.32 |
    | 5-way 5~10 shots | 0.318 |
    | 10-way 5~10 shots | 0.434 |
    """

    decision: ClassVar = {"path": True, "tau": 0.32}


def _nearest(query: Tensor, support: Tensor, counts: list[int]) -> Tensor:
    """Return the nearest support word of each class, (rows, N); support is sorted by class, `counts` words each."""
    squares = (support * support).sum(-1)
    near = torch.addmm(squares, query, support.mT, beta=-1, alpha=2)  # (rows, S); ||query||^2 is common to all
    index, start = [], 0
    for part in torch.split(near, counts, dim=1):
        index.append(start + part.argmax(1) if part.shape[1] else torch.zeros_like(near[:, 0], dtype=torch.long))
        start += part.shape[1]
    return torch.stack(index, -1)
