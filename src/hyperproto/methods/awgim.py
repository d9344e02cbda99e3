"""AWGIM: class weights generated for each query, trained to preserve information on class and query."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import Dropout, in_blocks, masked_softmax, weight_deviation
from hyperproto.methods.task import PAD, Task

NormOver = Literal["token", "episode"]
HIDDEN = 256  # hidden units of the generator and of the two reconstruction networks
EPS = 1e-5  # added to variances


class AWGIM(Method):
    """Guo & Cheung, "Attentive Weights Generation for Few Shot Learning via Information Maximization", CVPR 2020.

    Self-attention over the support gives each class a context code of `size` coordinates; attention from a query to the
    support gives the query an attentive code. A network maps each pair of codes to the weights that score this query
    for this class: the mean of a Gaussian in evaluation, a sample in training. Three further loss terms: cross entropy
    of the support under every query's weights (`support_weight`), and squared errors of reconstructing the context code
    (`context_weight`) and the query's code (`query_weight`) from the weights, without gradients to the codes. It is
    meant for vectors of length 1 of a frozen encoder.

    `norm="token"` normalises over the channels of one token; unequal shots are masked (both are reconstructions).
    `norm="episode"`, as in the released code, normalises over all tokens and channels of an episode, so that a query's
    scores depend on the other queries.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})
    transforms = ("unit",)

    def __init__(
        self,
        *,
        size: int = 128,
        heads: int = 4,
        dropout: float = 0.3,
        support_weight: float = 1.0,
        context_weight: float = 0.001,
        query_weight: float = 0.001,
        norm: NormOver = "token",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if heads < 1 or size < 1 or size % heads:
            raise ConfigError(f"AWGIM: size = {size} must be a multiple of heads = {heads}, both at least 1")
        if not 0 <= dropout < 1:
            raise ConfigError(f"AWGIM: dropout = {dropout} must be at least 0 and below 1, such as 0.3")
        parts = {"support_weight": support_weight, "context_weight": context_weight, "query_weight": query_weight}
        for name, value in parts.items():
            if not value >= 0:
                raise ConfigError(f"AWGIM: {name} = {value} must be 0 or more")
        if norm == "episode":
            self.traits = self.traits | {"transductive"}
        [dim] = self.feature_shape
        self.support_weight, self.context_weight, self.query_weight = support_weight, context_weight, query_weight
        self.dropout = Dropout(dropout)
        self.attentive_input = _mlp(dropout, dim, size)
        self.support_attention = Attention(size, heads, dropout, norm)
        self.query_attention = Attention(size, heads, dropout, norm)
        self.context_input = _mlp(dropout, dim, size)
        self.context_attention = Attention(size, heads, dropout, norm)
        self.generator = _mlp(dropout, 2 * size, HIDDEN, 2 * dim)
        self.context_reader = _mlp(dropout, dim, HIDDEN, size)
        self.query_reader = _mlp(dropout, dim, HIDDEN, size)

    def scores(self, task: Task) -> Tensor:
        """Return the scores of each query under the weights generated for it, (B, Q, N)."""
        if self.training:
            return self._answers(task)[..., : task.way]
        context, attentive = self.codes(task)
        dim, size = task.query.shape[-1], context.shape[-1]
        first, last = self.generator[1].weight, self.generator[3].weight
        assert isinstance(first, Tensor)
        assert isinstance(last, Tensor)
        from_context, from_query = F.linear(context, first[:, :size]), F.linear(attentive, first[:, size:])
        read = task.query @ last[:dim]  # (B, Q, 256): q . (W h) = (q W) . h avoids computing the weights

        def scores(block: Tensor) -> Tensor:
            from_query, read = block.chunk(2, -1)
            hidden = (from_context[:, None] + from_query[:, :, None]).relu()  # (B, Q, N, 256)
            return (hidden @ read[..., None])[..., 0]

        return in_blocks(scores, torch.cat([from_query, read], -1), 2 * from_context[0].numel())

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of queries and support, and both reconstruction errors."""
        found = self._answers(task)
        labels = self.labels_of(task)
        assert task.query_y is not None  # checked by `labels_of`
        queries = (task.query_y != PAD).to(found)  # (B, Q)
        support, context, query = (found[..., task.way :] * queries[..., None]).unbind(-1)
        examples = (task.support_y >= 0).sum(1, keepdim=True)  # (B, 1)
        pairs = (task.way * queries.sum()).clamp(min=1)
        logits = self.logits(found[..., : task.way]).flatten(0, 1)
        return {
            "cls": F.cross_entropy(logits, labels.flatten(), ignore_index=-1),
            "support": self.support_weight * support.sum() / (examples * queries).sum().clamp(min=1),
            "context": self.context_weight * context.sum() / pairs,
            "query": self.query_weight * query.sum() / pairs,
        }

    def codes(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return context codes of the classes, (B, N, d), and attentive codes of the queries, (B, Q, d)."""
        member = task.members()  # (B, S, N)
        share = member / member.sum(1, keepdim=True).clamp(min=1)
        real = task.support_y >= 0
        queries = torch.ones_like(task.query[..., 0], dtype=torch.bool) if task.query_y is None else task.query_y != PAD
        support, query = self.attentive_input(task.support), self.attentive_input(task.query)
        seen = self.support_attention(support, support, support, real, real)
        value = member @ (share.mT @ seen)  # (B, S, d): the mean of each example's class
        attentive: Tensor = self.query_attention(query, support, value, real, queries)
        support = self.context_input(task.support)
        context: Tensor = share.mT @ self.context_attention(support, support, support, real, real)
        return context, attentive

    def param_groups(self) -> dict[str, Group]:
        """Return all parameters except the temperature as one group."""
        return {"head": Group([param for part in self.children() for param in part.parameters()])}

    def _answers(self, task: Task) -> Tensor:
        """Return for each query its N scores and three sums of errors, (B, Q, N + 3).

        The sums are the cross entropy over support examples, and both squared reconstruction errors over classes.
        """
        context, attentive = self.codes(task)
        member, support = task.members().mT[:, None], self.dropout(task.support)  # (B, 1, N, S), (B, S, D)
        dim, size = support.shape[-1], context.shape[-1]

        def answers(block: Tensor) -> Tensor:
            query, attentive = block.tensor_split([dim], -1)
            shape = *query.shape[:2], task.way, size
            codes = torch.cat([context[:, None].expand(shape), attentive[:, :, None].expand(shape)], -1)
            weights, raw = self.generator(codes).chunk(2, -1)  # (B, Q, N, D) each
            if self.training:
                weights = weights + weight_deviation(raw)[0] * torch.randn_like(weights)
            scores = (weights @ query[..., None])[..., 0]
            logits = self.logits(weights @ support.mT[:, None])  # (B, Q, N, S)
            errors = [
                -(logits.log_softmax(2) * member).sum((2, 3)),
                (context[:, None].detach() - self.context_reader(weights)).square().sum((2, 3)),
                (attentive[:, :, None].detach() - self.query_reader(weights)).square().sum((2, 3)),
            ]
            return torch.cat([scores, torch.stack(errors, -1)], -1)

        values = task.way * (5 * dim + 4 * HIDDEN + 4 * size + 3 * support.shape[1])
        return in_blocks(answers, torch.cat([self.dropout(task.query), attentive], -1), values)


class Attention(nn.Module):
    """Multi-head attention and a feed-forward network, each with a residual connection and a norm."""

    def __init__(self, size: int, heads: int, dropout: float, norm: NormOver) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(size, size, bias=False) for _ in range(4))
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.normal_(layer.weight, std=size**-0.5)
        self.first_norm, self.second_norm = Norm(size, norm), Norm(size, norm)
        self.mlp = _mlp(dropout, size, 2 * size, size)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, real: Tensor, queries: Tensor) -> Tensor:
        """Attend from queries (B, Q, d) to keys (B, S, d); `real` (B, S) and `queries` (B, Q) are their masks."""
        parts = (self.query(query), self.key(key), self.value(value))
        heads = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]  # (B, heads, ., d / heads)
        alike = heads[0] @ heads[1].mT / math.sqrt(heads[0].shape[-1])
        read = masked_softmax(alike, real[:, None, None]) @ heads[2]
        x = self.first_norm(query + self.output(read.transpose(1, 2).flatten(2)), queries)
        normed: Tensor = self.second_norm(x + self.mlp(x), queries)
        return normed


class Norm(nn.Module):
    """Normalisation over the channels of a token, or over all real tokens and channels of an episode."""

    def __init__(self, size: int, over: NormOver) -> None:
        super().__init__()
        self.over = over
        self.gain, self.shift = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Normalise tokens (B, T, d); `real` (B, T) is the mask."""
        if self.over == "token":
            return F.layer_norm(x, x.shape[-1:], self.gain, self.shift, EPS)
        share = real[..., None] / (x.shape[-1] * real.sum(1).clamp(min=1))[:, None, None]  # (B, T, 1)
        x = x - (share * x).sum((1, 2), keepdim=True)
        return x * ((share * x.square()).sum((1, 2), keepdim=True) + EPS).rsqrt() * self.gain + self.shift


def _mlp(dropout: float, *sizes: int) -> nn.Sequential:
    """Return dropout and linear layers without biases, with ReLU between them and Glorot's uniform weights."""
    parts: list[nn.Module] = [Dropout(dropout)]
    for i in range(len(sizes) - 1):
        layer = nn.Linear(sizes[i], sizes[i + 1], bias=False)
        nn.init.xavier_uniform_(layer.weight)
        parts += [layer] if i == 0 else [nn.ReLU(), layer]
    return nn.Sequential(*parts)
