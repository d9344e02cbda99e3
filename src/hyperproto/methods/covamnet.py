"""CovaMNet: a class is the covariance of its local descriptors, and a query is scored by its variance under it."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Method
from hyperproto.methods.parts import in_blocks
from hyperproto.methods.task import Task

FLOOR = 1e-12  # lower bound of norms before division


class CovaMNet(Method):
    """Li et al., "Distribution Consistency Based Covariance Metric Networks for Few-Shot Learning", AAAI 2019.

    A map (C, H, W) has P = H W local descriptors of size C. Sigma_n is the covariance of the descriptors of all support
    maps of class n about their common mean, with divisor K_n P - 1. A query's descriptors x_p are scaled, and the score
    is the sum over p of w_p x_p' Sigma_n x_p, with a learned weight for each position.

    `normalise="channel"` divides each channel of a query by its norm over positions (as in the released code),
    "descriptor" each x_p by its norm, "none" nothing. In training `dropout` drops terms of the sum. Classes whose
    descriptors differ only in the mean have equal scores.

    Our choices: w starts at 1 and the learned temperature at C. The leaky ReLU of the released code is omitted, since
    no term is negative, and so is LibFewShot's centring of queries.
    """

    reads: ClassVar = "maps"
    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        normalise: Literal["channel", "descriptor", "none"] = "channel",
        dropout: float = 0.5,
        temperature: float | None = None,
        learn_temperature: bool = True,
        **options: Any,
    ) -> None:
        temperature = float(feature_shape[0]) if temperature is None else temperature
        options |= {"temperature": temperature, "learn_temperature": learn_temperature}
        super().__init__(feature_shape=feature_shape, **options)
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout {dropout} must be at least 0 and below 1, such as 0.5")
        self.normalise = normalise
        self.dropout = dropout
        self.weight = nn.Parameter(torch.ones(self.positions))  # w

    @property
    def positions(self) -> int:
        """Number P of local descriptors of a map."""
        return torch.Size(self.feature_shape[1:]).numel()

    def scores(self, task: Task) -> Tensor:
        """Return the sum over positions of w_p x_p' Sigma_n x_p, (B, Q, N): <Sigma_n, X diag(w) X'> without dropout."""
        if task.query.shape[2:] != self.feature_shape:
            raise ConfigError(
                f"CovaMNet was made for maps of shape {self.feature_shape}, but these are of shape "
                f"{tuple(task.query.shape[2:])}; use images of the size that it was trained with"
            )
        covariance = self.covariances(task)  # (B, N, C, C)

        def dropped(query: Tensor) -> Tensor:
            return F.dropout(self.similarities(covariance, query), self.dropout) @ self.weight

        def plain(query: Tensor) -> Tensor:
            x = self.descriptors(query)
            return (self.weight * x @ x.mT).flatten(2) @ covariance.flatten(2).mT  # (B, Q, N)

        channels = covariance.shape[-1]
        if self.training and self.dropout:
            return in_blocks(dropped, task.query, 2 * task.way * channels * self.positions)
        return in_blocks(plain, task.query, channels * (channels + 2 * self.positions))

    def covariances(self, task: Task) -> Tensor:
        """Return Sigma, (B, N, C, C): scatter of the support's descriptors about the class mean over K_n P - 1."""
        counts = task.counts()  # (B, N)
        if bool((counts * self.positions < 2).any()):
            raise ConfigError(
                f"CovaMNet needs at least two local descriptors of a class, but one has {int(counts.min())} examples "
                f"of maps with {self.positions} positions; give more examples, or larger maps (conv4: poolings = 2)"
            )
        members, x = task.members(), task.support.flatten(3)  # (B, S, N), (B, S, C, P)
        size = (counts * self.positions).to(x)[..., None]  # (B, N, 1)
        mean = members.mT @ x.sum(-1) / size  # (B, N, C)
        away = x - (members @ mean)[..., None]
        scatter = members.mT @ (away @ away.mT).flatten(2)  # (B, N, C C)
        return (scatter / (size - 1)).view(*counts.shape, x.shape[2], x.shape[2])

    def descriptors(self, query: Tensor) -> Tensor:
        """Return the scaled local descriptors of queries, (B, Q, C, P)."""
        x = query.flatten(3)
        if self.normalise == "none":
            return x
        return F.normalize(x, dim=-1 if self.normalise == "channel" else -2, eps=FLOOR)

    def similarities(self, covariance: Tensor, query: Tensor) -> Tensor:
        """Return x_p' Sigma_n x_p for each query and class, (B, Q, N, P)."""
        x = self.descriptors(query)
        along = torch.einsum("bncd,bqdp->bqncp", covariance, x)
        return (along * x[:, :, None]).sum(-2)
