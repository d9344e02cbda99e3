"""Rows whose squares, and answers that, a floating point type can hold: what it cannot is refused by row and value."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import DataError
from hyperproto.regions.arrays import Floats, Indices, largest_square, shortest_plain

LARGEST = int(np.finfo(np.float64).max)
BLOCK = 4096  # rows whose squares are looked at one by one

WAY_OUT = "scale the vectors, or use feature_transform='unit'"


def all_in_range(X: Floats) -> bool:
    """Whether all rows are finite and all their squared distances can be represented, by one pass; False: perhaps."""
    return bool(np.vdot(X, X) < largest_square(X.dtype))


def check_range(X: Floats, numbers: Indices | None = None, first: bool = False, name: str = "X") -> None:
    """Refuse finite rows whose squared distances cannot be represented; `numbers` are the rows' own, if not 0, 1, ...

    `name` is the argument that the rows came by.
    Rows of zeros, and very small ones beside others, can be; but the `first` rows of a model must not all vanish.
    """
    total = float(np.vdot(X, X))
    if first and total < shortest_plain(X.dtype) ** 2 and X.any():
        row, column = divmod(int(np.abs(X).argmax()), X.shape[1])
        raise DataError(
            f"X[{row}] holds {X[row, column]:.3g}, and no number in X is larger; squares of such numbers vanish in "
            f"{X.dtype}: {WAY_OUT}"
        )
    if total < largest_square(X.dtype):
        return
    for start in range(0, len(X), BLOCK):
        rows = X[start : start + BLOCK]
        with np.errstate(over="ignore", invalid="ignore"):
            fits = np.vecdot(rows, rows) < largest_square(X.dtype)
        for row in np.flatnonzero(~fits):
            if np.isfinite(rows[row]).all():
                number = start + int(row) if numbers is None else int(numbers[start + row])
                raise DataError(_told(number, rows[row], name))


def check_numbers(X: Any) -> None:
    """Refuse whole numbers that are larger than any float, by row."""
    for number, row in enumerate(X):
        for value in np.ravel(np.asarray(row, dtype=object)):
            if isinstance(value, int) and abs(value) > LARGEST:
                raise DataError(f"X[{number}] holds a whole number of {_digits(value)} digits; no float is that large")


def _digits(value: int) -> int:
    """About how many digits it has; Python refuses to write very long ones."""
    return int(abs(value).bit_length() * np.log10(2)) + 1


def check_answers(answers: NDArray[Any], X: Floats, first: int = 0) -> None:
    """Refuse answers (n,) or (n, N) that are not finite; the first is that of row `first` of `X`."""
    finite = np.isfinite(answers)
    if not finite.all():
        row = first + int(np.argmin(finite if finite.ndim == 1 else finite.all(axis=1)))
        raise DataError(_told(row, X[row]))


def _told(number: int, row: Floats, name: str = "X") -> str:
    """Name a row by its number and its largest value."""
    value = float(row[np.abs(row).argmax()])
    return f"{name}[{number}] holds {value:.3g}; its squared distance cannot be represented in {row.dtype}: {WAY_OUT}"
