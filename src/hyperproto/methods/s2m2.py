"""S2M2, a pre-training stage: classification with rotation prediction, then with manifold mix-up as well."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.encoders import Features
from hyperproto.errors import ConfigError
from hyperproto.methods.cosine import Cosine
from hyperproto.methods.task import Task, TaskItems
from hyperproto.regions.arrays import unit

TURNS = 4  # quarter turns of an image; as many as make the whole


class S2M2(Cosine):
    """Mangla et al., "Charting the Right Manifold: Manifold Mixup for Few-shot Learning", WACV 2020.

    `mix=False` is its first stage: each image of the batch in all four quarter turns, one forward of 4 b images, half
    the cross entropy over all training classes (`cls`) and half that over the turns (`turn`). `mix=True` is its second:
    one forward of the b images, mixed with each other at the input or behind a stage of the encoder drawn at random
    (`mix`), and one of a quarter of them in all four turns (`cls`, `turn`); the three parts add up. The share of an
    image in its mixture is drawn from Beta(alpha, alpha), once a step. Unseen classes are scored by cosine prototypes.

    The class head scores by the cosine (`head="cosine"`), each class times a learned length with `class_norm` (as the
    released code does, at temperature 1/2), or is a linear layer. `rotations=False` leaves the turns out; data in which
    a turned image is of another class (Omniglot) require it. `start.heads = ["class_head", "turn_head",
    "log_temperature"]` takes the heads of the first stage. Handing over the turn head (the released code starts it at
    random) and the stage boundaries of encoders other than WRN-28-10 are ours.
    """

    trains_on_items = True  # it turns images before the encoder, and mixes within it
    needs_support = False  # training looks at queries only, `[batches]` of items

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        n_classes: int,
        mix: bool = False,
        rotations: bool = True,
        alpha: float = 2.0,
        head: Literal["linear", "cosine"] = "cosine",
        class_norm: bool = False,
        temperature: float | None = None,
        **options: Any,
    ) -> None:
        if temperature is None and head == "linear":
            temperature = 1.0
        super().__init__(feature_shape=feature_shape, n_classes=n_classes, temperature=temperature, **options)
        if not 0 < alpha < math.inf:
            raise ConfigError(f"alpha {alpha} must be a number above 0, such as 2.0")
        if class_norm and head == "linear":
            raise ConfigError('class_norm belong to head = "cosine"; the rows of a linear layer have lengths anyway')
        [size] = feature_shape
        self.mix = mix
        self.alpha = alpha
        self.class_head = ClassHead(size, n_classes, head, class_norm)
        self.turn_head = nn.Linear(size, TURNS) if rotations else None
        self.least_batch = TURNS if mix and rotations else 1

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Cross entropies over training classes and turns of the queries' items, which are encoded here."""
        items, labels = _items_of(task), self._targets(task)
        if len(labels) < self.least_batch:
            raise ConfigError(
                f"S2M2 turns a quarter of each batch, and of {len(labels)} images that is none; draw at least "
                f"{TURNS} ([batches] size), or set rotations = false"
            )
        features, batch = items.features, items.batch(np.concatenate(items.query))
        losses: dict[str, Tensor] = {}
        if self.mix:
            mixing = Mixing.draw(self.alpha, len(features.encoder.stages()), len(labels))
            losses["mix"] = self.mix_loss(features, batch, labels, mixing)
        if self.turn_head is not None:
            if self.mix:  # a quarter of the images: in four turns, about as many as were mixed
                some = torch.randperm(len(labels))[: len(labels) // TURNS].to(labels.device)
                batch, labels = batch[some], labels[some]
            losses |= self.turn_losses(features, batch, labels)
        elif not self.mix:
            losses["cls"] = _cross_entropy(self.class_logits(features(batch).x), labels)
        return losses

    def mix_loss(self, features: Features, batch: Any, labels: Tensor, mixing: "Mixing") -> Tensor:
        """Cross entropy of mixed images: for the labels of each image's two parts, by their shares."""
        logits = self.class_logits(mixed_vectors(features, batch, mixing))
        own, other = _cross_entropy(logits, labels), _cross_entropy(logits, labels[mixing.partner.to(labels.device)])
        return mixing.share * own + (1 - mixing.share) * other

    def class_logits(self, x: Tensor) -> Tensor:
        """Score vectors against every training class, (..., n_classes), at the method's temperature."""
        return self.logits(self.class_head(x))

    def turn_losses(self, features: Features, batch: Any, labels: Tensor) -> dict[str, Tensor]:
        """Half the cross entropies of a batch in all four turns: over classes, and over turns."""
        assert self.turn_head is not None
        x = features(turned(batch)).x  # (4 b, D)
        turns = torch.arange(TURNS, device=labels.device).repeat(len(labels))
        cls = _cross_entropy(self.class_logits(x), labels.repeat_interleave(TURNS))
        return {"cls": cls / 2, "turn": F.cross_entropy(self.turn_head(x), turns) / 2}

    def _targets(self, task: Task) -> Tensor:
        """The pool's labels of the queries, one after another without padding; -1 where there is none to learn."""
        labels = self.labels_of(task)  # (B, Q)
        target = task.classes.gather(1, labels.clamp(min=0)).masked_fill(labels < 0, -1)
        return torch.cat([row[: len(items)] for row, items in zip(target, _items_of(task).query, strict=True)])


class ClassHead(nn.Module):
    """One score a training class: a linear layer, or the cosine with a direction, times a learned length with `norms`.

    Weights start as torch's own linear layers do, lengths at those of the directions.
    """

    def __init__(self, size: int, n_classes: int, head: Literal["linear", "cosine"], norms: bool) -> None:
        super().__init__()
        self.head = head
        bound = 1 / math.sqrt(size)
        self.weight = nn.Parameter(torch.empty(n_classes, size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(n_classes)) if head == "linear" else None
        self.norms = nn.Parameter(torch.linalg.vector_norm(self.weight.detach(), dim=1)) if norms else None

    def forward(self, x: Tensor) -> Tensor:
        """Score vectors (..., D) against every class, (..., n_classes)."""
        if self.head == "linear":
            return F.linear(x, self.weight, self.bias)
        directions: Tensor = unit(self.weight)
        return F.linear(unit(x), directions if self.norms is None else self.norms[:, None] * directions)


@dataclass(frozen=True, eq=False)
class Mixing:
    """How the images of one step are mixed: `share` of each, the rest of its `partner`, before stage `layer`."""

    share: float
    layer: int  # 0: the input
    partner: Tensor  # (b,) a permutation of the batch

    @classmethod
    def draw(cls, alpha: float, n_layers: int, size: int) -> "Mixing":
        """Draw from torch's random state, which a run seeds every step."""
        share = float(torch.distributions.Beta(alpha, alpha).sample())
        return cls(share, int(torch.randint(n_layers, ())), torch.randperm(size))


def mixed_vectors(features: Features, batch: Any, mixing: Mixing) -> Tensor:
    """Encode a batch stage by stage, and mix it on the way: (b, D)."""
    x: Tensor = features.encoder.centred(batch)
    with features.precision():
        for layer, stage in enumerate(features.encoder.stages()):
            if layer == mixing.layer:
                x = torch.lerp(x.index_select(0, mixing.partner.to(x.device)), x, mixing.share)
            x = stage(x)
    vectors: Tensor = features.transform(x.float())
    return vectors


def turned(images: Any) -> Tensor:
    """Images (n, C, S, S) in all quarter turns, counter-clockwise from none: (4 n, C, S, S), those of one together."""
    if not isinstance(images, Tensor) or images.ndim != 4 or images.shape[2] != images.shape[3]:
        raise ConfigError("S2M2 turns square images, and these items are none; set rotations = false")
    return torch.stack([images.rot90(turn, (2, 3)) for turn in range(TURNS)], 1).flatten(0, 1)


def _items_of(task: Task) -> TaskItems:
    if task.items is None:
        raise ConfigError("S2M2 turns and mixes the images themselves: the task has no items")
    if (np.diff(task.items.offsets) != 1).any():
        raise ConfigError("S2M2 classifies whole items; these have a label for each word")
    return task.items


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, ignore_index=-1)
