"""Confidence intervals of means, paired differences, and the marking of best results."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Mark = Literal["best", "tied", ""]
Difference = tuple[float, float | None]  # mean, half its interval


def mean_interval(values: FloatArray) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval, by Student's t over episodes.

    The interval covers the choice of episodes from this pool with this encoder, not that of other pools or seeds.
    """
    from scipy.stats import t as student

    n = len(values)
    if n < 2:
        return float(np.mean(values)), float("nan")
    error = float(np.std(values, ddof=1)) / np.sqrt(n)
    return float(np.mean(values)), float(student.ppf(0.975, n - 1) * error)


def paired_difference(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Return the mean of `a - b` over the same episodes and half the width of its 95 % interval."""
    if a.shape != b.shape:
        raise ValueError(f"paired values must have one shape, not {a.shape} and {b.shape}")
    return mean_interval(a - b)


def or_none(ci95: float) -> float | None:
    """Return None for the NaN interval of one episode, since JSON has no NaN."""
    return None if np.isnan(ci95) else ci95


def best_marks(means: Sequence[float], paired: Callable[[int, int], Difference | None]) -> list[Mark]:
    """Mark the largest of several means as "best" if its paired intervals exclude 0 against every other mean.

    `paired(i, j)` returns the paired difference of i minus j, or None if the two were not measured together. Means
    whose interval includes 0 are "tied" with the largest, which is then "tied" too. Nothing is marked if a difference
    from the largest is unknown, or if there is only one mean.
    """
    if len(means) < 2:
        return [""] * len(means)
    leader = int(np.argmax(means))
    tied = []
    for other in range(len(means)):
        found = (0.0, 0.0) if other == leader else paired(leader, other)
        if found is None:
            return [""] * len(means)
        difference, half = found
        if half is None or not difference > half:
            tied.append(other)
    mark: Mark = "best" if tied == [leader] else "tied"
    return [mark if place in tied else "" for place in range(len(means))]


def best_of_draws(values: Sequence[Sequence[float]]) -> list[Mark]:
    """Mark the best of several rows by their values over the same draws; longer rows are cut to the shortest."""
    common = min(map(len, values))
    rows = [np.asarray(row[:common], np.float64) for row in values]

    def paired(i: int, j: int) -> Difference:
        mean, half = paired_difference(rows[i], rows[j])
        return mean, or_none(half)

    return best_marks([float(row.mean()) for row in rows], paired)
