"""Base classes of image encoders, and layers that residual networks share."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.base import Encoder, Units, array_of
from hyperproto.errors import DataError

Output = Literal["vectors", "maps"]  # shape of a unit: (D,), or the last feature map, (C, H, W)


class ImageNetwork(Encoder):
    """Base class of encoders of square images (n, S, S) or (n, S, S, C) of bytes; a subclass implements `forward`.

    A batch consists of bytes until `forward`: augmentation and transfer to a GPU need a quarter of the memory.
    """

    data_options = ("channels", "size")

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Return the number of channels and the size of the images."""
        name = cls.__name__.lower()
        shape = array_of(pool, f"{name} reads images").shape
        if len(shape) not in (3, 4) or shape[1] != shape[2]:
            raise DataError(f"{pool}: {name} reads square images (n, S, S) or (n, S, S, C), but the items are {shape}")
        return {"channels": shape[3] if len(shape) == 4 else 1, "size": shape[1]}

    def collate(self, prepared: NDArray[np.uint8], index: IntArray) -> Tensor:
        """Return the images at `index`, channels first."""
        images = torch.from_numpy(np.asarray(prepared[index]))
        return images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)  # (n, C, H, W)

    def centred(self, images: Tensor) -> Tensor:
        """Scale bytes, or floats from 0 to 255, to floats from -1 to 1."""
        return images.sub(127.5).div_(127.5).contiguous(memory_format=torch.channels_last)


class SpatialMean(nn.Module):
    """Mean of feature maps (n, C, H, W) over all positions: (n, C)."""

    def forward(self, maps: Tensor) -> Tensor:
        """Return the mean over height and width."""
        return maps.mean((2, 3))


class ResidualNet(ImageNetwork):
    """Residual network; the vector of an image is the mean of the last feature map, of `filters` channels.

    `side` is the height and width of that map. `ends` are the indices in `layers` at which stages end; later layers
    (norm and ReLU of WRN) belong to the last of `stages()`, with the mean.
    """

    def __init__(self, layers: nn.Sequential, filters: int, *, side: int, ends: Sequence[int], output: Output) -> None:
        super().__init__()
        self.layers = layers
        self.head = SpatialMean() if output == "vectors" else nn.Identity()
        self.feature_shape = (filters,) if output == "vectors" else (filters, side, side)
        self._ends = tuple(ends)
        # same results, faster on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in the stubs

    def forward(self, batch: Tensor) -> Units:
        """Encode images (n, C, H, W)."""
        return Units.one_each(self.head(self.layers(self.centred(batch))).contiguous())

    def stages(self) -> list[nn.Module]:
        """Return the stages of blocks, the first with the stem, then the remaining layers and the mean."""
        stages = [self.layers[start:end] for start, end in pairwise((0, *self._ends))]
        return [*stages, nn.Sequential(*list(self.layers)[self._ends[-1] :], self.head)]


def halved(size: int, times: int) -> int:
    """Return the side of an image after `times` convolutions of stride 2, which round up."""
    for _ in range(times):
        size = -(-size // 2)
    return size


def conv(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Conv2d:
    """Return a `width` x `width` convolution with padding, so that only the stride changes the size."""
    layer = nn.Conv2d(inputs, outputs, width, stride, padding=width // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")  # variance 2 / (width**2 * outputs)
    return layer


def conv_norm(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution followed by batch norm."""
    return nn.Sequential(conv(inputs, outputs, width, stride), nn.BatchNorm2d(outputs))
