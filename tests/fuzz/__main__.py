"""Run the fuzz suite; see `tests.fuzz`."""

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hyperproto.files import atomic_write
from hyperproto.progress import progress_bar
from tests.fuzz.inputs import Samples
from tests.fuzz.judge import HANG, VERDICTS
from tests.fuzz.kinds import all_kinds, set_seed
from tests.fuzz.processes import replay_command, run_commands
from tests.fuzz.runner import Summary, deal, prepare, remove, run_case, run_cases, scratch


def main() -> int:
    """Run cases, print a table of what came of them, and write JSON; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=0, help="cases in process, dealt out over the kinds")
    parser.add_argument("--commands", type=int, default=0, help="cases as real commands")
    parser.add_argument("--case", help="run one case again: KIND:NUMBER; of a real command, real:NUMBER")
    parser.add_argument(
        "--kinds", nargs="+", default=[], choices=sorted(all_kinds()), metavar="KIND", help="only these kinds"
    )
    parser.add_argument("--seed", type=int, help="draw other cases than those that the tests run")
    parser.add_argument("--seconds", type=int, default=HANG, help="a case that takes longer hangs")
    parser.add_argument("--times", action="store_true", help="print the milliseconds of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts and causes there")
    options = parser.parse_args()
    set_seed(options.seed)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    root = Path(tempfile.mkdtemp(prefix="fuzz-samples-", dir=scratch()))
    try:
        samples = Samples(root / "samples")
        if options.case:
            return _replay(options.case, root, samples)
        return _run(options, samples)
    finally:
        remove(root)


def _replay(case: str, root: Path, samples: Samples) -> int:
    name, _, number = case.partition(":")
    real = name == "real"
    outcome = replay_command(int(number), samples) if real else run_case(name, int(number), root, samples)
    sys.stdout.write(f"{case}: {outcome.verdict} {outcome.cause}\n{outcome.detail}\n")
    return 0 if outcome.good else 1


def _run(options: argparse.Namespace, samples: Samples) -> int:
    begun = time.monotonic()
    with progress_bar("fuzz") as show:
        prepare(samples)
        summary = (
            run_cases(deal(options.inputs, options.kinds), samples, show, options.seconds)
            if options.inputs
            else Summary()
        )
        inside = time.monotonic() - begun
        begun = time.monotonic()
        commands = run_commands(options.commands, samples, show, options.seconds) if options.commands else Summary()
        outside = time.monotonic() - begun
    for title, found, seconds in (("in process", summary, inside), ("as commands", commands, outside)):
        if found.counts:
            _print(title, found, seconds, options.times)
    if options.json:
        content = {
            "command": shlex.join(["python", "-m", "tests.fuzz", *sys.argv[1:]]),
            "seconds": {"in process": round(inside), "commands": round(outside)},
            "in process": summary.to_json(),
            "commands": commands.to_json(),
        }
        with atomic_write(options.json) as file:
            file.write(json.dumps(content, indent=2).encode() + b"\n")
    return 1 if summary.findings or commands.findings else 0


def _print(title: str, found: Summary, seconds: float, times: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("kind", "inputs", *VERDICTS, *(["ms"] if times else []), title=f"{title}, {seconds:.0f} s")
    for name, counts in [*sorted(found.counts.items()), ("all", found.total)]:
        spent = found.seconds[name] if name != "all" else sum(found.seconds.values())
        each = [f"{1000 * spent / counts.total():.1f}"] if times else []
        table.add_row(name, str(counts.total()), *(str(counts[verdict]) for verdict in VERDICTS), *each)
    console.print(table)
    for (verdict, cause), count in found.how_many.most_common():
        console.print(
            f"{count:6} {verdict}: {cause}  ({', '.join(found.causes[verdict, cause][:3])})",
            markup=False,
            soft_wrap=True,
        )


if __name__ == "__main__":
    sys.exit(main())
