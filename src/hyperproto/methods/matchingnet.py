"""Matching networks: a query's label is a mixture of the support's labels, weighted by a softmax of cosines."""

from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hyperproto.errors import ConfigError
from hyperproto.methods.base import LEAST_TEMPERATURE, Group, Method
from hyperproto.methods.parts import in_blocks, masked_softmax
from hyperproto.methods.task import Task
from hyperproto.regions.arrays import unit


class MatchingNet(Method):
    """Vinyals et al., "Matching Networks for One Shot Learning", NeurIPS 2016.

    The probability of a class is the total attention to its examples: a softmax over the whole support of `scale` times
    the cosine with the query. The score of a class is the logsumexp over its examples; it grows with their number,
    unless `balance` subtracts the logarithm of the number.

    `fce = True` embeds support and queries in the context of the support: by a bidirectional LSTM over the support, in
    its order (shuffled in training), and by an LSTM that attends to the support `steps` times for each query. `width`
    adds a linear layer before everything, since the LSTMs are as wide as the vectors.

    Reconstruction: the paper has no scale. The code of Chen et al. (2019) has 100 after a ReLU of the cosine
    (`relu=True, scale=100, learn_scale=False`), as many steps as support examples, and adds 1e-6 to each probability
    (`floor`). Here the scale is learned from 10, `steps` is 5 and there is no floor. `width` and `balance` are our
    additions.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})

    def __init__(
        self,
        *,
        scale: float = 10.0,
        learn_scale: bool = True,
        relu: bool = False,
        balance: bool = False,
        fce: bool = False,
        steps: int = 5,
        width: int | None = None,
        floor: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if not LEAST_TEMPERATURE <= scale <= 1 / LEAST_TEMPERATURE:
            raise ConfigError(f"scale {scale} must be a number above 0, such as 10.0")
        if steps < 0 or (width is not None and width < 1):
            raise ConfigError(f"steps {steps} must be 0 or more, and width {width} at least 1")
        if not 0 <= floor < 1:
            raise ConfigError(f"floor {floor} must be a probability from 0 to below 1, such as 1e-6")
        [size] = self.feature_shape
        self.relu, self.balance, self.fce, self.steps, self.floor = relu, balance, fce, steps, floor
        self.log_scale = nn.Parameter(torch.tensor(log(scale)), requires_grad=learn_scale)
        self.narrow = nn.Identity() if width is None else nn.Linear(size, width)
        self.context = nn.ModuleDict()
        if fce:
            self.traits = self.traits - {"untrained"}
            size = width or size
            self.context["support"] = nn.LSTM(size, size, batch_first=True, bidirectional=True)
            self.context["query"] = nn.LSTMCell(2 * size, size)

    def scores(self, task: Task) -> Tensor:
        """Return the logsumexp of scaled cosines with the examples of each class, (B, Q, N)."""
        support, query = self.narrow(task.support), self.narrow(task.query)
        real = task.support_y >= 0  # (B, S)
        if self.fce:
            support = self.read_support(support, real)
        directions, members = unit(support), task.members().bool()  # (B, S, D), (B, S, N)
        few = task.counts().clamp(min=1).log()[:, None] if self.balance else 0.0  # (B, 1, N)

        def score(query: Tensor) -> Tensor:
            if self.fce:
                query = self.read_query(query, support, real)
            cosine: Tensor = unit(query) @ directions.mT  # (B, Q, S)
            match = self.log_scale.exp() * (cosine.relu() if self.relu else cosine)
            others = ~members.mT[:, :, None]  # (B, N, 1, S)
            sums = [match.masked_fill(others[:, n], -torch.inf).logsumexp(-1) for n in range(task.way)]
            scores = torch.stack(sums, -1) - few  # (B, Q, N)
            return (scores.softmax(-1) + self.floor).log() if self.floor else scores

        states = 8 * query.shape[-1] if self.fce else 0  # values of the LSTM: inputs, gates, cell
        return in_blocks(score, query, states + 3 * support.shape[1])

    def read_support(self, support: Tensor, real: Tensor) -> Tensor:
        """Return support vectors plus the outputs of a bidirectional LSTM, g (B, S, D); padding is skipped."""
        rank = torch.rand(real.shape, device=real.device) if self.training else torch.zeros_like(support[..., 0])
        order = rank.masked_fill(~real, torch.inf).argsort(dim=1, stable=True)[..., None].expand_as(support)
        rows = support.gather(1, order)  # real ones first
        packed = pack_padded_sequence(rows, real.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        read, _ = pad_packed_sequence(self.context["support"](packed)[0], batch_first=True, total_length=real.shape[1])
        forward, backward = read.chunk(2, -1)  # (B, S, D) each
        return support + torch.zeros_like(support).scatter(1, order, forward + backward)

    def read_query(self, query: Tensor, support: Tensor, real: Tensor) -> Tensor:
        """Embed queries (B, Q, D) by `steps` steps of an LSTM that attends to the support g (B, S, D)."""
        hidden, cell = query, torch.zeros_like(query)
        for _ in range(self.steps):
            share = masked_softmax(hidden @ support.mT, real[:, None])  # (B, Q, S)
            read = torch.cat([query, share @ support], -1).flatten(0, 1)  # (B Q, 2 D)
            states = self.context["query"](read, (hidden.flatten(0, 1), cell.flatten(0, 1)))
            hidden, cell = states[0].view_as(query) + query, states[1].view_as(query)
        return hidden

    def param_groups(self) -> dict[str, Group]:
        """Return the LSTMs and the linear layer, if any, as the group `head`."""
        params = [*self.narrow.parameters(), *self.context.parameters()]
        return {"head": Group(params)} if params else {}

    def monitor(self) -> dict[str, float | list[float]]:
        """Return the scale of the cosines."""
        return {"scale": float(self.log_scale.detach().exp())}
