"""The fast way to the measure: one matrix product, in the precision of the rows.

With c the middle of the centres, ||x - z||^2 = ||x - c||^2 - 2 x . (z - c) + ||z - c||^2 + 2 c . (z - c). The product
is with z - c, not with z, so that float32 loses nothing in it that the rows have not lost already, however far from the
origin they lie.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hyperproto.estimators.settings import Settings
from hyperproto.regions import Cone, Gaussian, Point, Region, Sphere, Whitening
from hyperproto.regions.arrays import Doubles, Floats, row_squares

BLOCK = 1 << 21  # scores in memory at once
ROWS = 4096  # and rows at most: more would leave the cache


@dataclass(frozen=True, eq=False)
class Head:
    """M_n(x) = common(x) - scores_n(x) with scores = x @ weights + bias, less curve_n ||x - middle||^2 if there is one.

    `common` is the same for all classes: whoever only compares them needs the scores alone.
    """

    weights: Doubles  # (D, N)
    bias: Doubles  # (N,)
    middle: Any = None  # (D,) of the centres; None: there is no common part
    whiten: Whitening | None = None
    curve: Doubles | None = None  # (N,)
    _copies: dict[Any, "Head"] = field(default_factory=dict, repr=False)  # by dtype

    @classmethod
    def of_centers(cls, center: Any, radius: Any = 0.0, whiten: Whitening | None = None) -> "Head":
        """||A x - z_n||^2 - eps_n."""
        middle = center.mean(axis=0)
        away = center - middle
        bias = radius - (away * away).sum(axis=1) - 2 * (away @ middle)
        return cls(2 * (away if whiten is None else whiten(away)).T, bias, middle, whiten)

    @classmethod
    def of(cls, region: Region, settings: Settings) -> "Head | None":
        """The head of a region, or None if its measure is no such thing."""
        if isinstance(region, Cone):
            gains = region.gain
            return None if gains is None else cls((gains[:, None] * region.center).T, np.zeros(len(gains)))
        if isinstance(region, Gaussian):
            slope, constant = region.slope_and_constant()
            plain = cls.of_centers(region.center)
            return cls(plain.weights * slope, plain.bias * slope - constant, plain.middle, curve=slope)
        if isinstance(region, Sphere | Point) and settings.squared:
            return cls.of_centers(region.center, region.bias_radius, getattr(region, "whiten", None))
        return None

    def cast(self, dtype: np.dtype[Any]) -> "Head":
        """The same numbers in another precision, made once."""
        if dtype not in self._copies:
            parts = (self.weights, self.bias, self.middle, self.whiten, self.curve)
            self._copies[dtype] = Head(*(_cast(part, dtype) for part in parts))
        return self._copies[dtype]

    def scores(self, X: Floats) -> Floats:
        """Larger is more likely (n, N); right up to a number that all classes of a row share."""
        head = self.cast(X.dtype)
        scores: Floats = X @ head.weights
        scores += head.bias
        if head.curve is not None:
            scores -= row_squares(X - head.middle)[:, None] * head.curve
        return scores

    def measure(self, X: Floats) -> Floats:
        """The measure itself (n, N)."""
        head = self.cast(X.dtype)
        if head.middle is None or head.curve is not None:
            return -self.scores(X)
        moved = X if head.whiten is None else head.whiten(X)
        measured: Floats = row_squares(moved - head.middle)[:, None] - self.scores(X)
        return measured


def blocks(n_rows: int, way: int) -> Iterator[slice]:
    """Cut rows so that their scores fit into memory many times."""
    size = max(1, min(ROWS, BLOCK // way))
    return (slice(start, start + size) for start in range(0, n_rows, size))


def _cast(part: Any, dtype: np.dtype[Any]) -> Any:
    if part is None:
        return None
    if isinstance(part, Whitening):
        return Whitening(part.left.astype(dtype), part.right.astype(dtype))
    return np.ascontiguousarray(part, dtype=dtype)
