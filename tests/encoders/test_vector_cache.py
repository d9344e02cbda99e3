from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hyperproto.data import Pool
from hyperproto.encoders import Encoder, Units, make_encoder, vector_cache
from hyperproto.encoders.conv4 import Conv4
from hyperproto.evaluation import EncodedPool, training_center


@pytest.fixture(autouse=True)
def everything_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path))
    monkeypatch.setattr(vector_cache, "WORTH_KEEPING", 0.0)


def noise(seed: int = 0) -> Pool:
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    return Pool(pixels, np.arange(20) % 4, ("a", "b", "c", "d"))


def made(seed: int = 0, **options: int) -> Encoder:
    torch.manual_seed(seed)
    return make_encoder("conv4", {"channels": 1, "size": 28, **options})


def forbidden(*_: object) -> Units:
    raise AssertionError("encoded again")


def test_the_second_time_nothing_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    first = EncodedPool.encode(made(), noise(), cached=True).units
    center = training_center(made(), noise(), cached=True)
    monkeypatch.setattr(Conv4, "forward", forbidden)
    again = EncodedPool.encode(made(), noise(), cached=True).units
    torch.testing.assert_close(again.x, first.x, rtol=0, atol=0)
    np.testing.assert_array_equal(again.offsets, first.offsets)
    torch.testing.assert_close(training_center(made(), noise(), cached=True), center, rtol=0, atol=0)
    with pytest.raises(AssertionError, match="encoded again"):
        EncodedPool.encode(made(), noise())  # unless asked, nothing is taken from the cache: weights that learn change


@pytest.mark.parametrize(
    "other",
    [
        lambda: (made(seed=1), noise()),  # other weights
        lambda: (made(), noise(seed=1)),  # other items
        lambda: (made(filters=32), noise()),  # other options
    ],
)
def test_whatever_vectors_follow_from_is_in_the_key(other: Callable[[], tuple[Encoder, Pool]], tmp_path: Path) -> None:
    EncodedPool.encode(made(), noise(), cached=True)
    encoder, pool = other()
    units = EncodedPool.encode(encoder, pool, cached=True).units
    torch.testing.assert_close(units.x, EncodedPool.encode(encoder, pool).units.x, rtol=0, atol=0)
    assert len(list(tmp_path.glob("vectors/*.npz"))) == 2


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    first = EncodedPool.encode(made(), noise(), cached=True).units
    [file] = tmp_path.glob("vectors/*.npz")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    torch.testing.assert_close(EncodedPool.encode(made(), noise(), cached=True).units.x, first.x, rtol=0, atol=0)
    assert file.read_bytes() != bytes(content)


def test_what_is_fast_or_free_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    vectors = Pool(np.zeros((4, 3), np.float32), np.zeros(4, int), ("a",))
    EncodedPool.encode(make_encoder("identity", {"shape": [3]}), vectors, cached=True)  # it has no weights
    EncodedPool.encode(Conv4(), noise(), cached=True)  # nobody knows its options
    nameless = made()
    nameless.__class__ = type("Nameless", (Conv4,), {"__module__": "nowhere"})  # nobody can read its code
    EncodedPool.encode(nameless, noise(), cached=True)
    monkeypatch.setattr(vector_cache, "WORTH_KEEPING", 1000.0)
    EncodedPool.encode(made(), noise(), cached=True)
    assert not list(tmp_path.glob("vectors/*"))


def test_a_cache_that_cannot_be_written_costs_only_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "file"))
    assert EncodedPool.encode(made(), noise(), cached=True).units.x.shape == (20, 64)
