"""Class statistics of many rows at once, in two passes over them: sums by a sparse product, then what is left over."""

import numpy as np
from scipy.sparse import csr_array

from hyperproto.estimators.labels import IntArray
from hyperproto.estimators.vectors import Doubles, Floats, row_squares
from hyperproto.regions import Moments

BLOCK = 2048  # rows whose differences from their means are in memory at once, or a few times the classes


def moments_of(rows: Floats, labels: IntArray, weights: Doubles | None, way: int) -> Moments:
    """Count, mean and squares of each class in float64, as exact for float32 rows as if they had been summed in it.

    The first pass sums in the type of the rows, so its means are a little off. The second sums the differences from
    them, which are small and so lose nothing, and corrects both the means and the squares.
    """
    if len(rows) == 1 and way == 1:  # the usual update, a hundred times as often as any other
        return Moments(np.ones(1) if weights is None else weights, rows.astype(np.float64), np.zeros(1))
    count = sum_by_label(labels, weights, way)
    divisor = np.where(count > 0, count, 1.0)[:, None]
    near = (_sums(rows, labels, weights, way) / divisor).astype(rows.dtype)  # (N, D)
    rest, squares = np.zeros((way, rows.shape[1])), np.zeros(way)
    size = max(BLOCK, 4 * way)  # sums of a block have the size of all classes, so it should have more rows than those
    room = np.empty((min(size, len(rows)), rows.shape[1]), rows.dtype)  # one for all blocks: fresh memory costs time
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        own = None if weights is None else weights[part]
        difference = room[: len(labels[part])]
        np.take(near, labels[part], axis=0, out=difference, mode="clip")
        np.subtract(rows[part], difference, out=difference)
        lengths = row_squares(difference)
        squares += sum_by_label(labels[part], lengths if own is None else own * lengths, way)
        if rows.dtype != np.float64:
            rest += _sums(difference, labels[part], own, way)
    off = rest / divisor  # what the means of the first pass lack
    return Moments(count, near + off, np.maximum(squares - count * row_squares(off), 0.0))


def sum_by_label(labels: IntArray, values: Doubles | None, way: int) -> Doubles:
    """Sum a number of each row, or count the rows, by label (N,)."""
    return np.bincount(labels, values, way).astype(np.float64, copy=False)


def _sums(rows: Floats, labels: IntArray, weights: Doubles | None, way: int) -> Floats:
    """Sum the rows of each class (N, D)."""
    values = np.ones(len(rows), rows.dtype) if weights is None else weights.astype(rows.dtype)
    member = csr_array((values, labels, np.arange(len(rows) + 1)), shape=(len(rows), way))
    sums: Floats = member.T @ rows
    return sums
