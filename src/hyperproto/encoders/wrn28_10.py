"""WRN-28-10, a wide residual network: 28 layers, widening factor 10."""

from torch import Tensor, nn

from hyperproto.encoders.parts.image_networks import Output, ResidualNet, conv, halved
from hyperproto.errors import ConfigError

STEM = 16
FILTERS = (160, 320, 640)
BLOCKS = 4  # per stage: 28 layers are the stem, 3 stages of 4 blocks of 2 convolutions, and 3 shortcuts
SMALLEST = 3  # px; smaller images are a single pixel at the last stage


class WRN28_10(ResidualNet):  # noqa: N801 # its name in every paper
    """Zagoruyko and Komodakis, "Wide Residual Networks", 2016, table 1.

    Images (n, S, S) or (n, S, S, C) of bytes become 640-d vectors; 36.5 M parameters, slow on a CPU. Batch norm and
    ReLU precede each convolution; the second and third stage halve the image. `dropout` acts between the two
    convolutions of each block (0.5 in Mangla et al., "Charting the Right Manifold: Manifold Mixup for Few-shot
    Learning", S2M2, 2020). `output = "maps"` returns the last feature map (640, H, W) instead of its mean.
    """

    def __init__(
        self,
        *,
        channels: int = 3,
        size: int = 84,
        dropout: float = 0.0,
        output: Output = "vectors",
        frozen: bool = False,
    ) -> None:
        if size < SMALLEST:
            raise ConfigError(f"wrn28_10: images of {size} px are too small; use at least {SMALLEST} px")
        if not 0 <= dropout < 1:
            raise ConfigError(f"wrn28_10: dropout {dropout} must be at least 0 and below 1, such as 0.5")
        layers: list[nn.Module] = [conv(channels, STEM, 3)]
        for inputs, outputs, stride in zip((STEM, *FILTERS[:-1]), FILTERS, (1, 2, 2), strict=True):
            layers.append(_Block(inputs, outputs, stride, dropout))
            layers += [_Block(outputs, outputs, 1, dropout) for _ in range(BLOCKS - 1)]
        ends = [1 + BLOCKS * (stage + 1) for stage in range(len(FILTERS))]
        whole = nn.Sequential(*layers, *_norm_relu(FILTERS[-1]))
        super().__init__(whole, FILTERS[-1], side=halved(size, 2), ends=ends, output=output)
        self.freeze(frozen)


class _Block(nn.Module):
    """Two convolutions and a shortcut: the identity, or a convolution of the activated input if the width changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.activate = nn.Sequential(*_norm_relu(inputs))
        norm, relu = _norm_relu(outputs)
        if dropout:  # in the place of the ReLU, so that weights keep their names
            relu = nn.Sequential(relu, nn.Dropout(dropout))
        self.residual = nn.Sequential(conv(inputs, outputs, 3, stride), norm, relu, conv(outputs, outputs, 3))
        self.shortcut = None if inputs == outputs else conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.activate(x)
        residual: Tensor = self.residual(active)
        return residual + (x if self.shortcut is None else self.shortcut(active))


def _norm_relu(filters: int) -> tuple[nn.Module, nn.Module]:
    return nn.BatchNorm2d(filters), nn.ReLU(inplace=True)
