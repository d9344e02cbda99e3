"""S2M2: pre-training by classification with rotation prediction and manifold mix-up."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.encoders import Features
from hyperproto.errors import ConfigError
from hyperproto.methods.classifier import Classifier
from hyperproto.methods.task import Task, TaskItems

TURNS = 4  # number of rotations of an image, by quarter turns


class S2M2(Classifier):
    """Mangla et al., "Charting the Right Manifold: Manifold Mixup for Few-shot Learning", WACV 2020.

    `mix=False` is the first stage: a forward pass of all b images in four rotations; the loss is half the cross entropy
    over all training classes (`cls`) plus half that over the rotations (`turn`). `mix=True` is the second stage: a
    forward pass of the b images, mixed in pairs at the input or after a random stage of the encoder (`mix`), and one of
    a quarter of the images in four rotations (`cls`, `turn`); the loss is the sum. The mixing weight is drawn from
    Beta(alpha, alpha) once a step. New classes are scored by cosine prototypes.

    The class head is that of `classifier`; the released code has `class_norm=True` at temperature 1/2.
    `rotations=False` omits the rotations, as data need in which a rotated image is of another class (Omniglot).
    `start.heads = ["weight", "turn_head", "log_temperature"]` copies the heads of the first stage. Copying the rotation
    head (random in the released code) and the stages of encoders other than WRN-28-10 are our choices.
    """

    trains_on_items = True  # images are rotated before the encoder, and mixed within it

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        n_classes: int,
        mix: bool = False,
        rotations: bool = True,
        alpha: float = 2.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_shape=feature_shape, n_classes=n_classes, **options)
        if not 0 < alpha < math.inf:
            raise ConfigError(f"alpha {alpha} must be a number above 0, such as 2.0")
        [size] = feature_shape
        self.mix = mix
        self.alpha = alpha
        self.turn_head = nn.Linear(size, TURNS) if rotations else None
        self.least_batch = TURNS if mix and rotations else 1

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Encode the items of the queries, and return the cross entropies over classes and rotations."""
        items = _items_of(task)
        labels = torch.cat(
            [row[: len(q)] for row, q in zip(self.targets(task), items.query, strict=True)]
        )  # no padding
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
            if self.mix:  # a quarter of the images in four rotations: as many as were mixed
                some = torch.randperm(len(labels))[: len(labels) // TURNS].to(labels.device)
                batch, labels = batch[some], labels[some]
            losses |= self.turn_losses(features, batch, labels)
        elif not self.mix:
            losses["cls"] = self.class_loss(self.class_logits(features(batch).x), labels)
        return losses

    def mix_loss(self, features: Features, batch: Any, labels: Tensor, mixing: "Mixing") -> Tensor:
        """Return the cross entropy of mixed images, weighted over the labels of both parts."""
        logits = self.class_logits(mixed_vectors(features, batch, mixing))
        other = labels[mixing.partner.to(labels.device)]
        return mixing.share * self.class_loss(logits, labels) + (1 - mixing.share) * self.class_loss(logits, other)

    def turn_losses(self, features: Features, batch: Any, labels: Tensor) -> dict[str, Tensor]:
        """Return half the cross entropies of a batch in four rotations: over classes, and over rotations."""
        assert self.turn_head is not None
        x = features(turned(batch)).x  # (4 b, D)
        turns = torch.arange(TURNS, device=labels.device).repeat(len(labels))
        cls = self.class_loss(self.class_logits(x), labels.repeat_interleave(TURNS))
        return {"cls": cls / 2, "turn": F.cross_entropy(self.turn_head(x), turns) / 2}


@dataclass(frozen=True, eq=False)
class Mixing:
    """Mix-up of one step: `share` of each image plus 1 - share of its `partner`, before stage `layer`."""

    share: float
    layer: int  # 0: the input
    partner: Tensor  # (b,) a permutation of the batch

    @classmethod
    def draw(cls, alpha: float, n_layers: int, size: int) -> "Mixing":
        """Draw a mix-up from torch's random state, which a run seeds in every step."""
        share = float(torch.distributions.Beta(alpha, alpha).sample())
        return cls(share, int(torch.randint(n_layers, ())), torch.randperm(size))


def mixed_vectors(features: Features, batch: Any, mixing: Mixing) -> Tensor:
    """Encode a batch stage by stage with mix-up: (b, D)."""
    x: Tensor = features.encoder.centred(batch)
    with features.precision():
        for layer, stage in enumerate(features.encoder.stages()):
            if layer == mixing.layer:
                x = torch.lerp(x.index_select(0, mixing.partner.to(x.device)), x, mixing.share)
            x = stage(x)
    vectors: Tensor = features.transform(x.float())
    return vectors


def turned(images: Any) -> Tensor:
    """Return images (n, C, S, S) in four counter-clockwise rotations: (4 n, C, S, S), grouped by rotation."""
    if not isinstance(images, Tensor) or images.ndim != 4 or images.shape[2] != images.shape[3]:
        raise ConfigError("S2M2 rotates square images, but these items are others; set rotations = false")
    return torch.stack([images.rot90(turn, (2, 3)) for turn in range(TURNS)], 1).flatten(0, 1)


def _items_of(task: Task) -> TaskItems:
    if task.items is None:
        raise ConfigError("S2M2 rotates and mixes the images themselves: the task has no items")
    if (np.diff(task.items.offsets) != 1).any():
        raise ConfigError("S2M2 classifies whole items; these have a label for each word")
    return task.items
