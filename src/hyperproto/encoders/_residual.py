"""What the residual networks share: the average at their end, and convolutions without bias, drawn as He et al. do."""

import torch
from torch import Tensor, nn

from hyperproto.encoders.base import Units
from hyperproto.encoders.images import ImageEncoder


class ResidualNet(ImageEncoder):
    """Layers whose last one has `filters`; the vector of an image is the average over what remains of it."""

    def __init__(self, layers: nn.Sequential, filters: int) -> None:
        super().__init__()
        self.layers = layers
        self.feature_shape = (filters,)
        # the same numbers, faster on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in the stubs

    def forward(self, batch: Tensor) -> Units:
        """Encode images (n, C, H, W)."""
        return Units.one_each(self.layers(self.centred(batch)).mean((2, 3)))


def conv(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Conv2d:
    """Make a `width` x `width` convolution that keeps the image's size, but for its stride."""
    layer = nn.Conv2d(inputs, outputs, width, stride, padding=width // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")  # variance 2 / (width**2 * outputs)
    return layer


def conv_norm(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Sequential:
    """Make a convolution and its batch norm."""
    return nn.Sequential(conv(inputs, outputs, width, stride), nn.BatchNorm2d(outputs))
