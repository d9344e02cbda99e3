"""Statistics over draws of the support: mean, 95 % interval, standard deviation, paired differences."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hyperproto.problems.base import mean_interval, paired_difference

Key = tuple[str, ...]


class OverDraws:
    """Values by row and measure, one a draw; the key of a row is the shots, the method and further settings."""

    def __init__(self, *names: str) -> None:
        self.names = names  # of the parts of a key
        self.values: dict[Key, dict[str, list[float]]] = {}

    def add(self, key: Key, **measured: float) -> None:
        """Add the values of one draw."""
        row = self.values.setdefault(key, {})
        for name, value in measured.items():
            row.setdefault(name, []).append(float(value))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each key, with a summary and the values of every measure."""
        return [
            {**dict(zip(self.names, key, strict=True)), **{name: summary(values) for name, values in row.items()}}
            for key, row in self.values.items()
        ]

    def against(self, reference: Key, measures: Sequence[str]) -> list[dict[str, Any]]:
        """Return the reference minus every other row with the same shots, paired over the draws that both have.

        `larger` counts the draws in which the reference is larger. Measures that a row lacks are left out.
        """
        found = []
        for key, row in self.values.items():
            ours = self.values.get((key[0], *reference))
            if ours is None or key[1:] == reference:
                continue
            differences = {}
            for name in (name for name in measures if name in row):
                draws = min(len(ours[name]), len(row[name]))
                a, b = np.array(ours[name][:draws]), np.array(row[name][:draws])
                mean, half = paired_difference(a, b)
                differences[name] = {"difference": _rounded(mean), "ci95": _rounded(half), "larger": int((a > b).sum())}
            found.append({**dict(zip(self.names, key, strict=True)), **differences})
        return found


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return mean, half the width of its 95 % interval, standard deviation and values, rounded to 5 places."""
    array = np.array(values)
    mean, half = mean_interval(array)
    spread = float(array.std(ddof=1)) if len(array) > 1 else float("nan")
    draws = [_rounded(value) for value in values]
    return {"mean": _rounded(mean), "ci95": _rounded(half), "std": _rounded(spread), "draws": draws}


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 5)
