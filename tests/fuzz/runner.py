"""Run cases in a process that may hang, crash or run out of memory, and count what came of them."""

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hyperproto.progress import Show
from tests.fuzz.inputs import Samples
from tests.fuzz.judge import HANG, VERDICTS, Outcome, cause_of, judge
from tests.fuzz.kinds import all_kinds

MEMORY = 8 << 30  # bytes of address space that a case may ask for, beside what is in use
NAMED = 5  # cases that are named for each cause

Case = tuple[str, int]


@dataclass
class Summary:
    """Counts for each kind, and the causes of all that is no result and no refusal."""

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    causes: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    how_many: Counter[tuple[str, str]] = field(default_factory=Counter)
    details: dict[tuple[str, str], str] = field(default_factory=dict)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, case: str, outcome: Outcome, seconds: float = 0.0) -> None:
        """Count one case."""
        self.counts[kind][outcome.verdict] += 1
        self.seconds[kind] += seconds  # type: ignore[assignment] # a Counter of seconds
        if not outcome.good:
            key = outcome.verdict, outcome.cause
            self.how_many[key] += 1
            self.details.setdefault(key, outcome.detail)
            if len(self.causes[key]) < NAMED:
                self.causes[key].append(case)

    @property
    def total(self) -> Counter[str]:
        """All kinds together."""
        return sum(self.counts.values(), Counter())

    @property
    def findings(self) -> int:
        """Cases that did not end as they may."""
        return sum(self.how_many.values())

    def to_json(self) -> dict[str, Any]:
        """Return the number of inputs and outcomes of each kind, and each cause with the names of a few cases."""

        def row(counts: Counter[str]) -> dict[str, int]:
            return {"inputs": counts.total(), **{verdict: counts[verdict] for verdict in VERDICTS}}

        return {
            "total": row(self.total),
            "kinds": {name: row(counts) for name, counts in sorted(self.counts.items())},
            "causes": [
                {
                    "verdict": key[0],
                    "cause": key[1],
                    "times": times,
                    "cases": self.causes[key],
                    "last line": self.details[key].strip().rpartition("\n")[2][:300],
                }
                for key, times in self.how_many.most_common()
            ],
        }


@contextmanager
def case_folder(root: Path) -> Iterator[Path]:
    """Create an empty folder with a cache of its own, and remove it afterwards."""
    folder = root / "case"
    remove(folder)
    (folder / "cache").mkdir(parents=True)
    before = os.environ.get("HYPERPROTO_CACHE")
    os.environ["HYPERPROTO_CACHE"] = str(folder / "cache")
    try:
        yield folder
    finally:
        if before is None:
            del os.environ["HYPERPROTO_CACHE"]
        else:
            os.environ["HYPERPROTO_CACHE"] = before
        remove(folder)


@contextmanager
def memory_limit() -> Iterator[None]:
    """Refuse allocations beyond `MEMORY`, so that a giant shape is an error here as it is on a small machine."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def remove(folder: Path) -> None:
    """Remove a folder, also one with names in other encodings."""
    shutil.rmtree(os.fsencode(folder), ignore_errors=True)


def run_case(name: str, number: int, root: Path, samples: Samples, seconds: int = HANG) -> Outcome:
    """Make a case anew from its name, and judge it."""
    with case_folder(root) as folder:
        try:
            trial = all_kinds()[name].trial(number, folder, samples)
        except Exception as error:
            return Outcome("traceback", f"the suite itself, {name}: {cause_of(error)}", traceback.format_exc())
        with memory_limit():
            return judge(trial, folder, seconds)


def deal(count: int, only: Sequence[str] = ()) -> list[Case]:
    """Deal out so many cases over the kinds, by their shares, each at least once; kinds alternate."""
    kinds = {name: kind for name, kind in all_kinds().items() if not only or name in only}
    parts = sum(kind.share for kind in kinds.values())
    numbers = {name: max(1, round(count * kind.share / parts)) for name, kind in kinds.items()}
    places = [((n + 0.5) / total, name, n) for name, total in numbers.items() for n in range(total)]
    return [(name, number) for _, name, number in sorted(places)]


def run_cases(cases: Sequence[Case], samples: Samples, show: Show | None = None, seconds: int = HANG) -> Summary:
    """Run cases one after another in a child process; one that hangs or dies is counted, and another goes on."""
    summary = Summary()
    start = 0
    while start < len(cases):
        start += _run_from(cases, start, samples, summary, show, seconds)
    return summary


def _run_from(
    cases: Sequence[Case], start: int, samples: Samples, summary: Summary, show: Show | None, seconds: int
) -> int:
    """Run cases from `start` on until one kills its process; return how many are done."""
    forking = multiprocessing.get_context("fork")  # everything is imported already
    here, there = forking.Pipe(duplex=False)
    root = Path(tempfile.mkdtemp(prefix="fuzz-", dir=scratch()))  # removed here: the child may not live to do so
    child = forking.Process(target=_work, args=(cases[start:], samples, root, there, seconds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in `processes.fork`
        child.start()
    there.close()
    done, alive = 0, True
    while alive and start + done < len(cases):
        name, number = cases[start + done]
        try:
            if here.poll(seconds + 10):
                outcome, spent = here.recv()
            else:  # a signal reaches no loop in C
                outcome, spent = Outcome("hang", f"{name}: more than {seconds} s"), float(seconds)
                child.kill()
                alive = False
        except EOFError:
            child.join()
            outcome, spent = Outcome("traceback", f"{name}: the process ended with {child.exitcode}"), 0.0
            alive = False
        summary.add(name, f"{name}:{number}", outcome, spent)
        done += 1
        if show is not None:
            bad = f", {summary.findings} findings" if summary.findings else ""
            show(start + done, len(cases), f"inputs{bad}")
    child.join()
    here.close()
    remove(root)
    return done


def _work(cases: Sequence[Case], samples: Samples, root: Path, pipe: Connection, seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    for name, number in cases:
        begun = time.monotonic()
        outcome = run_case(name, number, root, samples, seconds)
        pipe.send((outcome, time.monotonic() - begun))


def scratch() -> str | None:
    """Return a folder in memory if there is one, since cases write thousands of small files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def prepare(samples: Samples) -> None:
    """Import everything and make every input, with one thread, so that a fork finds all of it."""
    import sklearn.utils  # noqa: F401
    import torch

    import hyperproto

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    for name in hyperproto.__all__:
        getattr(hyperproto, name)
    for name, value in vars(Samples).items():
        if not name.startswith("_") and not callable(value):
            getattr(samples, name)
