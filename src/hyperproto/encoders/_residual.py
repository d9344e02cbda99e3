"""What the residual networks share: convolutions without bias, drawn as He et al. (2015) draw them."""

from torch import nn


def conv(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Conv2d:
    """Make a `width` x `width` convolution that keeps the image's size, but for its stride."""
    layer = nn.Conv2d(inputs, outputs, width, stride, padding=width // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")  # variance 2 / (width**2 * outputs)
    return layer


def conv_norm(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Sequential:
    """Make a convolution and its batch norm."""
    return nn.Sequential(conv(inputs, outputs, width, stride), nn.BatchNorm2d(outputs))
