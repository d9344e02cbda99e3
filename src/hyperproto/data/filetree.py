"""Read-only file trees: a folder, a zip archive, or a folder of zip archives, by relative names."""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo, is_zipfile

from hyperproto.errors import DataError, HyperProtoError
from hyperproto.files import MOST_BYTES, is_there, most_bytes, os_problem, read_bytes

DAMAGED_ZIP = (BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, OSError)  # RuntimeError: encrypted


AT_ONCE = 8  # files of an archive that several threads unpack at a time


class FileTree:
    """The files below a folder, or in a zip archive; `names` are relative paths with slashes.

    With `archives=True` the zip archives that lie directly in the folder count as folders of their own
    (`images.zip/cats/1.png`), so that a data set may stay as it was downloaded.
    """

    def __init__(self, root: Path, *, archives: bool = False) -> None:
        self.root = root
        self._archives: dict[str, ZipFile] = {}  # by the prefix of their names
        if not is_there(root):
            raise DataError(f"{root}: no such folder or zip archive")
        if root.is_dir():
            names = [name.replace(os.sep, "/") for name in _walk(root)]
            for name in [name for name in names if archives and "/" not in name and name.endswith(".zip")]:
                names += self._open(f"{name}/", root / name)
        elif root.is_file() and is_zipfile(root):  # a FIFO would be waited for
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
        """Return the bytes of one file; several threads may call this at once."""
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
        """Yield a function that reads it for each file, for `size` files at a time."""
        for start in range(0, len(names), size):
            yield [partial(self.read, name) for name in names[start : start + size]]

    def path(self, name: str) -> str:
        """Say where a file lies, for messages."""
        return f"{self.root}/{name}"

    def stamps(self, names: Iterable[str]) -> Iterable[str]:
        """Yield a line for each file that changes when the file does; nothing is read."""
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
    """Say that a file of an archive takes more than what is allowed."""
    return DataError(
        f"{where}: {member.file_size:,} bytes out of {member.compress_size:,} in its archive; if you trust it and have "
        f"the memory, set {MOST_BYTES}={AT_ONCE * member.file_size} ({AT_ONCE} files are read at a time)"
    )


def _walk(root: Path) -> Iterator[str]:
    """Yield the files below a folder by their relative names; symbolic links are followed, but not in a circle."""

    def refuse(error: OSError) -> None:
        raise DataError(os_problem(error))

    top = str(root)
    inside: dict[str, set[tuple[int, int]]] = {}  # what each folder is, and those that it lies in
    for folder, _, names in os.walk(top, onerror=refuse, followlinks=True):
        status = Path(folder).stat()
        own, outer = (status.st_dev, status.st_ino), inside.get(os.path.dirname(folder), set())  # noqa: PTH120
        if folder != top and own in outer:
            raise DataError(f"{folder}: a symbolic link to a folder that it lies in, a circle without end; remove it")
        inside[folder] = {own, *outer}
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), top)  # noqa: PTH118 - Path is slow on 60,000 files


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"
