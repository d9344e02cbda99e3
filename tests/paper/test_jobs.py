"""Jobs in worker processes: what fails or dies does not cost the others, and none outlives the first process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hyperproto.errors import ConfigError
from hyperproto.paper.jobs import Board, Job, Outcome, attempt, run_jobs
from hyperproto.progress import Show

HERE = "tests.paper.test_jobs"


def work(kind: str, show: Show, folder: str = "") -> dict[str, Any]:
    """One of the things that a job may do."""
    if kind == "known":
        raise ConfigError("a mistake\nin two lines")
    if kind == "bug":
        raise KeyError("x")
    if kind == "dies":
        os.write(2, b"last words\n")
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "warns":
        import warnings

        warnings.warn("careful", stacklevel=1)
    if kind == "sleeps":
        (Path(folder) / f"pid-{os.getpid()}").touch()
        while True:
            show(1, 2, "asleep")
            time.sleep(0.05)
    show(1, 2, "half")
    os.write(1, b"printed by a library\n")
    return {"kind": kind, "pid": os.getpid()}


def job(kind: str, **arguments: Any) -> Job:
    return Job(kind, f"{HERE}:work", {"kind": kind, **arguments})


def done(kinds: list[str], workers: int) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    run_jobs(Board([job(kind) for kind in kinds], workers), lambda outcome: found.update({outcome.name: outcome}))
    return found


def test_one_worker_is_this_process() -> None:
    found = done(["fine", "known", "bug"], 1)
    assert found["fine"].result == {"kind": "fine", "pid": os.getpid()}
    assert found["known"].error == "a mistake in two lines"
    assert found["bug"].error == "KeyError: 'x'"


@pytest.mark.filterwarnings("default")
def test_several_workers_are_processes_and_one_that_dies_is_replaced(recwarn: pytest.WarningsRecorder) -> None:
    found = done(["dies", "fine", "known", "bug", "warns", "fine too"], 2)
    assert set(found) == {"dies", "fine", "known", "bug", "warns", "fine too"}
    words = "its process ended by signal 9 (last words); was there too little memory? --workers 1 needs less"
    assert found["dies"].error == words
    assert found["known"].error == "a mistake in two lines"
    assert found["bug"].error == "KeyError: 'x'"
    for name in ("fine", "warns", "fine too"):
        assert found[name].result is not None
        assert found[name].result["pid"] != os.getpid()  # type: ignore[index]
    assert [str(warning.message) for warning in recwarn] == ["careful"]


def test_what_others_need_is_done_first() -> None:
    order: list[str] = []
    jobs = [job("a"), Job("b", f"{HERE}:work", {"kind": "b"}, first=True)]
    run_jobs(Board(jobs, 1), lambda outcome: order.append(outcome.name))
    assert order == ["b", "a"]


def test_the_estimate_counts_what_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("hyperproto.paper.jobs.monotonic", lambda: clock[0])
    seen: list[tuple[int, int, str]] = []
    jobs = [Job("a", "", {}, weight=2.0), Job("b", "", {}), Job("c", "", {})]
    board = Board(jobs, 1, lambda done, total, note="": seen.append((done, total, note)))
    assert board.seconds_left() is None
    board.begin("a")
    clock[0] = 10.0
    board.move("a", 1, 4, "steps")
    assert seen == [(500, 4000, "0 of 3 done; a: steps")]
    assert board.seconds_left() == pytest.approx(70.0)  # half a unit of four took 10 s
    board.end(Outcome("a", {}, None, 40.0))
    assert board.seconds_left() == pytest.approx(40.0)
    board.end(Outcome("b", None, "failed at once", 0.1))  # says nothing of the speed
    assert board.seconds_left() == pytest.approx(20.0)


def test_a_job_that_does_not_exist() -> None:
    assert "has no attribute" in str(attempt(Job("a", f"{HERE}:nothing", {}), lambda done, total, note="": None).error)


SCRIPT = """
import sys
from hyperproto.paper.jobs import Board, Job, run_jobs
jobs = [Job(str(n), "tests.paper.test_jobs:work", {"kind": "sleeps", "folder": sys.argv[1]}) for n in range(2)]
run_jobs(Board(jobs, 2), print)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_first_process(ending: signal.Signals, tmp_path: Path) -> None:
    first = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while len(pids := [int(path.name[4:]) for path in tmp_path.glob("pid-*")]) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(pids) == 2
    first.send_signal(ending)
    first.communicate(timeout=60)
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
