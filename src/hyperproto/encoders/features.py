"""What follows the encoder: the feature transform, and the two together."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.augmentation import augmented
from hyperproto.encoders.base import Encoder, Units
from hyperproto.encoders.device import moved
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.recipes import Augmentation
from hyperproto.regions.arrays import unit
from hyperproto.registry import TRANSFORMS


class FeatureTransform(nn.Module):
    """`none`, `unit` (scale to length 1) or `center-unit` (subtract a mean first: CL2N).

    The mean is, in training, that of the batch; in evaluation, the `center` of the training data once `set_center` has
    been given it, and otherwise whatever the caller passes (the mean of the support).
    """

    center: Tensor

    def __init__(self, kind: str, feature_shape: tuple[int, ...]) -> None:
        super().__init__()
        if kind not in TRANSFORMS:
            raise ConfigError(unknown_name("transform", kind, TRANSFORMS))
        if kind == "center-unit" and -1 in feature_shape:
            raise ConfigError("center-unit is for vectors and maps of one size, not for token states; use unit or none")
        self.kind = kind
        shape = [max(1, axis) for axis in feature_shape]  # token states (-1, C): one centre for all positions
        self.register_buffer("center", torch.full(shape, torch.nan), persistent=kind == "center-unit")

    @property
    def has_center(self) -> bool:
        """Whether the mean of the training data is known."""
        return self.kind == "center-unit" and not bool(self.center.isnan().any())

    def set_center(self, center: Tensor) -> None:
        """Keep the mean of the training data."""
        self.center.copy_(center)

    def forward(self, x: Tensor, center: Tensor | None = None) -> Tensor:
        """Transform x (..., *feature_shape); `center` stands in where the training data's is not known."""
        if self.kind == "none":
            return x
        n_axes = self.center.ndim
        if self.kind == "center-unit":
            if self.training:
                x = x - x.flatten(end_dim=-n_axes - 1).mean(0)
            elif self.has_center:
                x = x - self.center.to(x.dtype)
            elif center is not None:
                x = x - center
            else:
                raise ConfigError("center-unit: the mean of the training data is not known yet, and no other was given")
        scaled: Tensor = unit(x.flatten(start_dim=-n_axes)).view_as(x)
        return scaled


class Features(Encoder):
    """An encoder, the transform that follows it and, for training, augmentation: all that methods see of either."""

    def __init__(
        self,
        encoder: Encoder,
        transform: FeatureTransform,
        augmentation: Augmentation | None = None,
        *,
        fewer_bits: bool = False,
    ) -> None:
        """With `fewer_bits` products of the encoder are of bfloat16, in training only."""
        super().__init__()
        self.encoder = encoder
        self.transform = transform
        self.augmentation = augmentation
        self.fewer_bits = fewer_bits
        self.feature_shape = encoder.feature_shape

    def prepared(self, pool: Pool) -> Any:
        """As the encoder does."""
        return self.encoder.prepared(pool)

    def collate(self, prepared: Any, index: IntArray) -> Any:
        """As the encoder does."""
        return self.encoder.collate(prepared, index)

    def batch(self, prepared: Any, index: IntArray) -> Any:
        """Make one batch of the items at `index`, on the encoder's device; in training, augmented."""
        batch = moved(self.collate(prepared, index), self.device)
        return batch if self.augmentation is None or not self.training else augmented(batch, self.augmentation)

    def forward(self, batch: Any, params: Mapping[str, Tensor] | None = None) -> Units:
        """Encode, then transform; `params` replace parameters and buffers of the encoder, for inner loops.

        Units that a frozen encoder gave before are only transformed.
        """
        if isinstance(batch, Units):
            return replace(batch, x=self.transform(batch.x))
        units: Units
        with self.precision():
            units = self.encoder(batch) if params is None else functional_call(self.encoder, dict(params), (batch,))
        return replace(units, x=self.transform(units.x.float() if self.fewer_bits else units.x))

    def precision(self) -> AbstractContextManager[Any]:
        """Within it, products are computed as a recipe asks for; what runs the encoder's parts itself needs it."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.fewer_bits and self.training else nullcontext()
