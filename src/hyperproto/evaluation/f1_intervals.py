"""Intervals of a micro F1 over episodes, and of the difference of two on the same episodes."""

import numpy as np

from hyperproto.evaluation.intervals import FloatArray
from hyperproto.evaluation.spans import SpanCounts


def f1_interval(counts: SpanCounts) -> tuple[float, float]:
    """Micro F1, and half the width of its 95 % interval.

    Micro F1 is a ratio of sums over episodes, not a mean, so its error is that of the jackknife: leave out one episode
    at a time, and see how the F1 of the rest varies. One episode has no interval.
    """
    return counts.f1, _half_width(_without_each(counts))


def f1_difference(a: SpanCounts, b: SpanCounts) -> tuple[float, float]:
    """F1 of `a` minus that of `b` on the same episodes, with its 95 % interval: episodes are left out of both."""
    if a.gold.shape != b.gold.shape:
        raise ValueError(f"paired counts must be of the same episodes, not of {len(a.gold)} and {len(b.gold)}")
    return a.f1 - b.f1, _half_width(_without_each(a) - _without_each(b))


def _without_each(counts: SpanCounts) -> FloatArray:
    """F1 of all episodes but one, for each, (E,)."""
    correct = 2 * (counts.correct.sum() - counts.correct)
    total = (counts.predicted + counts.gold).sum() - counts.predicted - counts.gold
    return np.asarray(correct / np.maximum(total, 1), np.float64)


def _half_width(without: FloatArray) -> float:
    from scipy.stats import t as student

    n = len(without)
    if n < 2:
        return float("nan")
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return float(student.ppf(0.975, n - 1) * error)
