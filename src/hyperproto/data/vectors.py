"""Precomputed vectors: `vectors:FILE.npz` with `x` (n, D), `y` (n,) and, optionally, `split` (n,)."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.formats.npz import check_arrays, open_npz, read_array
from hyperproto.data.pool import Pool, Progress
from hyperproto.errors import DataError

SUMMARY = "precomputed vectors from an .npz file with x (n, D), y (n,) and, optionally, split (n,)"
_WANTED = {"x": "vectors", "y": "labels"}
_ROWS = 8_192  # rows checked at a time, to bound the memory


def splits(argument: str) -> tuple[str, ...]:
    """Return `all` and the values of the file's `split` array."""
    with open_npz(_file(argument), _WANTED) as arrays:
        if "split" not in arrays:
            return ("all",)
        return ("all", *map(str, np.unique(read_array(arrays, "split")).tolist()))


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Read the rows of `split`, or every row for `all`."""
    with open_npz(_file(argument), _WANTED) as arrays:
        check_arrays(argument, arrays, _WANTED)
        y = read_array(arrays, "y")
        if split == "all":
            x = read_array(arrays, "x")
        else:
            rows = read_array(arrays, "split").astype(str) == split
            if rows.shape != y.shape:
                raise DataError(f"{argument}: split has shape {rows.shape} but y {y.shape}; give one a row")
            x, y = read_array(arrays, "x", rows), y[rows]
        _check(argument, x, y)
        names, labels = np.unique(y, return_inverse=True)
        class_names = tuple(str(name) for name in names)
    return Pool(x, labels, class_names, name=f"vectors:{argument}", split=split)


def _file(argument: str) -> Path:
    if not argument:
        raise DataError("vectors: no file named; write vectors:FILE.npz")
    return Path(argument)


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
