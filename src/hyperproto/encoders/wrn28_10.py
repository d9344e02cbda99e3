"""WRN-28-10, a wide residual network: 28 layers, ten times the filters of a thin one."""

from torch import Tensor, nn

from hyperproto.encoders.parts.image_networks import Output, ResidualNet, conv, halved
from hyperproto.errors import ConfigError

STEM = 16
FILTERS = (160, 320, 640)
BLOCKS = 4  # a stage: 28 layers are the stem, 3 stages of 4 blocks of 2 convolutions, and 3 shortcuts
SMALLEST = 3  # px; of fewer, a single pixel reaches the last stage


class WRN28_10(ResidualNet):  # noqa: N801 # its name in every paper
    """Images (n, S, S) or (n, S, S, C) of bytes to 640-d vectors; 36.5 M parameters, and slow on a CPU.

    Zagoruyko and Komodakis, "Wide Residual Networks", 2016, table 1; few-shot learning knows it from Mangla et al.,
    "Charting the Right Manifold: Manifold Mixup for Few-shot Learning" (S2M2), 2020. Batch norm and ReLU come before
    each convolution; the second and third stage halve the image. `dropout` acts between the two convolutions of each
    block; S2M2 has 0.5. `output = "maps"` gives what is averaged at the end, (640, H, W).
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
            raise ConfigError(f"wrn28_10: images of {size} px are one pixel too early; use at least {SMALLEST} px")
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
    """Two convolutions beside a shortcut: of the input itself, or, where the width changes, of the activated input."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.activate = nn.Sequential(*_norm_relu(inputs))
        norm, relu = _norm_relu(outputs)
        if dropout:  # within the ReLU's place: the names of weights do not depend on it
            relu = nn.Sequential(relu, nn.Dropout(dropout))
        self.residual = nn.Sequential(conv(inputs, outputs, 3, stride), norm, relu, conv(outputs, outputs, 3))
        self.shortcut = None if inputs == outputs else conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.activate(x)
        residual: Tensor = self.residual(active)
        return residual + (x if self.shortcut is None else self.shortcut(active))


def _norm_relu(filters: int) -> tuple[nn.Module, nn.Module]:
    return nn.BatchNorm2d(filters), nn.ReLU(inplace=True)
