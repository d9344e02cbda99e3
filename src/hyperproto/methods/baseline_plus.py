"""Baseline++: a cosine classifier in training; for new classes, a new cosine layer trained on their support."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders import Features
from hyperproto.episodes.random import FINE_TUNING, raw_words
from hyperproto.errors import ConfigError
from hyperproto.methods.base import LEAST_TEMPERATURE
from hyperproto.methods.classifier import Classifier
from hyperproto.methods.task import Task
from hyperproto.regions.arrays import unit

RATE, MOMENTUM, DECAY = 0.01, 0.9, 0.001  # of SGD on the new layer; dampening equals the momentum
RELEASED_BATCH = 4  # support examples in an update of the released code
ORDER, START = 0, 1  # streams of random numbers: order of the support in each epoch, and the initial layer


class BaselinePlus(Classifier):
    """Chen et al., "A Closer Look at Few-shot Classification", ICLR 2019 (Baseline++).

    Training is that of `classifier` with a cosine head over all training classes, at a temperature that starts at 1/30.
    For each episode a new layer is trained on the support by SGD, with a fixed encoder. Its logits are `s_e` times the
    cosine with one vector a class and, with `class_norm`, times a learned norm of the class. Training starts at the
    class means of the unit vectors. Each update uses the whole support; their number is that of `epochs` over
    mini-batches of 4, or `steps`. `batch` uses mini-batches in a random order for each epoch, and `init="random"` a
    random initial layer; both depend on the run's seed and are the same for all episodes. `balanced=True` gives all
    classes equal weight.

    Published: `class_norm=True, temperature=0.5, learn_temperature=False, s_e=2, init="random", batch=4`. Updates of
    the whole support from class means, and `balanced`, are reconstructions; `s_e = 5` is from a user's report.
    """

    start_temperature = 1 / 30

    def __init__(
        self,
        *,
        s_e: float = 5.0,
        epochs: int = 100,
        steps: int | None = None,
        init: Literal["mean", "random"] = "mean",
        batch: int | None = None,
        balanced: bool = False,
        learn_temperature: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(learn_temperature=learn_temperature, **options)
        if self.head != "cosine":
            raise ConfigError(f'baseline-plus has head = "cosine"; classifier has head = "{self.head}"')
        if not LEAST_TEMPERATURE <= s_e <= 1 / LEAST_TEMPERATURE:
            raise ConfigError(f"s_e {s_e} must be a number above 0, such as 5.0")
        if epochs < 0 or (steps is not None and steps < 0) or (batch is not None and batch < 1):
            raise ConfigError(f"epochs {epochs} and steps {steps} must be 0 or more, and batch {batch} at least 1")
        self.s_e, self.init, self.balanced = s_e, init, balanced
        self.epochs, self.steps, self.batch = epochs, steps, batch
        self.register_buffer("run_seed", torch.zeros((), dtype=torch.long))
        if init == "random":
            self.traits = self.traits - {"equivariant"}  # the initial layer depends on the position of a class

    run_seed: Tensor

    def setup(self, pool: Pool, features: Features) -> None:
        """Initialise the training layer at random, and store the run's seed for the layers of episodes."""
        super().setup(pool, features)
        self.run_seed.fill_(torch.initial_seed() % 2**63)

    def scores(self, task: Task) -> Tensor:
        """Train a layer on each support, and return its cosines times class norms, (B, Q, N)."""
        layer, norm = self.fine_tuned(task)
        cosine: Tensor = unit(task.query) @ unit(layer).mT  # (B, Q, N)
        return self.s_e * norm * cosine

    @torch.no_grad()
    def fine_tuned(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return layers (B, N, D) trained on each support, and class norms (B, 1, N), 1 without `class_norm`.

        Updates stay in the span of the support and the initial layer, R vectors. The layer is therefore stored as
        coefficients (B, R, N), and the cost of an update does not depend on D. The gradient of the cosine is explicit.
        """
        batches = UpdateSchedule(task, self)
        basis: Tensor = unit(task.support)  # (B, S, D); padding has no coefficient
        members = task.members()  # (B, S, N)
        shots = members.shape[1]
        if self.init == "mean":
            layer = members / members.sum(1, keepdim=True).clamp(min=1)  # (B, S, N)
        else:
            start = self._drawn(task.way).to(basis).expand(len(basis), -1, -1)  # (B, N, D)
            layer = F.pad(torch.eye(task.way).to(basis), (0, 0, shots, 0)).expand(len(basis), -1, -1)
            basis = torch.cat([basis, start], 1)
        gram = basis @ basis.mT  # (B, R, R)
        norm = lengths(layer, gram @ layer) if self.class_norm else torch.ones_like(layer[:, :1])
        momentum, norm_momentum = torch.zeros_like(layer), torch.zeros_like(norm)
        for update in range(batches.most):
            product = gram @ layer
            length = lengths(layer, product)  # (B, 1, N)
            cosine = product[:, :shots] / length
            share = (self.s_e * norm * cosine).softmax(-1)
            slope = self.s_e * batches.weights(update) * (share - members)  # (B, S, N) of norm times cosine
            along = (slope * cosine).sum(1, keepdim=True)  # (B, 1, N)
            spread = F.pad(slope, (0, 0, 0, gram.shape[1] - shots))
            gradient = norm / length * (spread - along / length * layer) + DECAY * layer
            momentum = momentum.lerp(gradient, 1 - MOMENTUM) if update else gradient
            rate = RATE * batches.going(update)  # (B, 1, 1)
            layer = layer - rate * momentum
            if self.class_norm:
                gradient = along + DECAY * norm
                norm_momentum = norm_momentum.lerp(gradient, 1 - MOMENTUM) if update else gradient
                norm = norm - rate * norm_momentum
        return layer.mT @ basis, norm

    def _drawn(self, way: int) -> Tensor:
        """Return a random layer (N, D), uniform in +-1/sqrt(D), like torch's linear layers."""
        [size] = self.feature_shape
        words = raw_words(int(self.run_seed), FINE_TUNING, 0, way, size, table=START)
        uniform = torch.from_numpy((words >> 11).astype(np.float64) * 2.0**-52 - 1)  # from -1 to 1
        return uniform / math.sqrt(size)


class UpdateSchedule:
    """Weight of each support example in each update of its episode; episodes may differ in size."""

    def __init__(self, task: Task, method: BaselinePlus) -> None:
        self.real = task.support_y >= 0  # (B, S)
        count = self.real.sum(1).clamp(min=1)  # (B,)
        self.size = method.batch
        self.in_epoch = -(-count // (method.batch or RELEASED_BATCH))  # (B,) updates
        self.total = method.epochs * self.in_epoch if method.steps is None else 0 * count + method.steps
        self.least, self.most = int(self.total.min()), int(self.total.max())
        self.weight = self.real.to(task.support)  # of an example, 1 on average
        if method.balanced:
            counts = task.counts()  # (B, N)
            share = (task.members() / counts.clamp(min=1)[:, None]).sum(-1)  # (B, S) of its class
            self.weight = share * (count / (counts > 0).sum(1))[:, None]
        if method.batch is None:
            self.whole = self.weight[..., None] / count[:, None, None]
            return
        epochs = max(1, method.epochs if method.steps is None else method.steps)
        words = raw_words(int(method.run_seed), FINE_TUNING, 0, self.real.shape[1], epochs, table=ORDER)
        self.keys = torch.from_numpy((words >> 11).astype(np.int64)).to(count.device)  # (S, epochs)
        self.periods = set(self.in_epoch.tolist())
        self.table = self.weight.new_zeros(len(count), max(self.periods), *self.weight.shape[1:], 1)  # (B, n, S, 1)
        self.episodes = torch.arange(len(count), device=count.device)

    def going(self, update: int) -> Tensor | float:
        """Return 1 for episodes with updates left, else 0, (B, 1, 1)."""
        return 1.0 if update < self.least else (update < self.total)[:, None, None]

    def weights(self, update: int) -> Tensor:
        """Return the weight of each example in an update, (B, S, 1): a mean over its mini-batch, or over all."""
        if self.size is None:
            return self.whole
        if any(update % period == 0 for period in self.periods):  # an epoch begins
            first = (update % self.in_epoch == 0)[:, None, None, None]
            self.table = torch.where(first, self.shuffled(update // self.in_epoch), self.table)
        return self.table[self.episodes, update % self.in_epoch]

    def shuffled(self, epoch: Tensor) -> Tensor:
        """Return weights (B, n, S, 1) of examples in n mini-batches, in the random order of each `epoch` (B,)."""
        assert self.size is not None
        epoch = epoch.clamp(max=self.keys.shape[1] - 1)  # episodes that are finished
        rows = (self.real.cumsum(1) - 1).clamp(min=0)  # (B, S) index among the real examples
        keys = self.keys[rows, epoch[:, None]].masked_fill(~self.real, torch.iinfo(torch.long).max)
        number = keys.argsort(1).argsort(1) // self.size  # (B, S)
        batches = torch.arange(self.table.shape[1], device=number.device)
        inside = (number[:, None] == batches[:, None]) & self.real[:, None]  # (B, n, S)
        return (self.weight[:, None] * inside / inside.sum(-1, keepdim=True).clamp(min=1))[..., None]


def lengths(layer: Tensor, product: Tensor) -> Tensor:
    """Return the norms of a layer's vectors, (B, 1, N), from coefficients and products with the basis (B, R, N)."""
    square = (layer * product).sum(1, keepdim=True)
    return square.clamp(min=0).sqrt().masked_fill(square <= 0, 1.0)  # a zero vector stays 0
