"""MAML: an initialisation of encoder and head from which a few gradient steps on the support suffice."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Method
from hyperproto.methods.batch_norm import KeptStatistics, Normalise, batch_norm_by, batch_norms, by_batch, by_stored
from hyperproto.methods.task import Task, TaskItems

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
