"""Other packages for few-shot text classification beside ours: accuracy, rejection, calibration, growth and time.

    python -m research.rivals --data hwu64 --shots 1 5 20 --draws 5 --json results/rivals/rivals-hwu64.json \
        --package adaptive-classifier=env-adaptive/bin/python --package semantic-router=env-router/bin/python

Packages run in interpreters of their own (`python -m venv ENV; ENV/bin/pip install adaptive-classifier`). A file of
--json is extended: methods, shots and draws that it has are kept, unless --again names the method.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console

from hyperproto import TextEncoder
from hyperproto.encoders.parts.pretrained import find_model
from hyperproto.errors import ConfigError, HyperProtoError
from hyperproto.files import read_json
from hyperproto.progress import progress_bar
from hyperproto.reports.tables import write_results
from research import command_of
from research.intents.__main__ import measure_tables
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports, draw
from research.intents.texts import NAMES, Intents, load_intents
from research.journal import Journal, Measured
from research.rivals.packages import Package
from research.rivals.study import HERE, METHODS, NAMED, OURS, OURS_NAMED, Draw, Run, measure_method

COMPARED = ("accuracy", "auroc")  # which all methods have
ENCODED = 1000  # texts whose encoding is timed
PACKAGES_OF_OURS = ("hyperproto", "scikit-learn", "numpy")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the methods, print tables, and write JSON with --json."""
    parser = argparse.ArgumentParser(prog="python -m research.rivals", description=__doc__)
    parser.add_argument("--data", choices=NAMES, required=True)
    parser.add_argument("--shots", nargs="+", default=["1", "5", "20"], choices=("1", "5", "20"))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", help="these only")
    parser.add_argument("--again", nargs="+", default=[], choices=METHODS, metavar="METHOD", help="measure anew")
    parser.add_argument("--package", action="append", default=[], metavar="NAME=PYTHON", help="an interpreter")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--texts", type=int, metavar="N", help="classify N test texts at even distances, not all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    facts = {"data": options.data, "split": "test", "encoder": options.encoder, "asked": options.texts}
    try:
        before: dict[str, Any] = read_json(options.json) if options.json and options.json.exists() else {}
        if before and any(before[name] != value for name, value in facts.items()):
            raise ConfigError(f"{options.json} was measured with other data, encoder or texts; name another file")
        known = {key: value for key, value in values_of(before).items() if key.split(": ")[1] not in options.again}
        journal = Journal(options.json, facts, known)
        data = some_texts(load_intents(options.data, "test", options.encoder), options.texts)
        with ExitStack() as stack:
            runs: dict[str, Run] = {}
            versions = before.get("versions", {}) | {name: version(name) for name in PACKAGES_OF_OURS}
            for name, _, python in (given.partition("=") for given in options.package):
                package = stack.enter_context(Package(name, python, find_model(options.encoder).resolve()))
                runs[name], versions[name] = package.run_steps, package.version
            show = stack.enter_context(progress_bar(data.name))
            _measure(data, Supports(data.train_y, options.shots, options.draws, show), journal, runs, options.methods)
    except HyperProtoError as error:
        parser.exit(1, f"error: {error}\n")
    content = results(data, journal.values)
    for table in measure_tables(content["results"]):
        Console(width=140).print(table)
    if options.json:
        commands = [*before.get("commands", []), command_of("rivals", arguments)]
        sizes = {"train": len(data.train), "test": len(data.test)}
        facts |= {"classes": len(data.classes), "texts": sizes, "versions": versions}
        facts["encode_seconds"] = before.get("encode_seconds") or encode_seconds(data)
        write_results(options.json, {"commands": commands, **facts, **content})
        journal.close()


def _measure(
    data: Intents, supports: Supports, journal: Journal, runs: dict[str, Run], only: Sequence[str] | None
) -> None:
    """Measure the methods, or `only` some, on every draw."""
    for shot, rows in supports:
        now = Draw.of(data, shot, rows, supports.index)
        for name in METHODS if only is None else only:
            if name in HERE or name.removesuffix(NAMED) in runs:
                journal.measured(_key(shot, supports.index, name), partial(measure_method, name, now, runs))


def results(data: Intents, values: dict[str, Measured]) -> dict[str, Any]:
    """Return rows, paired comparisons and hashes of supports for the values of a journal."""
    found, draws = OverDraws("shots", "method"), dict[str, int]()
    keys = sorted(map(_parts, values), key=lambda key: (int(key[0]), METHODS.index(key[2]), key[1]))
    for shot, index, name in keys:
        found.add((shot, name), **values[_key(shot, index, name)])
        draws[shot] = max(draws.get(shot, 0), index + 1)
    hashes = {shot: [draw(data.train_y, shot, index).digest for index in range(n)] for shot, n in draws.items()}
    compared = []
    for reference in (OURS, OURS_NAMED):
        pairs = found.against((reference,), COMPARED)
        compared += [{"reference": reference, **pair} for pair in pairs]
    return {"supports": hashes, "results": found.rows(), "comparisons": compared}


def some_texts(data: Intents, number: int | None) -> Intents:
    """Return the data with `number` test texts at even distances, or all of them."""
    if number is None or number >= len(data.test):
        return data
    rows = np.linspace(0, len(data.test) - 1, number).round().astype(int)
    texts = [data.test_texts[row] for row in rows.tolist()] if data.test_texts else ()
    return replace(data, test=data.test[rows], test_y=data.test_y[rows], test_texts=texts)


def encode_seconds(data: Intents) -> float | None:
    """Return the CPU seconds of our encoder for 1,000 test texts; None without texts."""
    if not data.test_texts:
        return None
    encoder = TextEncoder(data.encoder, pooling="plain", max_length=128, cache=False)
    encoder.transform(data.test_texts[:1])  # loads it
    asked = data.test_texts[:ENCODED]
    start = process_time()
    encoder.transform(asked)
    return round((process_time() - start) * 1000 / len(asked), 3)


def values_of(content: dict[str, Any]) -> dict[str, Measured]:
    """Return the values of each draw in a file of results, by the keys of its journal."""
    found: dict[str, Measured] = {}
    for row in content.get("results", []):
        for measure, value in row.items():
            for index, one in enumerate(value["draws"] if isinstance(value, dict) else []):
                found.setdefault(_key(row["shots"], index, row["method"]), {})[measure] = one
    return found


def _key(shot: str, index: int, name: str) -> str:
    return f"{shot} shots, draw {index}: {name}"


def _parts(key: str) -> tuple[str, int, str]:
    where, _, name = key.partition(": ")
    shot, index = where.split(" shots, draw ")
    return shot, int(index), name


if __name__ == "__main__":
    main()
