"""Pools of image files: decode once, in parallel, into a memory-mapped file in the cache folder."""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from threading import Condition
from typing import Any
from warnings import warn
from zipfile import BadZipFile, ZipFile, ZipInfo, is_zipfile
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.formats.cached_images import CachedImages, Index
from hyperproto.data.formats.npz import NpzImages
from hyperproto.data.pool import IntArray, Pool, Progress
from hyperproto.data.specs import one_of, whole_number
from hyperproto.errors import ConfigError, DataError, HyperProtoError
from hyperproto.files import (
    MOST_BYTES,
    USUAL_MOST,
    atomic_write,
    cache_dir,
    is_there,
    is_utf8,
    json_checksum,
    most_bytes,
    os_problem,
    read_bytes,
    read_json,
)

DAMAGED_ZIP = (BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, OSError)  # RuntimeError: encrypted


AT_ONCE = 8  # number of archive members that threads unpack at a time


class FileTree:
    """Files below a folder, or in a zip archive; `names` are relative paths with slashes.

    With `archives=True`, zip archives directly in the folder are read like folders (`images.zip/cats/1.png`), so that a
    downloaded data set needs no unpacking.
    """

    def __init__(self, root: Path, *, archives: bool = False) -> None:
        self.root = root
        self._archives: dict[str, ZipFile] = {}  # by the prefix of their members' names
        if not is_there(root):
            raise DataError(f"{root}: no such folder or zip archive")
        if root.is_dir():
            names = [name.replace(os.sep, "/") for name in _walk(root)]
            for name in [name for name in names if archives and "/" not in name and name.endswith(".zip")]:
                names += self._open(f"{name}/", root / name)
        elif root.is_file() and is_zipfile(root):  # is_file first: reading a FIFO would block
            names = self._open("", root)
        else:
            raise DataError(f"{root}: neither a folder nor a zip archive")
        hidden = ("__MACOSX/", "/.", "/__MACOSX/")
        self.names = sorted(
            n for n in names if not n.startswith((".", "__MACOSX/")) and not any(h in n for h in hidden)
        )

    def _open(self, prefix: str, path: Path) -> list[str]:
        try:
            self._archives[prefix] = ZipFile(path)
        except (BadZipFile, ValueError, NotImplementedError) as error:
            raise DataError(f"{path}: a damaged zip archive ({error}); fetch it again") from None
        names = [info.filename for info in self._archives[prefix].infolist()]
        return [f"{prefix}{name}" for name in names if name and not name.endswith("/")]

    def read(self, name: str) -> bytes:
        """Return the bytes of one file; thread-safe."""
        prefix, archive = self._archive_of(name)
        if archive is not None:
            try:
                member = archive.getinfo(name.removeprefix(prefix))
                if member.file_size - member.compress_size > most_bytes() // AT_ONCE:
                    raise _too_large(self.path(name), member)
                return archive.read(member)
            except HyperProtoError:
                raise
            except DAMAGED_ZIP as error:
                raise DataError(f"{self.path(name)}: damaged in its archive ({error}); fetch it again") from None
        return read_bytes(self.root / name)

    def readers(self, names: list[str], size: int) -> Iterator[list[Callable[[], bytes]]]:
        """Yield lists of functions that read one file each, `size` files at a time."""
        for start in range(0, len(names), size):
            yield [partial(self.read, name) for name in names[start : start + size]]

    def path(self, name: str) -> str:
        """Return the location of a file for messages."""
        return f"{self.root}/{name}"

    def stamps(self, names: Iterable[str]) -> Iterable[str]:
        """Yield name, size and modification time of each file: a cache key that needs no reading."""
        archive_stamps = {prefix: _stamp(Path(str(a.filename))) for prefix, a in self._archives.items()}
        for name in names:
            prefix, archive = self._archive_of(name)
            yield f"{name} {archive_stamps[prefix] if archive is not None else _stamp(self.root / name)}"

    def _archive_of(self, name: str) -> tuple[str, ZipFile | None]:
        top, slash, _ = name.partition("/")
        for prefix in ("", f"{top}{slash}"):
            if prefix in self._archives:
                return prefix, self._archives[prefix]
        return "", None


def _too_large(where: str, member: ZipInfo) -> DataError:
    """Return the error for an archive member that exceeds the memory limit."""
    return DataError(
        f"{where}: {member.file_size:,} bytes out of {member.compress_size:,} in its archive; if you trust it and have "
        f"the memory, set {MOST_BYTES}={AT_ONCE * member.file_size} ({AT_ONCE} files are read at a time)"
    )


def _walk(root: Path) -> Iterator[str]:
    """Yield the relative names of the files below a folder; follow symbolic links, but refuse cycles."""

    def refuse(error: OSError) -> None:
        raise DataError(os_problem(error))

    top = str(root)
    inside: dict[str, set[tuple[int, int]]] = {}  # device and inode of each folder and its parents
    for folder, _, names in os.walk(top, onerror=refuse, followlinks=True):
        status = Path(folder).stat()
        own, outer = (status.st_dev, status.st_ino), inside.get(os.path.dirname(folder), set())  # noqa: PTH120
        if folder != top and own in outer:
            raise DataError(f"{folder}: a symbolic link to one of its own parent folders, an endless cycle; remove it")
        inside[folder] = {own, *outer}
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), top)  # noqa: PTH118 - Path is slow on 60,000 files


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


Images = NDArray[np.uint8]

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
CACHE_VERSION = 1  # increase it if the same file would be decoded to other bytes
_WINDOW = 1024  # number of images decoded before they are written: bounds the memory
_PIXEL = 16  # bytes of memory to decode a pixel: up to four copies of four channels
_NAMED = 10  # number of damaged files listed in a message

LARGEST = 4096  # largest side in pixels
IMAGE_OPTIONS = {"size": "84", "channels": "3", "damaged": "refuse"}  # options of the spec of every image data set


@dataclass(frozen=True)
class Decoding:
    """Decoding options: side in pixels, 1 or 3 channels, and whether damaged files are refused or skipped."""

    size: int
    channels: int
    skip_damaged: bool

    @classmethod
    def of(cls, name: str, options: Mapping[str, str]) -> "Decoding":
        """Parse the options of a data spec."""
        return cls(
            size=whole_number(name, "size", options["size"], 1, LARGEST),
            channels=int(one_of(name, "channels", options["channels"], ("1", "3"))),
            skip_damaged=one_of(name, "damaged", options["damaged"], ("refuse", "skip")) == "skip",
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image; grey images have no channel axis."""
        return (self.size, self.size) if self.channels == 1 else (self.size, self.size, self.channels)


def is_image(name: str) -> bool:
    """Return True if a file has the suffix of an image."""
    return name.lower().endswith(SUFFIXES)


def image_names(tree: FileTree) -> list[str]:
    """Return the images of a tree; refuse names that are not UTF-8, which no table or model file can hold."""
    names = [name for name in tree.names if is_image(name)]
    for name in names:
        if not is_utf8(name):
            shown = ascii(tree.path(name))
            raise DataError(f"{shown}: this name is not UTF-8; rename the file or its folder")
    return names


def image_pool(
    spec: str, split: str, tree: FileTree, classes: Mapping[str, list[str]], how: Decoding, progress: Progress | None
) -> Pool:
    """Decode the files of each class into a pool."""
    files = [name for names in classes.values() for name in names]
    labels = np.repeat(np.arange(len(classes)), [len(names) for names in classes.values()])
    return labelled_pool(spec, split, tree, files, labels, tuple(classes), how, progress)


def labelled_pool(
    spec: str,
    split: str,
    tree: FileTree | NpzImages,
    files: list[str],
    labels: IntArray,
    class_names: tuple[str, ...],
    how: Decoding,
    progress: Progress | None,
) -> Pool:
    """Decode files with their labels into a pool.

    A damaged file raises a DataError, or is skipped with a warning if `how` says so.
    """
    if not files:
        raise DataError(f"{spec} ({split}): no images of this split below {tree.root}")
    images, kept, damaged = _decoded(tree, files, how, progress)
    if damaged:
        shown = "\n".join(f"- {tree.path(name)}: {reason}" for name, reason in damaged[:_NAMED])
        more = f"\n- and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
        found = f"{spec} ({split}): {len(damaged)} of {len(files)} images cannot be read"
        if not how.skip_damaged:
            comma = "," if ":" in spec else ":,"
            raise DataError(
                f"{found}; fix or remove them, or leave them out with {spec}{comma}damaged=skip\n{shown}{more}"
            )
        warn(f"{found} and are left out\n{shown}{more}", stacklevel=2)
    return Pool(images, labels[kept], class_names, name=spec, split=split)


def _decoded(
    tree: FileTree | NpzImages, files: list[str], how: Decoding, progress: Progress | None
) -> tuple[CachedImages, IntArray, list[tuple[str, str]]]:
    """Return the images, the indices of their files, and the damaged files with the problem of each."""
    folder = cache_dir() / "images"
    key = _key(tree, files, how)
    content, index = folder / f"{key}.bytes", folder / f"{key}.json"

    def make() -> Index:
        try:
            made = _decode_all(tree, files, how, content, progress)
            with atomic_write(index) as file:  # last: an index means complete content
                file.write(json.dumps({**made, "checksum": json_checksum(made)}).encode())
        except OSError as error:
            raise DataError(f"images cannot be cached in {folder} ({error}); set HYPERPROTO_CACHE to another") from None
        return made

    found = _read_index(index, content, how) or make()
    gone = {name for name, _ in found["damaged"]}
    kept = np.array([row for row, name in enumerate(files) if name not in gone], np.int64)
    return CachedImages(content, how.shape, found, make), kept, [(name, why) for name, why in found["damaged"]]


def _key(tree: FileTree | NpzImages, files: list[str], how: Decoding) -> str:
    """Return a hash of everything that the decoded bytes depend on: the name of the cache file."""
    decoder = f"v{CACHE_VERSION} pillow {version('pillow')} {how.shape} {tree.root.resolve()}"
    allowed = (
        [] if most_bytes() == USUAL_MOST else [f"at most {most_bytes()} bytes"]
    )  # the limit decides which files are refused
    lines = [decoder, *allowed, *tree.stamps(files)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]


def _read_index(index: Path, content: Path, how: Decoding) -> Index | None:
    """Read the index of a cache file; return None if its checksum or the length of the content is wrong.

    Indices of version 0.1 have no checksums: their images are decoded again.
    """
    try:
        found: Index = read_json(index)
        right = found.pop("checksum") == json_checksum(found)
        right = right and content.stat().st_size == found["images"] * int(np.prod(how.shape))
        return found if right and content.is_file() else None
    except (DataError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _decode_all(
    tree: FileTree | NpzImages, files: list[str], how: Decoding, content: Path, progress: Progress | None
) -> Index:
    decode = decoder(how)

    def attempt(read: Callable[[], bytes | Images]) -> bytes | str:
        try:
            return decode(read()).tobytes()
        except Exception as error:  # any error of a decoder on a damaged file
            return f"{type(error).__name__}: {error}"

    damaged, sums = [], []
    with atomic_write(content) as file, ThreadPoolExecutor(os.cpu_count()) as threads:
        done = 0
        for readers in tree.readers(files, _WINDOW):
            window = files[done : done + len(readers)]
            done += len(window)
            for name, result in zip(window, threads.map(attempt, readers), strict=True):
                if isinstance(result, str):
                    damaged.append([name, result])
                else:
                    file.write(result)
                    sums.append(crc32(result))
            if progress is not None:
                progress(done, len(files))
    return {"images": len(sums), "damaged": damaged, "crc32": np.array(sums, ">u4").tobytes().hex()}


class _Budget:
    """Memory limit for images that are decoded in parallel."""

    def __init__(self) -> None:
        self._changed, self._taken = Condition(), 0

    @contextmanager
    def take(self, image: Any) -> Iterator[None]:
        """Wait until an image fits into the limit, judged by its header; refuse one that is larger than the limit."""
        width, height = image.size
        need, most = _PIXEL * width * height, most_bytes()
        if need > most:
            raise DataError(
                f"{width} x {height} pixels take about {need:,} bytes to decode, more than {most:,}; if you trust the "
                f"file and have the memory, set {MOST_BYTES}={need}"
            )
        with self._changed:
            self._changed.wait_for(lambda: self._taken + need <= most or not self._taken)
            self._taken += need
        try:
            yield
        finally:
            with self._changed:
                self._taken -= need
                self._changed.notify_all()


_DECODED = _Budget()


def decoder(how: Decoding) -> Callable[[bytes | Images], Images]:
    """Return a function from a file's bytes, or its pixels, to an upright image, centre-cropped and resized."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ConfigError(f"images are read with Pillow ({error}); pip install 'hyperproto[images]'") from error

    def decode(data: bytes | Images) -> Images:
        if not isinstance(data, bytes):
            return fitted(Image.fromarray(data))
        with Image.open(BytesIO(data)) as opened:
            opened.draft("RGB" if how.channels == 3 else "L", (how.size, how.size))  # large JPEGs: decode less
            with _DECODED.take(opened):
                return fitted(opened)

    def fitted(opened: "Image.Image") -> Images:
        image: Image.Image = ImageOps.exif_transpose(opened)
        if image.has_transparency_data:  # paste on white, as a browser does
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB" if how.channels == 3 else "L")
        return np.asarray(ImageOps.fit(image, (how.size, how.size), Image.Resampling.BILINEAR))

    return decode
