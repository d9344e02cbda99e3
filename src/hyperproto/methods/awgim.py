"""AWGIM: class weights generated for each query, from which both the class's and the query's code can be read again."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.leo import weight_deviation
from hyperproto.methods.parts import Dropout, in_blocks, masked_softmax
from hyperproto.methods.task import PAD, Task

NormOver = Literal["token", "episode"]
HIDDEN = 256  # units of the generator and of the two networks that read its weights
EPS = 1e-5  # of the norms


class AWGIM(Method):
    """Guo & Cheung, "Attentive Weights Generation for Few Shot Learning via Information Maximization", CVPR 2020.

    Self-attention over the support gives each class a context code of `size` numbers; attention of a query to the
    support gives the query a code of its own. A network turns each pair of codes into the weights by which that query
    is scored against that class: their means in evaluation, a sample of a Gaussian in training. Training also has every
    query's weights classify the support (`support_weight`), and reads the context code (`context_weight`) and the
    query's code (`query_weight`) back from the weights: squared errors, the codes themselves held constant. It is meant
    for the vectors of a frozen encoder, of length 1.

    `norm="token"` normalises the channels of one token, and unequal shots are masked (both reconstructions).
    `norm="episode"` is what the released code does: over all tokens and channels of an episode at once, so that a
    query's scores depend on the other queries of its episode.
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
        """Score each query by the weights generated for it, (B, Q, N)."""
        if self.training:
            return self._answers(task)[..., : task.way]
        context, attentive = self.codes(task)
        dim, size = task.query.shape[-1], context.shape[-1]
        first, last = self.generator[1].weight, self.generator[3].weight
        assert isinstance(first, Tensor)
        assert isinstance(last, Tensor)
        from_context, from_query = F.linear(context, first[:, :size]), F.linear(attentive, first[:, size:])
        read = task.query @ last[:dim]  # (B, Q, 256): q . (W h) = (q W) . h, so that no weights need be made

        def scores(block: Tensor) -> Tensor:
            from_query, read = block.chunk(2, -1)
            hidden = (from_context[:, None] + from_query[:, :, None]).relu()  # (B, Q, N, 256)
            return (hidden @ read[..., None])[..., 0]

        return in_blocks(scores, torch.cat([from_query, read], -1), 2 * from_context[0].numel())

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Cross entropy of the queries and of the support, and the errors of both readings."""
        found = self._answers(task)
        labels = self.labels_of(task)
        assert task.query_y is not None  # or `labels_of` has refused it
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
        """Context codes of the classes, (B, N, d), and attentive codes of the queries, (B, Q, d)."""
        member = task.members()  # (B, S, N)
        share = member / member.sum(1, keepdim=True).clamp(min=1)
        real = task.support_y >= 0
        queries = torch.ones_like(task.query[..., 0], dtype=torch.bool) if task.query_y is None else task.query_y != PAD
        support, query = self.attentive_input(task.support), self.attentive_input(task.query)
        seen = self.support_attention(support, support, support, real, real)
        value = member @ (share.mT @ seen)  # (B, S, d): each example has the mean of its class
        attentive: Tensor = self.query_attention(query, support, value, real, queries)
        support = self.context_input(task.support)
        context: Tensor = share.mT @ self.context_attention(support, support, support, real, real)
        return context, attentive

    def param_groups(self) -> dict[str, Group]:
        """All but the temperature is one dense group."""
        return {"head": Group([param for part in self.children() for param in part.parameters()])}

    def _answers(self, task: Task) -> Tensor:
        """Of each query, (B, Q, N + 3): its scores, and three sums of its weights' errors.

        The cross entropy of the support over examples, and the squared errors of both readings over classes.
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
    """Attention by several heads, then a network on each token, each added to its input and normalised."""

    def __init__(self, size: int, heads: int, dropout: float, norm: NormOver) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(size, size, bias=False) for _ in range(4))
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.normal_(layer.weight, std=size**-0.5)
        self.first_norm, self.second_norm = Norm(size, norm), Norm(size, norm)
        self.mlp = _mlp(dropout, size, 2 * size, size)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, real: Tensor, queries: Tensor) -> Tensor:
        """Attend from each query (B, Q, d) to the keys (B, S, d): `real` (B, S) keys, `queries` (B, Q) real ones."""
        parts = (self.query(query), self.key(key), self.value(value))
        heads = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]  # (B, heads, ., d / heads)
        alike = heads[0] @ heads[1].mT / math.sqrt(heads[0].shape[-1])
        read = masked_softmax(alike, real[:, None, None]) @ heads[2]
        x = self.first_norm(query + self.output(read.transpose(1, 2).flatten(2)), queries)
        normed: Tensor = self.second_norm(x + self.mlp(x), queries)
        return normed


class Norm(nn.Module):
    """Mean 0 and variance 1 over the channels of a token, or over all real tokens and channels of an episode."""

    def __init__(self, size: int, over: NormOver) -> None:
        super().__init__()
        self.over = over
        self.gain, self.shift = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Normalise tokens (B, T, d), of which some are real, (B, T)."""
        if self.over == "token":
            return F.layer_norm(x, x.shape[-1:], self.gain, self.shift, EPS)
        share = real[..., None] / (x.shape[-1] * real.sum(1).clamp(min=1))[:, None, None]  # (B, T, 1)
        x = x - (share * x).sum((1, 2), keepdim=True)
        return x * ((share * x.square()).sum((1, 2), keepdim=True) + EPS).rsqrt() * self.gain + self.shift


def _mlp(dropout: float, *sizes: int) -> nn.Sequential:
    """Dropout, then linear layers without biases, ReLU between them; Glorot's uniform weights."""
    parts: list[nn.Module] = [Dropout(dropout)]
    for i in range(len(sizes) - 1):
        layer = nn.Linear(sizes[i], sizes[i + 1], bias=False)
        nn.init.xavier_uniform_(layer.weight)
        parts += [layer] if i == 0 else [nn.ReLU(), layer]
    return nn.Sequential(*parts)
