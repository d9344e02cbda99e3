"""`Features`: an encoder with its feature transform, device and image augmentation."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.base import Encoder, Units, moved
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.recipes import Augmentation
from hyperproto.regions.arrays import unit
from hyperproto.registry import TRANSFORMS


class FeatureTransform(nn.Module):
    """`none`, `unit` (scale to length 1) or `center-unit` (subtract a mean first: CL2N).

    In training the mean is that of the batch. In evaluation it is the mean of the training data after `set_center`,
    else the one that the caller passes (the mean of the support).
    """

    center: Tensor

    def __init__(self, kind: str, feature_shape: tuple[int, ...]) -> None:
        super().__init__()
        if kind not in TRANSFORMS:
            raise ConfigError(unknown_name("transform", kind, TRANSFORMS))
        if kind == "center-unit" and -1 in feature_shape:
            raise ConfigError("center-unit is for vectors and maps of one size, not for token states; use unit or none")
        self.kind = kind
        shape = [max(1, axis) for axis in feature_shape]  # token states (-1, C) have one centre for all positions
        self.register_buffer("center", torch.full(shape, torch.nan), persistent=kind == "center-unit")

    @property
    def has_center(self) -> bool:
        """True if the mean of the training data is set."""
        return self.kind == "center-unit" and not bool(self.center.isnan().any())

    def set_center(self, center: Tensor) -> None:
        """Store the mean of the training data."""
        self.center.copy_(center)

    def forward(self, x: Tensor, center: Tensor | None = None) -> Tensor:
        """Transform x (..., *feature_shape); `center` is used if the mean of the training data is not set."""
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
                raise ConfigError("center-unit: the mean of the training data is not set, and no other was given")
        scaled: Tensor = unit(x.flatten(start_dim=-n_axes)).view_as(x)
        return scaled


class Features(Encoder):
    """Encoder, feature transform and, in training, augmentation; the only encoder object that methods use."""

    def __init__(
        self,
        encoder: Encoder,
        transform: FeatureTransform,
        augmentation: Augmentation | None = None,
        *,
        fewer_bits: bool = False,
    ) -> None:
        """With `fewer_bits`, matrix products of the encoder use bfloat16 in training."""
        super().__init__()
        self.encoder = encoder
        self.transform = transform
        self.augmentation = augmentation
        self.fewer_bits = fewer_bits
        self.feature_shape = encoder.feature_shape

    def prepared(self, pool: Pool) -> Any:
        """Return the encoder's prepared items of a pool."""
        return self.encoder.prepared(pool)

    def collate(self, prepared: Any, index: IntArray) -> Any:
        """Return a batch of the encoder."""
        return self.encoder.collate(prepared, index)

    def batch(self, prepared: Any, index: IntArray) -> Any:
        """Return one batch of the items at `index` on the encoder's device, augmented in training."""
        batch = moved(self.collate(prepared, index), self.device)
        return batch if self.augmentation is None or not self.training else augmented(batch, self.augmentation)

    def forward(self, batch: Any, params: Mapping[str, Tensor] | None = None) -> Units:
        """Encode and transform a batch; `params` replace parameters and buffers of the encoder, for inner loops.

        A batch of `Units`, encoded before by a frozen encoder, is only transformed.
        """
        if isinstance(batch, Units):
            return replace(batch, x=self.transform(batch.x))
        units: Units
        with self.precision():
            units = self.encoder(batch) if params is None else functional_call(self.encoder, dict(params), (batch,))
        return replace(units, x=self.transform(units.x.float() if self.fewer_bits else units.x))

    def precision(self) -> AbstractContextManager[Any]:
        """Return a context in which matrix products have the recipe's precision.

        Code that calls modules of the encoder directly must use it.
        """
        return torch.autocast(self.device.type, torch.bfloat16) if self.fewer_bits and self.training else nullcontext()


_GREY = (0.299, 0.587, 0.114)  # luminance weights of red, green and blue


def augmented(batch: Tensor, config: Augmentation) -> Tensor:
    """Crop, flip and jitter each image of a batch (n, C, H, W) of bytes at random, as a recipe says."""
    if not isinstance(batch, Tensor) or batch.ndim != 4:
        raise ConfigError("[augmentation] is for images; leave it out for other data")
    if config.crop or config.flip:
        batch = crop_and_flip(batch, config.crop, config.flip)
    return colour_jitter(batch, config.jitter) if config.jitter else batch


def crop_and_flip(images: Tensor, padding: int, flip: bool) -> Tensor:
    """Pad each image with black and take a random crop of the original size; with `flip`, mirror half of them."""
    count, channels, height, width = images.shape
    device = images.device
    top, left = torch.randint(2 * padding + 1, (2, count, 1), device=device)
    which = torch.arange(count, device=device)[:, None]
    pixels = F.pad(images.permute(0, 2, 3, 1), [0, 0, *[padding] * 4])  # (n, H + 2 padding, W + 2 padding, C)
    if flip:
        mirrored = torch.rand(count, 1, device=device) < 0.5
        pixels = torch.cat([pixels, pixels.flip(2)])  # the mirror image of `which` is at `count + which`
        which = which + count * mirrored
        left = torch.where(mirrored, 2 * padding - left, left)
    # A row of a crop is contiguous: copying whole rows by their start costs a tenth of copying single pixels.
    high, wide = pixels.shape[1:3]
    starts = (which * high + top + torch.arange(height, device=device)) * wide + left  # (n, H)
    runs = pixels.as_strided((pixels.numel() // channels - width + 1, width * channels), (channels, 1))
    return runs.index_select(0, starts.flatten()).view(count, height, width, channels).permute(0, 3, 1, 2)


def colour_jitter(images: Tensor, strength: float) -> Tensor:
    """Scale brightness, contrast and saturation, each by a random factor from 1 - strength to 1 + strength."""
    count, channels = images.shape[:2]
    brightness, contrast, saturation = 1 + strength * (2 * torch.rand(3, count, 1, 1, 1, device=images.device) - 1)
    floats = (images * brightness).clamp_(0, 255)
    floats = torch.lerp(_grey(floats).mean((2, 3), keepdim=True), floats, contrast).clamp_(0, 255)
    if channels == 1:
        return floats
    return torch.lerp(_grey(floats).expand_as(floats), floats, saturation).clamp_(0, 255)


def _grey(images: Tensor) -> Tensor:
    """Return the luminance, (n, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor(_GREY, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)
