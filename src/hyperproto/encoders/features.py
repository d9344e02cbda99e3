"""What follows the encoder: the feature transform, and the two together."""

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


_GREY = (0.299, 0.587, 0.114)  # how bright an eye finds red, green and blue


def augmented(batch: Tensor, config: Augmentation) -> Tensor:
    """Crop, flip and jitter images (n, C, H, W) of bytes as a recipe says; each image in its own way."""
    if not isinstance(batch, Tensor) or batch.ndim != 4:
        raise ConfigError("[augmentation] is for images; leave it out for other data")
    if config.crop or config.flip:
        batch = crop_and_flip(batch, config.crop, config.flip)
    return colour_jitter(batch, config.jitter) if config.jitter else batch


def crop_and_flip(images: Tensor, padding: int, flip: bool) -> Tensor:
    """Pad each image with black and cut out a random place of its size; mirror every second one, at random."""
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
    # A row of a crop is a run of pixels: copied whole, by where it starts, it costs a tenth of copying pixel by pixel.
    high, wide = pixels.shape[1:3]
    starts = (which * high + top + torch.arange(height, device=device)) * wide + left  # (n, H)
    runs = pixels.as_strided((pixels.numel() // channels - width + 1, width * channels), (channels, 1))
    return runs.index_select(0, starts.flatten()).view(count, height, width, channels).permute(0, 3, 1, 2)


def colour_jitter(images: Tensor, strength: float) -> Tensor:
    """Change brightness, contrast and saturation, each by a random factor from 1 - strength to 1 + strength."""
    count, channels = images.shape[:2]
    brightness, contrast, saturation = 1 + strength * (2 * torch.rand(3, count, 1, 1, 1, device=images.device) - 1)
    floats = (images * brightness).clamp_(0, 255)
    floats = torch.lerp(_grey(floats).mean((2, 3), keepdim=True), floats, contrast).clamp_(0, 255)
    if channels == 1:
        return floats
    return torch.lerp(_grey(floats).expand_as(floats), floats, saturation).clamp_(0, 255)


def _grey(images: Tensor) -> Tensor:
    """Brightness, (n, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor(_GREY, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)
