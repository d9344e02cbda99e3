"""Relation networks: a small convolutional network reads a query's map beside a class's map and gives a score."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks
from hyperproto.methods.task import PAD, Task

LARGE = 10  # sides of maps from which on convolutions do without padding
HIDDEN = 8  # units between the last map and the score


class RelationNet(Method):
    """Sung et al., "Learning to Compare: Relation Network for Few-Shot Learning", CVPR 2018.

    The map of a class is the mean of its support maps, or their sum with `combine="sum"` (published: then a class of
    five shots has a map five times as large as one of one, and shots should be those of training). Each pair of class
    and query, 2 C channels, goes through two blocks of 3 x 3 convolution to C channels, batch norm, ReLU and 2 x 2 max
    pooling, then through two linear layers to one logit, which is the score. The first convolution is linear: it is
    computed once for each class and each query, and the two halves are added for each pair.

    `loss="mse"` is the published one, the squared error of the logit's sigmoid for 1 where the class is right, else 0;
    `loss="ce"` the cross entropy over classes. Convolutions of maps of 10 x 10 and more have no padding, as published;
    on smaller ones they keep the size, and a pooling is left out where a side is 1 (reconstruction: tiny maps).

    Batch norm reads all pairs of a training step, and in evaluation its stored statistics: the released code is tested
    in training mode, where a query's score depends on the other queries, and its momentum of 1 stores only the last
    batch. Here the momentum is 0.1.
    """

    reads: ClassVar = "maps"
    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})

    def __init__(
        self,
        *,
        combine: Literal["mean", "sum"] = "mean",
        loss: Literal["ce", "mse"] = "ce",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.combine = combine
        self.objective = loss
        if combine == "sum":
            self.traits = self.traits - {"any-shot", "unequal-shots"}
        channels, *sides = self.feature_shape
        padding = 0 if min(sides) >= LARGE else 1
        self.first = _convolution(2 * channels, channels, padding)
        pools, sides = _pooled(sides, padding)
        layers = [_after_convolution(channels, pools), _convolution(channels, channels, padding)]
        pools, sides = _pooled(sides, padding)
        layers += [_after_convolution(channels, pools), nn.Flatten()]
        layers += [nn.Linear(channels * sides[0] * sides[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)]
        self.rest = nn.Sequential(*layers)
        # the same numbers, faster on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in the stubs

    def scores(self, task: Task) -> Tensor:
        """Logits of all pairs of query and class; in blocks of queries where batch norm does not read them."""
        if task.query.shape[2:] != self.feature_shape:
            raise ConfigError(
                f"RelationNet was made for maps of shape {self.feature_shape}, but these are of shape "
                f"{tuple(task.query.shape[2:])}; use images of the size that it was trained with"
            )
        classes = self.class_maps(task)  # (B, N, C, H, W)
        if self.training:
            return self._of_all_pairs(self.pairs(classes, task.query), task)

        def scores(query: Tensor) -> Tensor:
            pairs = self.pairs(classes, query)
            related: Tensor = self.rest(pairs.flatten(0, 2))
            return related.view(pairs.shape[:3])

        return in_blocks(scores, task.query, 2 * task.way * task.query[0, 0].numel())

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Cross entropy, or the squared error of sigmoids, over the queries of a class of the episode."""
        scores = self(task)
        if self.objective == "ce":
            return {"cls": self.cross_entropy(scores, task)}
        labels = self.labels_of(task)  # (B, Q)
        related = self.logits(scores).sigmoid()[labels >= 0]  # (queries, N)
        return {"cls": F.mse_loss(related, F.one_hot(labels[labels >= 0], task.way).to(related))}

    def class_maps(self, task: Task) -> Tensor:
        """Mean or sum of the support maps of each class, (B, N, C, H, W)."""
        members = task.members()  # (B, S, N)
        if self.combine == "mean":
            members = members / members.sum(1, keepdim=True).clamp(min=1)
        return torch.einsum("bsn,bs...->bn...", members, task.support)

    def pairs(self, classes: Tensor, query: Tensor) -> Tensor:
        """First convolution of all pairs, (B, Q, N, C, H', W'), from the maps of classes and queries."""
        of_class, of_query = self.first.weight.chunk(2, dim=1)  # (C, C, 3, 3) each
        padding = self.first.padding
        left = F.conv2d(classes.flatten(0, 1), of_class, self.first.bias, padding=padding)
        right = F.conv2d(query.flatten(0, 1), of_query, padding=padding)
        shape = left.shape[1:]
        return left.view(*classes.shape[:2], *shape)[:, None] + right.view(*query.shape[:2], *shape)[:, :, None]

    def param_groups(self) -> dict[str, Group]:
        """The relation module, which is clipped by itself."""
        return {"head": Group([*self.first.parameters(), *self.rest.parameters()])}

    def _of_all_pairs(self, pairs: Tensor, task: Task) -> Tensor:
        """Scores (B, Q, N) of all pairs at once: batch norm reads them all, but for padding."""
        scores = pairs.new_zeros(pairs.shape[:3])
        real = torch.ones_like(scores[..., 0], dtype=torch.bool) if task.query_y is None else task.query_y != PAD
        if bool(real.all()):
            whole: Tensor = self.rest(pairs.flatten(0, 2))
            return whole.view_as(scores)
        scores[real] = self.rest(pairs[real].flatten(0, 1)).view(-1, task.way)
        return scores


def _convolution(inputs: int, outputs: int, padding: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, 3, padding=padding)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")  # variance 2 / (9 outputs)
    return layer


def _after_convolution(channels: int, pools: bool) -> nn.Sequential:
    # Pooling before ReLU gives the same numbers, for a quarter of the work.
    return nn.Sequential(nn.BatchNorm2d(channels), *([nn.MaxPool2d(2)] if pools else []), nn.ReLU())


def _pooled(sides: list[int], padding: int) -> tuple[bool, list[int]]:
    """Whether a block pools, and the sides of the map behind it."""
    sides = [side - 2 + 2 * padding for side in sides]
    pools = min(sides) > 1
    return pools, [side // 2 for side in sides] if pools else sides
