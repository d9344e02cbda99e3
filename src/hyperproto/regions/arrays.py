"""The few array functions that every region shares; each has a finite value and a finite gradient everywhere."""

import math
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

Array: TypeAlias = Any  # any array of the array API standard: NumPy, torch, array-api-strict
Floats = NDArray[np.floating[Any]]  # NumPy's alone, in either precision
Doubles = NDArray[np.float64]
Indices = NDArray[np.intp]

SHORTEST = 1e-12  # a mean of unit vectors that is shorter than this has no direction


def at_least(x: Array, floor: Array | float) -> Array:
    """The larger of the two. `where`, because `maximum` and `clip` differ between libraries; NaN stays NaN."""
    xp = array_namespace(x)
    return xp.where(x < floor, floor, x)


def at_most(x: Array, ceiling: Array | float) -> Array:
    """The smaller of the two."""
    xp = array_namespace(x)
    return xp.where(x > ceiling, ceiling, x)


def positive(count: Array) -> Array:
    """A number of examples to divide by: 1 where there are none, whose sums are 0."""
    xp = array_namespace(count)
    return xp.where(count > 0, count, 1.0)


def root(x: Array) -> Array:
    """The square root, and 0 (with gradient 0, not infinity) where `x` is not positive."""
    xp = array_namespace(x)
    return xp.where(x > 0, xp.sqrt(xp.where(x > 0, x, 1.0)), 0.0)


def unit(x: Array, shortest: float = 0.0) -> Array:
    """Rows scaled to length 1, however large or small their numbers. A row of zeros has no direction and stays.

    So does a row shorter than `shortest`, such as a mean of directions that cancel: it is 0 for all we know. Rows whose
    squares a float cannot hold are first divided by their largest number; all others are as if that were not there.
    """
    xp = array_namespace(x)
    with np.errstate(over="ignore"):
        length = xp.linalg.vector_norm(x, axis=-1, keepdims=True)
    odd = ~((length > shortest_plain(x.dtype, xp)) & (length < math.inf)) & ~(length < shortest)
    if str(device(x)) != "cpu" or bool(xp.any(odd)):  # elsewhere a look would wait for the device
        peak = xp.max(xp.abs(x.detach() if hasattr(x, "detach") else x), axis=-1, keepdims=True)
        x = x / xp.where(odd & (peak > 0), peak, 1.0)
        length = xp.linalg.vector_norm(x, axis=-1, keepdims=True)
    return x / xp.where((length < shortest) | (length == 0), 1.0, length)


def shortest_plain(dtype: Any, xp: Any = np) -> float:
    """The length below which the squares of a row lose digits, as numbers too small for the type."""
    return 1e4 * math.sqrt(float(xp.finfo(dtype).smallest_normal))


def largest_square(dtype: Any, xp: Any = np) -> float:
    """The largest ||x||^2 of rows whose squared distances, and the sums of them, a type can hold."""
    return float(float(xp.finfo(dtype).max) ** 0.95)


def row_squares(x: Array) -> Array:
    """||x||^2 of rows (..., D), in one pass and in their precision: (...)."""
    xp = array_namespace(x)
    return xp.vecdot(x, x)


def squared_distance(x: Array, center: Array) -> Array:
    """||x - z||^2 for each row of `x` (..., Q, D) and each centre (..., N, D), by one matrix product: (..., Q, N)."""
    xp = array_namespace(x, center)
    own = xp.sum(x * x, axis=-1)[..., :, None] + xp.sum(center * center, axis=-1)[..., None, :]
    return at_least(own - 2 * (x @ center.mT), 0.0)  # rounding may leave a small negative number


def arccos(cosine: Array) -> Array:
    """The angle, kept a hair (about 1e-3 in single precision) from 0 and pi, where the gradient is infinite."""
    xp = array_namespace(cosine)
    most = 1 - 4 * float(xp.finfo(cosine.dtype).eps)
    return xp.acos(at_least(at_most(cosine, most), -most))


def arcsin(sine: Array) -> Array:
    """The angle of a sine in [0, 1], kept away from 1, where the gradient is infinite; exact at 0."""
    xp = array_namespace(sine)
    return xp.asin(at_most(sine, 1 - 4 * float(xp.finfo(sine.dtype).eps)))
