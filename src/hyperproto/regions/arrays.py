"""Array functions shared by all regions, with finite values and gradients everywhere; sums of rows by class."""

import math
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

Array: TypeAlias = Any  # any array of the array API standard: NumPy, torch, array-api-strict
Floats = NDArray[np.floating[Any]]  # NumPy arrays, in either precision
Doubles = NDArray[np.float64]
Indices = NDArray[np.intp]

BLOCK = 1024  # rows of a block whose differences from their means are in memory
FEW = 32  # float32 numbers that are summed in float32
SAMPLE = 256  # rows that estimate how far from the origin all lie
ROUNDING = 1e-9  # relative error of a sum of weights
SHORTEST = 1e-12  # length below which a mean of unit vectors has no direction


def at_least(x: Array, floor: Array | float) -> Array:
    """Return the larger of the two; NaN stays NaN. `maximum` and `clip` differ between libraries, `where` does not."""
    xp = array_namespace(x)
    return xp.where(x < floor, floor, x)


def at_most(x: Array, ceiling: Array | float) -> Array:
    """Return the smaller of the two."""
    xp = array_namespace(x)
    return xp.where(x > ceiling, ceiling, x)


def positive(count: Array) -> Array:
    """Return counts to divide by: 1 in place of 0, since sums over no examples are 0."""
    xp = array_namespace(count)
    return xp.where(count > 0, count, 1.0)


def root(x: Array) -> Array:
    """Return the square root, and 0 (with gradient 0, not infinity) where `x` is not positive."""
    xp = array_namespace(x)
    return xp.where(x > 0, xp.sqrt(xp.where(x > 0, x, 1.0)), 0.0)


def unit(x: Array, shortest: float = 0.0) -> Array:
    """Scale rows (..., D) to length 1, however large or small their numbers.

    A row of zeros has no direction and is returned as it is, and so is a row shorter than `shortest`, such as a mean of
    directions that cancel. Only rows whose squares overflow or underflow are first divided by their largest number.
    """
    xp = array_namespace(x)
    with np.errstate(over="ignore"):
        length = xp.linalg.vector_norm(x, axis=-1, keepdims=True)
    odd = ~((length > shortest_plain(x.dtype, xp)) & (length < math.inf)) & ~(length < shortest)
    if str(device(x)) != "cpu" or bool(xp.any(odd)):  # on other devices the check itself would wait
        peak = xp.max(xp.abs(x.detach() if hasattr(x, "detach") else x), axis=-1, keepdims=True)
        x = x / xp.where(odd & (peak > 0), peak, 1.0)
        length = xp.linalg.vector_norm(x, axis=-1, keepdims=True)
    return x / xp.where((length < shortest) | (length == 0), 1.0, length)


def shortest_plain(dtype: Any, xp: Any = np) -> float:
    """Return the length below which the squares of a row lose digits in this type."""
    return 1e4 * math.sqrt(float(xp.finfo(dtype).smallest_normal))


def largest_square(dtype: Any, xp: Any = np) -> float:
    """Return the largest ||x||^2 of rows whose squared distances, and sums of these, do not overflow in this type."""
    return float(float(xp.finfo(dtype).max) ** 0.95)


def row_squares(x: Array) -> Array:
    """Return ||x||^2 (...) of rows (..., D), in one pass and in their precision."""
    xp = array_namespace(x)
    return xp.vecdot(x, x)


def squared_distance(x: Array, center: Array) -> Array:
    """Return ||x - z||^2 (..., Q, N) of rows (..., Q, D) and centres (..., N, D), by one matrix product."""
    xp = array_namespace(x, center)
    own = xp.sum(x * x, axis=-1)[..., :, None] + xp.sum(center * center, axis=-1)[..., None, :]
    return at_least(own - 2 * (x @ center.mT), 0.0)  # rounding may leave a small negative number


def arccos(cosine: Array) -> Array:
    """Return the angle, kept about 1e-3 (in single precision) from 0 and pi, where the gradient is infinite."""
    xp = array_namespace(cosine)
    most = 1 - 4 * float(xp.finfo(cosine.dtype).eps)
    return xp.acos(at_least(at_most(cosine, most), -most))


def arcsin(sine: Array) -> Array:
    """Return the angle of a sine in [0, 1], kept away from 1, where the gradient is infinite; exact at 0."""
    xp = array_namespace(sine)
    return xp.asin(at_most(sine, 1 - 4 * float(xp.finfo(sine.dtype).eps)))


# Sums of many rows in NumPy, in two passes: sums by sparse products, then squares about the means.


def means_of(rows: Floats, labels: Indices, weights: Doubles | None, way: int) -> tuple[Doubles, Doubles]:
    """Return count (N,) and mean (N, D) of each class, in float64.

    Sparse products are fast in the type of the rows. So that float32 loses nothing, they sum few rows of a class at a
    time, moved near the origin.
    """
    if not len(rows):
        return np.zeros(way), np.zeros((way, rows.shape[1]))
    count = sum_by_label(labels, weights, way)
    middle = _middle(rows)
    sums = _sums(rows, middle, labels, weights, way)
    return count, sums / np.where(count > 0, count, 1.0)[:, None] + middle * (count > 0)[:, None]


def squares_about(mean: Doubles, rows: Floats, labels: Indices, weights: Doubles | None) -> Doubles:
    """Return the sum of ||x - mean||^2 over each class (N,), given the class means (N, D)."""
    rounded, way = mean.astype(rows.dtype), len(mean)
    squares = np.zeros(way)
    room = np.empty((min(BLOCK, len(rows)), rows.shape[1]), rows.dtype)  # reused: allocating costs time
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        difference = room[: len(labels[part])]
        np.take(rounded, labels[part], axis=0, out=difference, mode="clip")
        np.subtract(rows[part], difference, out=difference)
        lengths = np.vecdot(difference, difference)
        squares += sum_by_label(labels[part], lengths if weights is None else weights[part] * lengths, way)
    error = mean - rounded
    rounding = sum_by_label(labels, weights, way) * np.vecdot(error, error)
    exact: Doubles = np.maximum(squares - rounding, 0.0)
    return exact


def sum_by_label(labels: Indices, values: Doubles | None, way: int) -> Doubles:
    """Sum values (S,) by label (N,); None counts the rows."""
    return np.bincount(labels, values, way).astype(np.float64, copy=False)


def covering_radii(distances: Doubles, labels: Indices, weights: Doubles | None, way: int, share: float) -> Doubles:
    """Return the least radius (N,) that covers a `share` of the examples of each class; 0 for an empty class.

    `distances` (S,) are those to the centre of the own class. Drawings show this quantile.
    """
    weights = np.ones(len(labels)) if weights is None else weights
    order = np.argsort(distances, kind="stable")
    radii = np.zeros(way)
    for label in range(way):
        own = order[labels[order] == label]
        if len(own):
            reached = np.cumsum(weights[own])
            place = int(np.searchsorted(reached, share * reached[-1] * (1 - ROUNDING)))
            radii[label] = distances[own[min(place, len(own) - 1)]]
    return radii


def _middle(rows: Floats) -> Floats:
    """Return the mean of a sample of float32 rows; 0 if it is small for their spread, since moving rows takes time."""
    sample = rows[:: max(1, len(rows) // SAMPLE)].astype(np.float64)
    middle = sample.mean(axis=0)
    far = rows.dtype != np.float64 and middle @ middle > 4 * np.vecdot(sample - middle, sample - middle).mean()
    found: Floats = (middle if far else np.zeros_like(middle)).astype(rows.dtype)
    return found


def _sums(rows: Floats, middle: Floats, labels: Indices, weights: Doubles | None, way: int) -> Doubles:
    """Sum rows minus `middle` over each class (N, D), as exactly as float64 does, whatever the type of the rows."""
    from scipy.sparse import csr_array  # imported late: only estimators need it

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
