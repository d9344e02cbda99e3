"""Augmentation, against plain loops over single images."""

import numpy as np
import pytest
import torch

from hyperproto.encoders.features import augmented, colour_jitter, crop_and_flip
from hyperproto.errors import ConfigError
from hyperproto.recipes import Augmentation


def images(count: int = 6, channels: int = 3, side: int = 9) -> torch.Tensor:
    random = np.random.default_rng(0)
    return torch.from_numpy(random.integers(0, 256, (count, side, side, channels), dtype=np.uint8)).permute(0, 3, 1, 2)


def crops(image: np.ndarray, padding: int) -> list[np.ndarray]:
    """Every place a crop may be cut from, and its mirror image."""
    side = image.shape[-1]
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    cut = [
        padded[:, top : top + side, left : left + side]
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
    ]
    return cut + [piece[:, :, ::-1] for piece in cut]


def test_a_crop_is_one_of_the_places_and_all_of_them_come() -> None:
    torch.manual_seed(0)
    batch = images(1).expand(400, -1, -1, -1)
    places = [place.tobytes() for place in crops(batch[0].numpy(), 2)]
    found = [places.index(np.ascontiguousarray(one).tobytes()) for one in crop_and_flip(batch, 2, flip=True).numpy()]
    assert len(set(found)) == 50  # 5 x 5 places, two ways round
    assert 150 < sum(place >= 25 for place in found) < 250


def test_each_image_has_its_own_place() -> None:
    torch.manual_seed(0)
    batch = images(40)
    out = crop_and_flip(batch, 3, flip=False)
    assert out.dtype == torch.uint8
    for image, one in zip(batch.numpy(), out.numpy(), strict=True):
        assert any(np.array_equal(one, place) for place in crops(image, 3)[:49])


def test_flip_alone_keeps_or_mirrors() -> None:
    torch.manual_seed(0)
    batch = images(60, channels=1)
    out = crop_and_flip(batch, 0, flip=True)
    kept, mirrored = (out == batch).flatten(1).all(1), (out == batch.flip(3)).flatten(1).all(1)
    assert (kept | mirrored).all()
    assert 15 < int(kept.sum()) < 45


@pytest.mark.parametrize("channels", [1, 3])
def test_colour_jitter_is_what_a_plain_loop_does(channels: int) -> None:
    batch = images(channels=channels)
    torch.manual_seed(3)
    out = colour_jitter(batch, 0.4)
    torch.manual_seed(3)
    factors = 1 + 0.4 * (2 * torch.rand(3, len(batch), 1, 1, 1) - 1)
    for i, image in enumerate(batch.double()):
        brightness, contrast, saturation = (float(f) for f in factors[:, i])
        pixels = (image * brightness).clamp(0, 255)
        grey = pixels if channels == 1 else 0.299 * pixels[0:1] + 0.587 * pixels[1:2] + 0.114 * pixels[2:3]
        pixels = (grey.mean() + contrast * (pixels - grey.mean())).clamp(0, 255)
        if channels == 3:
            grey = 0.299 * pixels[0:1] + 0.587 * pixels[1:2] + 0.114 * pixels[2:3]
            pixels = (grey + saturation * (pixels - grey)).clamp(0, 255)
        torch.testing.assert_close(out[i].double(), pixels, rtol=1e-4, atol=1e-2)
    assert 0.6 <= float(factors.min()) < float(factors.max()) <= 1.4


def test_the_seed_decides_and_nothing_asked_changes_nothing() -> None:
    config = Augmentation(crop=2, flip=True, jitter=0.3)
    batch = images()
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(augmented(batch, config))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    assert augmented(batch, Augmentation()) is batch


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[augmentation\] is for images; leave it out for other data"):
        augmented(torch.zeros(3, 4), Augmentation(flip=True))
