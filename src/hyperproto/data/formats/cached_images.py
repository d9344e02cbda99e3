"""Decoded images in a memory-mapped cache file; the checksum of each image is verified at its first use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from warnings import warn
from zlib import crc32

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from hyperproto.errors import DataError

Index = dict[str, Any]  # keys: "images" (their number), "damaged" (files left out), "crc32" (of each image, in hex)


class CachedImages(NDArrayOperatorsMixin):
    """Read-only images (n, S, S) or (n, S, S, C) of bytes, loaded on demand.

    `images[rows]` reads and verifies only those rows; `np.asarray(images)` and all other array operations use every
    image. If an image is damaged, a warning is issued, and `make` writes the file again and returns its index.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, path: Path, shape: tuple[int, ...], index: Index, make: Callable[[], Index]) -> None:
        self.path = path
        self.shape: tuple[int, ...] = (index["images"], *shape)
        self._index = index
        self._make = make
        self._rows = np.arange(len(self))
        self._map()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        """Count the images."""
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """Index as a NumPy array."""
        first = key[0] if isinstance(key, tuple) and key else key
        try:
            rows = self._rows if first is None or first is Ellipsis else self._rows[first]
        except IndexError:  # a mask of several axes; or no such row, for which NumPy raises an error below
            rows = self._rows
        self._check(rows)
        return self._images[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all images, without a copy unless `copy` is True."""
        self._check(self._rows)
        images = np.asarray(self._images, dtype)
        return images.copy() if copy else images

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        """Apply a NumPy function to all images."""
        arrays = [np.asarray(one) if isinstance(one, CachedImages) else one for one in inputs]
        return getattr(ufunc, method)(*arrays, **settings)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the array of all images."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __reduce__(self) -> Any:
        """Pickle the images as a plain array."""
        return np.array, (np.asarray(self),)

    def _map(self) -> None:
        self._sums = np.frombuffer(bytes.fromhex(self._index["crc32"]), ">u4")
        self._checked = np.zeros(len(self), bool)
        self._images: NDArray[np.uint8] = np.empty(self.shape, np.uint8)  # an empty file cannot be mapped
        if len(self):
            self._images = np.memmap(self.path, np.uint8, "r", shape=self.shape)

    def _check(self, rows: Any) -> None:
        damaged = self._first_damaged(rows)
        if damaged is None:
            return
        warn(f"{self.path}: image {damaged} of this cache is damaged; all are decoded again", stacklevel=3)
        before, self._index = self._index, self._make()
        if _files_left_out(before) != _files_left_out(self._index):
            raise DataError(f"{self.path}: the source images have changed since it was written; start again")
        self._map()
        if self._first_damaged(rows) is not None:
            raise DataError(f"{self.path}: damaged right after writing; set HYPERPROTO_CACHE to another disk")

    def _first_damaged(self, rows: Any) -> int | None:
        """Verify the checksums of rows not yet verified; return the first damaged row, or None."""
        rows = np.atleast_1d(rows)
        for row in np.unique(rows[~self._checked[rows]]).tolist():
            if crc32(self._images[row]) != self._sums[row]:
                return int(row)
            self._checked[row] = True
        return None


def _files_left_out(index: Index) -> list[str]:
    return [name for name, _ in index["damaged"]]
