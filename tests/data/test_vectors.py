import random
import zipfile
from io import BytesIO
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
        ({"x": X[:0], "y": np.arange(0)}, r"x has shape \(0, 2\) .* with at least one row and one column"),
        ({"x": X[:, :0], "y": np.arange(4)}, r"x has shape \(4, 0\) .* with at least one row and one column"),
        ({"x": X, "y": np.arange(4) + 1j}, "y has type complex128; labels are strings or whole numbers"),
        ({"x": X, "y": np.array([1, np.nan, 2, 2])}, "row 1 of y holds NaN or infinity; label it"),
        ({"x": X, "y": np.array(["\ud800"] * 4)}, r"the name of class '\\ud800' holds half a character; rename it"),
        ({"x": X, "y": np.array([{}] * 4)}, "y holds Python objects, which are not read: they could run code"),
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


def test_rows_of_a_split_are_read_a_block_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperproto.data.formats.npz._ROWS", 3)
    x, split = np.arange(20.0).reshape(10, 2), np.array(list("aababbbaba"))
    np.savez(tmp_path / "v.npz", x=x, y=np.arange(10), split=split)
    for name in "ab":
        assert np.array_equal(open_pool(f"vectors:{tmp_path / 'v.npz'}", name).items, x[split == name])


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


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path, save: Any) -> None:
    path, rng = tmp_path / "flipped.npz", random.Random(0)
    save(path, x=np.random.default_rng(0).normal(size=(40, 4)), y=np.arange(40) % 4, split=np.arange(40) % 2)
    whole, refused = path.read_bytes(), 0
    digests = {split: open_pool(f"vectors:{path}", split).digest for split in ("all", "1")}
    for _ in range(150):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        for split, digest in digests.items():
            try:
                assert open_pool(f"vectors:{path}", split).digest == digest
            except (DataError, ConfigError):
                refused += 1
    assert refused > 200


@pytest.mark.parametrize("shape", ["(1000000000000, 2)", f"({10**30}, 2)", "(-4, 2)", "()", "(4, 3)"])
@pytest.mark.parametrize("split", ["all", "1"])
def test_a_head_that_claims_what_is_not_there_takes_no_memory(tmp_path: Path, shape: str, split: str) -> None:
    path = tmp_path / "giant.npz"
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + X.tobytes())
        for name, array in (("y", np.arange(4)), ("split", np.ones(4, int))):
            content = BytesIO()
            np.save(content, array)
            archive.writestr(f"{name}.npy", content.getvalue())
    with pytest.raises(
        DataError, match=r"giant\.npz: not a readable .*\(x should be \(.*\) of float32, .* there are 32\)"
    ):
        open_pool(f"vectors:{path}", split)


def test_labels_of_characters_that_there_are_not(tmp_path: Path) -> None:
    """A damaged array of strings, which NumPy hands out and Python cannot hold."""
    y = np.frombuffer(np.array([97, 0x7FFFFFFF], np.uint32).tobytes(), dtype="<U1")
    np.savez(tmp_path / "v.npz", x=np.eye(2), y=y)
    with pytest.raises(DataError, match=r"not a readable .npz file of numbers and strings"):
        open_pool(f"vectors:{tmp_path / 'v.npz'}", "all")


def test_an_array_without_axes(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", x=np.float64(3.0), y=np.array([1, 2]), split=np.array(["test", "test"]))
    with pytest.raises(DataError, match=r"v.npz"):
        open_pool(f"vectors:{tmp_path / 'v.npz'}", "test")


def test_what_a_file_inflates_to_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, x, y = tmp_path / "v.npz", np.zeros((1000, 512), np.float32), np.arange(1000)
    np.savez_compressed(path, x=x, y=y)
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", "1M")
    words = r"v\.npz: x is \(1000, 512\) of float32, 2,048,000 bytes out of [\d,]+; .* set HYPERPROTO_MAX_BYTES=2048000"
    with pytest.raises(DataError, match=words):
        open_pool(f"vectors:{path}", "all")
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", "2048000")
    assert len(open_pool(f"vectors:{path}", "all")) == 1000
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", "1")
    np.savez(path, x=x, y=y)  # as large on disk as in memory
    assert len(open_pool(f"vectors:{path}", "all")) == 1000
