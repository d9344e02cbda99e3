"""ResNet-12, a common encoder in few-shot learning: four residual blocks of three convolutions each."""

import torch.nn.functional as F
from torch import Tensor, nn

from hyperproto.encoders.parts.image_networks import Output, ResidualNet, conv_norm
from hyperproto.errors import ConfigError

FILTERS = (64, 128, 256, 512)
SLOPE = 0.1  # of the leaky ReLU


class ResNet12(ResidualNet):
    """Chen et al., "Meta-Baseline: Exploring Simple Meta-Learning for Few-Shot Learning", 2021.

    Images (n, S, S) or (n, S, S, C) of bytes become 512-d vectors; 8.0 M parameters. Each block halves the image. The
    vector is the mean of the last feature map, which `output = "maps"` returns instead.
    """

    def __init__(self, *, channels: int = 3, size: int = 84, output: Output = "vectors", frozen: bool = False) -> None:
        smallest = 2 ** len(FILTERS)
        if size < smallest:
            raise ConfigError(
                f"resnet12: images of {size} px vanish in {len(FILTERS)} poolings; use at least {smallest} px"
            )
        inputs = (channels, *FILTERS[:-1])
        blocks = nn.Sequential(*(_Block(*pair) for pair in zip(inputs, FILTERS, strict=True)))
        super().__init__(blocks, FILTERS[-1], side=size // smallest, ends=(1, 2, 3, 4), output=output)
        self.freeze(frozen)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv_norm(inputs, outputs, 3),
            nn.LeakyReLU(SLOPE, inplace=True),
            conv_norm(outputs, outputs, 3),
            nn.LeakyReLU(SLOPE, inplace=True),
            conv_norm(outputs, outputs, 3),
        )
        self.shortcut = conv_norm(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        # Max pooling and leaky ReLU commute; pooling first is cheaper.
        return F.leaky_relu(F.max_pool2d(self.residual(x) + self.shortcut(x), 2), SLOPE)
