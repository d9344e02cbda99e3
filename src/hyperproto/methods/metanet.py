"""Meta networks: fast weights, generated from gradients of the support, complement trained slow weights."""

import math
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks, masked_max
from hyperproto.methods.task import Task

WIDTH = 20  # hidden units of a network that maps coordinates of gradients to weights
SMALLEST = math.exp(-7)  # e^-p: smaller coordinates are scaled, larger ones become logarithms
START = 0.01  # factor on the initial last layers of these networks, so that fast weights start small


class Windows(NamedTuple):
    """Input of a layer: L windows of each of n units; its output is the maximum over real windows.

    A vector is one window. A sentence has one window for each word.
    """

    x: Tensor  # (n, L, P)
    real: Tensor  # (n, L) bool

    def take(self, rows: Tensor) -> "Windows":
        """Return some of the units."""
        return Windows(self.x[rows], self.real[rows])


class MetaNet(Method):
    """Munkhdalai and Yu, "Meta Networks", ICML 2017, as the FewRel toolkit adapts it to relations.

    Two networks of two layers, base (W1, W2) and representation (R1, R2), have trained slow weights. From the gradient
    of the base network's loss on each support example, small networks generate fast weights, coordinate by coordinate;
    likewise those of the representation's first layer from the gradient over the whole support. A query mixes the fast
    weights of the support examples by a softmax over cosines of representations. Activations of slow and fast weights
    are added. The number of classes is fixed in training; the outputs are in the order of the labels.

    Gradients are computed in closed form and are constants: training is first order. The loss term `emb` is the
    representation's cross entropy on the support (our addition: nothing else trains R2).

    Reconstruction: the layer with fast weights has `hidden` units on the encoder's vectors; in the toolkit it is the
    CNN's convolution, as in `metanet-conv`. The toolkit's code does not run, loses the sign of gradients, and reads the
    coordinates of one gradient as a sequence; here the LSTM takes one step for each coordinate.
    """

    traits = frozenset({"any-shot", "unequal-shots"})
    bias: ClassVar[bool] = False  # of the first layers

    def __init__(self, *, hidden: int = 64, **options: Any) -> None:
        super().__init__(**options)
        if self.way is None:
            raise ConfigError(
                f"{type(self).__name__} has an output for each class of an episode, but way is not given; "
                "train it with episodes of one way"
            )
        if hidden < 1:
            raise ConfigError(f"hidden {hidden}: a layer has at least 1 unit, such as 64")
        self.base = nn.Linear(self._width(), hidden, bias=self.bias)  # W1
        self.base_out = nn.Linear(hidden, self.way, bias=False)  # W2
        self.representation = nn.Linear(self._width(), hidden, bias=self.bias)  # R1
        self.representation_out = nn.Linear(hidden, self.way, bias=False)  # R2
        self.base_fast = FastWeights(_two_layers())  # m1
        self.base_out_fast = FastWeights(_two_layers())  # m2
        self.representation_fast = FastWeights(LSTMStep())  # d

    def scores(self, task: Task) -> Tensor:
        """Return the scores of the base network with mixed fast weights, (B, Q, N)."""
        return self._scored(task)[0]

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of the queries, and of the support under the representation's slow weights."""
        scores, embedding = self._scored(task)
        return {"cls": self.cross_entropy(scores, task), "emb": embedding}

    def param_groups(self) -> dict[str, Group]:
        """Return the networks that generate weights as a group; slow weights are trained with the encoder."""
        networks = self.base_fast, self.base_out_fast, self.representation_fast
        return {"meta": Group([parameter for network in networks for parameter in network.parameters()])}

    @torch.no_grad()
    def representation_gradient(self, support: Windows, y: Tensor) -> Tensor:
        """Return the gradient of the support's mean cross entropy by R1, (H, P)."""
        h, best = _at_maximum(support, self.representation)  # (S, H), (S, H, P)
        wrong = self._wrong(self.representation_out(h), y) / len(y)  # (S, N)
        g = wrong @ self.representation_out.weight * (h > 0)  # (S, H)
        return torch.einsum("sh,shp->hp", g, best)

    @torch.no_grad()
    def base_gradients(self, support: Windows, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of each support example's cross entropy by W1, (S, H, P), and W2, (S, N, H)."""
        h, best = _at_maximum(support, self.base)
        wrong = self._wrong(self.base_out(h), y)  # (S, N)
        g = wrong @ self.base_out.weight * (h > 0)  # (S, H)
        return g[..., None] * best, wrong[..., None] * h[:, None]

    def represented(self, units: Windows, fast: Tensor) -> Tensor:
        """Return representations of unit length, (n, H), with fast weights (H, P) besides the slow ones."""
        both = activated(self.representation(units.x), units.real) + activated(units.x @ fast.mT, units.real)
        return F.normalize(both, dim=-1)

    def _scored(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return scores (B, Q, N), and the mean over episodes of the representation's loss."""
        if task.way != self.way:
            raise ConfigError(
                f"{type(self).__name__} was made for {self.way} classes, but these episodes have {task.way}; "
                f"use its own number, or train it {task.way}-way"
            )
        found = []
        for n, y in enumerate(task.support_y):
            real = y >= 0
            support = self._windows(task.support[n], None if task.support_mask is None else task.support_mask[n])
            query = self._windows(task.query[n], None if task.query_mask is None else task.query_mask[n])
            found.append(self._episode(support.take(real), y[real], query))
        scores, losses = zip(*found, strict=True)
        return torch.stack(scores), torch.stack(losses).mean()

    def _episode(self, support: Windows, y: Tensor, query: Windows) -> tuple[Tensor, Tensor]:
        """Return the scores (Q, N) of an episode's queries, and the representation's loss on its support."""
        embedded = activated(self.representation(support.x), support.real)  # (S, H)
        embedding_loss = F.cross_entropy(self.representation_out(embedded), y)
        fast = self.representation_fast(self.representation_gradient(support, y))  # (H, P)
        keys = self.represented(support, fast)  # (S, H)
        base, base_out = self.base_gradients(support, y)
        base, base_out = self.base_fast(base), self.base_out_fast(base_out)  # (S, H, P), (S, N, H)

        def scores(rows: Tensor) -> Tensor:
            some = query.take(rows[0])
            attention = (self.represented(some, fast) @ keys.mT).softmax(-1)  # (Q, S)
            h = activated(self.base(some.x), some.real) + self._mixed(some, attention, base)  # (Q, H)
            by_example = torch.einsum("snh,qh->qsn", base_out, h)
            mixed: Tensor = self.base_out(h) + torch.einsum("qs,qsn->qn", attention, by_example)
            return mixed[None]

        length, width = query.x.shape[1:]
        held = keys.shape[1] * (len(keys) + width + 3 * length)  # values of a query
        rows = torch.arange(len(query.x), device=y.device)
        return in_blocks(scores, rows[None], held)[0], embedding_loss

    def _width(self) -> int:
        """Return the size P of a window."""
        return self.feature_shape[0]

    def _windows(self, x: Tensor, mask: Tensor | None) -> Windows:
        """Return the windows of units x (n, *feature_shape)."""
        return Windows(x[:, None], torch.ones_like(x[:, :1], dtype=torch.bool))

    def _mixed(self, query: Windows, attention: Tensor, fast: Tensor) -> Tensor:
        """Return activations (Q, H) of the mean of fast weights (S, H, P), weighted by attention (Q, S)."""
        by_example = torch.einsum("shp,qp->qsh", fast, query.x[:, 0])
        return torch.einsum("qs,qsh->qh", attention, by_example).relu()

    def _wrong(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of each row's cross entropy by its logits."""
        return logits.softmax(-1) - F.one_hot(y, logits.shape[-1])


class FastWeights(nn.Module):
    """Network from each coordinate of gradients to a weight; `reader` maps its two features to WIDTH values."""

    def __init__(self, reader: nn.Module) -> None:
        super().__init__()
        self.reader = reader
        self.out = nn.Linear(WIDTH, 1)
        with torch.no_grad():
            for parameter in self.out.parameters():
                parameter.mul_(START)

    def forward(self, gradients: Tensor) -> Tensor:
        """Return weights of the gradients' shape (n, ...), computed in blocks."""
        return in_blocks(self._generated, gradients[None], 4 * WIDTH * gradients[0].numel())[0]

    def _generated(self, gradients: Tensor) -> Tensor:
        weights: Tensor = self.out(self.reader(two_scales(gradients).flatten(0, -2)))
        return weights.view_as(gradients)


class LSTMStep(nn.Module):
    """State of an LSTM cell after one step from zero."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(2, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, 2) to (n, WIDTH)."""
        state: Tensor = self.cell(x)[0]
        return state


def two_scales(gradients: Tensor) -> Tensor:
    """Return each coordinate g as (log|g| / p, sign g) if |g| >= e^-p, else (-1, e^p g): (..., 2), with p = 7."""
    size = gradients.abs().clamp(min=SMALLEST).log() / -math.log(SMALLEST)
    return torch.stack([size, (gradients / SMALLEST).clamp(-1, 1)], -1)


def _two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())


def activated(x: Tensor, real: Tensor) -> Tensor:
    """Return ReLU of the maximum over real windows, (n, H), of values (n, L, H)."""
    return masked_max(x, real[..., None], dim=1).relu()


def _at_maximum(units: Windows, layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Return a layer's activations (n, H), and the window of each maximum, (n, H, P)."""
    values = layer(units.x).masked_fill(~units.real[..., None], -torch.inf)  # (n, L, H)
    place = values.argmax(1)  # (n, H)
    best = units.x.gather(1, place[..., None].expand(-1, -1, units.x.shape[-1]))
    return values.amax(1).relu(), best


REACH = 3  # width of a filter in words


class MetaNetConv(MetaNet):
    """Munkhdalai and Yu, "Meta Networks", ICML 2017, with fast weights in the convolution, as in the FewRel toolkit.

    The first layers of `metanet` are convolutions of `hidden` filters over three words, ReLU, and the maximum over the
    sentence, as in `relation-cnn`: one for the base network, one for the representation, on shared word embeddings. The
    gradient of a filter is that of the window at its maximum. Slow filters have a bias, fast ones none.
    """

    reads: ClassVar = "tokens"
    token_output: ClassVar = "embeddings"
    transforms = ("none",)
    bias: ClassVar[bool] = True

    def __init__(self, *, hidden: int = 230, **options: Any) -> None:
        super().__init__(hidden=hidden, **options)

    def _width(self) -> int:
        return REACH * self.feature_shape[1]

    def _windows(self, x: Tensor, mask: Tensor | None) -> Windows:
        """Return windows of three words, (n, L, C * 3), with zeros beyond the ends of a sentence."""
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask  # (n, L)
        x = x.masked_fill(~real[..., None], 0.0)
        return Windows(F.pad(x, (0, 0, 1, 1)).unfold(1, REACH, 1).flatten(2), real)

    def _mixed(self, query: Windows, attention: Tensor, fast: Tensor) -> Tensor:
        """Convolve each query with its mixture of filters."""
        filters = torch.einsum("qs,shp->qhp", attention, fast)
        return activated(query.x @ filters.mT, query.real)
