"""Cache folder, atomic writes, locks, and readers whose errors name the file, the problem and what to do."""

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4
from warnings import warn

from hyperproto.errors import BusyError, ConfigError, DataError, HyperProtoError

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRAFT_SECONDS = 3600  # a temporary file not written to for so long was left by a killed process
_swept: set[Path] = set()  # folders already swept by this process


def cache_dir() -> Path:
    """Return the folder of cached files: $HYPERPROTO_CACHE, or `hyperproto` in the user's cache folder."""
    from platformdirs import user_cache_path

    own = os.environ.get("HYPERPROTO_CACHE")
    return Path(own or user_cache_path("hyperproto", appauthor=False)).expanduser()


MOST_BYTES = "HYPERPROTO_MAX_BYTES"
USUAL_MOST = 1 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def most_bytes() -> int:
    """Return the largest size in bytes of decompressed data: $HYPERPROTO_MAX_BYTES, or 1 GiB.

    A few kB of a zip archive, an .npz file or an image can expand to any number of GB. The size that its header states
    is compared with this limit before anything is unpacked.
    """
    text = os.environ.get(MOST_BYTES, "").strip().upper()
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS and text else (text, "")
    if text and not (number.isdecimal() and number.isascii() and 0 < len(number) < 19 and int(number)):
        raise ConfigError(f"{MOST_BYTES}={text[:40]!r}: write a number of bytes, such as 4000000000 or 4G")
    return int(number) * _UNITS[unit] if text else USUAL_MOST


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    A reader of `path` sees the old bytes or the new ones, never a mixture; of several writers the last one wins.
    Missing folders are made, and removed again after an error.
    """
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")  # in the same folder: a rename across disks is not atomic
    with new_folders_go_on_error(path.parent), errors_name(path, draft):
        sweep_drafts(path.parent)
        try:
            with draft.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@contextmanager
def new_folders_go_on_error(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; after an error remove those that are new and hold at most a lock."""
    new = [place for place in (folder, *folder.parents) if not is_there(place)]
    try:
        _make_folder(folder)
        yield
    except BaseException:
        for place in new:
            with suppress(OSError, ValueError):  # it is not empty: another process writes there too
                if [path.name for path in place.iterdir()] == [".lock"]:
                    (place / ".lock").unlink()
                place.rmdir()
        raise


@contextmanager
def errors_name(path: Path, draft: Path | None = None) -> Iterator[None]:
    """Let OSErrors name `path` where they name no file, as on a full disk, or its temporary file."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, str(draft)):
            error.filename = str(path)
        raise


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # it is a file
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise DataError(os_problem(error)) from None  # which shortens the name
    except ValueError as error:  # an impossible name
        raise DataError(f"{str(folder)!r}: not the name of a folder ({error}); check the path") from None


def sweep_drafts(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder; once in a process."""
    if folder in _swept:
        return
    _swept.add(folder)
    for draft in folder.glob(".*.tmp"):
        with suppress(OSError):  # another process may be sweeping too
            if time.time() - draft.stat().st_mtime > DRAFT_SECONDS:
                draft.unlink()


def json_checksum(content: Mapping[str, Any]) -> str:
    """Return the sha256 of the content of a JSON file, independent of its layout."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_arrays(path: Path, arrays: "Mapping[str, NDArray[Any]]") -> None:
    """Write an .npz file, which has a checksum of each array."""
    import numpy as np

    with atomic_write(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type] # the stubs mistake a name for allow_pickle


def read_arrays(path: Path, names: Iterable[str] | None = None) -> "dict[str, NDArray[Any]] | None":
    """Read arrays (default: all) of a cached .npz file; return None if it is missing or damaged.

    Every checksum is compared, also where the header of an array was changed. Damage gives a warning, and the caller
    makes the file again.
    """
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            damaged = arrays.zip.testzip()
            if damaged is not None:
                raise ValueError(f"the checksum of {damaged} is wrong")
            found = {name: arrays[name] for name in (arrays.files if names is None else names)}
            if wrong := [name for name, array in found.items() if not isinstance(array, np.ndarray)]:
                raise ValueError(f"{wrong[0]} is not an array")  # NumPy returns the bytes of an unknown entry
            return found
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # damage raises errors of any kind
        warn(f"{path}: a damaged file of the cache ({error}); it is made again", stacklevel=2)
        return None


@contextmanager
def lock(folder: Path, busy: str, timeout: float = 0.0) -> Iterator[None]:
    """Lock `folder` for one thread of one process; the lock is reentrant.

    The system frees the lock when its process ends; the empty file `.lock` stays. After `timeout` seconds of waiting a
    `BusyError` with the text `busy` is raised.
    """
    from filelock import FileLock, Timeout

    with new_folders_go_on_error(folder):
        path = folder.resolve() / ".lock"
        try:
            held = FileLock(path, is_singleton=True).acquire(timeout=timeout)
        except Timeout:
            raise BusyError(f"{folder}: {busy}") from None
        with held:
            yield


ADVICE = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of the path is a file, not a folder: check the path",
    errno.EISDIR: "it is a folder: name a file",
    errno.EEXIST: "something of this name is there already: take another name",
    errno.ENOTEMPTY: "there are files in it already: take another name",
    errno.EACCES: "check your rights to it",
    errno.EPERM: "check your rights to it",
    errno.EROFS: "that disk can only be read: name another place",
    errno.ENOSPC: "make room there, or name a place on another disk; what was there before is unchanged",
    errno.EDQUOT: "your share of that disk is used up: make room there, or name a place on another disk",
    errno.EFBIG: "a file may not become so large here: raise the limit (ulimit -f), or name a place on another disk",
    errno.EMFILE: "this process has too many files open: raise the limit (ulimit -n)",
    errno.ENFILE: "the machine has too many files open: end other programs and try again",
    errno.EIO: "the disk or the network failed: try again, or work on a copy elsewhere",
    errno.ELOOP: "its symbolic links lead in a circle: remove one of them",
    errno.ENAMETOOLONG: "take a shorter name",
    errno.ENOMEM: "there is not enough memory: end other programs, or work on less at a time",
}  # what to do, by errno


LONGEST_NAME = 300  # characters of a path that a message shows


def os_problem(error: OSError, name: str | None = None) -> str:
    """Return the file of an OSError (`name` if it has none), the reason, and what to do."""
    where = error.filename if error.filename is not None else name
    advice = ADVICE.get(error.errno or 0)
    why = f"{error.strerror or error}" + (f"; {advice}" if advice else "")
    name = "" if where is None else os.fsdecode(where) if isinstance(where, str | bytes) else str(where)
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]} ..."
    return f"{name}: {why}" if name else why


DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # names that a shell gives to <(command)
SPECIAL_FILES = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether a path exists; an impossible name, such as a very long one, does not."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder has this name; False for a name that nothing can have, such as a very long one."""
    return is_there(path) and Path(path).is_dir()


def open_file(
    path: str | os.PathLike[str], *, pipes: bool = False, missing: str = "", error: type[HyperProtoError] = DataError
) -> BinaryIO:
    """Open a regular file to read bytes; any failure raises an `error` that names the file.

    FIFOs and devices, which may never end, are refused. With `pipes`, open descriptors (/dev/fd/N, as in `<(command)`)
    are accepted. `missing` says what to do if the file does not exist.
    """
    name = os.fspath(path)
    try:
        kind = stat.S_IFMT(Path(name).stat().st_mode)
        if kind in SPECIAL_FILES and not (pipes and name.startswith(DESCRIPTORS)):
            raise error(f"{name}: {SPECIAL_FILES[kind]}, not a file; copy what it gives into a file, and name that")
        return Path(name).open("rb")
    except FileNotFoundError as found:
        raise error(f"{name}: no such file; {missing}" if missing else os_problem(found, name)) from None
    except OSError as found:
        raise error(os_problem(found, name)) from None
    except ValueError as found:  # an impossible name
        raise error(f"{name!r}: not the name of a file ({found}); check the path") from None


def read_bytes(path: str | os.PathLike[str], *, missing: str = "", error: type[HyperProtoError] = DataError) -> bytes:
    """Read all bytes of a regular file; see `open_file`."""
    with open_file(path, missing=missing, error=error) as file:
        try:
            return file.read()
        except OSError as found:
            raise error(os_problem(found, os.fspath(path))) from None


def read_utf8(path: str | os.PathLike[str], *, missing: str = "", error: type[HyperProtoError] = DataError) -> str:
    """Read a text file in UTF-8, with or without a byte order mark; line ends stay as they are."""
    return decode_utf8(read_bytes(path, missing=missing, error=error), os.fspath(path), error=error)


def decode_utf8(
    content: bytes,
    name: str,
    *,
    first: int = 1,
    damaged: str = "save the file as UTF-8",
    error: type[HyperProtoError] = DataError,
) -> str:
    """Decode UTF-8; the `error` names the first wrong line, counted from `first`, and `damaged` says what to do."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as found:
        line = first + content.count(b"\n", 0, found.start)
        raise error(f"{name}, line {line}: not UTF-8 text ({found.reason} at byte {found.start}); {damaged}") from None


def split_lines(text: str) -> list[str]:
    """Split a text at its line ends only; `str.splitlines` also splits at characters such as U+2028.

    >>> split_lines("one\\r\\ntwo\\u2028still two\\n")
    ['one', 'two\\u2028still two']
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


DEEPEST = 100  # levels of lists and objects in a file; many more overflow the stack of a reader or writer


def read_json(
    path: str | os.PathLike[str],
    hook: Callable[[dict[str, Any]], Any] | None = None,
    *,
    missing: str = "check its name and folder",
    damaged: str = "",
    error: type[HyperProtoError] = DataError,
) -> Any:
    """Read a JSON file in UTF-8, with or without a byte order mark; `hook` is applied to every object.

    `missing` and `damaged` say what to do if the file does not exist, or is no JSON.
    """
    name = os.fspath(path)
    content = read_bytes(path, missing=missing, error=error)
    text = decode_utf8(content, name, damaged=damaged or "save the file as UTF-8", error=error)
    return parse_json(text, name, hook, damaged=damaged or "fetch or save it anew, as one JSON value", error=error)


def parse_json(
    text: str,
    where: str,
    hook: Callable[[dict[str, Any]], Any] | None = None,
    *,
    damaged: str = "write one JSON value",
    error: type[HyperProtoError] = DataError,
) -> Any:
    """Parse JSON; `where` names the file, or a line of it, in the `error`.

    Lone surrogates ("\\ud800") are accepted here: see `is_utf8`.
    """
    try:
        content = json.loads(text, object_hook=hook)
        if isinstance(content, dict | list) and text.count("[") + text.count("{") > DEEPEST and is_deep(content):
            raise RecursionError
    except RecursionError:
        raise error(f"{where}: lists or objects nested more than {DEEPEST} deep; {damaged}") from None
    except json.JSONDecodeError as found:
        raise error(f"{where}: not JSON ({found}); {damaged}") from None
    except ValueError:  # Python's limit
        raise error(f"{where}: a whole number of thousands of digits; {damaged}") from None
    return content


def is_deep(content: Any) -> bool:
    """Return whether lists and objects are nested more than `DEEPEST` deep, without recursion."""
    level = [content]
    for _ in range(DEEPEST):
        level = [outer.values() if isinstance(outer, dict) else outer for outer in level]
        level = [inner for outer in level for inner in outer if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def is_utf8(text: str) -> bool:
    """Return whether a string can be encoded: JSON and file names may hold lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
