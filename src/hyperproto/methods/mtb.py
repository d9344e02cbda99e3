"""Matching the Blanks: inner products of normalised sentence vectors, and the pre-training of such vectors."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks, masked_max
from hyperproto.methods.task import PAD, Task


class MTB(Method):
    """Baldini Soares et al., "Matching the Blanks: Distributional Similarity for Relation Learning", ACL 2019.

    A vector `v` becomes `u(v)`: dropout in training, then one LayerNorm that queries and support share. A query scores
    `u(q) . u(x)` with each support example; a class takes the largest of its examples (`combine="max"`) or their mean
    (`"mean"`). `scale="sqrt"` divides the products by sqrt(D), `"none"` leaves them.

    This is the few-shot head alone; `mtb-pretrain` trains the encoder before it. Dropout and "max" are those of the
    FewRel toolkit, which does not scale: at the start its logits are of the order of D. Scaling is ours.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        n_classes: int,
        combine: Literal["max", "mean"] = "max",
        scale: Literal["sqrt", "none"] = "sqrt",
        dropout: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(feature_shape=feature_shape, n_classes=n_classes, **options)
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout {dropout} must be at least 0 and below 1, such as 0.5")
        [dim] = feature_shape
        self.combine = combine
        self.scale = math.sqrt(dim) if scale == "sqrt" else 1.0
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)

    def scores(self, task: Task) -> Tensor:
        """Score by the products with the examples of each class, (B, Q, N)."""
        if not bool(task.counts().all()):
            raise ConfigError("mtb compares queries with the examples of each class; a class of this task has none")
        support = self.norm(self.dropout(task.support)) / self.scale  # (B, S, D)
        query = self.norm(self.dropout(task.query))  # (B, Q, D)
        members = task.members()  # (B, S, N)

        def score(query: Tensor) -> Tensor:
            products: Tensor = query @ support.mT  # (B, Q, S)
            if self.combine == "mean":
                return products @ (members / members.sum(1, keepdim=True))
            real = members.bool().mT[:, None]  # (B, 1, N, S)
            return torch.stack([masked_max(products, real[:, :, n], -1) for n in range(task.way)], -1)

        return in_blocks(score, query, 2 * task.support.shape[1])

    def param_groups(self) -> dict[str, Group]:
        """The LayerNorm, `[optim.head]`."""
        return {"head": Group(list(self.norm.parameters()))}


class MTBPretrain(MTB):
    """MTB's pre-training: two sentences have a large product where they mention the same entities, else a small one.

    The loss is the binary cross entropy of `u(r) . u(r') / scale` over `[pairs]` of sentences, most of their entities
    blank; there is no dropout but the encoder's own. Scores are MTB's, and so is the LayerNorm: `heads = ["norm"]`
    hands it on. Of an episode, every query makes a pair with every support example, positive within a class.

    The shares of the pairs and the balance of the loss are ours. The paper's corpus is Wikipedia with entity links,
    several hundred million pairs; what is trained on less is not MTB's result. Pairs by label are supervised, close to
    Peng et al., "Learning from Context or Names?", EMNLP 2020.
    """

    reads_pairs = True

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Binary cross entropy of the pairs of a query and a support example of the same episode."""
        products = self.norm(task.query) @ self.norm(task.support).mT / self.scale  # (B, Q, S)
        same = self.labels_of(task)[..., None] == task.support_y[:, None]
        real = (task.support_y >= 0)[:, None].expand_as(same)
        if task.query_y is not None:
            real = real & (task.query_y != PAD)[..., None]
        logits = self.logits(products)[real]
        return {"pairs": F.binary_cross_entropy_with_logits(logits, same[real].to(logits))}
