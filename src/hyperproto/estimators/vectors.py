"""Rows as the regions see them: as they are, at length 1, or at length 1 after a mean is subtracted."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.regions.arrays import SHORTEST

Floats = NDArray[np.floating[Any]]
Doubles = NDArray[np.float64]


def row_squares(X: Floats) -> Any:
    """||x||^2 of each row, in their precision."""
    return np.vecdot(X, X)


def unit_rows(X: Floats, out: Floats | None = None) -> Floats:
    """Scale each row to length 1, into `out` if given; one without a direction is left as it is."""
    length = np.sqrt(row_squares(X))[:, None]
    length[length < SHORTEST] = 1.0
    scaled: Floats = np.divide(X, length, out=out)
    return scaled


def centered_unit_rows(X: Floats, mean: Doubles) -> Floats:
    """Subtract `mean`, in double precision, then scale to length 1."""
    return unit_rows(X - mean).astype(X.dtype, copy=False)
