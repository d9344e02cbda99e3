from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.data import open_pool
from hyperproto.errors import ConfigError, DataError


def test_splits_and_names_come_from_the_file(vectors_file: Path) -> None:
    pool = open_pool(f"vectors:{vectors_file}", "val")
    assert pool.class_names == tuple(f"class {n:02d}" for n in range(8, 16))
    assert pool.items.shape == (240, 8)
    assert pool.name == f"vectors:{vectors_file}"
    assert len(open_pool(f"vectors:{vectors_file}", "all")) == 720
    with pytest.raises(ConfigError, match="no split 'dev'"):
        open_pool(f"vectors:{vectors_file}", "dev")


X = np.ones((4, 2), np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, r"no array 'y' \(found: x\); save x and y"),
        ({"x": X, "y": np.arange(3)}, r"x has 4 rows but y has shape \(3,\)"),
        ({"x": X[:, 0], "y": np.arange(4)}, r"x has shape \(4,\) and type float32; it must be \(n, D\) floats"),
        ({"x": X.astype(int), "y": np.arange(4)}, r"type int64; it must be \(n, D\) floats"),
        ({"x": np.where(np.eye(4)[:, :2] > 0, np.nan, X), "y": np.arange(4)}, r"row 0 of x holds NaN or infinity"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(DataError, match=message):
        open_pool(f"vectors:{tmp_path / 'wrong.npz'}", "all")


def test_splits_of_numbers_and_of_another_length(tmp_path: Path) -> None:
    path = tmp_path / "numbers.npz"
    np.savez(path, x=X, y=np.arange(4), split=np.array([1, 1, 2, 2]))
    assert len(open_pool(f"vectors:{path}", "2")) == 2
    np.savez(path, x=X, y=np.arange(4), split=np.array(["a", "b"]))
    with pytest.raises(DataError, match=r"split has shape \(2,\) but y \(4,\)"):
        open_pool(f"vectors:{path}", "a")
    np.savez(path, x=X, y=np.array(["a", 1, None, 2], dtype=object))
    with pytest.raises(DataError, match=r"not a readable \.npz file of numbers and strings"):
        open_pool(f"vectors:{path}", "all")


def test_missing_damaged_and_bare_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file named; write vectors:FILE\.npz"):
        open_pool("vectors", "all")
    with pytest.raises(DataError, match=r"none\.npz: no such file; save one with numpy\.savez"):
        open_pool(f"vectors:{tmp_path / 'none.npz'}", "all")
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(DataError, match=r"not a readable \.npz file"):
        open_pool(f"vectors:{damaged}", "all")
    np.save(tmp_path / "bare.npy", X)
    with pytest.raises(DataError, match="one bare array; save x and y together"):
        open_pool(f"vectors:{tmp_path / 'bare.npy'}", "all")
