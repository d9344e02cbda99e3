"""The log of a run, metrics.jsonl: which of its rows hold a validation, and of what."""

from collections.abc import Sequence
from typing import Any

from hyperproto.problems import PROBLEMS


def validated(rows: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the metric that chose the weights, and the rows that have it."""
    metrics = [PROBLEMS.get(name).metric for name in PROBLEMS.names()]  # accuracy, f1, and those of others
    for metric in metrics:
        found = [row for row in rows if metric in row]
        if found:
            return metric, found
    return metrics[0], []
