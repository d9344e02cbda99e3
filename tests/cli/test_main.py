"""How the command line ends: defects, full disks, closed pipes, Ctrl-C, terminals that cannot show every character."""

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto import HypersphereClassifier, cli

COMMAND = [sys.executable, "-c", "from hyperproto.cli import main; main()"]


@pytest.fixture(autouse=True)
def same_handlers() -> Iterator[None]:
    """A command that has ended leaves Ctrl-C to the system; the tests go on."""
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    yield
    signal.signal(signal.SIGINT, before)
    assert sys.unraisablehook is hook


@pytest.fixture
def model(tmp_path: Path) -> Path:
    HypersphereClassifier().fit(np.eye(2), ["naïve", "字"]).save(tmp_path / "model")
    return tmp_path / "model"


def ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, *more: str
) -> tuple[int, str]:
    """Let `methods list` meet an error: its exit code, and what it prints."""

    def list_methods() -> Any:
        raise error

    monkeypatch.setattr("hyperproto.api.list_methods", list_methods)
    monkeypatch.setattr(sys, "argv", ["hyperproto", "methods", "list", *more])
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert isinstance(end.value.code, int)
    return end.value.code, printed.err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            TypeError("an odd\nthing"),
            "unexpected error (TypeError: an odd thing). This is a defect of hyperproto: please "
            "report it with the command, hyperproto methods list, and with the traceback that it prints when",
        ),
        (KeyError(), "unexpected error (KeyError). This is a defect"),
        (
            ModuleNotFoundError("No module named 'x'", name="x"),
            "unexpected error (ModuleNotFoundE",
        ),
        (ModuleNotFoundError(name="torch.nn"), "this command needs torch.nn, which is not installed: pip install"),
        (
            MemoryError("Unable to allocate 7 TiB"),
            "there is not enough memory for this (Unable to allocate 7 TiB); work",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9"), "there is not enough memory for this (Default"),
        (RecursionError("deep"), "a value is nested too deep (deep); look for thousands of brackets"),
        (
            OSError(errno.ENOSPC, "No space left on device", "a.json"),
            "a.json: No space left on device; make room there",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "a.json"), "a.json: Permission denied; check your rights"),
        (EOFError("cut"), "a file ended too early (cut); it may be cut: --debug shows which one"),
    ],
)
def test_whatever_happens_is_one_paragraph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, words: str
) -> None:
    code, printed = ended(monkeypatch, capsys, error)
    assert code == 1
    assert printed.startswith(f"error: {words}")
    assert printed.count("\n") == 1


def test_debug_shows_the_traceback_of_a_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TypeError, match="odd"):
        ended(monkeypatch, capsys, TypeError("odd"), "--debug")


def test_ctrl_c_is_quiet_whatever_becomes_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class InterruptedImportError(ImportError):
        """What an import may make of Ctrl-C."""

        def __init__(self) -> None:
            super().__init__()
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    def list_methods() -> Any:
        raise InterruptedImportError

    assert ended(monkeypatch, capsys, KeyboardInterrupt()) == (130, "")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr("hyperproto.api.list_methods", list_methods)
    monkeypatch.setattr(sys, "argv", ["hyperproto", "methods", "list", "--debug"])
    with pytest.raises(SystemExit, match="130"):
        cli.main()
    assert capsys.readouterr() == ("", "")


LATE = """
import signal, sys, time
class Callback:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def list_methods():
    Callback()
    time.sleep(20)
    raise SystemExit("not interrupted")
import hyperproto.api
hyperproto.api.list_methods = list_methods
sys.argv = ["hyperproto", "methods", "list"]
from hyperproto.cli import main
main()
"""


def test_ctrl_c_in_a_callback_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_the_commands_are_imported() -> None:
    """From the moment that `main` is called, before anything of the commands is there."""
    code = (
        "import builtins, signal, sys; from hyperproto.cli import main; real = builtins.__import__\n"
        "def slow(name, *more):\n"
        "    if name == 'typer': signal.raise_signal(signal.SIGINT)\n"
        "    return real(name, *more)\n"
        "builtins.__import__ = slow; sys.argv = ['hyperproto', '--version']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_way_to_main_imports_next_to_nothing() -> None:
    code = "import sys; old = {*sys.modules}; import hyperproto.cli; print(sorted({*sys.modules} - old))"
    found = subprocess.run([sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, cwd="src").stdout
    assert found == "['hyperproto', 'hyperproto.cli']\n"


def test_a_closed_pipe_is_quiet(model: Path, tmp_path: Path) -> None:
    (tmp_path / "many.csv").write_text("vector\n" + "1 0\n" * 20_000)
    with subprocess.Popen(
        [*COMMAND, "predict", str(model), str(tmp_path / "many.csv")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"vector,predicted,probability,error\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without /dev/full")
def test_standard_output_that_is_full_is_named(model: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        for command in (["methods", "list"], ["--version"], ["diagnose", str(model), "--json", "-"]):
            done = subprocess.run([*COMMAND, *command], stdout=full, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 1
            assert done.stderr.startswith("error: standard output: No space left on device; make room there")
            assert done.stderr.count("\n") == 1


def test_a_file_that_cannot_grow_is_named_and_what_was_there_stays(model: Path, tmp_path: Path) -> None:
    (tmp_path / "many.csv").write_text("vector\n" + "1 0\n" * 20_000)
    (tmp_path / "out.csv").write_text("before")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    command = [*COMMAND, "predict", str(model), str(tmp_path / "many.csv"), "--out"]
    for out in ("out.csv", "new/deep/out.csv"):
        done = subprocess.run(
            [*command, str(tmp_path / out)],
            capture_output=True,
            text=True,
            preexec_fn=limit,
        )
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {tmp_path / out}: File too large; a file may not become so large here")
    assert (tmp_path / "out.csv").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many.csv", "model", "out.csv"]


def test_a_stream_that_is_closed_takes_everything() -> None:
    done = subprocess.run([*COMMAND, "methods", "list"], preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "own", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_an_ascii_terminal_shows_escapes_and_rows_stay_utf_8(model: Path, tmp_path: Path, own: dict[str, str]) -> None:
    environment = {**os.environ, **own}
    (tmp_path / "new.jsonl").write_text('{"vector": [1, 0], "note": "déjà"}\n{"vector": [1, 0], "note": "\\ud800"}\n')
    more = 'vector,label\n"1 0",naïve\n'.encode()
    add = [*COMMAND, "add", str(model), "-", "--format", "csv"]
    shown = subprocess.run(add, input=more, capture_output=True, env=environment)
    assert b"3 examples, 1 in the smallest class (\\u5b57)\n" in shown.stdout
    rows = subprocess.run(
        [*COMMAND, "predict", str(model), str(tmp_path / "new.jsonl")], capture_output=True, env=environment
    )
    first, second = rows.stdout.decode().splitlines()
    assert '"note": "déjà", "predicted": "naïve"' in first
    assert '"note": "\\ud800", "predicted": "na\\u00efve"' in second
    unknown = subprocess.run(
        [*COMMAND, "evaluate", "--data", "字", "--encoder", "x"], capture_output=True, env=environment
    )
    assert b"there is no data set" in unknown.stderr
    assert unknown.stdout == b""
