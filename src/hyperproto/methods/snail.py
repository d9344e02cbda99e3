"""SNAIL: causal convolutions and attention over the sequence of labelled support examples and one query."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks, masked_softmax
from hyperproto.methods.task import Task

ATTENTION = ((64, 32), (256, 128), (512, 256))  # sizes of keys and values of the three attention layers
FILTERS = 128  # channels added by a convolution

Sequence = tuple[Tensor, Tensor]  # positions of the support (B, S, C), and last position of each query (B, Q, C)


class SNAIL(Method):
    """Mishra et al., "A Simple Neural Attentive Meta-Learner", ICLR 2018.

    A sequence has S + 1 positions: each support vector with its one-hot label, then one query with label 0. Causal
    attention and dilated causal convolutions alternate, each adding channels; a linear layer at the last position gives
    the scores. As every layer is causal, the support is computed once an episode, and each query adds its last
    position, which equals Q separate sequences.

    The number of convolutions depends on S, so that way and shots are fixed in training. Scores depend on the order of
    the support: random in training, as in the paper; otherwise the first example of each class, then the second of
    each, and so on (our choice). Layer norm after each block of convolutions is our choice, too: the paper has no norm,
    and the FewRel toolkit batch norm.

    Two more additions are needed for training to succeed: vectors are normalised over their coordinates
    (`normalise = "layer"`, or `"none"`), and the keys of an attention layer are initialised like its queries, so that a
    query first attends to the labels of similar vectors.
    """

    def __init__(self, *, normalise: Literal["layer", "none"] = "layer", **options: Any) -> None:
        super().__init__(**options)
        self.normalise = normalise
        if self.way is None or self.shot is None:
            raise ConfigError(
                "the depth of SNAIL depends on the length of its episodes: give their classes and shots, such as "
                "way = 5, shot = 1"
            )
        shots = self.shot if isinstance(self.shot, list) else [self.shot]
        if len(set(shots)) != 1 or shots[0] < 1:
            raise ConfigError(f"shot = {self.shot}: SNAIL needs the same number of examples of each class, at least 1")
        [dim] = self.feature_shape
        self.examples = shots[0]  # of each class
        depth = (self.way * self.examples).bit_length()  # ceil(log2 T) for T = N K + 1 positions
        size = dim + self.way
        layers: list[nn.Module] = []
        for keys, values in ATTENTION[:-1]:
            layers.append(CausalAttention(size, keys, values))
            size += values
            for level in range(depth):
                layers.append(DilatedConvolution(size, 2**level))
                size += FILTERS
            layers.append(EachPlaceNorm(size))
        layers.append(CausalAttention(size, *ATTENTION[-1]))
        self.layers = nn.ModuleList(layers)
        self.readout = nn.Linear(size + ATTENTION[-1][1], self.way)

    def param_groups(self) -> dict[str, Group]:
        """Return all layers as the group `head`."""
        return {"head": Group([*self.layers.parameters(), *self.readout.parameters()])}

    def scores(self, task: Task) -> Tensor:
        """Return the scores (B, Q, N), computed in blocks of episodes."""
        support = self.support_of(task)  # (B, S, F)
        blank = task.query.new_zeros(*task.query.shape[:2], task.way)
        query = torch.cat([self.normalised(task.query), blank], -1)  # (B, Q, F)
        places = torch.cat([support, query], 1)  # (B, S + Q, F)
        shots = support.shape[1]

        def score(episodes: Tensor) -> Tensor:
            support, query = episodes[0].tensor_split([shots], dim=1)
            return self.last_place(support, query)[None]

        return in_blocks(score, places[None], places.shape[1] * self.readout.in_features)[0]

    def support_of(self, task: Task) -> Tensor:
        """Return the support as a sequence of vectors with labels, (B, N K, D + N)."""
        if task.way != self.way:
            raise ConfigError(
                f"SNAIL was made for {self.way} classes an episode, but these have {task.way}; train it so"
            )
        support = self.normalised(task.by_class())  # (B, N, K, D)
        if support.shape[2] != self.examples:
            raise ConfigError(
                f"SNAIL was made for {self.examples} examples of each class, these episodes have {support.shape[2]}; "
                "train it so"
            )
        labels = torch.eye(task.way, device=support.device, dtype=support.dtype)[:, None]  # (N, 1, N)
        support = torch.cat([support, labels.expand(*support.shape[:3], -1)], -1)
        support = support.transpose(1, 2).flatten(1, 2)  # (B, K N, D + N)
        if not self.training:
            return support
        order = torch.rand(support.shape[:2], device=support.device).argsort(1)
        return support.gather(1, order[..., None].expand_as(support))

    def normalised(self, x: Tensor) -> Tensor:
        """Normalise vectors to mean 0 and variance 1 over coordinates, unless `normalise` is "none"."""
        return F.layer_norm(x, x.shape[-1:]) if self.normalise == "layer" else x

    def last_place(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the outputs (B, Q, N) at the last position: support (B, S, F) followed by each query (B, Q, F)."""
        for layer in self.layers:
            support, query = layer(support, query)
        scores: Tensor = self.readout(query)
        return scores


class CausalAttention(nn.Module):
    """Causal attention: each position attends to itself and earlier ones, and appends the result to its channels."""

    def __init__(self, size: int, keys: int, values: int) -> None:
        super().__init__()
        self.query = nn.Linear(size, keys)
        self.key = nn.Linear(size, keys)
        self.value = nn.Linear(size, values)
        self.key.load_state_dict(self.query.state_dict())

    def forward(self, past: Tensor, last: Tensor) -> Sequence:
        """Attend within the support, (B, S, C), and from the last position of each query, (B, Q, C)."""
        keys, values = self.key(past), self.value(past)
        read = self.shares(self.query(past), keys) @ values  # (B, S, v)
        query = self.query(last)  # (B, Q, k)
        itself = (query * self.key(last)).sum(-1, keepdim=True)  # (B, Q, 1)
        logits = torch.cat([query @ keys.mT, itself], -1) / math.sqrt(query.shape[-1])  # (B, Q, S + 1)
        share = logits.softmax(-1)
        read_last = share[..., :-1] @ values + share[..., -1:] * self.value(last)  # (B, Q, v)
        return torch.cat([past, read], -1), torch.cat([last, read_last], -1)

    def shares(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the attention weights, (B, S, S): rows sum to 1 and are 0 above the diagonal."""
        logits = queries @ keys.mT / math.sqrt(keys.shape[-1])
        earlier = torch.ones_like(logits[0], dtype=torch.bool).tril()
        return masked_softmax(logits, earlier)


class DilatedConvolution(nn.Module):
    """Gated convolution of two positions, `dilation` apart, appended to the channels of the later one."""

    def __init__(self, size: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.gates = nn.Linear(2 * size, 2 * FILTERS)  # f and g, of both positions

    def forward(self, past: Tensor, last: Tensor) -> Sequence:
        """Combine each position with the one `dilation` before it; positions before the start are zeros."""
        before = F.pad(past, (0, 0, self.dilation, 0))  # (B, dilation + S, C)
        before_last = before[:, past.shape[1], None].expand_as(last)
        return self._joined(before[:, : past.shape[1]], past), self._joined(before_last, last)

    def _joined(self, before: Tensor, now: Tensor) -> Tensor:
        f, g = self.gates(torch.cat([before, now], -1)).chunk(2, -1)
        return torch.cat([now, f.tanh() * g.sigmoid()], -1)


class EachPlaceNorm(nn.LayerNorm):
    """Layer norm of the channels of each position."""

    def forward(self, past: Tensor, last: Tensor) -> Sequence:  # type: ignore[override]
        """Normalise the positions of the support, and the last one of each query."""
        return super().forward(past), super().forward(last)
