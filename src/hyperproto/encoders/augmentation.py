"""Augmentation of training images: whole batches at a time, from torch's random state, which a run seeds every step."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.recipes import Augmentation

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
