"""Where files of ours live, and how they are written: whole or not at all, and in turn where two would clash."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from hyperproto.errors import BusyError

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
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        if error.filename in (None, str(draft)):  # a full disk names no file, and nobody knows the draft's name
            error.filename = str(path)
        raise
    finally:
        draft.unlink(missing_ok=True)


def sweep_drafts(folder: Path) -> None:
    """Remove drafts that killed processes left in a folder: those not written to for an hour. Once in a process."""
    if folder in _swept:
        return
    _swept.add(folder)
    for draft in folder.glob(".*.tmp"):
        with suppress(OSError):  # another process may be sweeping too
            if time.time() - draft.stat().st_mtime > DRAFT_SECONDS:
                draft.unlink()


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
