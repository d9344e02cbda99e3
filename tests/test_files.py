"""Drafts, locks between processes and threads, and what is said of files that cannot be written or read."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from hyperproto import BusyError, ConfigError, DataError, files
from hyperproto.files import (
    _swept,
    atomic_write,
    is_folder,
    is_utf8,
    lock,
    open_file,
    os_problem,
    parse_json,
    read_arrays,
    read_bytes,
    read_json,
    sweep_drafts,
)

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


def test_folders_made_for_a_file_that_is_not_written_are_removed_again(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_write(tmp_path / "a" / "b" / "new.json"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "x.csv: No such file or directory; check the path"),
        (errno.EACCES, "x.csv: Permission denied; check your rights to it"),
        (errno.EISDIR, "x.csv: Is a directory; it is a folder: name a file"),
        (errno.ENOSPC, "x.csv: No space left on device; make room there, or name a place on another disk; what was"),
        (errno.EMFILE, "x.csv: Too many open files; this process has too many files open: raise the limit (ulimit -n)"),
        (errno.ELOOP, "x.csv: Too many levels of symbolic links; its symbolic links lead in a circle"),
        (errno.ENAMETOOLONG, "x.csv: File name too long; take a shorter name"),
        (errno.EIO, "x.csv: Input/output error; the disk or the network failed"),
        (errno.ENXIO, "x.csv: No such device or address"),
    ],
)
def test_each_kind_of_refusal_gets_its_own_advice(number: int, words: str) -> None:
    assert os_problem(OSError(number, os.strerror(number), "x.csv")).startswith(words)
    assert os_problem(OSError(number, os.strerror(number)), "x.csv").startswith(words)


def test_a_name_longer_than_a_message_is_shortened_in_the_error(tmp_path: Path) -> None:
    name = "a" * 6000
    with (
        pytest.raises(DataError, match=r"^.{300,600}File name too long; take a shorter name$"),
        lock(tmp_path / name, ""),
    ):
        pass
    assert not is_folder(tmp_path / name)
    assert is_folder(tmp_path)


def test_a_fifo_a_device_a_folder_and_a_circle_of_links_are_no_files_to_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, words in (
        (tmp_path / "fifo", "fifo: a FIFO, not a file; copy what it gives into a file, and name that"),
        ("/dev/zero", "/dev/zero: a device, not a file"),
        (tmp_path, "it is a folder: name a file"),
        (tmp_path / "loop", "its symbolic links lead in a circle"),
        (tmp_path / "none", "none: No such file or directory; check the path"),
        (tmp_path / "fifo" / "below", "a part of the path is a file, not a folder"),
        ("a\0b", "not the name of a file"),
    ):
        with pytest.raises(DataError, match=re.escape(words)):
            read_bytes(name)


def test_an_open_descriptor_is_read_where_pipes_are_taken() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"text\n")
    os.close(writer)
    with pytest.raises(DataError, match="a FIFO"):
        open_file(f"/dev/fd/{reader}")
    with open_file(f"/dev/fd/{reader}", pipes=True) as file:
        assert file.read() == b"text\n"
    os.close(reader)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[" * 100_000, "lists or objects nested more than 100 deep; mend it"),
        (b"[" * 100_000 + b"]" * 100_000, "lists or objects nested more than 100 deep; mend it"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "lists or objects nested more than 100 deep; mend it"),
        (b"[1" + b"0" * 5_000 + b"]", "a whole number of thousands of digits; mend it"),
        (b"[1,]", "not JSON (Expecting value: line 1 column 4 (char 3)"),
        (b'["ok",\n"\xff"]', "line 2: not UTF-8 text (invalid start byte at byte 8); mend it"),
    ],
)
def test_json_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=re.escape(words)) as found:
        read_json(tmp_path / "a.json", damaged="mend it")
    assert str(found.value).startswith(f"{tmp_path / 'a.json'}")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("content", ["[" * 100 + "]" * 100, '{"a": [1]}', "3", '"\\ud800"', "[" + "[]," * 200 + "1]"])
def test_json_that_is_not_deep_is_read(content: str) -> None:
    assert parse_json(content, "here") == json.loads(content)


def test_half_a_character_cannot_be_written() -> None:
    assert is_utf8("naïve 字")
    assert not is_utf8("\ud800")


def test_a_lock_leaves_no_new_folder_behind_after_an_error(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        with lock(folder, "busy"):
            raise DataError("wrong")

    with pytest.raises(DataError, match="wrong"):
        fail(tmp_path / "new" / "model")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    with pytest.raises(DataError, match="wrong"):
        fail(tmp_path / "old")
    assert [path.name for path in tmp_path.rglob("*")] == ["old", ".lock"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"Not a directory: .*file"), lock(tmp_path / "file", "busy"):
        pass
    with pytest.raises(DataError, match=r"not the name of a folder .*; check the path"), lock(Path("a\0b"), "busy"):
        pass


@pytest.mark.parametrize(("text", "found"), [("", 1 << 30), ("5", 5), ("4g", 4 << 30), (" 2K ", 2048)])
def test_what_compressed_data_may_take(text: str, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", text)
    assert files.most_bytes() == found


@pytest.mark.parametrize("text", ["0", "G", "-1", "1.5G", "many", "9" * 30, "²"])
def test_a_limit_that_is_no_number(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", text)
    with pytest.raises(ConfigError, match=r"HYPERPROTO_MAX_BYTES='.*': write a number of bytes, .* 4000000000 or 4G"):
        files.most_bytes()


def test_an_entry_of_the_cache_that_is_not_an_array_is_damage(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", b"no array")
    with pytest.warns(UserWarning, match=r"x\.npz: a damaged file of the cache \(x is not an array\)"):
        assert read_arrays(tmp_path / "x.npz") is None
