"""Relation networks: a convolutional network scores each pair of a query's map and a class's map."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks
from hyperproto.methods.task import PAD, Task

LARGE = 10  # side of a map from which on convolutions have no padding
HIDDEN = 8  # hidden units between the last map and the score


class RelationNet(Method):
    """Sung et al., "Learning to Compare: Relation Network for Few-Shot Learning", CVPR 2018.

    The map of a class is the mean of its support maps, or their sum with `combine="sum"`, as published; then shots
    should be those of training. Each pair of class and query, 2 C channels, passes two blocks of a 3 x 3 convolution to
    C channels, batch norm, ReLU and 2 x 2 max pooling, then two linear layers to one logit, the score. The first
    convolution is linear: it is computed once for each class and each query, and both halves are added for each pair.

    `loss="mse"`, as published, is the squared error of the logit's sigmoid, with target 1 for the true class, else 0;
    `loss="ce"` is the cross entropy over classes. Convolutions of maps of at least 10 x 10 have no padding, as
    published. On smaller maps they keep the size, and pooling is omitted if a side is 1 (reconstruction).

    Batch norm uses all pairs of a training step, and its running statistics in evaluation. The released code is tested
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
        # same results, faster on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in the stubs

    def scores(self, task: Task) -> Tensor:
        """Return the logits of all pairs of query and class, (B, Q, N); in blocks unless batch norm needs all pairs."""
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
        """Return the cross entropy, or the squared error of sigmoids, over queries of the episode's classes."""
        scores = self(task)
        if self.objective == "ce":
            return {"cls": self.cross_entropy(scores, task)}
        labels = self.labels_of(task)  # (B, Q)
        related = self.logits(scores).sigmoid()[labels >= 0]  # (queries, N)
        return {"cls": F.mse_loss(related, F.one_hot(labels[labels >= 0], task.way).to(related))}

    def class_maps(self, task: Task) -> Tensor:
        """Return the mean or sum of the support maps of each class, (B, N, C, H, W)."""
        members = task.members()  # (B, S, N)
        if self.combine == "mean":
            members = members / members.sum(1, keepdim=True).clamp(min=1)
        return torch.einsum("bsn,bs...->bn...", members, task.support)

    def pairs(self, classes: Tensor, query: Tensor) -> Tensor:
        """Return the first convolution of all pairs of maps, (B, Q, N, C, H', W')."""
        of_class, of_query = self.first.weight.chunk(2, dim=1)  # (C, C, 3, 3) each
        padding = self.first.padding
        left = F.conv2d(classes.flatten(0, 1), of_class, self.first.bias, padding=padding)
        right = F.conv2d(query.flatten(0, 1), of_query, padding=padding)
        shape = left.shape[1:]
        return left.view(*classes.shape[:2], *shape)[:, None] + right.view(*query.shape[:2], *shape)[:, :, None]

    def param_groups(self) -> dict[str, Group]:
        """Return the relation module as a group, whose gradient is clipped separately."""
        return {"head": Group([*self.first.parameters(), *self.rest.parameters()])}

    def _of_all_pairs(self, pairs: Tensor, task: Task) -> Tensor:
        """Return the scores (B, Q, N) of all pairs at once; batch norm uses all pairs except padding."""
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
    # Max pooling and ReLU commute; ReLU on the pooled map costs a quarter.
    return nn.Sequential(nn.BatchNorm2d(channels), *([nn.MaxPool2d(2)] if pools else []), nn.ReLU())


def _pooled(sides: list[int], padding: int) -> tuple[bool, list[int]]:
    """Return whether a block pools, and the sides of its output map."""
    sides = [side - 2 + 2 * padding for side in sides]
    pools = min(sides) > 1
    return pools, [side // 2 for side in sides] if pools else sides
