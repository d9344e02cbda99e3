"""Ready-made vectors: `vectors:FILE.npz` with `x` (n, D), `y` (n,) and, if there are splits, `split` (n,)."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.pool import Pool, Progress
from hyperproto.errors import DataError, HyperProtoError
from hyperproto.files import open_file

SUMMARY = "ready-made vectors from an .npz file with x (n, D), y (n,) and, optionally, split (n,)"
_MOST_EXPANSION = 1100  # bytes that deflate can make of one are 1,032; a member that claims more is not what it says
_ROWS = 8_192  # rows checked at a time, so that a large matrix is not doubled in memory


def splits(argument: str) -> tuple[str, ...]:
    """`all`, or what the file's own `split` array names."""
    with _open(argument) as arrays:
        if "split" not in arrays:
            return ("all",)
        return ("all", *map(str, np.unique(_read(arrays, "split")).tolist()))


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Read the rows of `split`; `all` takes every row."""
    with _open(argument) as arrays:
        missing = [name for name in ("x", "y") if name not in arrays]
        if missing:
            raise DataError(f"{argument}: no array {missing[0]!r} (found: {', '.join(arrays)}); save x and y")
        y = _read(arrays, "y")
        if split == "all":
            x = _read(arrays, "x")
        else:
            rows = _read(arrays, "split").astype(str) == split
            if rows.shape != y.shape:
                raise DataError(f"{argument}: split has shape {rows.shape} but y {y.shape}; give one a row")
            x, y = _read(arrays, "x", rows), y[rows]
        _check(argument, x, y)
        names, labels = np.unique(y, return_inverse=True)
        class_names = tuple(str(name) for name in names)
    return Pool(x, labels, class_names, name=f"vectors:{argument}", split=split)


def _read(arrays: np.lib.npyio.NpzFile, name: str, rows: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    """Read an array, or some of its rows without ever holding the others; one that is not all there is refused first.

    What the head of an array claims is compared with the bytes that there are, before memory is taken for it.
    """
    assert arrays.zip is not None  # it is open
    assert arrays.zip.fp is not None
    size = os.fstat(arrays.zip.fp.fileno()).st_size
    member = arrays.zip.getinfo(f"{name}.npy")
    with arrays.zip.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, which are not read: they could run code")
        claimed, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if claimed != there or there > _MOST_EXPANSION * min(size, member.compress_size):
            raise ValueError(f"{name} should be {shape} of {dtype}, {claimed:,} bytes, but there are {there:,}")
        if rows is None or by_column or len(shape) < 2 or shape[0] != len(rows):
            whole: NDArray[Any] = arrays[name]
            return whole if rows is None or len(whole) != len(rows) else whole[rows]
        kept = np.empty((int(rows.sum()), *shape[1:]), dtype)
        row_bytes, done = dtype.itemsize * int(np.prod(shape[1:])), 0
        for start in range(0, len(rows), _ROWS):
            wanted = rows[start : start + _ROWS]
            block: NDArray[Any] = np.frombuffer(file.read(len(wanted) * row_bytes), dtype).reshape(
                len(wanted), *shape[1:]
            )
            kept[done : done + int(wanted.sum())] = block[wanted]
            done += int(wanted.sum())
        return kept


@contextmanager
def _open(argument: str) -> Iterator[np.lib.npyio.NpzFile]:
    path = Path(argument)
    if not argument:
        raise DataError("vectors: no file named; write vectors:FILE.npz")
    save = f"save one with numpy.savez({path.name!r}, x=vectors, y=labels)"
    with open_file(path, missing=save) as file:
        try:
            yield _arrays(path, file)
        except (HyperProtoError, MemoryError):
            raise
        except Exception as error:  # whatever is made of damage, or of objects: among them SystemError and TokenError
            raise DataError(f"{path}: not a readable .npz file of numbers and strings ({error}); {save}") from None


def _arrays(path: Path, file: BinaryIO) -> np.lib.npyio.NpzFile:
    arrays = np.load(file, allow_pickle=False)
    if not isinstance(arrays, np.lib.npyio.NpzFile):
        raise DataError(f"{path}: one bare array; save x and y together with numpy.savez")
    return arrays


def _check(argument: str, x: NDArray[np.generic], y: NDArray[np.generic]) -> None:
    if x.ndim < 2 or x.dtype.kind != "f" or not x.size:
        raise DataError(
            f"{argument}: x has shape {x.shape} and type {x.dtype}; it must be (n, D) floats, with at least one row "
            "and one column"
        )
    if y.dtype.kind not in "biufUS":
        raise DataError(f"{argument}: y has type {y.dtype}; labels are strings or whole numbers")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(f"{argument}: row {int(np.argmin(np.isfinite(y)))} of y holds NaN or infinity; label it")
    if y.shape != x.shape[:1]:
        raise DataError(f"{argument}: x has {len(x)} rows but y has shape {y.shape}; give one label a row")
    for start in range(0, len(x), _ROWS):
        finite = np.isfinite(x[start : start + _ROWS]).reshape(len(x[start : start + _ROWS]), -1).all(axis=1)
        if not finite.all():
            raise DataError(f"{argument}: row {start + int(np.argmin(finite))} of x holds NaN or infinity; remove it")
