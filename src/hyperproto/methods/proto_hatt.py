"""Proto-HATT: prototypes weighted by likeness to the query, distances by the worth of each feature in a class."""

from typing import Any
from warnings import warn

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks
from hyperproto.methods.task import Task

CHANNELS = 32, 64  # of the two hidden convolutions
CACHE_BYTES = 4 << 20  # of hidden values at a time in evaluation: a third of the time of blocks that leave the cache


class ProtoHATT(Method):
    """Gao et al., "Hybrid Attention-Based Prototypical Networks for Noisy Few-Shot Relation Classification", AAAI 2019.

    Instance attention makes a prototype for each pair of query and class: the mean of the K support examples, weighted
    by a softmax over how alike example and query are. Feature attention makes a weight z >= 0 for each feature of a
    class, by three convolutions over the K x D array of its support. The score is minus the squared distance of query
    and prototype, summed with these weights. Kernels are K high: K is the same in training and evaluation, and the
    order of the examples of a class matters. With K = 1 the prototype is the example, and only z is left.

    Differs from the released code: its padding loses rows where K is even, here K rows stay K rows; the bias of the
    last convolution starts at 1, so that z starts near 1. A class whose z is 0 everywhere scores 0, wins every query
    and gets no gradient: training warns of it, once. The paper's training noise is `noise_rate` of `[episodes]`.
    """

    traits = frozenset({"any-way", "equivariant"})

    def __init__(self, *, dropout: float = 0.5, **options: Any) -> None:
        super().__init__(**options)
        if not isinstance(self.shot, int) or self.shot < 1:
            raise ConfigError(
                f"ProtoHATT has kernels as high as a class has examples, but shot is {self.shot}; "
                "train it with one number of shots for all classes, at least 1"
            )
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout {dropout} must be at least 0 and below 1, such as 0.5")
        [dim] = self.feature_shape
        self.attention = nn.Linear(dim, dim)  # g
        kernel = self.shot, 1
        self.first = nn.Conv2d(1, CHANNELS[0], kernel)
        self.second = nn.Conv2d(CHANNELS[0], CHANNELS[1], kernel)
        self.last = nn.Conv2d(CHANNELS[1], 1, kernel)
        nn.init.ones_(self.last.bias)  # type: ignore[arg-type] # it has one
        self.dropout = nn.Dropout(dropout)
        self._totals: Tensor | None = None  # z.sum(-1) of the last training step
        self._warned = False

    def scores(self, task: Task) -> Tensor:
        """Score by the weighted squared distance of each query to its own prototype of each class."""
        support = task.by_class()  # (B, N, K, D)
        if support.shape[2] != self.shot:
            raise ConfigError(
                f"ProtoHATT was made for {self.shot} shots, but these classes have {support.shape[2]} examples; "
                "use its own number, or train it with this one"
            )
        weights = self.feature_weights(support)  # (B, N, D)
        keys = self.attention(support)  # (B, N, K, D)

        def scores(query: Tensor) -> Tensor:
            alike = (keys[:, None] * self.attention(query)[:, :, None, None]).tanh().sum(-1)  # (B, Q, N, K)
            prototypes = torch.einsum("bqnk,bnkd->bqnd", alike.softmax(-1), support)
            return -(weights[:, None] * (query[:, :, None] - prototypes) ** 2).sum(-1)

        return in_blocks(scores, task.query, support[0].numel(), most_bytes=_block_bytes())

    def feature_weights(self, support: Tensor) -> Tensor:
        """What each feature is worth in each class, z >= 0, (B, N, D), from its support (B, N, K, D)."""
        classes = support.flatten(0, 1)[None]  # (1, B N, K, D): a class has no part in another's weights
        values = CHANNELS[1] * support[0, 0].numel()
        weights = in_blocks(self._convolved, classes, values, most_bytes=_block_bytes()).view_as(support[:, :, 0])
        if self.training:
            self._watch(weights.detach())
        return weights

    def monitor(self) -> dict[str, float | list[float]]:
        """Mean and standard deviation over classes of z.sum(-1): a large one looks far from every query."""
        if self._totals is None:
            return {}
        return {"weight_mean": float(self._totals.mean()), "weight_spread": float(self._totals.std(unbiased=False))}

    def param_groups(self) -> dict[str, Group]:
        """All but the temperature is one dense group."""
        layers = self.attention, self.first, self.second, self.last
        return {"head": Group([parameter for layer in layers for parameter in layer.parameters()])}

    def _convolved(self, classes: Tensor) -> Tensor:
        """Three convolutions over the K x D array of each class, (1, classes, K, D) to (1, classes, D), as products."""
        assert isinstance(self.shot, int)
        x = classes.mT.reshape(-1, self.shot)  # (classes D, K)
        for layer in self.first, self.second:
            assert layer.bias is not None
            x = torch.addmm(layer.bias.repeat(self.shot), x, row_matrix(layer.weight)).relu()  # (classes D, K channels)
        last = self.last.weight[0, :, :, 0].mT.flatten()  # (K channels): its kernel is as high as the array
        weights: Tensor = (self.dropout(x) @ last + self.last.bias).relu()
        return weights.view(1, classes.shape[1], -1)

    def _watch(self, weights: Tensor) -> None:
        self._totals = weights.sum(-1)  # (B, N)
        if not self._warned and bool((self._totals == 0).any()):
            self._warned = True
            warn(
                "ProtoHATT: the weights of all features of a class are 0; it scores 0, above every other class, and "
                "gets no gradient. Lower the rate of [optim.head]",
                stacklevel=2,
            )


def row_matrix(kernels: Tensor) -> Tensor:
    """The matrix (K in, K out) that applies kernels (out, in, K, 1) along K rows, padded with zeros to stay K rows.

    Rows above number (K - 1) // 2. Kernels as high as their input leave few zeros in it, and one product is faster than
    the convolution.
    """
    taps = kernels[..., 0].permute(2, 1, 0)  # (K, in, out)
    rows = torch.arange(len(taps), device=taps.device)
    tap = rows[:, None] - rows + (len(taps) - 1) // 2  # (input row, output row)
    real = (tap >= 0) & (tap < len(taps))
    matrix = taps[tap.clamp(0, len(taps) - 1)] * real[..., None, None]  # (K, K, in, out)
    return matrix.transpose(1, 2).flatten(2).flatten(0, 1)


def _block_bytes() -> int | None:
    """Small blocks where nothing is kept for a backward pass; None: as usual."""
    return None if torch.is_grad_enabled() else CACHE_BYTES
