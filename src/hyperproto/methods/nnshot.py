"""NNShot, nearest neighbour by token in bounded memory; StructShot, the same with the best path of labels."""

from typing import ClassVar

import torch
from torch import Tensor

from hyperproto.methods.base import Method
from hyperproto.methods.parts import in_blocks
from hyperproto.methods.task import Task


class NNShot(Method):
    """Minus the squared distance of a word to the nearest support word of each class.

    Yang & Katiyar, "Simple and Effective Few-Shot Named Entity Recognition with Structured Nearest Neighbor Learning",
    EMNLP 2020. The same scores as `nearest`, but made for thousands of words: the distances of a block of queries are
    one matrix product, and only the nearest word of each class is remembered. A class without support scores -inf.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})

    def scores(self, task: Task) -> Tensor:
        """Score episode by episode: there are enough words in each."""
        task = task.centred()
        episodes = zip(task.query, task.support, task.support_y, strict=True)
        return torch.stack([self._episode(*episode, task.way) for episode in episodes])

    def _episode(self, query: Tensor, support: Tensor, labels: Tensor, way: int) -> Tensor:
        """Score the queries (Q, D) of one episode, (Q, N)."""
        labels, order = labels.sort(stable=True)  # padding comes first, then class after class
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

    Every method can do that (`path = true`): this is NNShot with it. `tau` is the power that transitions are raised to,
    beside the words' probabilities at `temperature`: the Few-NERD toolkit takes 0.32 for 1~2 shots, 0.318 for 5-way and
    0.434 for 10-way 5~10 shots. Tune both on validation data.
    """

    decision: ClassVar = {"path": True, "tau": 0.32}


def _nearest(query: Tensor, support: Tensor, counts: list[int]) -> Tensor:
    """Find the nearest support word of each class, (rows, N), where `counts` words of each class lie in a row."""
    squares = (support * support).sum(-1)
    near = torch.addmm(squares, query, support.mT, beta=-1, alpha=2)  # (rows, S); ||query||^2 is common to all
    index, start = [], 0
    for part in torch.split(near, counts, dim=1):
        index.append(start + part.argmax(1) if part.shape[1] else torch.zeros_like(near[:, 0], dtype=torch.long))
        start += part.shape[1]
    return torch.stack(index, -1)
