"""Conv4, the paper's image encoder: four blocks of 64 filters 3 x 3, batch norm, ReLU, 2 x 2 max pooling."""

from typing import Literal

import torch
from torch import Tensor, nn

from hyperproto.encoders.base import Units
from hyperproto.encoders.parts.image_networks import ImageNetwork, Output
from hyperproto.errors import ConfigError

BLOCKS = 4


class Conv4(ImageNetwork):
    """Snell et al., "Prototypical Networks for Few-shot Learning", 2017, section 2.6.

    Images (n, H, W) or (n, H, W, C) of bytes become vectors: 64-d at 28 px, 1600-d at 84 px. `output = "maps"` returns
    the last feature map (64, H, W) without flattening. With `poolings = 2` only the first two blocks pool (Sung et al.,
    "Learning to Compare", 2018): maps of 7 x 7 at 28 px, 21 x 21 at 84 px. `last_relu = False` omits the last ReLU, so
    that coordinates may be negative (Gidaris and Komodakis, "Dynamic Few-Shot Visual Learning without Forgetting",
    2018, section 3.1).
    """

    def __init__(
        self,
        *,
        channels: int = 1,
        size: int = 28,
        filters: int = 64,
        poolings: Literal[2, 4] = 4,
        last_relu: bool = True,
        output: Output = "vectors",
        frozen: bool = False,
    ) -> None:
        super().__init__()
        side = size // 2**poolings
        if side < 1:
            raise ConfigError(
                f"conv4: images of {size} px vanish in {poolings} poolings; use at least {2**poolings} px"
            )
        inputs = [channels, *[filters] * (BLOCKS - 1)]
        blocks = [_block(n, filters, place < poolings) for place, n in enumerate(inputs)]
        if not last_relu:
            del blocks[-1][-1]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Flatten() if output == "vectors" else nn.Identity()
        self.feature_shape = (filters * side * side,) if output == "vectors" else (filters, side, side)
        # same results, faster on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in the stubs
        self.freeze(frozen)

    def forward(self, batch: Tensor) -> Units:
        """Encode images (n, C, H, W)."""
        return Units.one_each(self.head(self.blocks(self.centred(batch))).contiguous())

    def stages(self) -> list[nn.Module]:
        """Return the four blocks, then the flattening."""
        return [*self.blocks, self.head]


def _block(inputs: int, filters: int, pools: bool) -> nn.Sequential:
    # Max pooling and ReLU commute; ReLU on the pooled map costs a quarter.
    pooling = [nn.MaxPool2d(2)] if pools else []
    return nn.Sequential(nn.Conv2d(inputs, filters, 3, padding=1), nn.BatchNorm2d(filters), *pooling, nn.ReLU())
