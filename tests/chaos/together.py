"""Processes that are not killed: six `add` at once, two writers beside a reader, a second trainer; and Ctrl-C."""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from random import Random

import hyperproto
from tests.chaos.kills import PATIENCE, Tally
from tests.chaos.victims import Train, write_table
from tests.fuzz.inputs import QUERIES, Samples
from tests.fuzz.kinds import write_files
from tests.fuzz.processes import PROGRAM, fork, program_environment
from tests.fuzz.runner import remove, scratch

PYTHON_STARTS, LATEST = 0.1, 4.0  # seconds between which Ctrl-C comes


def six_adds(samples: Samples, times: int) -> Tally:
    """Six processes of the installed program add a class each to one model: all succeed, all classes are there."""
    tally = Tally()
    for _ in range(times):
        home = Path(tempfile.mkdtemp(prefix="chaos-", dir=scratch()))
        write_files(home / "model", samples.models["bayes"])
        for n in range(6):
            write_table(home / f"{n}.csv", samples.vectors[:2] + n, [f"new {n}"] * 2)
        running = [
            subprocess.Popen(
                [PROGRAM, "add", "model", f"{n}.csv", "--new-classes"],
                cwd=home,
                env=program_environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for n in range(6)
        ]
        told = [process.communicate(timeout=120)[1].decode() for process in running]
        failed = [words for process, words in zip(running, told, strict=True) if process.returncode != 0]
        tally.counts["adds"] += 6
        if failed:
            tally.wrong("lost", f"{len(failed)} of 6 adds failed: {failed[0][-300:]}")
        try:
            missing = {f"new {n}" for n in range(6)} - {*hyperproto.load_classifier(home / "model").classes_.tolist()}
            if missing and not failed:
                tally.wrong("lost", f"all six adds reported success, and {len(missing)} of 6 classes are missing")
        except hyperproto.HyperProtoError as error:
            tally.wrong("unloadable", str(error))
        remove(home)
    return tally


def loads_beside_writers(samples: Samples, loads: int) -> Tally:
    """Load a model repeatedly while two processes save it; each load must give a complete model."""
    tally = Tally()
    home = Path(tempfile.mkdtemp(prefix="chaos-", dir=scratch()))
    write_files(home / "model", samples.models["bayes"])

    def save_for_ever(which: int) -> int:
        n = 0
        while True:
            x = samples.vectors + which + n % 7
            hyperproto.HypersphereClassifier(coverage=0.5).fit(x, samples.labels).save(home / "model")
            n += 1

    writers = []
    for which in (0, 1):
        streams = home / f"streams{which}"
        streams.mkdir()
        (streams / "stdin").touch()
        writers.append(fork(lambda which=which: save_for_ever(which), home, streams, {}))  # type: ignore[misc]
    try:
        for _ in range(loads):
            tally.counts["loads"] += 1
            try:
                hyperproto.load_classifier(home / "model").predict_proba(QUERIES)
            except Exception as error:
                tally.wrong("unloadable", f"{type(error).__name__}: {error}")
        for which, pid in enumerate(writers):
            if os.waitpid(pid, os.WNOHANG)[0]:
                tally.wrong("lost", f"a writer failed: {(home / f'streams{which}' / 'stderr').read_text()[-300:]}")
                writers[which] = 0
    finally:
        for pid in filter(None, writers):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        remove(home)
    return tally


def second_trainer(samples: Samples) -> Tally:
    """While one process trains, another is refused in the same folder, and the first is not disturbed."""
    tally = Tally()
    victim = Train(samples)
    home = Path(tempfile.mkdtemp(prefix="chaos-", dir=scratch()))
    folder = home / "here"
    folder.mkdir()
    victim.prepare(folder)
    first = _fork_trainer(victim, folder, home / "first")
    deadline = time.monotonic() + 60
    while not (folder / "run" / "config.json").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(first, signal.SIGSTOP)  # it is at work until the second has ended
    second = _fork_trainer(victim, folder, home / "second")
    code = os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
    os.kill(first, signal.SIGCONT)
    told = (home / "second" / "stderr").read_text()
    tally.counts["second trainers"] += 1
    if code != 1 or "Traceback" in told:
        tally.wrong("lost", f"a second trainer ended with {code}: {told[-300:]}")
    if os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) != 0:
        tally.wrong("lost", f"the first trainer failed: {(home / 'first' / 'stderr').read_text()[-300:]}")
    remove(home)
    return tally


def interrupts(samples: Samples, number: int, seed: int = 0) -> Tally:
    """Ctrl-C at random moments of the installed program: it ends with 130 (or is done already), and says nothing.

    The first moments are Python's own start, before any line of ours.
    """
    tally, random = Tally(), Random(f"interrupts:{seed}")
    home = Path(tempfile.mkdtemp(prefix="chaos-", dir=scratch()))
    write_files(home / "model", samples.models["bayes"])
    commands = (
        ["methods", "list"],
        ["predict", "model", "-", "--format", "jsonl"],
        ["evaluate", "--data", "glyphs", "--encoder", "identity", "--method", "protonet", "--episodes", "200000"],
        ["train", "glyphs:protonet", "--out", "run", "-o", "training.steps=100000", "-o", "encoder.filters=4"],
    )
    for trial in range(number):
        words = commands[trial % len(commands)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen([PROGRAM, *words], cwd=home, env=program_environment(), **streams) as process:  # type: ignore[call-overload]
            time.sleep(random.uniform(PYTHON_STARTS, LATEST))
            process.send_signal(signal.SIGINT)
            try:
                told = process.communicate(timeout=PATIENCE)[1].decode()
            except subprocess.TimeoutExpired:
                process.kill()
                tally.wrong("hangs", f"{words[0]} goes on after Ctrl-C")
                continue
        tally.counts["interrupts"] += 1
        tally.counts[f"exit {process.returncode}"] += 1
        if "Traceback" in told or process.returncode not in (0, 130, -signal.SIGINT):
            tally.wrong("tracebacks", f"{words[0]} ends with {process.returncode} after Ctrl-C: {told[-300:]}")
    remove(home)
    return tally


def _fork_trainer(victim: Train, folder: Path, streams: Path) -> int:
    streams.mkdir()
    (streams / "stdin").touch()
    return fork(lambda: victim.work(folder, 0), folder, streams, {})
