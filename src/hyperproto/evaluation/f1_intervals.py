"""Intervals of a micro F1 over episodes, and of the difference of two on the same episodes."""

import numpy as np

from hyperproto.evaluation.intervals import FloatArray, mean_interval, paired_difference
from hyperproto.evaluation.spans import SpanCounts


def f1_values(counts: SpanCounts) -> FloatArray:
    """A number for each episode, (E,), such that their mean is the micro F1, and intervals of the mean are F1's.

    Micro F1 is a ratio of sums over episodes, not a mean, so its error is that of the jackknife: leave out one episode
    at a time, and see how the F1 of the rest varies. These are the jackknife's pseudo-values, moved so that their mean
    is F1 itself. Differences of two methods, and averages of several runs, may be taken of them as of accuracies.
    """
    correct = 2 * (counts.correct.sum() - counts.correct)
    total = (counts.predicted + counts.gold).sum() - counts.predicted - counts.gold
    without = correct / np.maximum(total, 1)  # F1 of all episodes but one
    return np.asarray(counts.f1 + (len(without) - 1) * (without.mean() - without), np.float64)


def f1_interval(counts: SpanCounts) -> tuple[float, float]:
    """Micro F1, and half the width of its 95 % interval. One episode has no interval."""
    return counts.f1, mean_interval(f1_values(counts))[1]


def f1_difference(a: SpanCounts, b: SpanCounts) -> tuple[float, float]:
    """F1 of `a` minus that of `b` on the same episodes, with its 95 % interval: episodes are left out of both."""
    if a.gold.shape != b.gold.shape:
        raise ValueError(f"paired counts must be of the same episodes, not of {len(a.gold)} and {len(b.gold)}")
    return paired_difference(f1_values(a), f1_values(b))
