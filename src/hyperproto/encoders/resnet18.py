"""ResNet-18, without its classifier."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from hyperproto.encoders.parts.image_networks import Output, ResidualNet, conv_norm, halved
from hyperproto.errors import ConfigError

FILTERS = (64, 128, 256, 512)
SMALLEST = 17  # px; of fewer, a single pixel reaches the last stage


class ResNet18(ResidualNet):
    """Images (n, S, S) or (n, S, S, C) of bytes to 512-d vectors; 11.18 M parameters.

    He et al., "Deep Residual Learning for Image Recognition", 2016, table 1: a stem that shrinks the image fourfold,
    four stages of two blocks of two convolutions, the last three of which halve it. Made for 224 px.
    `output = "maps"` gives what is averaged at the end, (512, H, W).
    """

    def __init__(self, *, channels: int = 3, size: int = 84, output: Output = "vectors", frozen: bool = False) -> None:
        if size < SMALLEST:
            raise ConfigError(f"resnet18: images of {size} px are one pixel too early; use at least {SMALLEST} px")
        # Pooling before ReLU gives the same numbers (both only ever pick or keep the larger) for a quarter of the work.
        stem = [conv_norm(channels, FILTERS[0], 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1), nn.ReLU()]
        stages = [_Block(FILTERS[0], FILTERS[0]), _Block(FILTERS[0], FILTERS[0])]
        for inputs, outputs in pairwise(FILTERS):
            stages += [_Block(inputs, outputs), _Block(outputs, outputs)]
        layers = nn.Sequential(*stem, *stages)
        super().__init__(layers, FILTERS[-1], side=halved(size, 5), ends=(5, 7, 9, 11), output=output)
        self.freeze(frozen)


class _Block(nn.Module):
    """Two convolutions beside a shortcut; where there are more filters than inputs, both halve the image."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.residual = nn.Sequential(
            conv_norm(inputs, outputs, 3, stride), nn.ReLU(inplace=True), conv_norm(outputs, outputs, 3)
        )
        self.shortcut = nn.Identity() if stride == 1 else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))
