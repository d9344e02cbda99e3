"""A result: what was measured, on which episodes, with which settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from hyperproto.data import IntArray
from hyperproto.evaluation.intervals import FloatArray, mean_interval, paired_difference


@dataclass(frozen=True, eq=False)
class Result:
    """One method on one list of episodes."""

    label: str  # a short name, unique among results that are compared
    settings: dict[str, Any]  # method, fit, transform, data, split, way, shot, query, seed, episode_hash, ...
    accuracies: FloatArray  # (E,); with NOTA where queries may be rejected
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    aurocs: FloatArray | None = None  # (E,) of telling queries of the classes from others, where there are others

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints: accuracies are fractions."""
        accuracy, ci95 = mean_interval(self.accuracies)
        return {
            "label": self.label,
            "accuracy": accuracy,
            "ci95": _or_none(ci95),
            "episodes": len(self.accuracies),
            **self.settings,
            "metrics": self.metrics,
            "seconds": self.seconds,
        }


def compare(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Compare every two results on their common episodes: mean difference a - b and its 95 % interval.

    Results with queries of none of the classes are compared by AUROC, too.
    """
    hashes = {result.settings.get("episode_hash") for result in results}
    if len(hashes) > 1:
        raise ValueError(f"results on different episodes cannot be paired: {sorted(map(str, hashes))}")
    comparisons = []
    for a, b in combinations(results, 2):
        difference, ci95 = paired_difference(a.accuracies, b.accuracies)
        row = {"a": a.label, "b": b.label, "difference": difference, "ci95": _or_none(ci95)}
        if a.aurocs is not None and b.aurocs is not None:
            difference, ci95 = paired_difference(a.aurocs, b.aurocs)
            row |= {"auroc_difference": difference, "auroc_ci95": _or_none(ci95)}
        comparisons.append(row)
    return comparisons


def _or_none(ci95: float) -> float | None:
    """One episode has no interval, and JSON no NaN."""
    return None if np.isnan(ci95) else ci95


def accuracy_by_shot(correct: IntArray, total: IntArray, shots: Sequence[int]) -> dict[str, float]:
    """Accuracy of the classes that had 1, 2, ... examples: what a mean over classes hides when shots are unequal."""
    shot = np.array(shots)
    return {str(k): float(correct[:, shot == k].sum() / max(1, total[:, shot == k].sum())) for k in sorted(set(shots))}
