"""The log of a run, metrics.jsonl: a JSON object a line, the last key of which is a checksum of the others."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from hyperproto.errors import DataError
from hyperproto.problems import PROBLEMS
from hyperproto.training.checkpoint import WAY_OUT

CHECKSUM = "crc32"  # the key of a line's checksum


def line_of(row: Mapping[str, Any]) -> bytes:
    """Make the line of a row."""
    return json.dumps({**row, CHECKSUM: _checksum(row)}).encode() + b"\n"


def read_lines(content: bytes, path: Path, checksums: bool) -> list[dict[str, Any]]:
    """Return the rows of all lines that have an end: what follows the last one was being written.

    Every line has a checksum, unless an older version began the run (`checksums` is false then).
    """
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        problem, row = _read_line(line, rows[-1]["step"] if rows else 0, checksums)
        if problem:
            raise DataError(f"{path}, line {number}: damaged, or changed after it was written ({problem}); {WAY_OUT}")
        rows.append(row)
    return rows


def _read_line(line: bytes, last_step: int, checksums: bool) -> tuple[str, dict[str, Any]]:
    """Say what is wrong with a line ("" if nothing is), and what it says."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}", {}
    if not isinstance(row, dict):
        return "no JSON object", {}
    found = row.pop(CHECKSUM, None)
    if found != _checksum(row) and (checksums or found is not None):
        return "its checksum is another", {}
    step = row.get("step")
    if type(step) is not int or step <= last_step:
        return f"step {step!r} after step {last_step}", {}
    wrong = [key for key, value in row.items() if not _is_number(value)]
    wrong += ["ci95" for metric in _metrics() if metric in row and not isinstance(row.get("ci95"), float)]
    return (f"{wrong[0]} is {row.get(wrong[0])!r}" if wrong else ""), row


def _is_number(value: Any) -> bool:
    """Whether it is a number, or a list of some: all that a log holds."""
    return all(type(number) in (int, float) for number in (value if isinstance(value, list) else [value]))


def _checksum(row: Mapping[str, Any]) -> str:
    return f"{crc32(json.dumps(row).encode()):08x}"


def _metrics() -> list[str]:
    return [PROBLEMS.get(name).metric for name in PROBLEMS.names()]  # accuracy, f1, and those of others


def validated(rows: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the metric that chose the weights, and the rows that have it."""
    metrics = _metrics()
    for metric in metrics:
        found = [row for row in rows if metric in row]
        if found:
            return metric, found
    return metrics[0], []
