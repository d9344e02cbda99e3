"""Values over draws of the support: mean, 95 % interval, standard deviation, and paired differences to ours."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hyperproto.problems.intervals import mean_interval, paired_difference

Key = tuple[str, ...]


class OverDraws:
    """Values by row and measure, one a draw; a row is the shots, the method and whatever else tells it apart."""

    def __init__(self, *names: str) -> None:
        self.names = names  # of the parts of a key
        self.values: dict[Key, dict[str, list[float]]] = {}

    def add(self, key: Key, **measured: float) -> None:
        """Add what one draw gave."""
        row = self.values.setdefault(key, {})
        for name, value in measured.items():
            row.setdefault(name, []).append(float(value))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each key, every measure summarised; the values themselves are there, too."""
        return [
            {**dict(zip(self.names, key, strict=True)), **{name: summary(values) for name, values in row.items()}}
            for key, row in self.values.items()
        ]

    def against(self, reference: Key, measures: Sequence[str]) -> list[dict[str, Any]]:
        """The reference less every other row with the same shots, paired over draws; in how many it is the larger.

        Of a row that has fewer draws, which are the first ones, the pairs are those.
        """
        found = []
        for key, row in self.values.items():
            ours = self.values.get((key[0], *reference))
            if ours is None or key[1:] == reference:
                continue
            differences = {}
            for name in measures:
                draws = min(len(ours[name]), len(row[name]))
                a, b = np.array(ours[name][:draws]), np.array(row[name][:draws])
                mean, half = paired_difference(a, b)
                differences[name] = {"difference": _rounded(mean), "ci95": _rounded(half), "larger": int((a > b).sum())}
            found.append({**dict(zip(self.names, key, strict=True)), **differences})
        return found


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, half the width of its 95 % interval, standard deviation and the values, all rounded to 5 places."""
    array = np.array(values)
    mean, half = mean_interval(array)
    spread = float(array.std(ddof=1)) if len(array) > 1 else float("nan")
    draws = [_rounded(value) for value in values]
    return {"mean": _rounded(mean), "ci95": _rounded(half), "std": _rounded(spread), "draws": draws}


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 5)
