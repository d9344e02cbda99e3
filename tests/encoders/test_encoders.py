from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.encoders import ENCODERS, make_encoder, resolve_encoder
from hyperproto.encoders.conv4 import Conv4
from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError, DataError


def images(shape: tuple[int, ...] = (20, 28, 28)) -> Pool:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return Pool(pixels, np.arange(len(pixels)) % 4, ("a", "b", "c", "d"), name="noise")


def papers_conv4() -> nn.Sequential:
    """The paper's words, in the paper's order: convolution, batch norm, ReLU, max pool."""
    blocks = []
    for inputs in (1, 64, 64, 64):
        blocks += [nn.Conv2d(inputs, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.Flatten())


@pytest.mark.parametrize("training", [False, True])
def test_conv4_is_the_papers(training: bool) -> None:
    torch.manual_seed(0)
    ours, theirs = Conv4().train(training), papers_conv4().train(training)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    batch = ours.collate(images().items, np.arange(20))
    pixels = batch.float() / 127.5 - 1
    torch.testing.assert_close(ours(batch).x, theirs(pixels), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "features"), [((2, 28, 28), 64), ((2, 84, 84, 3), 1600), ((2, 16, 16, 3), 64)])
def test_conv4_sizes(shape: tuple[int, ...], features: int) -> None:
    pool = Pool(np.zeros(shape, np.uint8), np.zeros(2, int), ("a",))
    encoder = make_encoder(*resolve_encoder("conv4", {}, pool))
    assert encoder.feature_shape == (features,)
    assert encoder.encode_all(pool.items).x.shape == (2, features)


def test_conv4_has_the_published_number_of_parameters() -> None:
    assert sum(p.numel() for p in Conv4(channels=3).parameters()) == 113_088  # Snell et al.'s encoder for RGB images


def test_conv4_refuses_what_it_cannot_read() -> None:
    with pytest.raises(ConfigError, match="images of 8 px vanish in 4 poolings; use at least 16 px"):
        Conv4(size=8)
    for shape in [(2, 28, 30), (2, 5)]:
        with pytest.raises(DataError, match="conv4 reads square images"):
            resolve_encoder("conv4", {}, Pool(np.zeros(shape, np.uint8), np.zeros(2, int), ("a",)))


def test_a_whole_pool_is_encoded_once_in_eval_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    from hyperproto.encoders import base

    monkeypatch.setattr(base, "BATCH", 7)
    pool, seen = images(), []
    encoder = Conv4().train()
    collate = encoder.collate

    def watched(prepared: Any, index: IntArray) -> Tensor:
        seen.extend(index.tolist())
        return collate(prepared, index)

    monkeypatch.setattr(encoder, "collate", watched)
    progress: list[tuple[int, int]] = []
    units = encoder.encode_all(pool.items, lambda done, total: progress.append((done, total)))
    assert seen == list(range(20))
    assert progress == [(7, 20), (14, 20), (20, 20)]
    assert units.offsets.tolist() == list(range(21))
    assert encoder.training
    alone = encoder.eval()(collate(pool.items, np.array([11]))).x[0]
    torch.testing.assert_close(units.x[11], alone, rtol=1e-4, atol=1e-5)


def test_identity_shares_the_memory_of_the_matrix(tmp_path: Path, make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs()
    encoder = make_encoder(*resolve_encoder("identity", {}, pool))
    units = encoder.encode_all(encoder.prepare(pool.items))
    assert units.x.data_ptr() == pool.items.ctypes.data
    np.save(tmp_path / "x.npy", pool.items)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert encoder.encode_all(encoder.prepare(mapped)).x.data_ptr() == mapped.ctypes.data


def test_identity_makes_pixels_of_images_and_float32_of_halves() -> None:
    pool = images()
    encoder = make_encoder(*resolve_encoder("identity", {}, pool))
    assert encoder.feature_shape == (784,)
    pixels = encoder.prepare(pool.items)
    assert pixels.shape == (20, 784)
    assert np.allclose(pixels, pool.items.reshape(20, -1) / 255)
    assert Identity(shape=[2]).prepare(np.ones((3, 2), np.float16)).dtype == np.float32
    assert encoder(encoder.collate(pixels, np.array([3]))).x.shape == (1, 784)


def test_specs_and_options_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"no encoder 'conv'; did you mean 'conv4'\?"):
        ENCODERS.get("conv")
    with pytest.raises(ConfigError, match="conv4 takes no argument after the colon; write 'conv4'"):
        resolve_encoder("conv4:large", {}, images())
    with pytest.raises(ConfigError, match=r"no option of encoder 'conv4' called 'filter'; did you mean 'filters'\?"):
        resolve_encoder("conv4", {"filter": 3}, images())
    with pytest.raises(
        ConfigError, match=r"encoder 'conv4', option 'filters': '64' is not valid \(Input should be a valid int"
    ):
        resolve_encoder("conv4", {"filters": "64"}, images())


WORDS = Pool([["a", "b"], ["c"]], np.array([0, 0, 1]), ("x", "y"), name="words", offsets=np.array([0, 2, 3]))
RELATIONS = Pool([{"tokens": ["a"], "head": [0], "tail": [0]}] * 2, np.arange(2), ("x", "y"), name="relations")
TEXTS = Pool(["a text", "another"], np.arange(2), ("x", "y"), name="texts")
IMAGES = Pool(np.zeros((2, 28, 28), np.uint8), np.arange(2), ("x", "y"), name="images")


@pytest.mark.parametrize("name", ["conv4", "resnet12", "efficientnet-lite0", "identity"])
@pytest.mark.parametrize(("pool", "kind"), [(WORDS, "lists of words"), (RELATIONS, "dict"), (TEXTS, "texts")])
def test_words_are_no_images(name: str, pool: Pool, kind: str) -> None:
    with pytest.raises(
        DataError, match=rf"{pool.name} \(all\): \w+ reads .*images, but the items are {kind}; choose an e"
    ):
        resolve_encoder(name, {}, pool)


def test_images_are_no_words() -> None:
    with pytest.raises(
        DataError, match=r"'minilm' is a language model, and none of them reads these data\n(.|\n)*ndarray"
    ):
        resolve_encoder("minilm", {}, IMAGES)


@pytest.mark.parametrize(
    ("filters", "words"),
    [(0, "(gives vectors of size 0|cannot be made)"), (-4, "cannot be made with"), (10**23, "cannot")],
)
def test_sizes_that_cannot_be(filters: int, words: str) -> None:
    with pytest.raises(ConfigError, match=f"the encoder 'conv4' .*{words}"):
        make_encoder("conv4", {"filters": filters})
