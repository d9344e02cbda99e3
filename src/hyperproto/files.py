"""Where files of ours live, and how they are written: whole or not at all, and in turn where two would clash."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4
from warnings import warn

from hyperproto.errors import BusyError

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRAFT_SECONDS = 3600  # a draft that nobody has written to for so long was left by a process that was killed
_swept: set[Path] = set()  # folders, once in a process


def cache_dir() -> Path:
    """Return the folder for what can be made again: $HYPERPROTO_CACHE, or `hyperproto` in the user's cache folder."""
    if own := os.environ.get("HYPERPROTO_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(shared).expanduser() / "hyperproto"


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file that becomes `path` when the block ends well; until then, and after an error, `path` stays as it was.

    Whoever reads `path` sees the old bytes or the new ones, also while several processes write it: the last one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_drafts(path.parent)
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")  # same folder: a rename across disks is not atomic
    try:
        with errors_name(path, draft):
            with draft.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def errors_name(path: Path, draft: Path | None = None) -> Iterator[None]:
    """Let an error of the system name `path` where it names no file (a full disk does not), or the draft of it."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, str(draft)):
            error.filename = str(path)
        raise


def sweep_drafts(folder: Path) -> None:
    """Remove drafts that killed processes left in a folder: those not written to for an hour. Once in a process."""
    if folder in _swept:
        return
    _swept.add(folder)
    for draft in folder.glob(".*.tmp"):
        with suppress(OSError):  # another process may be sweeping too
            if time.time() - draft.stat().st_mtime > DRAFT_SECONDS:
                draft.unlink()


def read_json(path: Path) -> Any:
    """Read a JSON file; what is no JSON, no UTF-8 or nested too deeply is a ValueError that says so."""
    try:
        return json.loads(path.read_bytes().decode())
    except RecursionError:
        raise ValueError("its lists or tables are nested too deeply") from None


def json_checksum(content: Mapping[str, Any]) -> str:
    """A sha256 of the content of a JSON file, however it is indented."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_arrays(path: Path, arrays: "Mapping[str, NDArray[Any]]") -> None:
    """Write an .npz file, which keeps a checksum of each array."""
    import numpy as np

    with atomic_write(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type] # the stubs mistake a name for allow_pickle


def read_arrays(path: Path, names: Iterable[str] | None = None) -> "dict[str, NDArray[Any]] | None":
    """Read arrays (default: all) of a file that can be made again; None if there is none, or a damaged one.

    Every checksum is looked at, also where the array's own head says that it is shorter than it was. Damage is a
    warning: the caller makes the file again.
    """
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            damaged = arrays.zip.testzip()
            if damaged is not None:
                raise ValueError(f"the checksum of {damaged} is wrong")
            return {name: arrays[name] for name in (arrays.files if names is None else names)}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # whatever a reader makes of damage
        warn(f"{path}: a damaged file of the cache ({error}); it is made again", stacklevel=2)
        return None


@contextmanager
def lock(folder: Path, busy: str, timeout: float = 0.0) -> Iterator[None]:
    """Let only one process, and one thread of it, change `folder` at a time; a thread may take the lock again.

    The system frees the lock when its process ends, however it ends; the empty file `.lock` stays. If another holds it
    for longer than `timeout` seconds, a `BusyError` says `busy`.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(folder.resolve() / ".lock", is_singleton=True).acquire(timeout=timeout)
    except Timeout:
        raise BusyError(f"{folder}: {busy}") from None
    with held:
        yield
