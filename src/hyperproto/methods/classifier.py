"""Whole-classification, one linear layer over all training classes: the pre-training stage, and a baseline."""

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
    """Cross entropy over all training classes at once; unseen classes are scored by cosine prototypes.

    Chen et al., "Meta-Baseline", 2021 (there: Classifier-Baseline) with `head="linear"`; `head="cosine"` compares
    directions, as Baseline++ does (Chen et al., "A Closer Look at Few-shot Classification", 2019). `class_norm=True`
    multiplies the cosine with each class by a number that it learns, weight normalisation, as released with Baseline++.
    It takes `[batches]` of items, or episodes, whose support it ignores.
    """

    needs_support = False  # training looks at queries only

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
        """Start the layer at random, as torch's own linear layers do."""
        random = torch.Generator().manual_seed(torch.initial_seed() % 2**63)  # the run's seed
        bound = 1 / math.sqrt(math.prod(self.feature_shape))
        self.weight.copy_(torch.empty(self.weight.shape).uniform_(-bound, bound, generator=random))
        if self.class_norm:
            self.norm.copy_(self.weight.norm(dim=-1))

    def class_logits(self, x: Tensor) -> Tensor:
        """Score vectors against every training class, (..., n_classes)."""
        scores = F.linear(x, self.weight, self.bias) if self.head == "linear" else F.linear(unit(x), unit(self.weight))
        return self.logits(scores * self.norm if self.class_norm else scores)

    def targets(self, task: Task) -> Tensor:
        """The queries' labels in the pool, (B, Q); -1 where there is none to learn."""
        labels = self.labels_of(task)
        return task.classes.gather(1, labels.clamp(min=0)).masked_fill(labels < 0, -1)

    def class_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean cross entropy of those of (n, n_classes) that have a target (n,)."""
        return F.cross_entropy(logits, target, ignore_index=-1, label_smoothing=self.label_smoothing)

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Cross entropy of the queries over all training classes, not only the episode's."""
        return {"cls": self.class_loss(self.class_logits(task.query).flatten(0, 1), self.targets(task).flatten())}
