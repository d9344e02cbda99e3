"""Class statistics of many rows at once, in two passes: sums by sparse products, then squares about the means."""

import numpy as np
from scipy.sparse import csr_array

from hyperproto.estimators.labels import IntArray
from hyperproto.estimators.vectors import Doubles, Floats, row_squares
from hyperproto.regions import Moments

BLOCK = 1024  # rows whose differences from their means are in memory at once
FEW = 32  # float32 numbers that may be summed in float32
SAMPLE = 256  # rows that tell how far from the origin all lie


def moments_of(
    rows: Floats, labels: IntArray, weights: Doubles | None, way: int, copy: Floats | None = None
) -> Moments:
    """Count, mean and squares of each class in float64; the rows are copied to `copy` on the way, if given.

    Sparse products are fast in the type of the rows. So that float32 loses nothing, they sum few rows of a class at a
    time, and what they sum lies about the origin.
    """
    if len(rows) == 1 and way == 1:  # the usual update, a hundred times as often as any other
        if copy is not None:
            copy[...] = rows
        return Moments(np.ones(1) if weights is None else weights, rows.astype(np.float64), np.zeros(1))
    if not len(rows):
        return Moments(np.zeros(way), np.zeros((way, rows.shape[1])), np.zeros(way))
    count = sum_by_label(labels, weights, way)
    divisor = np.where(count > 0, count, 1.0)[:, None]
    middle = _middle(rows)
    mean = _sums(rows, middle, labels, weights, way) / divisor + middle * (count > 0)[:, None]
    near = mean.astype(rows.dtype)
    squares = np.zeros(way)
    room = np.empty((min(BLOCK, len(rows)), rows.shape[1]), rows.dtype)  # one for all blocks: fresh memory costs time
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        difference = room[: len(labels[part])]
        if copy is not None:
            copy[part] = rows[part]
        np.take(near, labels[part], axis=0, out=difference, mode="clip")
        np.subtract(rows[part], difference, out=difference)
        lengths = row_squares(difference)
        squares += sum_by_label(labels[part], lengths if weights is None else weights[part] * lengths, way)
    return Moments(count, mean, np.maximum(squares - count * row_squares(mean - near), 0.0))


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
