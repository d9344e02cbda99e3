"""The log of a run, metrics.jsonl: which of its rows hold a validation, and of what."""

from collections.abc import Sequence
from typing import Any

METRICS = ("accuracy", "f1")  # what validation measures: the second where words are tagged


def validated(rows: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the metric that chose the weights, and the rows that have it."""
    for metric in METRICS:
        found = [row for row in rows if metric in row]
        if found:
            return metric, found
    return METRICS[0], []
