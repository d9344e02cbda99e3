"""Command lines as real processes: most by a process that has imported everything and forks, the rest from scratch.

Importing torch takes seconds, so a process that has done so forks for each command. The child gets a standard input,
output and error of its own, changes into the folder of the case, and runs `hyperproto.cli.main` to its exit code.
Every tenth command is a fresh process of the installed program, as a shell starts it.
"""

import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hyperproto.progress import Show
from tests.fuzz.commands import Command, draw, judged
from tests.fuzz.inputs import Samples
from tests.fuzz.judge import HANG, Outcome, snapshot
from tests.fuzz.runner import Summary, memory_limit, remove, scratch

FRESH = 10  # every so many is a process from scratch
AT_ONCE = 2
SLOW_START = 30  # seconds more for a process that imports torch beside another
PROGRAM = Path(sys.executable).with_name("hyperproto")


@dataclass
class Running:
    """A command that has been started."""

    number: int
    made: Command
    folder: Path  # where it runs
    before: dict[str, str]
    pid: int
    deadline: float

    def code(self) -> int | None:
        """Return the exit code, minus the number of a signal; None while the process runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else os.waitstatus_to_exitcode(status)

    def outcome(self, code: int) -> Outcome:
        """Judge the exit code, the two outputs and the folder."""
        streams = self.folder.parent
        found = judged(self.made, code, (streams / "stdout").read_bytes(), (streams / "stderr").read_bytes())
        if not found.good:
            return found
        drafts = [path for path in self.folder.rglob(".*.tmp") if path.is_file()]
        if drafts:
            return Outcome("lost", f"{self.made.name}: a draft is left", str(drafts[0]))
        if found.verdict == "refused":
            after = snapshot(self.folder, self.made.may_write)
            changed = sorted(n for n in self.before.keys() | after.keys() if self.before.get(n) != after.get(n))
            if changed:
                return Outcome("lost", f"{self.made.name}: an error changed files", f"{changed[:5]} {found.detail}")
        return found


def run_commands(count: int, samples: Samples, show: Show | None = None, seconds: int = HANG) -> Summary:
    """Run so many command lines, two at a time."""
    summary = Summary()
    waiting = list(range(count))[::-1]
    running: list[Running] = []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(start(waiting.pop(), samples, seconds))
        for each in list(running):
            code = each.code()
            if code is None and time.monotonic() < each.deadline:
                continue
            running.remove(each)
            summary.add(_kind(each.number), f"real:{each.number}", _end(each, code, seconds))
            if show is not None:
                bad = f", {summary.findings} findings" if summary.findings else ""
                show(summary.total.total(), count, f"commands{bad}")
        time.sleep(0.005)
    return summary


def _kind(number: int) -> str:
    return "from scratch" if number % FRESH == 0 else "forked"


def _end(each: Running, code: int | None, seconds: int) -> Outcome:
    if code is None:
        os.kill(each.pid, signal.SIGKILL)
        os.waitpid(each.pid, 0)
        outcome = Outcome("hang", f"{each.made.name}: more than {seconds} s", f"{each.made.words}")
    else:
        outcome = each.outcome(code)
    remove(each.folder.parent)
    return Outcome(outcome.verdict, outcome.cause, f"hyperproto {each.made.words}\n{outcome.detail}")


def replay_command(number: int, samples: Samples) -> Outcome:
    """Run one command line again, from scratch."""
    each = start(number, samples, HANG, fresh=True)
    code = None
    while code is None and time.monotonic() < each.deadline:
        time.sleep(0.01)
        code = each.code()
    return _end(each, code, HANG)


def start(number: int, samples: Samples, seconds: int, fresh: bool | None = None) -> Running:
    """Start command line `number`."""
    home = Path(tempfile.mkdtemp(prefix="fuzz-command-", dir=scratch()))
    folder = home / "here"
    (folder / "cache").mkdir(parents=True)
    made = draw(number, folder, samples)
    (home / "stdin").write_bytes(made.stdin)
    before = snapshot(folder, made.may_write)
    environment = {**made.environment, "HYPERPROTO_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    if fresh or (fresh is None and _kind(number) == "from scratch"):
        pid = _from_scratch(made, folder, environment)
        seconds += SLOW_START
    else:
        pid = _forked(made, folder, environment)
    return Running(number, made, folder, before, pid, time.monotonic() + seconds)


def _from_scratch(made: Command, folder: Path, environment: dict[str, str]) -> int:
    home = folder.parent
    with (home / "stdin").open("rb") as i, (home / "stdout").open("wb") as o, (home / "stderr").open("wb") as e:
        everything = {**program_environment(), **environment}
        process = subprocess.Popen([PROGRAM, *made.words], stdin=i, stdout=o, stderr=e, cwd=folder, env=everything)
    process.returncode = 0  # it is waited for by its pid, not by this object
    return process.pid


def _forked(made: Command, folder: Path, environment: dict[str, str]) -> int:
    home = folder.parent
    return fork(lambda: run_command_line(made.words), folder, home, environment)


def fork(work: Callable[[], int], folder: Path, home: Path, environment: dict[str, str]) -> int:
    """Run `work` in a child of this process, in `folder`, and return its pid; its streams are files in `home`."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # Python 3.12 warns of other threads: pytest's and the bar's, which hold nothing
        pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        _take_streams(home, environment.get("PYTHONIOENCODING", "utf-8"))
        os.environ.update(environment)
        os.chdir(folder)
        warnings.simplefilter("default")  # pytest makes errors of them
        code = work()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        code = code if code != 70 else 1
    finally:
        os._exit(code)


def _take_streams(home: Path, encoding: str) -> None:
    """Make files in `home` this process's standard input, output and error."""
    for number, (name, flags) in enumerate((("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))):
        os.dup2(os.open(home / name, flags | os.O_CREAT, 0o600), number)
    streams = [io.FileIO(number, "r" if number == 0 else "w", closefd=False) for number in range(3)]
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(streams[0]), encoding)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(io.BufferedWriter(streams[1]), encoding)  # type: ignore[misc]
    errors = io.TextIOWrapper(io.BufferedWriter(streams[2]), encoding, "backslashreplace", write_through=True)
    sys.stderr = sys.__stderr__ = errors  # type: ignore[misc]


def run_command_line(words: list[str]) -> int:
    """Run the command line in this process, with as much memory as a case may have; return its exit code."""
    sys.argv = ["hyperproto", *words]
    from hyperproto import cli

    try:
        with memory_limit():
            cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return 0


def program_environment() -> dict[str, str]:
    """Return the environment for the installed program in another folder: module paths are absolute."""
    paths = [str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}
