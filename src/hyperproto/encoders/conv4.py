"""Conv4, the paper's image encoder: four blocks of 64 filters 3 x 3, batch norm, ReLU, 2 x 2 max pool."""

import torch
from torch import Tensor, nn

from hyperproto.encoders.base import Units
from hyperproto.encoders.image_networks import ImageEncoder
from hyperproto.errors import ConfigError

BLOCKS = 4


class Conv4(ImageEncoder):
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

    def forward(self, batch: Tensor) -> Units:
        """Encode images (n, C, H, W)."""
        return Units.one_each(self.blocks(self.centred(batch)).flatten(1))


def _block(inputs: int, filters: int) -> nn.Sequential:
    # Pooling before ReLU gives the same numbers (both only ever pick or keep the larger) for a quarter of the work.
    return nn.Sequential(nn.Conv2d(inputs, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.MaxPool2d(2), nn.ReLU())
