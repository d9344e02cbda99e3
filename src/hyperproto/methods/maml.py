"""MAML: an initialisation of encoder and head from which a few gradient steps on the support suffice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Method
from hyperproto.methods.task import Task, TaskItems

Normalise = Callable[[_BatchNorm, Tensor], Tensor]


def batch_norms(network: nn.Module) -> list[_BatchNorm]:
    """All batch norm layers of a network."""
    return [module for module in network.modules() if isinstance(module, _BatchNorm)]


@contextmanager
def batch_norm_by(network: nn.Module, normalise: Normalise) -> Iterator[None]:
    """Let `normalise(layer, x)` compute what every batch norm layer of a network returns, whatever its mode."""
    layers = batch_norms(network)
    for layer in layers:
        layer.forward = partial(normalise, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # that of its class is left


def by_batch(layer: _BatchNorm, x: Tensor) -> Tensor:
    """By mean and biased variance of the rows and positions at hand, as in training."""
    normalised: Tensor = BatchNorm.apply(x, *_weight_and_bias(layer, x), layer.eps)  # type: ignore[no-untyped-call]
    return normalised


def by_stored(layer: _BatchNorm, x: Tensor) -> Tensor:
    """By the running statistics that the layer has stored, as in evaluation; without any, by those at hand."""
    if layer.running_mean is None:
        return by_batch(layer, x)
    assert layer.running_var is not None
    weight, bias = _weight_and_bias(layer, x)
    scale = weight * (layer.running_var + layer.eps).rsqrt()
    return torch.addcmul(_each(bias - layer.running_mean * scale, x), x, _each(scale, x))


class KeptStatistics:
    """Mean and biased variance of some rows at every layer, kept with their gradients, to normalise other rows by.

    A forward by `measure`, then one by `apply`, give what one forward over the rows of both would, if each layer took
    its statistics from the first rows only.
    """

    def __init__(self) -> None:
        self.kept: dict[_BatchNorm, tuple[Tensor, Tensor]] = {}  # scale and shift of each channel

    def measure(self, layer: _BatchNorm, x: Tensor) -> Tensor:
        """Keep the statistics of these rows, and normalise them."""
        mean = x.mean(_others(x), keepdim=True)
        variance = (x - mean).square().mean(_others(x))  # torch.var takes several times as long on a CPU
        weight, bias = _weight_and_bias(layer, x)
        scale = weight * (variance + layer.eps).rsqrt()
        self.kept[layer] = scale, bias - mean.flatten() * scale
        return self.apply(layer, x)

    def apply(self, layer: _BatchNorm, x: Tensor) -> Tensor:
        """Normalise other rows by the statistics kept."""
        scale, shift = self.kept[layer]
        zero, one = torch.zeros_like(scale), torch.ones_like(scale)  # x * scale + shift, in one kernel
        return torch.batch_norm(x, scale, shift, zero, one, False, 0.0, 0.0, False)


class BatchNorm(Function):
    """weight * xhat + bias with xhat = (x - mean) * inverse, for x (n, C, ...); it can be differentiated twice.

    `mean` is that of a channel, `inverse` one over its standard deviation. torch's own second derivative of batch norm
    takes several times as long as the one written out here.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        """Normalise."""
        y, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
        ctx.save_for_backward(x, weight, mean, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for x, weight and bias."""
        return *BatchNormGradient.apply(g, *ctx.saved_tensors), None  # type: ignore[no-untyped-call]


class BatchNormGradient(Function):
    """The gradients of batch norm: with <.> the mean of a channel, weight inverse (g - <g> - xhat <g xhat>) for x,
    sum(g xhat) for weight and sum(g) for bias.
    """

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor) -> tuple[Tensor, ...]:
        """Compute the three, given the gradient g of what batch norm returned."""
        found = _gradients(g, x, weight, mean, inverse)
        ctx.save_for_backward(g, x, weight, mean, inverse, *found[1:])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor, v_weight: Tensor, v_bias: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for g, x and weight; mean and inverse follow from x, and count as such.

        v, v_weight and v_bias are the gradients of the three.
        """
        g, x, weight, mean, inverse, g_xhat, g_sum = ctx.saved_tensors
        size, slope = x.numel() / x.shape[1], weight * inverse
        for_g, v_xhat, v_sum = _gradients(v, x, weight, mean, inverse)
        p, q = v_xhat / size, g_xhat / size  # <v xhat>, <g xhat>
        alike = (v * g).sum(_others(x)) / size - v_sum * g_sum / size**2 - p * q
        a, b = -slope * q, v_weight - slope * p  # the gradient for xhat is a v + b g
        along = inverse * (a * p + b * q + slope * alike)  # what it has of xhat in the gradient for x
        level = inverse * (a * v_sum + b * g_sum) / size

        for_x = v * _each(inverse * a, x)
        for_x.addcmul_(g, _each(inverse * b, x)).addcmul_(x, _each(-along * inverse, x))
        for_x.add_(_each(along * inverse * mean - level, x))
        for_g.addcmul_(x, _each(v_weight * inverse, x)).add_(_each(v_bias - v_weight * inverse * mean, x))
        return for_g, for_x, inverse * alike * size, None, None


def _gradients(g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor) -> tuple[Tensor, ...]:
    channels_last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    g = g.contiguous(
        memory_format=torch.channels_last if channels_last else torch.contiguous_format
    )  # ten times faster
    found: tuple[Tensor, ...] = torch.ops.aten.native_batch_norm_backward(
        g, x, weight, None, None, mean, inverse, True, 0.0, [True, True, True]
    )
    return found


def _weight_and_bias(layer: _BatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
    """The learned scale and shift of each channel; 1 and 0 where a layer learns none."""
    return (layer.weight, layer.bias) if layer.affine else (x.new_ones(x.shape[1]), x.new_zeros(x.shape[1]))


def _each(channel: Tensor, x: Tensor) -> Tensor:
    """A number for each channel, (C,), so that it meets x (n, C, ...)."""
    return channel.view(1, -1, *[1] * (x.ndim - 2))


def _others(x: Tensor) -> list[int]:
    """All axes of x (n, C, ...) but that of the channels."""
    return [axis for axis in range(x.ndim) if axis != 1]


Weights = dict[str, Tensor]
WEIGHT, BIAS = "head/weight", "head/bias"  # among the weights that move; no parameter of an encoder has such a name


class MAML(Method):
    """Finn et al., "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017.

    theta_0 is what is learned: the encoder's weights and a linear head with an output for each class of an episode.
    `steps` times in training, `test_steps` times in evaluation, theta_t = theta_{t-1} - `inner_rate` grad L_t, where
    L_t is the mean cross entropy of the support. The scores of a query are the head's outputs with the last weights,
    and the loss is their cross entropy. `adapt="head"` moves the head only. The original's inner loss is N times the
    mean: its rate 0.01 in 5-way episodes is 0.05 here.

    `order=2`: the gradient of the loss passes through the inner gradients. `order=1`: these are constants, and no graph
    of the inner steps is kept.

    Batch norm, in training and evaluation alike: `norm="support"` normalises support and queries by the statistics of
    the support at the weights of the moment, so that no query sees another (reconstruction: ours). "episode" is the
    published way: queries are normalised by their own statistics, which makes it transductive. "running" takes the
    statistics that the encoder has stored, and leaves them as they are. Running statistics are updated by none of them.
    """

    reads: ClassVar = "items"
    transforms = ("none", "unit")
    traits = frozenset({"any-shot", "unequal-shots"})

    def __init__(
        self,
        *,
        order: Literal[1, 2] = 2,
        adapt: Literal["all", "head"] = "all",
        norm: Literal["support", "episode", "running"] = "support",
        inner_rate: float = 0.05,
        steps: int = 5,
        test_steps: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if self.way is None:
            raise ConfigError(
                "MAML has an output for each class of an episode: say how many there are, such as way = 5"
            )
        if len(self.feature_shape) != 1:
            raise ConfigError(
                f"MAML has a linear head over vectors, but the encoder gives units of shape {self.feature_shape}; "
                "leave output out of [encoder]"
            )
        if not inner_rate > 0:
            raise ConfigError(f"inner_rate {inner_rate} must be above 0, such as 0.05")
        for name, count in (("steps", steps), ("test_steps", test_steps)):
            if count < 0:
                raise ConfigError(f"{name} {count}: the number of inner steps is at least 0, such as 5")
        self.order = order
        self.adapt = adapt
        self.norm = norm
        self.inner_rate = inner_rate
        self.steps = steps
        self.test_steps = test_steps
        if norm == "episode":
            self.traits = self.traits | {"transductive"}
        self.head = nn.Linear(self.feature_shape[0], self.way)
        nn.init.zeros_(self.head.bias)

    def scores(self, task: Task) -> Tensor:
        """Adapt to each episode in turn; gradients flow to theta_0 where the caller wants any."""
        if task.items is None:
            raise ConfigError("MAML adapts the encoder and reads the items themselves: the task has no items")
        if task.way != self.way:
            raise ConfigError(
                f"MAML was made for {self.way} classes an episode, but these have {task.way}; train it so"
            )
        learns = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():  # inner steps need gradients, whatever the caller does
            found = [self._episode(task.items, b, y[y >= 0], learns) for b, y in enumerate(task.support_y)]
        queries = task.query.shape[1]
        return torch.stack([F.pad(scores, (0, 0, 0, queries - len(scores))) for scores in found])

    def _episode(self, items: TaskItems, episode: int, y: Tensor, learns: bool) -> Tensor:
        """Scores (Q, N) of an episode's queries after the inner steps on its support, labelled y (S,)."""
        support, query = items.batch(items.support[episode]), items.batch(items.query[episode])
        encoder = items.features.encoder
        inner = by_stored if self.norm == "running" else by_batch
        keeps_graph = learns and self.order == 2

        def vectors(batch: Any, theta: Weights, normalise: Normalise) -> Tensor:
            own = {name: weight for name, weight in theta.items() if name not in (WEIGHT, BIAS)}
            with batch_norm_by(encoder, normalise):
                found: Tensor = items.features(batch, own).x
            return found

        theta: Weights = {WEIGHT: self.head.weight, BIAS: self.head.bias}
        fixed = None  # the support's vectors, where only the head moves
        if self.adapt == "all":
            theta |= dict(encoder.named_parameters())
        else:
            with torch.set_grad_enabled(keeps_graph):
                fixed = vectors(support, theta, inner)

        def loss(theta: Weights) -> Tensor:
            x = vectors(support, theta, inner) if fixed is None else fixed
            return F.cross_entropy(F.linear(x, theta[WEIGHT], theta[BIAS]), y)

        steps = self.steps if self.training else self.test_steps
        theta = descended(theta, loss, rate=self.inner_rate, steps=steps, keeps_graph=keeps_graph)
        with torch.set_grad_enabled(learns):
            last = inner
            if self.norm == "support" and batch_norms(encoder):
                kept = KeptStatistics()
                vectors(support, theta, kept.measure)
                last = kept.apply
            return F.linear(vectors(query, theta, last), theta[WEIGHT], theta[BIAS])


def descended(
    theta: Weights, loss: Callable[[Weights], Tensor], *, rate: float, steps: int, keeps_graph: bool
) -> Weights:
    """Take steps down the gradient of a loss; with `keeps_graph` the gradients themselves can be differentiated.

    Without, they are constants: the result then differs from the start by a constant, and its gradient is the start's.
    """
    theta = {name: w if w.requires_grad else w.detach().requires_grad_() for name, w in theta.items()}
    for _ in range(steps):
        gradients = torch.autograd.grad(
            loss(theta), list(theta.values()), create_graph=keeps_graph, materialize_grads=True
        )
        theta = {name: w - rate * g for (name, w), g in zip(theta.items(), gradients, strict=True)}
    return theta
