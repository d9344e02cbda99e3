"""Run the benchmarks: `python -m benchmarks [--json FILE] [--only NAME ...] [--quick]`.

Every number is the ratio of two times measured alternately in one run, so that it holds on a busy machine too. A missed
target is shown, but is not an error.
"""

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.batched_scoring import batched_scoring
from benchmarks.drawing import drawing
from benchmarks.encode_once import encode_once
from benchmarks.entities import entities
from benchmarks.estimators import estimators
from benchmarks.frozen_encoder import frozen_encoder
from benchmarks.image_input import image_input
from benchmarks.maml import maml
from benchmarks.many_classes import many_classes
from benchmarks.measure import Measurement
from benchmarks.memory import memory
from benchmarks.relation_baselines import relation_baselines
from benchmarks.relations import relations
from benchmarks.training_step import training_step
from benchmarks.unlabelled_rows import unlabelled_rows
from hyperproto.allocator import keep_large_blocks
from hyperproto.files import atomic_write

BENCHMARKS: dict[str, Callable[[bool], list[Measurement]]] = {
    run.__name__: run
    for run in (
        encode_once,
        batched_scoring,
        training_step,
        frozen_encoder,
        image_input,
        relations,
        relation_baselines,
        maml,
        entities,
        estimators,
        many_classes,
        unlabelled_rows,
        drawing,
        memory,
    )
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen benchmarks, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed and memory, as ratios.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME",
                        help=f"run only some of: {', '.join(BENCHMARKS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    options = parser.parse_args(arguments)

    keep_large_blocks()  # as the command line does
    measurements: list[Measurement] = []
    for number, name in enumerate(options.only, start=1):
        print(f"[{number}/{len(options.only)}] {name} ...", file=sys.stderr, flush=True)
        measurements += BENCHMARKS[name](options.quick)
    Console().print(_table(measurements))
    if options.json:
        command = shlex.join(["python", "-m", "benchmarks", *(sys.argv[1:] if arguments is None else arguments)])
        rows = [measurement.to_json() for measurement in measurements]
        content = {"command": command, "quick": options.quick, "machine": machine(), "measurements": rows}
        with atomic_write(options.json) as file:
            file.write(json.dumps(content, indent=2).encode() + b"\n")


def machine() -> dict[str, Any]:
    """Return the machine and the versions that numbers depend on."""
    return {
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "load_average": os.getloadavg(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in ("hyperproto", "torch", "numpy")},
    }


def _table(measurements: Sequence[Measurement]) -> Table:
    table = Table("benchmark", "baseline")
    for heading in ("ratio", "quartiles", "target", "met"):
        table.add_column(heading, justify="right")
    for m in measurements:
        low, high = m.spread
        met = "[green]yes[/]" if m.met else "[red]no[/]"
        name = f"{m.name} (redundancy {m.detail['redundancy']:.1f})" if "redundancy" in m.detail else m.name
        table.add_row(
            name, m.baseline, f"{m.ratio:.2f}", f"{low:.2f} - {high:.2f}", f"{m.comparison} {m.target:.3g}", met
        )
    return table


if __name__ == "__main__":
    main()
