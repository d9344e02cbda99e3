"""Command line of the nine studies of intents.

    python -m research.intents accuracy --data hwu64 --json results/intents/intents-hwu64.json

Supports are drawn from the training texts; all texts of the test split are classified, all classes at once
(`vacuous` also on some of the classes). `evidence` with --json is resumed if it was killed.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hyperproto.errors import ConfigError, HyperProtoError
from hyperproto.files import read_json
from hyperproto.progress import progress_bar
from hyperproto.regions import PRIOR_RATIO
from hyperproto.reports.tables import write_results
from research import command_of
from research.intents.accuracy import accuracy, constants
from research.intents.calibration import calibration
from research.intents.evidence import NO_SHOTS, evidence, values_of
from research.intents.left_out import left_out
from research.intents.open_set import coverage, outside, vacuous
from research.intents.pools import POOLS
from research.intents.rejection import rejection
from research.intents.supports import MOST, SHOTS, Supports
from research.intents.texts import NAMES, load_intents
from research.journal import Journal

STUDIES: dict[str, Callable[..., dict[str, Any]]] = {
    study.__name__.replace("_", "-"): study
    for study in (constants, accuracy, outside, left_out, rejection, coverage, vacuous, calibration, evidence)
}
HIDDEN = ("fit_seconds", "predict_seconds", "seconds")  # in the JSON file only
PLAIN = ("log_loss", "set_size", "expected_set_size")  # no shares


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a study, print its tables, and write JSON with --json."""
    parser = argparse.ArgumentParser(prog="python -m research.intents", description=__doc__)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", choices=NAMES, required=True)
    parser.add_argument("--split", choices=("test", "valid", "train"), default="test", help="what is classified")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument(
        "--shots", nargs="+", choices=(NO_SHOTS, *SHOTS, "8", str(MOST)), default=list(SHOTS), metavar="SHOTS"
    )
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--prior-ratio", type=float, default=PRIOR_RATIO, help="of the bayes fit")
    of_evidence = parser.add_argument_group("of the study `evidence`")
    of_evidence.add_argument("--pool", choices=POOLS, default="all", help="which texts are unlabelled")
    of_evidence.add_argument("--methods", nargs="+", default=[], metavar="METHOD", help="these only, not all of them")
    of_evidence.add_argument("--probabilities", action="store_true", help="measure the calibration error, too")
    of_evidence.add_argument("--slow-draws", type=int, metavar="N", help="draws of methods that take long")
    of_evidence.add_argument("--setfit", metavar="PYTHON", help="measure SetFit, too, which this interpreter has")
    of_evidence.add_argument("--extend", action="store_true", help="keep the draws that the file of --json holds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    is_evidence = options.study == evidence.__name__
    if NO_SHOTS in options.shots and not is_evidence:
        parser.error("--shots 0 is for the study `evidence`: the others need an example of each class")
    if options.split == "train" and options.study != "left-out":
        parser.error("--split train is for the study `left-out`: the others classify texts of another split")
    own: dict[str, Any] = {}  # what only `evidence` takes
    if is_evidence:
        own = {"pool": options.pool, "probabilities": options.probabilities, "only": options.methods}
        own |= {"setfit": options.setfit, "slow_draws": options.slow_draws}
    elif options.pool != "all" or options.methods or options.probabilities or options.setfit or options.slow_draws:
        parser.error("--pool, --methods, --probabilities, --slow-draws and --setfit are for the study `evidence`")
    try:
        if is_evidence:
            settings = ("data", "split", "encoder", "prior_ratio", "pool", "probabilities")
            facts = {name: getattr(options, name) for name in settings}
            before = _before(options.json, facts) if options.extend else None
            own["journal"] = Journal(options.json, facts, values_of(before) if before else None)
        data = load_intents(options.data, "test" if options.split == "train" else options.split, options.encoder)
        data = replace(data, split=options.split)
        with progress_bar(data.name) as show:
            supports = Supports(data.train_y, options.shots, options.draws, show)
            found = STUDIES[options.study](data, supports, options.prior_ratio, **own)
        if is_evidence and before is not None:
            _check_supports(options.json, before["supports"], found["supports"])
    except HyperProtoError as error:
        parser.exit(1, f"error: {error}\n")
    for table in measure_tables(found["results"]):
        Console(width=140).print(table)
    if options.json:
        facts = {
            "data": options.data,
            "split": options.split,
            "encoder": options.encoder,
            "classes": len(data.classes),
            "texts": {"train": len(data.train), "test": len(data.test), "outside": len(data.outside)},
            "prior_ratio": options.prior_ratio,
            "versions": {name: version(name) for name in ("hyperproto", "scikit-learn", "numpy", "torch")},
        }
        write_results(options.json, {"command": command_of("intents", arguments), **facts, **found})
        if is_evidence:
            own["journal"].close()


def _before(path: Path | None, facts: dict[str, Any]) -> dict[str, Any]:
    """Read the file of results that is extended; refuse one of other settings."""
    if path is None or not path.exists():
        raise ConfigError("--extend goes on with a file of results: name one that exists with --json")
    content: dict[str, Any] = read_json(path)
    different = [name for name, value in facts.items() if content.get(name, value) != value]
    if different:
        raise ConfigError(f"{path} was measured with another {', '.join(different)}; extend it with the same settings")
    return content


def _check_supports(path: Path, before: dict[str, list[str]], now: dict[str, list[str]]) -> None:
    """Refuse to join draws of different supports."""
    for shot, hashes in before.items():
        same = now.get(shot, hashes)
        if any(a != b for a, b in zip(hashes, same, strict=False)):
            raise ConfigError(f"{path}: its draws of {shot} shots are of other supports; measure all of them anew")


def measure_tables(rows: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """Yield a table of each measure: a row for each method, a column for each number of shots."""
    measures = [name for name, value in rows[0].items() if isinstance(value, dict) and name not in HIDDEN]
    names = [name for name, value in rows[0].items() if not isinstance(value, dict) and name != "shots"]
    shots = list(dict.fromkeys(row["shots"] for row in rows))
    for measure in measures:
        table = Table(title=f"{measure}, mean ± 95 % interval over draws")
        for name in names:
            table.add_column(name)
        for shot in shots:
            table.add_column(f"shots {shot}", justify="right")
        for key in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
            cells = {row["shots"]: row.get(measure) for row in rows if tuple(row[name] for name in names) == key}
            table.add_row(*key, *(_cell(cells.get(shot), measure) for shot in shots))
        yield table


def _cell(value: dict[str, Any] | None, measure: str) -> str:
    if value is None:
        return "-"
    scale, form = (1, ".3f") if measure in PLAIN else (100, ".2f")
    half = "" if value["ci95"] is None else f" ± {scale * value['ci95']:{form}}"
    return f"{scale * value['mean']:{form}}{half}"


if __name__ == "__main__":
    main()
