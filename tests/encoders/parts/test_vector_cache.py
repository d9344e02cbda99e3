import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hyperproto.data import Pool
from hyperproto.encoders import Encoder, Units, make_encoder
from hyperproto.encoders.conv4 import Conv4
from hyperproto.encoders.parts import cache
from hyperproto.errors import NonFiniteError
from hyperproto.evaluation import EncodedPool, training_center
from tests.helpers.damage import flipped


@pytest.fixture(autouse=True)
def everything_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "MIN_SECONDS", 0.0)


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
    good = file.read_bytes()
    noticed = 0
    for damaged in [*flipped(good, len(good) // 60), good[:-1], good[: len(good) // 2], b"", b"PK"]:
        file.write_bytes(damaged)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            again = EncodedPool.encode(made(), noise(), cached=True).units
        torch.testing.assert_close(again.x, first.x, rtol=0, atol=0)
        assert np.array_equal(again.offsets, first.offsets)
        assert all("npz: a damaged file of the cache (" in str(one.message) for one in told)
        noticed += len(told)
    assert noticed > 50


def test_a_head_that_tells_of_fewer_vectors_is_not_believed(tmp_path: Path) -> None:
    """NumPy reads only as far as the shape says, and zip checks only what was read to its end."""
    first = EncodedPool.encode(made(), noise(), cached=True).units
    [file] = tmp_path.glob("vectors/*.npz")
    shape = str(tuple(first.x.shape)).encode()
    file.write_bytes(file.read_bytes().replace(shape, b"(1" + shape[2:]))
    with pytest.warns(UserWarning, match=r"a damaged file of the cache \(the checksum of x.npy is wrong\); it is made"):
        again = EncodedPool.encode(made(), noise(), cached=True).units
    torch.testing.assert_close(again.x, first.x, rtol=0, atol=0)


def test_vectors_that_are_not_finite_are_neither_kept_nor_believed(tmp_path: Path) -> None:
    first = EncodedPool.encode(made(), noise(), cached=True).units
    [file] = tmp_path.glob("vectors/*.npz")
    nothing = np.full(first.x.shape, np.nan, np.float32)
    np.savez(file, x=nothing, offsets=first.offsets, mask=np.zeros(0, bool))
    again = EncodedPool.encode(made(), noise(), cached=True).units
    torch.testing.assert_close(again.x, first.x, rtol=0, atol=0)
    broken = made()
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.nan)
    with pytest.raises(
        NonFiniteError, match=r"pool \(all\): Conv4 gives NaN or infinity for item 0 \(counted from 0\)"
    ):
        EncodedPool.encode(broken, noise(), cached=True)
    assert len(list(tmp_path.glob("vectors/*.npz"))) == 1


def test_what_is_fast_or_free_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    vectors = Pool(np.zeros((4, 3), np.float32), np.zeros(4, int), ("a",))
    EncodedPool.encode(make_encoder("identity", {"shape": [3]}), vectors, cached=True)  # it has no weights
    EncodedPool.encode(Conv4(), noise(), cached=True)  # nobody knows its options
    nameless = made()
    nameless.__class__ = type("Nameless", (Conv4,), {"__module__": "nowhere"})  # nobody can read its code
    EncodedPool.encode(nameless, noise(), cached=True)
    monkeypatch.setattr(cache, "MIN_SECONDS", 1000.0)
    EncodedPool.encode(made(), noise(), cached=True)
    assert not list(tmp_path.glob("vectors/*"))


def test_a_cache_that_cannot_be_written_costs_only_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "file"))
    assert EncodedPool.encode(made(), noise(), cached=True).units.x.shape == (20, 64)
