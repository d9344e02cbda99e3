"""ResNet-18 without its classifier."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from hyperproto.encoders.parts.image_networks import Output, ResidualNet, conv_norm, halved
from hyperproto.errors import ConfigError

FILTERS = (64, 128, 256, 512)
SMALLEST = 17  # px; smaller images are a single pixel at the last stage


class ResNet18(ResidualNet):
    """He et al., "Deep Residual Learning for Image Recognition", 2016, table 1.

    Images (n, S, S) or (n, S, S, C) of bytes become 512-d vectors; 11.18 M parameters. A stem shrinks the image
    fourfold; four stages of two blocks of two convolutions follow, the last three of which halve it. The network was
    designed for 224 px. `output = "maps"` returns the last feature map (512, H, W) instead of its mean.
    """

    def __init__(self, *, channels: int = 3, size: int = 84, output: Output = "vectors", frozen: bool = False) -> None:
        if size < SMALLEST:
            raise ConfigError(f"resnet18: images of {size} px are too small; use at least {SMALLEST} px")
        # Max pooling and ReLU commute; ReLU on the pooled map costs a quarter.
        stem = [conv_norm(channels, FILTERS[0], 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1), nn.ReLU()]
        stages = [_Block(FILTERS[0], FILTERS[0]), _Block(FILTERS[0], FILTERS[0])]
        for inputs, outputs in pairwise(FILTERS):
            stages += [_Block(inputs, outputs), _Block(outputs, outputs)]
        layers = nn.Sequential(*stem, *stages)
        super().__init__(layers, FILTERS[-1], side=halved(size, 5), ends=(5, 7, 9, 11), output=output)
        self.freeze(frozen)


class _Block(nn.Module):
    """Two convolutions and a shortcut; both halve the image if there are more filters than inputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.residual = nn.Sequential(
            conv_norm(inputs, outputs, 3, stride), nn.ReLU(inplace=True), conv_norm(outputs, outputs, 3)
        )
        self.shortcut = nn.Identity() if stride == 1 else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))
