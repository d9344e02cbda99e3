"""S2M2, a pre-training stage: classification with rotation prediction, then with manifold mix-up as well."""

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

TURNS = 4  # quarter turns of an image; as many as make the whole


class S2M2(Classifier):
    """Mangla et al., "Charting the Right Manifold: Manifold Mixup for Few-shot Learning", WACV 2020.

    `mix=False` is its first stage: each image of the batch in all four quarter turns, one forward of 4 b images, half
    the cross entropy over all training classes (`cls`) and half that over the turns (`turn`). `mix=True` is its second:
    one forward of the b images, mixed with each other at the input or behind a stage of the encoder drawn at random
    (`mix`), and one of a quarter of them in all four turns (`cls`, `turn`); the three parts add up. The share of an
    image in its mixture is drawn from Beta(alpha, alpha), once a step. Unseen classes are scored by cosine prototypes.

    The class head is that of `classifier`; the released code has `class_norm=True` at temperature 1/2.
    `rotations=False` leaves the turns out; data in which a turned image is of another class (Omniglot) require it.
    `start.heads = ["weight", "turn_head", "log_temperature"]` takes the heads of the first stage. Handing over the turn
    head (the released code starts it at random) and the stage boundaries of encoders other than WRN-28-10 are ours.
    """

    trains_on_items = True  # it turns images before the encoder, and mixes within it

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
        """Cross entropies over training classes and turns of the queries' items, which are encoded here."""
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
            if self.mix:  # a quarter of the images: in four turns, about as many as were mixed
                some = torch.randperm(len(labels))[: len(labels) // TURNS].to(labels.device)
                batch, labels = batch[some], labels[some]
            losses |= self.turn_losses(features, batch, labels)
        elif not self.mix:
            losses["cls"] = self.class_loss(self.class_logits(features(batch).x), labels)
        return losses

    def mix_loss(self, features: Features, batch: Any, labels: Tensor, mixing: "Mixing") -> Tensor:
        """Cross entropy of mixed images: for the labels of each image's two parts, by their shares."""
        logits = self.class_logits(mixed_vectors(features, batch, mixing))
        other = labels[mixing.partner.to(labels.device)]
        return mixing.share * self.class_loss(logits, labels) + (1 - mixing.share) * self.class_loss(logits, other)

    def turn_losses(self, features: Features, batch: Any, labels: Tensor) -> dict[str, Tensor]:
        """Half the cross entropies of a batch in all four turns: over classes, and over turns."""
        assert self.turn_head is not None
        x = features(turned(batch)).x  # (4 b, D)
        turns = torch.arange(TURNS, device=labels.device).repeat(len(labels))
        cls = self.class_loss(self.class_logits(x), labels.repeat_interleave(TURNS))
        return {"cls": cls / 2, "turn": F.cross_entropy(self.turn_head(x), turns) / 2}


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
