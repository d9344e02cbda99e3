"""Results of evaluations, and their paired comparison."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from hyperproto.problems.base import FloatArray, mean_interval, or_none, paired_difference


@dataclass(frozen=True, eq=False)
class Result:
    """The metrics of one method on one list of episodes, with all settings."""

    label: str  # unique among compared results
    settings: dict[str, Any]  # method, fit, transform, data, split, way, shot, query, seed, episode_hash, ...
    values: FloatArray  # (E,) whose mean is the metric, such as the accuracy of each episode
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    others: dict[str, FloatArray] = field(default_factory=dict)  # (E,) of further metrics by name: auroc, toolkit
    metric: str = "accuracy"  # or f1, whose values are those of `f1_values`

    def to_json(self) -> dict[str, Any]:
        """Return the result as `--json` prints it; metrics are fractions."""
        mean, ci95 = mean_interval(self.values)
        return {
            "label": self.label,
            self.metric: mean,
            "ci95": or_none(ci95),
            "episodes": len(self.values),
            **self.settings,
            "metrics": self.metrics,
            "seconds": self.seconds,
        }


def compare(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Compare every pair of results on their common episodes: mean difference a - b and its 95 % interval.

    Further metrics are compared too: AUROC if there are queries of none of the classes, and the F1 of the Few-NERD
    toolkit if words are tagged.
    """
    hashes = {result.settings.get("episode_hash") for result in results}
    if len(hashes) > 1:
        raise ValueError(f"results on different episodes cannot be paired: {sorted(map(str, hashes))}")
    comparisons = []
    for a, b in combinations(results, 2):
        difference, ci95 = paired_difference(a.values, b.values)
        row = {"a": a.label, "b": b.label, "difference": difference, "ci95": or_none(ci95)}
        for name in a.others.keys() & b.others.keys():
            difference, ci95 = paired_difference(a.others[name], b.others[name])
            row |= {f"{name}_difference": difference, f"{name}_ci95": or_none(ci95)}
        comparisons.append(row)
    return comparisons
