"""MLMAN: multi-level matching and aggregation, with attention between the tokens of a query and a class."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks, masked_max, masked_mean, masked_softmax
from hyperproto.methods.task import PAD, Task

BLOCK = 1000  # sentences in a forward pass of the LSTM


class MLMAN(Method):
    """Ye and Ling, "Multi-Level Matching and Aggregation Network for Few-Shot Relation Classification", ACL 2019.

    The tokens of a query attend to all tokens of a class's examples, and vice versa. Each token is fused with its
    attention output, an LSTM reads the sentences, and maxima and means over tokens give sentence vectors. One network
    scores the match of the query with each example, which gives the weights of the examples, and then with their
    weighted mean. The loss term `inconsistency`, times the option of that name, is the squared distance of the examples
    from that mean.

    The method reads the maps of `relation-cnn` with `filters = 200`; maps of another width, such as those of a language
    model, first pass a linear layer to `width` (reconstruction). The released code requires equal shots, adds 100 to
    the products of real tokens instead of masking padding, includes padding in the maximum, and sets both forget biases
    of the forward LSTM to 1 but neither of the backward one. Here shots may differ, padding is masked everywhere, and
    the forget biases sum to 1 in both directions.
    """

    reads: ClassVar = "tokens"
    transforms = ("none",)
    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})

    def __init__(
        self,
        *,
        width: int = 200,
        hidden: int = 100,
        dropout: float = 0.2,
        inconsistency: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if not inconsistency >= 0:
            raise ConfigError(f"MLMAN: inconsistency {inconsistency} is a weight; use 0 or more, such as 1.0")
        channels = self.feature_shape[1]
        self.resize = nn.Identity() if channels == width else nn.Linear(channels, width)
        self.fuse = nn.Linear(4 * width, hidden)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.match = nn.Sequential(nn.Linear(8 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.inconsistency = inconsistency
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias"):
                forget = parameter.chunk(4)[1]  # gates: input, forget, cell, output
                forget.fill_(1.0 if name.startswith("bias_ih") else 0.0)

    def scores(self, task: Task) -> Tensor:
        """Return the match of each query with each class, (B, Q, N)."""
        return self._matched(task)[..., 0]

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy, and the mean squared distance of examples to their class's vector."""
        matched = self._matched(task)  # (B, Q, N, 2)
        cross_entropy = self.cross_entropy(matched[..., 0], task)  # raises an error without labels
        assert task.query_y is not None
        real = (task.query_y != PAD).to(matched)  # (B, Q)
        distances = (matched[..., 1].sum(-1) * real).sum()
        number = (real.sum(1) * task.counts().sum(1)).sum().clamp(min=1)
        return {"cls": cross_entropy, "inconsistency": self.inconsistency * distances / number}

    def param_groups(self) -> dict[str, Group]:
        """Return all layers after the encoder as one group."""
        parts = (self.resize, self.fuse, self.lstm, self.match)
        return {"head": Group([parameter for part in parts for parameter in part.parameters()])}

    def _matched(self, task: Task) -> Tensor:
        """Return scores, and summed squared distances of examples to their class's vector, (B, Q, N, 2)."""
        if task.support_mask is None or task.query_mask is None:
            raise ConfigError("MLMAN needs the masks of real tokens, but the task has none")
        support, real = self._by_class(task)  # (B, N, K, L, C), (B, N, K, L)
        query, query_real = self.resize(task.query), task.query_mask
        places = torch.arange(query.shape[1], device=query.device).expand(query.shape[:2])  # (B, Q)

        def block(places: Tensor) -> Tensor:
            rows = places[0]
            return self._block(query[:, rows], query_real[:, rows], support, real)

        sentences = real.shape[1] * (1 + real.shape[2])  # sentences of a query
        return in_blocks(block, places, sentences, most_bytes=BLOCK * places.element_size())

    def _by_class(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return the support by class, (B, N, K, L, C), and its token masks; missing examples have no real tokens."""
        assert task.support_mask is not None
        counts, members = task.counts(), task.members()
        shot = max(1, int(counts.max()))
        index = members.argsort(dim=1, descending=True, stable=True)[:, :shot].mT  # (B, N, K): members come first
        there = torch.arange(index.shape[-1], device=index.device) < counts[..., None]
        rows = torch.arange(len(index), device=index.device)[:, None, None]
        return self.resize(task.support)[rows, index], task.support_mask[rows, index] & there[..., None]

    def _block(self, query: Tensor, query_real: Tensor, support: Tensor, real: Tensor) -> Tensor:
        """Match queries (B, Q, L', C) with classes (B, N, K, L, C), given the token masks of both."""
        tokens, tokens_real = support.flatten(2, 3), real.flatten(2)  # (B, N, K L, C), (B, N, K L)
        products = torch.einsum("bntc,bqlc->bqntl", tokens, query)
        of_query = masked_softmax(products, query_real[:, :, None, None], -1)
        of_class = masked_softmax(products, tokens_real[:, None, ..., None], -2)
        seen_by_class = torch.einsum("bqntl,bqlc->bqntc", of_query, query).view(*products.shape[:3], *support.shape[2:])
        seen_by_query = torch.einsum("bqntl,bntc->bqnlc", of_class, tokens)
        examples = self._sentences(support[:, None], seen_by_class, real[:, None])  # (B, Q, N, K, 4 hidden)
        queries = self._sentences(query[:, :, None], seen_by_query, query_real[:, :, None])  # (B, Q, N, 4 hidden)

        there = real.any(-1)[:, None]  # (B, 1, N, K)
        likeness = self.match(torch.cat([queries[..., None, :].expand_as(examples), examples], -1))[..., 0]
        share = masked_softmax(likeness, there)  # (B, Q, N, K)
        means = (share[..., None] * examples).sum(-2)  # (B, Q, N, 4 hidden)
        score = self.match(torch.cat([queries, means], -1))[..., 0]
        apart = (examples - means[..., None, :]).square().sum(-1).masked_fill(~there, 0.0).sum(-1)
        return torch.stack([score, apart], -1)

    def _fused(self, own: Tensor, seen: Tensor) -> Tensor:
        """Apply `fuse` and ReLU to [own; seen; |own - seen|; own * seen] without storing the concatenation."""
        first, second, third, fourth = self.fuse.weight.chunk(4, dim=1)
        fused = F.linear(own, first, self.fuse.bias) + F.linear(seen, second)
        return (fused + F.linear((own - seen).abs(), third) + F.linear(own * seen, fourth)).relu()

    def _sentences(self, own: Tensor, seen: Tensor, real: Tensor) -> Tensor:
        """Return one vector a sentence: tokens (..., L, C) fused with `seen`, the LSTM, maximum and mean."""
        own, real = own.expand_as(seen), real.expand(seen.shape[:-1])
        lengths = real.flatten(0, -2).sum(-1)  # (n,)
        there = lengths > 0
        own, seen = own[real], seen[real]  # (tokens, C)
        fused = self._fused(own, seen)  # (tokens, hidden)
        padded = fused.new_zeros(*real.shape, fused.shape[-1])
        padded[real] = self.dropout(fused)
        sentences, real = padded.flatten(0, -3)[there], real.flatten(0, -2)[there, :, None]
        packed = pack_padded_sequence(sentences, lengths[there].cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=real.shape[1])
        vectors = torch.cat([masked_max(states, real, 1), masked_mean(states, real, 1)], -1)
        found = vectors.new_zeros(len(there), vectors.shape[-1])
        found[there] = vectors
        return found.view(*padded.shape[:-2], -1)
