"""Run an experiment: `python -m experiments accuracy --data hwu64 --json results/intents-hwu64.json`.

Supports are drawn from the training texts; all texts of the test split are classified, all classes at once.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.accuracy import accuracy
from experiments.calibration import calibration
from experiments.constants import constants
from experiments.coverage import coverage
from experiments.draws import SHOTS
from experiments.intents import NAMES, load_intents
from experiments.outside import outside
from experiments.tables import show, written
from hyperproto.errors import HyperProtoError
from hyperproto.files import atomic_write
from hyperproto.regions import PRIOR_RATIO

EXPERIMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    run.__name__: run for run in (constants, accuracy, outside, coverage, calibration)
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, show a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description="The estimators on real texts.")
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--data", choices=NAMES, required=True)
    parser.add_argument("--split", choices=("test", "valid"), default="test", help="what is classified")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--shots", nargs="+", choices=SHOTS, default=list(SHOTS), metavar="SHOTS")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--prior-ratio", type=float, default=PRIOR_RATIO, help="of the bayes fit")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    try:
        data = load_intents(options.data, options.split, options.encoder)
        found = EXPERIMENTS[options.experiment](data, options.shots, options.draws, options.prior_ratio)
    except HyperProtoError as error:
        parser.exit(1, f"error: {error}\n")
    show(found)
    if options.json:
        command = shlex.join(["python", "-m", "experiments", *(sys.argv[1:] if arguments is None else arguments)])
        facts = {
            "data": options.data,
            "split": options.split,
            "encoder": options.encoder,
            "classes": len(data.classes),
            "texts": {"train": len(data.train), "test": len(data.test), "outside": len(data.outside)},
            "prior_ratio": options.prior_ratio,
            "versions": {name: version(name) for name in ("hyperproto", "scikit-learn", "numpy", "torch")},
        }
        with atomic_write(options.json) as file:
            file.write(written({"command": command, **facts, **found}).encode())


if __name__ == "__main__":
    main()
