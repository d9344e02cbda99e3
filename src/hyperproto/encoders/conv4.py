"""Conv4, the paper's image encoder: four blocks of 64 filters 3 x 3, batch norm, ReLU, 2 x 2 max pool."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.base import Encoder, Units
from hyperproto.errors import ConfigError, DataError

BLOCKS = 4


class Conv4(Encoder):
    """Images (n, H, W) or (n, H, W, C) of bytes to vectors: 64-d at 28 px, 1600-d at 84 px.

    Snell et al., "Prototypical Networks for Few-shot Learning", 2017, section 2.6.
    """

    def __init__(self, *, channels: int = 1, size: int = 28, filters: int = 64) -> None:
        super().__init__()
        side = size // 2**BLOCKS
        if side < 1:
            raise ConfigError(f"conv4: images of {size} px vanish in {BLOCKS} poolings; use at least {2**BLOCKS} px")
        inputs = [channels, *[filters] * (BLOCKS - 1)]
        self.blocks = nn.Sequential(*(_block(n, filters) for n in inputs))
        self.feature_shape = (filters * side * side,)
        # the same numbers, faster on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in the stubs

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Read channels and size off the images."""
        shape = np.shape(pool.items)
        if len(shape) not in (3, 4) or shape[1] != shape[2]:
            raise DataError(f"{pool}: conv4 reads square images (n, S, S) or (n, S, S, C), but the items are {shape}")
        return {"channels": shape[3] if len(shape) == 4 else 1, "size": shape[1]}

    def collate(self, prepared: NDArray[np.uint8], index: IntArray) -> Tensor:
        """Bytes to floats, centred and scaled, channels first."""
        images = torch.from_numpy(prepared[index])
        images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
        floats = images.to(dtype=torch.float32, memory_format=torch.channels_last)
        return floats.sub_(127.5).div_(127.5)  # (n, C, H, W)

    def forward(self, batch: Tensor) -> Units:
        """Encode images (n, C, H, W)."""
        return Units.one_each(self.blocks(batch).flatten(1))


def _block(inputs: int, filters: int) -> nn.Sequential:
    # Pooling before ReLU gives the same numbers (both only ever pick or keep the larger) for a quarter of the work.
    return nn.Sequential(nn.Conv2d(inputs, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.MaxPool2d(2), nn.ReLU())
