"""Classifier over all training classes: a baseline, and the pre-training stage of other methods."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders import Features
from hyperproto.errors import ConfigError
from hyperproto.methods.cosine import Cosine
from hyperproto.methods.task import Task
from hyperproto.regions.arrays import unit


class Classifier(Cosine):
    """Chen et al., "Meta-Baseline", 2021 (there: Classifier-Baseline).

    Training minimises the cross entropy of one layer over all training classes; new classes are scored by cosine
    prototypes. `head="linear"` is Classifier-Baseline; `head="cosine"` compares directions, as Baseline++ (Chen et al.,
    "A Closer Look at Few-shot Classification", 2019). `class_norm=True` multiplies the cosine of each class by a
    learned number (weight normalisation), as in the released code of Baseline++. Training uses `[batches]` of items, or
    the queries of episodes.
    """

    needs_support = False  # training uses queries only

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        n_classes: int,
        head: Literal["linear", "cosine"] = "cosine",
        class_norm: bool = False,
        label_smoothing: float = 0.0,
        temperature: float | None = None,
        **options: Any,
    ) -> None:
        if temperature is None and head == "linear":
            temperature = 1.0
        super().__init__(feature_shape=feature_shape, n_classes=n_classes, temperature=temperature, **options)
        if class_norm and head == "linear":
            raise ConfigError('class_norm is for head = "cosine"; the weights of a linear head have lengths already')
        self.head = head
        self.class_norm = class_norm
        self.label_smoothing = label_smoothing
        self.weight = nn.Parameter(torch.zeros(n_classes, *feature_shape))
        if head == "linear":
            self.bias = nn.Parameter(torch.zeros(n_classes))
        if class_norm:
            self.norm = nn.Parameter(torch.ones(n_classes))

    @torch.no_grad()
    def setup(self, pool: Pool, features: Features) -> None:
        """Initialise the layer at random, like torch's linear layers."""
        random = torch.Generator().manual_seed(torch.initial_seed() % 2**63)  # the run's seed
        bound = 1 / math.sqrt(math.prod(self.feature_shape))
        self.weight.copy_(torch.empty(self.weight.shape).uniform_(-bound, bound, generator=random))
        if self.class_norm:
            self.norm.copy_(self.weight.norm(dim=-1))

    def class_logits(self, x: Tensor) -> Tensor:
        """Return the logits of vectors for all training classes, (..., n_classes)."""
        scores = F.linear(x, self.weight, self.bias) if self.head == "linear" else F.linear(unit(x), unit(self.weight))
        return self.logits(scores * self.norm if self.class_norm else scores)

    def targets(self, task: Task) -> Tensor:
        """Return the labels of the queries in the pool, (B, Q); -1 for queries without a target."""
        labels = self.labels_of(task)
        return task.classes.gather(1, labels.clamp(min=0)).masked_fill(labels < 0, -1)

    def class_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the mean cross entropy of logits (n, n_classes) over rows with a target (n,) >= 0."""
        return F.cross_entropy(logits, target, ignore_index=-1, label_smoothing=self.label_smoothing)

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of the queries over all training classes."""
        return {"cls": self.class_loss(self.class_logits(task.query).flatten(0, 1), self.targets(task).flatten())}
