"""Arrays of .npz files, read safely: no pickles, headers verified against file sizes, rows read in blocks."""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import DataError, HyperProtoError
from hyperproto.files import MOST_BYTES, most_bytes, open_file

Npz = np.lib.npyio.NpzFile
_MOST_EXPANSION = 1100  # deflate expands a byte to at most 1,032; a member that claims more is damaged
_ROWS = 8_192  # rows read at a time, so that selecting rows needs no second copy in memory


@contextmanager
def open_npz(path: Path, wanted: Mapping[str, str]) -> Iterator[Npz]:
    """Open an .npz file; any error inside the context becomes a DataError that names the file.

    `wanted` maps the expected arrays to descriptions, for advice on how to save them.
    """
    arrays = ", ".join(f"{name}={what}" for name, what in wanted.items())
    save = f"save one with numpy.savez({path.name!r}, {arrays})"
    with open_file(path, missing=save) as file:
        try:
            yield _arrays(path, file, wanted)
        except (HyperProtoError, MemoryError):
            raise
        except Exception as error:  # damage and pickled objects raise many types, SystemError and TokenError among them
            raise DataError(f"{path}: not a readable .npz file of numbers and strings ({error}); {save}") from None


def _arrays(path: Path, file: BinaryIO, wanted: Iterable[str]) -> Npz:
    arrays = np.load(file, allow_pickle=False)
    if not isinstance(arrays, Npz):
        raise DataError(f"{path}: one bare array; save {' and '.join(wanted)} together with numpy.savez")
    return arrays


def check_arrays(path: object, arrays: Npz, wanted: Iterable[str]) -> None:
    """Raise a DataError if an expected array is missing."""
    missing = [name for name in wanted if name not in arrays]
    if missing:
        found = ", ".join(arrays)
        raise DataError(f"{path}: no array {missing[0]!r} (found: {found}); save {' and '.join(wanted)}")


def read_array(arrays: Npz, name: str, rows: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    """Read an array, or only some of its rows without loading the others.

    The header is compared with the number of stored bytes before memory is allocated.
    """
    with _member(arrays, name) as (file, shape, by_column, dtype):
        if rows is None or by_column or len(shape) < 2 or shape[0] != len(rows):
            whole: NDArray[Any] = arrays[name]
            _check_characters(whole, name)
            return whole if rows is None or len(whole) != len(rows) else whole[rows]
        kept = np.empty((int(rows.sum()), *shape[1:]), dtype)
        read = done = 0
        for block in _blocks(file, shape, dtype, _ROWS):
            chosen = block[rows[read : read + len(block)]]
            kept[done : done + len(chosen)] = chosen
            read, done = read + len(block), done + len(chosen)
        return kept


def _check_characters(array: NDArray[Any], name: str) -> None:
    """Raise a ValueError for strings with invalid code points."""
    if array.dtype.kind == "U" and array.size:
        numbers = np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if int(numbers.max()) > sys.maxunicode:
            raise ValueError(f"{name} holds invalid code points")


def _blocks(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array in C order, at most `size` at a time."""
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    for start in range(0, shape[0], size):
        count = min(size, shape[0] - start)
        yield np.frombuffer(file.read(count * row_bytes), dtype).reshape(count, *shape[1:])


@contextmanager
def _member(arrays: Npz, name: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], bool, np.dtype[Any]]]:
    """Open an array after its header; yield file, shape, whether it is in Fortran order, and type.

    Raise a ValueError if the file does not hold as many bytes as the header claims.
    """
    assert arrays.zip is not None  # the file is open
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
        if there - member.compress_size > most_bytes():
            raise DataError(
                f"{arrays.zip.filename or arrays.zip.fp.name}: {name} is {shape} of {dtype}, {there:,} bytes out of "
                f"{member.compress_size:,}; if you trust the file and have the memory, set {MOST_BYTES}={there}"
            )
        yield file, shape, by_column, dtype


class NpzImages:
    """Images of a file `SPLIT.npz`: `images`, uint8 (n, S, S, 3), and `labels`, whole numbers or strings (n,).

    It has the interface of `FileTree` that `images.labelled_pool` uses: the name of an image is its row.
    """

    WANTED: Mapping[str, str] = {"images": "pixels", "labels": "labels"}

    def __init__(self, path: Path) -> None:
        self.root = path
        with open_npz(path, self.WANTED) as arrays:
            check_arrays(path, arrays, self.WANTED)
            with _member(arrays, "images") as (_, shape, by_column, dtype):
                self._check_images(shape, by_column, dtype)
            labels = read_array(arrays, "labels")
            if labels.shape != shape[:1] or labels.dtype.kind not in "iuUS":
                raise DataError(
                    f"{path}: labels have shape {labels.shape} and type {labels.dtype}; give each of the {shape[0]} "
                    "images a whole number or a string"
                )
            if labels.dtype.kind == "S":
                labels = np.char.decode(labels, "utf-8")
            found, self.labels = np.unique(labels, return_inverse=True)
            self.class_names = tuple(str(label) for label in found)
        self.names = [str(row) for row in range(shape[0])]

    def _check_images(self, shape: tuple[int, ...], by_column: bool, dtype: np.dtype[Any]) -> None:
        if dtype != np.uint8 or len(shape) != 4 or shape[1] != shape[2] or shape[3] != 3 or 0 in shape:
            raise DataError(
                f"{self.root}: images have shape {shape} and type {dtype}; they must be (n, S, S, 3) of uint8, at "
                "least one"
            )
        if by_column:
            raise DataError(f"{self.root}: images are stored by columns; save numpy.ascontiguousarray(images)")

    def path(self, name: str) -> str:
        """Return the location of an image for messages."""
        return f"{self.root}, image {name}"

    def stamps(self, names: Iterable[str]) -> Iterable[str]:
        """Yield name, size and modification time of the file."""
        status = self.root.stat()
        yield f"{self.root.name} {status.st_size} {status.st_mtime_ns}"

    def readers(self, names: list[str], size: int) -> Iterator[list[Callable[[], NDArray[np.uint8]]]]:
        """Yield lists of functions that return one image each, `size` at a time; `names` must be all, in order."""
        assert len(names) == len(self.names)
        with open_npz(self.root, self.WANTED) as arrays, _member(arrays, "images") as (file, shape, _, dtype):
            for block in _blocks(file, shape, dtype, size):
                yield [partial(block.__getitem__, row) for row in range(len(block))]
