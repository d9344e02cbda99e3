"""Kill processes at random moments and count what was lost; see `tests.chaos`."""

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hyperproto.files import atomic_write
from hyperproto.progress import progress_bar
from tests.chaos.kills import PROBLEMS, Tally, kill_some
from tests.chaos.together import interrupts, loads_beside_writers, second_trainer, six_adds
from tests.chaos.victims import VICTIMS
from tests.fuzz.inputs import Samples
from tests.fuzz.runner import prepare, remove, scratch

SHARES = {
    "fit": 18,
    "add": 22,
    "predict": 12,
    "train": 20,
    "image cache": 8,
    "glyphs": 6,
    "vector cache": 7,
    "token cache": 7,
}


def main() -> int:
    """Run everything, print a table, and write JSON; 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs of processes at work, over all commands")
    parser.add_argument("--loads", type=int, default=1000, help="loads of a model beside two writers")
    parser.add_argument("--adds", type=int, default=3, help="how often six processes add to one model")
    parser.add_argument("--interrupts", type=int, default=60, help="Ctrl-C at random moments of commands")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument(
        "--only", nargs="+", default=list(SHARES), choices=SHARES, metavar="NAME", help="kill only these"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts there")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    root = Path(tempfile.mkdtemp(prefix="chaos-samples-", dir=scratch()))
    try:
        found, seconds = run(options, Samples(root / "samples"))
    finally:
        remove(root)
    _print(found, seconds)
    problems = sum(tally.counts[kind] for tally in found.values() for kind in PROBLEMS)
    if options.json:
        content = {
            "command": shlex.join(["python", "-m", "tests.chaos", *sys.argv[1:]]),
            "seconds": round(seconds),
            "kills": sum(tally.counts["kills"] for tally in found.values()),
            **{kind: sum(tally.counts[kind] for tally in found.values()) for kind in PROBLEMS},
            "each": {name: {**tally.counts, "problems": tally.problems} for name, tally in found.items()},
        }
        with atomic_write(options.json) as file:
            file.write(json.dumps(content, indent=2).encode() + b"\n")
    return 1 if problems else 0


def run(options: argparse.Namespace, samples: Samples) -> tuple[dict[str, Tally], float]:
    """Kill each victim by its share; then let many work at once."""
    begun = time.monotonic()
    found: dict[str, Tally] = {}
    wanted = sum(SHARES[name] for name in options.only)
    done = 0
    with progress_bar("chaos") as show:
        prepare(samples)
        for make in VICTIMS:
            victim = make(samples)
            if victim.name in options.only:
                kills = max(1, round(options.kills * SHARES[victim.name] / wanted))
                found[victim.name] = kill_some(victim, kills, options.seed, show, done, options.kills)
                done += kills
        together: dict[str, Callable[[], Tally]] = {
            "second trainer": lambda: second_trainer(samples),
            "loads beside two writers": lambda: loads_beside_writers(samples, options.loads),
            "six adds at once": lambda: six_adds(samples, options.adds),
            "Ctrl-C": lambda: interrupts(samples, options.interrupts, options.seed),
        }
        for number, (name, work) in enumerate(together.items()):
            show(number, len(together), name)
            found[name] = work()
    return found, time.monotonic() - begun


def _print(found: dict[str, Tally], seconds: float) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    columns = ("kills", "refused", *PROBLEMS)
    table = Table("what", "trials", *columns, title=f"chaos, {seconds:.0f} s")
    for name, tally in found.items():
        trials = next(
            (
                tally.counts[key]
                for key in ("trials", "loads", "adds", "second trainers", "interrupts")
                if tally.counts[key]
            ),
            0,
        )
        table.add_row(name, str(trials), *(str(tally.counts[column]) for column in columns))
    table.add_row("all", "", *(str(sum(tally.counts[column] for tally in found.values())) for column in columns))
    console.print(table)
    for name, tally in found.items():
        for problem in tally.problems:
            console.print(f"{name}: {problem}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
