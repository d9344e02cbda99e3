"""Proto-HATT: prototypes with instance attention, and distances with feature attention."""

from typing import Any
from warnings import warn

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks
from hyperproto.methods.task import Task

CHANNELS = 32, 64  # of the two hidden convolutions
CACHE_BYTES = 4 << 20  # of hidden values at a time in evaluation: blocks in the CPU cache are three times faster


class ProtoHATT(Method):
    """Gao et al., "Hybrid Attention-Based Prototypical Networks for Noisy Few-Shot Relation Classification", AAAI 2019.

    Instance attention gives a prototype for each pair of query and class: the mean of the K support examples, weighted
    by a softmax over the similarity of example and query. Feature attention gives a weight z >= 0 for each feature of a
    class, by three convolutions over the K x D array of its support. The score is minus the squared distance of query
    and prototype, weighted by z. Kernels have height K: K must be the same in training and evaluation, and the order of
    a class's examples matters. With K = 1 the prototype is the example, and only z has an effect.

    Differences from the released code: its padding loses rows if K is even, here K rows remain; the bias of the last
    convolution starts at 1, so that z starts near 1. A class whose z is 0 everywhere has the score 0, wins every query
    and gets no gradient; training warns about it once. The paper's training noise is `noise_rate` in `[episodes]`.
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
        """Return minus the weighted squared distance of each query to its prototype of each class, (B, Q, N)."""
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
        """Return the feature weights z >= 0 of each class, (B, N, D), from its support (B, N, K, D)."""
        classes = support.flatten(0, 1)[None]  # (1, B N, K, D): classes are independent
        values = CHANNELS[1] * support[0, 0].numel()
        weights = in_blocks(self._convolved, classes, values, most_bytes=_block_bytes()).view_as(support[:, :, 0])
        if self.training:
            self._watch(weights.detach())
        return weights

    def monitor(self) -> dict[str, float | list[float]]:
        """Return mean and standard deviation over classes of z.sum(-1), a class's total weight of distances."""
        if self._totals is None:
            return {}
        return {"weight_mean": float(self._totals.mean()), "weight_spread": float(self._totals.std(unbiased=False))}

    def param_groups(self) -> dict[str, Group]:
        """Return all parameters except the temperature as one group."""
        layers = self.attention, self.first, self.second, self.last
        return {"head": Group([parameter for layer in layers for parameter in layer.parameters()])}

    def _convolved(self, classes: Tensor) -> Tensor:
        """Apply three convolutions over the K x D array of each class: (1, classes, K, D) to (1, classes, D)."""
        assert isinstance(self.shot, int)
        x = classes.mT.reshape(-1, self.shot)  # (classes D, K)
        for layer in self.first, self.second:
            assert layer.bias is not None
            x = torch.addmm(layer.bias.repeat(self.shot), x, row_matrix(layer.weight)).relu()  # (classes D, K channels)
        last = self.last.weight[0, :, :, 0].mT.flatten()  # (K channels): its kernel covers all rows
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
    """Return the matrix (K in, K out) of a convolution of K rows with kernels (out, in, K, 1), zero-padded to K rows.

    There are (K - 1) // 2 rows of padding above. As the kernels are as high as the input, the matrix has few zeros, and
    one product is faster than the convolution.
    """
    taps = kernels[..., 0].permute(2, 1, 0)  # (K, in, out)
    rows = torch.arange(len(taps), device=taps.device)
    tap = rows[:, None] - rows + (len(taps) - 1) // 2  # (input row, output row)
    real = (tap >= 0) & (tap < len(taps))
    matrix = taps[tap.clamp(0, len(taps) - 1)] * real[..., None, None]  # (K, K, in, out)
    return matrix.transpose(1, 2).flatten(2).flatten(0, 1)


def _block_bytes() -> int | None:
    """Return a small block size if no gradients are needed, else None for the default."""
    return None if torch.is_grad_enabled() else CACHE_BYTES
