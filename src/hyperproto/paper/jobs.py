"""Jobs in parallel worker processes; a job that fails, or whose process dies, does not affect the others.

A job is the name of a function of this package, and arguments that JSON can hold. A single worker is this process
itself; several are processes of their own, `python -m hyperproto.paper.jobs`, which read jobs and write events as lines
of JSON. They end with the process that started them, even if that is killed, so that a job must be safe to kill, as a
training is. Ctrl-C reaches only the first process, which ends the others.

Not joblib/loky: there a worker that is killed breaks the whole pool, and every job ends with the same error, those of
other processes too.
"""

import json
import os
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from queue import SimpleQueue
from tempfile import TemporaryFile
from threading import Thread
from time import monotonic
from typing import Any

import torch

from hyperproto.allocator import keep_large_blocks
from hyperproto.encoders import default_device
from hyperproto.errors import ConfigError, HyperProtoError
from hyperproto.progress import Show
from hyperproto.registry import trust, trusted_files

EVERY = 0.5  # seconds between two reports of a worker
USUAL, MOST = 2, 64  # default and largest number of workers


def checked_workers(workers: int | None) -> int:
    """Check the number of worker processes; None stands for two, if there are two cores, or one with a GPU."""
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(USUAL, cores) if default_device().type == "cpu" else 1
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MOST:
        raise ConfigError(f"--workers {workers}: run 1 to {MOST} processes at a time")
    return workers


@dataclass(frozen=True)
class Job:
    """A piece of work; `function` is `MODULE:NAME`, called with the arguments and `show`, and returns a dict."""

    name: str
    function: str
    arguments: dict[str, Any]
    weight: float = 1.0  # how long it takes, in any unit: of estimates
    first: bool = False  # others need it: it is done before they begin


@dataclass(frozen=True)
class Outcome:
    """Result of a job: what its function returned, or the error."""

    name: str
    result: dict[str, Any] | None
    error: str | None
    seconds: float


OnOutcome = Callable[[Outcome], None]


@dataclass
class Board:
    """State of all jobs: done, running, and the estimated time for the rest."""

    jobs: Sequence[Job]
    workers: int
    show: Show | None = None
    done: dict[str, Outcome] = field(default_factory=dict)
    at_work: dict[str, tuple[float, float]] = field(default_factory=dict)  # when it began, and the share that is done

    def begin(self, name: str) -> None:
        """Record that a worker has started a job."""
        self.at_work[name] = (monotonic(), 0.0)

    def move(self, name: str, done: int, total: int, note: str) -> None:
        """Record the progress of a running job, and report it."""
        began, share = self.at_work[name]
        self.at_work[name] = (began, max(share, done / total if total else 0.0))
        if self.show is not None:
            weight = sum(job.weight for job in self.jobs)
            words = f"{len(self.done)} of {len(self.jobs)} done; {name}: {note}"
            self.show(round(1000 * (weight - self._left())), round(1000 * weight), words)

    def end(self, outcome: Outcome) -> None:
        """Record the outcome of a job."""
        self.at_work.pop(outcome.name, None)
        self.done[outcome.name] = outcome

    def seconds_left(self) -> float | None:
        """Estimate the seconds left from the time per unit of weight so far; None before any progress."""
        now, weights = monotonic(), {job.name: job.weight for job in self.jobs}
        spent = sum(outcome.seconds for outcome in self.done.values() if outcome.error is None)
        work = sum(weights[name] for name, outcome in self.done.items() if outcome.error is None)
        for name, (began, share) in self.at_work.items():
            if share:
                spent, work = spent + now - began, work + share * weights[name]
        return None if not work else spent / work * self._left() / min(self.workers, max(1, self._number_left()))

    def _number_left(self) -> int:
        return len(self.jobs) - len(self.done)

    def _left(self) -> float:
        """Weight of what is not done."""
        shares = {name: share for name, (_, share) in self.at_work.items()}
        return sum(job.weight * (1 - shares.get(job.name, 0.0)) for job in self.jobs if job.name not in self.done)


def run_jobs(board: Board, on_outcome: OnOutcome) -> None:
    """Run all jobs, those that others need first; `on_outcome` is called in this process as each one ends."""
    for wave in ([job for job in board.jobs if job.first], [job for job in board.jobs if not job.first]):
        if board.workers > 1 and len(wave) > 1:
            _side_by_side(board, wave, on_outcome)
        else:
            for job in wave:
                board.begin(job.name)
                outcome = attempt(job, lambda done, total, note="", name=job.name: board.move(name, done, total, note))
                board.end(outcome)
                on_outcome(outcome)


def attempt(job: Job, show: Show) -> Outcome:
    """Run a job in this process; an exception becomes its outcome, KeyboardInterrupt is raised."""
    began = monotonic()
    try:
        module, _, name = job.function.partition(":")
        result = getattr(import_module(module), name)(**job.arguments, show=show)
        return Outcome(job.name, result, None, monotonic() - began)
    except Exception as error:
        words = str(error) if isinstance(error, HyperProtoError | OSError) else f"{type(error).__name__}: {error}"
        return Outcome(job.name, None, " ".join(words.split()), monotonic() - began)


class _Worker:
    """A process that runs one job after another, and the thread that reads its events."""

    def __init__(self, events: "SimpleQueue[tuple[_Worker, dict[str, Any] | None]]", threads: int) -> None:
        self.job: Job | None = None
        self.began = 0.0
        self._errors = TemporaryFile()  # noqa: SIM115 # as long as the process lives
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hyperproto.paper.jobs", str(threads), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is not for it
        )
        self._reader = Thread(target=self._read, args=(events,), daemon=True)
        self._reader.start()

    def _read(self, events: "SimpleQueue[tuple[_Worker, dict[str, Any] | None]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            events.put((self, json.loads(line)))
        self.process.wait()
        events.put((self, None))

    def give(self, job: Job) -> None:
        """Send a job to the process."""
        self.job, self.began = job, monotonic()
        assert self.process.stdin is not None
        words = {"name": job.name, "function": job.function, "arguments": job.arguments, "trust": trusted_files()}
        with suppress(BrokenPipeError):  # the process has died: `_read` reports its end
            self.process.stdin.write(json.dumps(words).encode() + b"\n")
            self.process.stdin.flush()

    def death(self) -> str:
        """Return how the process ended, with the last line that it printed."""
        code = self.process.returncode
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        advice = "; was there too little memory? --workers 1 needs less" if code == -9 else ""
        return f"its process ended {how}{''.join(f' ({line[:300]})' for line in last)}{advice}"

    def stop(self) -> None:
        """End the process at once, and wait for it."""
        self.process.kill()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):  # what was not written is of no use
                    stream.close()


def _side_by_side(board: Board, jobs: Sequence[Job], on_outcome: OnOutcome) -> None:
    """Run jobs in several worker processes; this process reads their events."""
    waiting = deque(jobs)
    count = min(board.workers, len(jobs))
    events: SimpleQueue[tuple[_Worker, dict[str, Any] | None]] = SimpleQueue()
    workers: list[_Worker] = []

    def hire() -> None:
        worker = _Worker(events, max(1, torch.get_num_threads() // count))
        workers.append(worker)
        employ(worker)

    def employ(worker: _Worker) -> None:
        worker.job = None
        if waiting:
            job = waiting.popleft()
            board.begin(job.name)
            worker.give(job)

    def ended(outcome: Outcome) -> None:
        board.end(outcome)
        on_outcome(outcome)

    try:
        for _ in range(count):
            hire()
        while any(worker.job is not None for worker in workers):
            worker, event = events.get()
            job = worker.job
            if event is None:
                workers.remove(worker)
                if job is not None:
                    ended(Outcome(job.name, None, worker.death(), monotonic() - worker.began))
                worker.stop()
                if waiting:
                    hire()
            elif "warning" in event:
                warnings.warn(event["warning"], stacklevel=2)
            elif job is not None and "outcome" in event:
                ended(Outcome(job.name, **event["outcome"]))
                employ(worker)
            elif job is not None:
                board.move(job.name, event["done"], event["total"], event["note"])
    finally:
        for worker in workers:
            worker.stop()


def main() -> None:
    """Run a worker process: `python -m hyperproto.paper.jobs THREADS PARENT`."""
    threads, parent = map(int, sys.argv[1:3])
    keep_large_blocks()
    torch.set_num_threads(threads)
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything prints is not for the one who listens

    def send(event: dict[str, Any]) -> None:
        if os.getppid() != parent:  # it was killed
            os._exit(1)
        events.write(json.dumps(event) + "\n")
        events.flush()

    warnings.showwarning = lambda message, *_, **__: send({"warning": str(message)})
    last = 0.0

    def show(done: int, total: int, note: str = "") -> None:
        nonlocal last
        if monotonic() - last > EVERY:
            last = monotonic()
            send({"done": done, "total": total, "note": note})

    for line in sys.stdin:
        words = json.loads(line)
        trust(words.pop("trust"))
        outcome = attempt(Job(**words), show)
        send({"outcome": {"result": outcome.result, "error": outcome.error, "seconds": outcome.seconds}})


if __name__ == "__main__":
    main()
