"""Ready-made vectors: `vectors:FILE.npz` with `x` (n, D), `y` (n,) and, if there are splits, `split` (n,)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.pool import Pool, Progress
from hyperproto.errors import DataError

SUMMARY = "ready-made vectors from an .npz file with x (n, D), y (n,) and, optionally, split (n,)"
_ROWS = 8_192  # rows checked at a time, so that a large matrix is not doubled in memory


def splits(argument: str) -> tuple[str, ...]:
    """`all`, or what the file's own `split` array names."""
    with _open(argument) as arrays:
        if "split" not in arrays:
            return ("all",)
        return ("all", *map(str, np.unique(arrays["split"]).tolist()))


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Read the rows of `split`; `all` takes every row."""
    with _open(argument) as arrays:
        missing = [name for name in ("x", "y") if name not in arrays]
        if missing:
            raise DataError(f"{argument}: no array {missing[0]!r} (found: {', '.join(arrays)}); save x and y")
        if split == "all":
            x, y = arrays["x"], arrays["y"]
        else:
            rows = arrays["split"].astype(str) == split
            if rows.shape != arrays["y"].shape:
                raise DataError(f"{argument}: split has shape {rows.shape} but y {arrays['y'].shape}; give one a row")
            x, y = _read_rows(arrays, "x", rows), arrays["y"][rows]
    _check(argument, x, y)
    names, labels = np.unique(y, return_inverse=True)
    return Pool(x, labels, tuple(str(name) for name in names), name=f"vectors:{argument}", split=split)


def _read_rows(arrays: np.lib.npyio.NpzFile, name: str, rows: NDArray[np.bool_]) -> NDArray[np.generic]:
    """Read some rows of an array without ever holding the others."""
    assert arrays.zip is not None  # it is open
    with arrays.zip.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = read_header(file)
        if by_column or len(shape) < 2 or shape[0] != len(rows) or dtype.hasobject:
            whole: NDArray[np.generic] = arrays[name]
            return whole[rows] if len(whole) == len(rows) else whole
        kept = np.empty((int(rows.sum()), *shape[1:]), dtype)
        row_bytes, done = dtype.itemsize * int(np.prod(shape[1:])), 0
        for start in range(0, len(rows), _ROWS):
            wanted = rows[start : start + _ROWS]
            block = np.frombuffer(file.read(len(wanted) * row_bytes), dtype).reshape(len(wanted), *shape[1:])
            kept[done : done + int(wanted.sum())] = block[wanted]
            done += int(wanted.sum())
        return kept


@contextmanager
def _open(argument: str) -> Iterator[np.lib.npyio.NpzFile]:
    path = Path(argument)
    if not argument:
        raise DataError("vectors: no file named; write vectors:FILE.npz")
    try:
        with ExitStack() as opened:
            yield _arrays(path, opened)
    except (BadZipFile, ValueError, EOFError) as error:  # what NumPy says of damage, or of objects instead of numbers
        raise DataError(f"{path}: not a readable .npz file of numbers and strings ({error})") from None


def _arrays(path: Path, opened: ExitStack) -> np.lib.npyio.NpzFile:
    try:
        arrays = np.load(opened.enter_context(path.open("rb")), allow_pickle=False)
    except FileNotFoundError:
        raise DataError(
            f"{path}: no such file; save one with numpy.savez({path.name!r}, x=vectors, y=labels)"
        ) from None
    if not isinstance(arrays, np.lib.npyio.NpzFile):
        raise DataError(f"{path}: one bare array; save x and y together with numpy.savez")
    return arrays


def _check(argument: str, x: NDArray[np.generic], y: NDArray[np.generic]) -> None:
    if x.ndim < 2 or x.dtype.kind != "f":
        raise DataError(f"{argument}: x has shape {x.shape} and type {x.dtype}; it must be (n, D) floats")
    if y.shape != x.shape[:1]:
        raise DataError(f"{argument}: x has {len(x)} rows but y has shape {y.shape}; give one label a row")
    for start in range(0, len(x), _ROWS):
        finite = np.isfinite(x[start : start + _ROWS]).reshape(len(x[start : start + _ROWS]), -1).all(axis=1)
        if not finite.all():
            raise DataError(f"{argument}: row {start + int(np.argmin(finite))} of x holds NaN or infinity; remove it")
