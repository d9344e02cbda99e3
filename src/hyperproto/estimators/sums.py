"""Class statistics of many rows at once, in two passes: sums by sparse products, then squares about the means."""

import numpy as np
from scipy.sparse import csr_array

from hyperproto.estimators.labels import IntArray
from hyperproto.estimators.vectors import Doubles, Floats, row_squares
from hyperproto.regions import Moments

BLOCK = 1024  # rows whose differences from their means are in memory at once
FEW = 32  # float32 numbers that may be summed in float32
SAMPLE = 256  # rows that tell how far from the origin all lie


def moments_of(rows: Floats, labels: IntArray, weights: Doubles | None, way: int) -> Moments:
    """Count, mean and squares of each class in float64."""
    count, mean = means_of(rows, labels, weights, way)
    return Moments(count, mean, squares_about(mean, rows, labels, weights))


def means_of(rows: Floats, labels: IntArray, weights: Doubles | None, way: int) -> tuple[Doubles, Doubles]:
    """Count (N,) and mean (N, D) of each class, in float64.

    Sparse products are fast in the type of the rows. So that float32 loses nothing, they sum few rows of a class at a
    time, and what they sum lies about the origin.
    """
    if not len(rows):
        return np.zeros(way), np.zeros((way, rows.shape[1]))
    count = sum_by_label(labels, weights, way)
    middle = _middle(rows)
    sums = _sums(rows, middle, labels, weights, way)
    return count, sums / np.where(count > 0, count, 1.0)[:, None] + middle * (count > 0)[:, None]


def squares_about(mean: Doubles, rows: Floats, labels: IntArray, weights: Doubles | None) -> Doubles:
    """Sum over each class of ||x - mean||^2 (N,), `mean` being theirs."""
    near, way = mean.astype(rows.dtype), len(mean)
    squares = np.zeros(way)
    room = np.empty((min(BLOCK, len(rows)), rows.shape[1]), rows.dtype)  # one for all blocks: fresh memory costs time
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        difference = room[: len(labels[part])]
        np.take(near, labels[part], axis=0, out=difference, mode="clip")
        np.subtract(rows[part], difference, out=difference)
        lengths = row_squares(difference)
        squares += sum_by_label(labels[part], lengths if weights is None else weights[part] * lengths, way)
    rounding = sum_by_label(labels, weights, way) * row_squares(mean - near)
    exact: Doubles = np.maximum(squares - rounding, 0.0)
    return exact


def sum_by_label(labels: IntArray, values: Doubles | None, way: int) -> Doubles:
    """Sum a number of each row, or count the rows, by label (N,)."""
    return np.bincount(labels, values, way).astype(np.float64, copy=False)


def _middle(rows: Floats) -> Floats:
    """A point that float32 rows lie about, or 0 if that is near enough: moving them takes time."""
    sample = rows[:: max(1, len(rows) // SAMPLE)].astype(np.float64)
    middle = sample.mean(axis=0)
    far = rows.dtype != np.float64 and middle @ middle > 4 * row_squares(sample - middle).mean()
    found: Floats = (middle if far else np.zeros_like(middle)).astype(rows.dtype)
    return found


def _sums(rows: Floats, middle: Floats, labels: IntArray, weights: Doubles | None, way: int) -> Doubles:
    """Sum rows less `middle` over each class (N, D), as exact as float64, whatever the type of the rows."""
    sums = np.zeros((way, rows.shape[1]))
    start = 0
    while start < len(rows):
        size = max(FEW * way, BLOCK)
        heavy = rows.dtype != np.float64 and np.bincount(labels[start : start + size]).max() > 8 * FEW
        part = slice(start, start + (max(BLOCK, way) if heavy else size))
        block = rows[part].astype(np.float64) if heavy else rows[part]  # too many of one class for float32
        block = block - middle if middle.any() else block
        values = np.ones(len(block), block.dtype) if weights is None else weights[part].astype(block.dtype)
        member = csr_array((values, labels[part], np.arange(len(block) + 1)), shape=(len(block), way))
        sums += member.T @ block
        start = part.stop
    return sums
