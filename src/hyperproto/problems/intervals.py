"""Means with honest intervals, and paired differences."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def mean_interval(values: FloatArray) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval by Student's t over episodes.

    The interval says how well this many episodes pin down the mean over all episodes *of this pool with this encoder*.
    It says nothing about other pools or other trainings (for those: several seeds).
    """
    from scipy.stats import t as student

    n = len(values)
    if n < 2:
        return float(np.mean(values)), float("nan")
    error = float(np.std(values, ddof=1)) / np.sqrt(n)
    return float(np.mean(values)), float(student.ppf(0.975, n - 1) * error)


def paired_difference(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Mean of `a - b` over the same episodes, with its 95 % interval: far narrower than two separate intervals."""
    if a.shape != b.shape:
        raise ValueError(f"paired values must have one shape, not {a.shape} and {b.shape}")
    return mean_interval(a - b)


def or_none(ci95: float) -> float | None:
    """One episode has no interval, and JSON no NaN."""
    return None if np.isnan(ci95) else ci95
