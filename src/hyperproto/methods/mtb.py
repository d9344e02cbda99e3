"""Matching the Blanks: inner products of normalised sentence vectors, and their pre-training."""

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

    u(v) is a vector after dropout (in training) and a LayerNorm shared by queries and support. The score of a class is
    the largest (`combine="max"`) or the mean (`"mean"`) of the products `u(q) . u(x)` over its examples x.
    `scale="sqrt"` divides the products by sqrt(D), `"none"` does not.

    This is the few-shot head only; `mtb-pretrain` pre-trains the encoder. Dropout and "max" are those of the FewRel
    toolkit. It does not scale, so that its initial logits are of order D; scaling is our addition.
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
        """Return the largest or mean product with the examples of each class, (B, Q, N)."""
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
        """Return the LayerNorm as the group `head`."""
        return {"head": Group(list(self.norm.parameters()))}


class MTBPretrain(MTB):
    """Pre-training of MTB: the product of two sentences is trained to be large if they mention the same entities.

    The loss is the binary cross entropy of `u(r) . u(r') / scale` over `[pairs]` of sentences, most of whose entities
    are blanked; only the encoder has dropout. Scores and LayerNorm are those of MTB: `start.heads = ["norm"]` copies
    the LayerNorm to a later run. In an episode, every query forms a pair with every support example, positive within a
    class.

    The shares of pair types and the balance of the loss are our choices. The paper's corpus is Wikipedia with entity
    links, several hundred million pairs; results with less data are not MTB's. Pairs by label are supervised, similar
    to Peng et al., "Learning from Context or Names?", EMNLP 2020.
    """

    reads_pairs = True

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the binary cross entropy of all pairs of a query and a support example of an episode."""
        products = self.norm(task.query) @ self.norm(task.support).mT / self.scale  # (B, Q, S)
        same = self.labels_of(task)[..., None] == task.support_y[:, None]
        real = (task.support_y >= 0)[:, None].expand_as(same)
        if task.query_y is not None:
            real = real & (task.query_y != PAD)[..., None]
        logits = self.logits(products)[real]
        return {"pairs": F.binary_cross_entropy_with_logits(logits, same[real].to(logits))}
