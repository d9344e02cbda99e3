"""Images to vectors: from files or arrays, decoded as everywhere else."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline

from hyperproto import HypersphereClassifier, ImageEncoder
from hyperproto.data.formats.images import Decoding, decoder
from hyperproto.encoders import make_encoder
from hyperproto.errors import ConfigError, DataError


def encoder(**options: Any) -> ImageEncoder:
    return ImageEncoder(resolution=32, **options)


def test_vectors_are_those_of_the_network(files: list[Path]) -> None:
    decode = decoder(Decoding(32, 3, False))
    pixels = np.stack([decode(path.read_bytes()) for path in files])
    network = make_encoder("efficientnet-lite0", {"channels": 3, "size": 32, "resolution": 32})
    with torch.no_grad():
        expected = network.encode_all(pixels).x.numpy()
    found = encoder().fit_transform(files)
    assert found.shape == (6, 1280)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(encoder().transform([str(path) for path in files]), found)
    np.testing.assert_array_equal(encoder().transform(pixels), found)  # they have the size already


def test_arrays_are_treated_as_files_are(files: list[Path]) -> None:
    from PIL import Image

    arrays = [np.asarray(Image.open(path)) for path in files]
    np.testing.assert_array_equal(encoder().transform(arrays), encoder().transform(files))
    grey = [array[:, :, 0] for array in arrays]
    coloured = [np.repeat(array[:, :, None], 3, axis=2) for array in grey]
    np.testing.assert_array_equal(encoder().transform(grey), encoder().transform(coloured))


def test_chunks_make_no_difference(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encoder(cache=False).transform(files)
    monkeypatch.setattr(ImageEncoder, "chunk", 4)
    np.testing.assert_allclose(encoder(cache=False).transform(files), whole, atol=1e-5)


def test_it_is_a_transformer(files: list[Path]) -> None:
    labels = ["red" if n % 2 else "blue" for n in range(6)]
    pipeline = make_pipeline(encoder(), HypersphereClassifier()).fit(files[:4], labels[:4])
    assert pickle.loads(pickle.dumps(pipeline)).predict(files[4:]).tolist() == labels[4:]


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("one.png", "X is a single path; give a list of images, even if it holds only one"),
        ([None], r"X\[0\] is None \(NoneType\); an image is a path, or an array of bytes"),
        (["a.png", ""], r"X\[1\] is an empty path; name a file"),
        (
            [np.zeros((4, 4))],
            r"X\[0\] is an array of float64 \(4, 4\); an image is one of uint8 \(H, W\) or \(H, W, 3\)",
        ),
        (np.zeros((2, 4, 4, 2), np.uint8), r"X\[0\] is an array of uint8 \(4, 4, 2\)"),
    ],
)
def test_what_is_no_image_is_named_by_its_position(images: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        encoder().fit(images)


def test_a_file_that_is_no_image_is_named(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    files[4].write_bytes(files[4].read_bytes()[:60])
    monkeypatch.setattr(ImageEncoder, "chunk", 2)
    with pytest.raises(DataError, match=r"X\[4\], .*4\.png: cannot be read as an image \(.*\); fix the file, or leave"):
        encoder().transform(files)
    files[4].unlink()
    with pytest.raises(DataError, match=r"X\[4\], .*4\.png: No such file or directory; check the path"):
        encoder().transform(files)


def test_an_encoder_must_be_ready_and_of_images(files: list[Path]) -> None:
    with pytest.raises(ConfigError, match=r"there is no encoder 'efficientnet'; did you mean 'efficientnet-lite0'\?"):
        encoder(model="efficientnet").transform(files)
    with pytest.raises(ConfigError, match="no option of encoder 'conv4' called 'resolution'"):
        encoder(model="conv4").transform(files)


def test_weights_that_have_to_be_learned_first_are_refused(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from hyperproto.encoders import ENCODERS
    from hyperproto.encoders.conv4 import Conv4

    class Random(Conv4):
        def __init__(self, *, channels: int = 3, size: int = 84, resolution: int = 32) -> None:
            super().__init__(channels=channels, size=size)

    monkeypatch.setattr(ENCODERS, "_entries", {**ENCODERS._entries, "random": Random})
    with pytest.raises(ConfigError, match=r"encoder 'random' has to be trained first; use a pretrained one"):
        encoder(model="random").transform(files)
