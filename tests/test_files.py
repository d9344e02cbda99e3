"""Drafts, locks between processes and threads, and what is said of a full disk."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hyperproto import BusyError
from hyperproto.files import _swept, atomic_write, lock, sweep_drafts

HOLD = """
import sys, time
from pathlib import Path
from hyperproto.files import lock
with lock(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_old_drafts_are_swept_and_young_ones_stay(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in (".a.json.00ff.tmp", ".b.json.00ff.tmp", "mine.tmp"))
    for path in (old, young, other):
        path.write_text("draft")
    for path in (old, other):
        os.utime(path, (time.time() - 7200,) * 2)
    with atomic_write(tmp_path / "new.json") as file:
        file.write(b"{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.json.00ff.tmp", "mine.tmp", "new.json"]


def test_a_folder_is_swept_once_in_a_process(tmp_path: Path) -> None:
    sweep_drafts(tmp_path)
    assert tmp_path in _swept
    draft = tmp_path / ".a.json.00ff.tmp"
    draft.write_text("")
    os.utime(draft, (0, 0))
    sweep_drafts(tmp_path)
    assert draft.exists()


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_write(tmp_path / "new.json"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left.*new\.json'$"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_refused_while_another_process_holds_it_and_freed_by_sigkill(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match="someone writes here"), lock(tmp_path, "someone writes here"):
            pass
        holder.send_signal(signal.SIGKILL)
    with lock(tmp_path, "busy", timeout=5):
        pass


def test_a_thread_may_take_a_lock_again_but_another_thread_may_not(tmp_path: Path) -> None:
    told: list[str] = []

    def try_it() -> None:
        try:
            with lock(tmp_path, "busy"):
                told.append("held")
        except BusyError as error:
            told.append(str(error))

    with lock(tmp_path, "busy"):
        with lock(tmp_path, "busy"):
            pass
        other = threading.Thread(target=try_it)
        other.start()
        other.join()
    try_it()
    assert told == [f"{tmp_path}: busy", "held"]
