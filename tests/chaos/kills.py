"""Start two processes on one folder, kill one or both at a random moment, and look at what they left."""

import os
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hyperproto import files
from hyperproto.progress import Show
from tests.chaos.victims import Codes, Different, Lost, Unloadable, Victim
from tests.fuzz.processes import fork
from tests.fuzz.runner import remove, scratch

PATIENCE = 60.0  # seconds for a process to end by itself


@dataclass
class Tally:
    """Counts of a victim, and the first words of everything that went wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def wrong(self, kind: str, words: str) -> None:
        """Count a problem."""
        self.counts[kind] += 1
        if len(self.problems) < 5:
            self.problems.append(f"{kind}: {words}")


PROBLEMS = ("lost", "unloadable", "different", "drafts", "hangs", "tracebacks")


def kill_some(
    victim: Victim, kills: int, seed: int = 0, show: Show | None = None, before: int = 0, total: int = 0
) -> Tally:
    """Kill processes at work so many times; kills of processes that were done already do not count."""
    random = Random(f"{victim.name}:{seed}")
    tally = Tally()
    seconds = _undisturbed(victim)
    while tally.counts["kills"] < kills:
        _trial(victim, random, seconds, tally)
        if show is not None:
            show(before + min(kills, tally.counts["kills"]), total or kills, f"kills of {victim.name}")
    return tally


def _undisturbed(victim: Victim) -> float:
    """Run process 0 alone, keep what it leaves, and return how long it took, start-up aside."""
    with _folder() as folder:
        victim.prepare(folder)
        begun = time.monotonic()
        [code] = _wait([_start(victim, folder, 0)], PATIENCE)
        seconds = time.monotonic() - begun
        if code != 0:
            raise RuntimeError(f"{victim.name} fails undisturbed: {_errors_of(folder, 0)}")
        victim.expected = victim.observe(folder)
        return seconds


def _trial(victim: Victim, random: Random, seconds: float, tally: Tally) -> None:
    with _folder() as folder:
        victim.prepare(folder)
        pids = [_start(victim, folder, which) for which in (0, 1)]
        doomed = random.choice(([0], [1], [0, 1]))
        time.sleep(random.uniform(0, 1.2 * seconds))
        for which in doomed:
            os.kill(pids[which], signal.SIGKILL)  # not waited for yet: the pid is still ours
        codes: Codes = tuple(_wait(pids, PATIENCE))  # type: ignore[assignment]
        tally.counts["trials"] += 1
        tally.counts["kills"] += sum(codes[which] == -signal.SIGKILL for which in doomed)
        tally.counts["refused"] += sum(code == 1 for code in codes)
        for which, code in enumerate(codes):
            if code == -signal.SIGKILL and which not in doomed:
                tally.wrong("hangs", f"process {which} did not end: {_errors_of(folder, which)}")
            elif code not in (0, -signal.SIGKILL) and not _is_busy(folder, which):
                tally.wrong("lost", f"process {which} failed with {code}: {_errors_of(folder, which)}")
        try:
            victim.check(folder, codes)
        except Lost as error:
            tally.wrong("lost", str(error))
        except Unloadable as error:
            tally.wrong("unloadable", str(error))
        except Different as error:
            tally.wrong("different", str(error))
        left = drafts_after_sweeping(folder)
        if left:
            tally.wrong("drafts", str(left[0].name))


def drafts_after_sweeping(folder: Path) -> list[Path]:
    """Set every draft back by two hours, sweep its folder as a later process would, and return what is left."""
    drafts = [path for path in folder.rglob("*.tmp") if path.is_file()]
    for draft in drafts:
        os.utime(draft, (time.time() - 7200,) * 2)
    files._swept.clear()
    for place in {draft.parent for draft in drafts}:
        files.sweep_drafts(place)
    return [draft for draft in drafts if draft.exists()]


def _start(victim: Victim, folder: Path, which: int) -> int:
    home = folder.parent / f"streams{which}"
    home.mkdir()
    (home / "stdin").touch()
    return fork(lambda: victim.work(folder, which), folder, home, {"HYPERPROTO_CACHE": str(folder / "cache")})


def _wait(pids: list[int], seconds: float) -> list[int]:
    """Exit codes; what takes too long is killed."""
    deadline = time.monotonic() + seconds
    codes = []
    for pid in pids:
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                codes.append(os.waitstatus_to_exitcode(status))
                break
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
    return codes


def _errors_of(folder: Path, which: int) -> str:
    return (folder.parent / f"streams{which}" / "stderr").read_text(errors="replace").strip()[-500:]


def _is_busy(folder: Path, which: int) -> bool:
    """Whether a process was refused since another was at work: one paragraph, no traceback."""
    told = _errors_of(folder, which)
    return told.startswith("error: ") and "Traceback" not in told


class _folder:  # noqa: N801 - used as a function
    """A folder for a trial, with room for the streams of its processes beside it."""

    def __enter__(self) -> Path:
        self.home = Path(tempfile.mkdtemp(prefix="chaos-", dir=scratch()))
        folder = self.home / "here"
        folder.mkdir()
        return folder

    def __exit__(self, *_: object) -> None:
        remove(self.home)
