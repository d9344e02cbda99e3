"""Where files of ours live, and how they are written: whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


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
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")  # same folder: a rename across disks is not atomic
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
