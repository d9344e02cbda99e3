"""MAML: an initialisation of encoder and head that adapts to the support in a few gradient steps."""

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
    """Return all batch norm layers of a network."""
    return [module for module in network.modules() if isinstance(module, _BatchNorm)]


@contextmanager
def batch_norm_by(network: nn.Module, normalise: Normalise) -> Iterator[None]:
    """Replace the forward pass of every batch norm layer of a network by `normalise(layer, x)` in this context."""
    layers = batch_norms(network)
    for layer in layers:
        layer.forward = partial(normalise, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # restores the method of the class


def by_batch(layer: _BatchNorm, x: Tensor) -> Tensor:
    """Normalise by mean and biased variance of the batch, as in training."""
    normalised: Tensor = BatchNorm.apply(x, *_weight_and_bias(layer, x), layer.eps)  # type: ignore[no-untyped-call]
    return normalised


def by_stored(layer: _BatchNorm, x: Tensor) -> Tensor:
    """Normalise by the layer's running statistics, as in evaluation; by the batch if it has none."""
    if layer.running_mean is None:
        return by_batch(layer, x)
    assert layer.running_var is not None
    weight, bias = _weight_and_bias(layer, x)
    scale = weight * (layer.running_var + layer.eps).rsqrt()
    return torch.addcmul(_each(bias - layer.running_mean * scale, x), x, _each(scale, x))


class KeptStatistics:
    """Statistics of some rows at every layer, stored with their gradients to normalise other rows.

    A forward pass with `measure` on the first rows, then one with `apply` on others, equals one pass over both in which
    every layer takes its statistics from the first rows only.
    """

    def __init__(self) -> None:
        self.kept: dict[_BatchNorm, tuple[Tensor, Tensor]] = {}  # scale and shift of each channel

    def measure(self, layer: _BatchNorm, x: Tensor) -> Tensor:
        """Store the statistics of these rows, and normalise them."""
        mean = x.mean(_others(x), keepdim=True)
        variance = (x - mean).square().mean(_others(x))  # torch.var is several times slower on a CPU
        weight, bias = _weight_and_bias(layer, x)
        scale = weight * (variance + layer.eps).rsqrt()
        self.kept[layer] = scale, bias - mean.flatten() * scale
        return self.apply(layer, x)

    def apply(self, layer: _BatchNorm, x: Tensor) -> Tensor:
        """Normalise other rows by the stored statistics."""
        scale, shift = self.kept[layer]
        zero, one = torch.zeros_like(scale), torch.ones_like(scale)  # x * scale + shift, in one kernel
        return torch.batch_norm(x, scale, shift, zero, one, False, 0.0, 0.0, False)


class BatchNorm(Function):
    """Twice differentiable batch norm: weight * xhat + bias with xhat = (x - mean) * inverse, for x (n, C, ...).

    `mean` is that of a channel, `inverse` one over its standard deviation. The explicit second derivative is several
    times faster than torch's.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        """Normalise by the statistics of the batch."""
        y, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
        ctx.save_for_backward(x, weight, mean, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients for x, weight and bias."""
        return *BatchNormGradient.apply(g, *ctx.saved_tensors), None  # type: ignore[no-untyped-call]


class BatchNormGradient(Function):
    """Gradients of batch norm for input, weight and bias, as a function that can itself be differentiated.

    For the input: weight * inverse * (g - <g> - xhat <g xhat>), with <.> the mean over a channel. For the weight:
    sum(g xhat). For the bias: sum(g).
    """

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor) -> tuple[Tensor, ...]:
        """Return the three gradients, given the gradient g of the output."""
        found = _gradients(g, x, weight, mean, inverse)
        ctx.save_for_backward(g, x, weight, mean, inverse, *found[1:])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor, v_weight: Tensor, v_bias: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients for g, x and weight; mean and inverse are treated as functions of x.

        v, v_weight and v_bias are the gradients of the three outputs.
        """
        g, x, weight, mean, inverse, g_xhat, g_sum = ctx.saved_tensors
        size, slope = x.numel() / x.shape[1], weight * inverse
        for_g, v_xhat, v_sum = _gradients(v, x, weight, mean, inverse)
        p, q = v_xhat / size, g_xhat / size  # <v xhat>, <g xhat>
        alike = (v * g).sum(_others(x)) / size - v_sum * g_sum / size**2 - p * q
        a, b = -slope * q, v_weight - slope * p  # the gradient for xhat is a v + b g
        along = inverse * (a * p + b * q + slope * alike)  # component along xhat in the gradient for x
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
    )  # ten times faster with the layout of x
    found: tuple[Tensor, ...] = torch.ops.aten.native_batch_norm_backward(
        g, x, weight, None, None, mean, inverse, True, 0.0, [True, True, True]
    )
    return found


def _weight_and_bias(layer: _BatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the learned scale and shift of each channel; 1 and 0 if the layer has none."""
    return (layer.weight, layer.bias) if layer.affine else (x.new_ones(x.shape[1]), x.new_zeros(x.shape[1]))


def _each(channel: Tensor, x: Tensor) -> Tensor:
    """Reshape an array of channels (C,) for broadcasting with x (n, C, ...)."""
    return channel.view(1, -1, *[1] * (x.ndim - 2))


def _others(x: Tensor) -> list[int]:
    """Return all axes of x (n, C, ...) except that of the channels."""
    return [axis for axis in range(x.ndim) if axis != 1]


Weights = dict[str, Tensor]
WEIGHT, BIAS = "head/weight", "head/bias"  # keys among the adapted weights; no encoder parameter has such a name


class MAML(Method):
    """Finn et al., "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017.

    theta_0, the initial weights of the encoder and of a linear head with one output a class, is trained. Inner steps
    are theta_t = theta_{t-1} - `inner_rate` grad L_t, `steps` times in training and `test_steps` times in evaluation,
    where L_t is the mean cross entropy of the support. The scores of a query are the head's outputs with the final
    weights, and the loss is their cross entropy. `adapt="head"` adapts the head only. The inner loss of the original
    code is N times the mean: its rate 0.01 in 5-way episodes is 0.05 here.

    With `order=2` the gradient of the loss includes second derivatives. With `order=1` inner gradients are constants,
    and no graph of the inner steps is kept.

    Batch norm, both in training and evaluation: `norm="support"` normalises support and queries by the statistics of
    the support at the current weights, so that queries are independent (our reconstruction). "episode" is the published
    version: queries are normalised by their own statistics, which is transductive. "running" uses the encoder's stored
    statistics. None of them updates the running statistics.
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
            raise ConfigError("MAML has an output for each class of an episode: give their number, such as way = 5")
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
        """Adapt to each episode, and return the scores (B, Q, N), with gradients to theta_0 if they are enabled."""
        if task.items is None:
            raise ConfigError("MAML adapts the encoder and reads the items themselves: the task has no items")
        if task.way != self.way:
            raise ConfigError(
                f"MAML was made for {self.way} classes an episode, but these have {task.way}; train it so"
            )
        learns = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():  # inner steps always need gradients
            found = [self._episode(task.items, b, y[y >= 0], learns) for b, y in enumerate(task.support_y)]
        queries = task.query.shape[1]
        return torch.stack([F.pad(scores, (0, 0, 0, queries - len(scores))) for scores in found])

    def _episode(self, items: TaskItems, episode: int, y: Tensor, learns: bool) -> Tensor:
        """Return the scores (Q, N) of an episode's queries after inner steps on its support with labels y (S,)."""
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
        fixed = None  # vectors of the support, if only the head is adapted
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
    """Take gradient steps on a loss; with `keeps_graph` the gradients can be differentiated.

    Otherwise they are constants: the result is the start plus a constant, and its gradient that of the start.
    """
    theta = {name: w if w.requires_grad else w.detach().requires_grad_() for name, w in theta.items()}
    for _ in range(steps):
        gradients = torch.autograd.grad(
            loss(theta), list(theta.values()), create_graph=keeps_graph, materialize_grads=True
        )
        theta = {name: w - rate * g for (name, w), g in zip(theta.items(), gradients, strict=True)}
    return theta
