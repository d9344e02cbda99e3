"""Rows: conversion of users' vectors and items, checks of their range, scaling to length 1, and search.

    check_rows    vectors: stack a column of vectors; refuse sparse and masked arrays, datetimes and mappings
    item_list     texts or images: accept a list, a column, or a frame of one column
    check_range   refuse rows whose squared distances overflow, or vanish, in their floating point type
    check_answers refuse results that are not finite
    unit_rows     scale rows to length 1
    RowIndex      find equal rows, by which `forget` finds the examples to remove

Frames and columns of pandas, polars and Arrow are recognised by their methods; none of these packages is imported.
"""

from collections.abc import Iterator, Mapping
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from hyperproto.errors import DataError
from hyperproto.regions.arrays import SHORTEST, Doubles, Floats, Indices, largest_square, shortest_plain
from hyperproto.regions.left_out import projection

LARGEST_SQUARE = {np.dtype(kind): largest_square(kind) for kind in (np.float32, np.float64)}  # of a row that fits
PLAIN_LENGTH = {np.dtype(kind): shortest_plain(kind) for kind in (np.float32, np.float64)}  # squares keep all digits
SAME = 1e-5  # rows whose difference is below this share of their length are equal
LARGEST_FLOAT = int(np.finfo(np.float64).max)
BLOCK = 4096  # rows whose squares are checked one by one
REMEDY = "scale the vectors, or use feature_transform='unit'"
ARROW_TIMES = ("timestamp", "date", "time", "duration")  # how the names of Arrow's types of time begin


def check_rows(X: Any, name: str = "X") -> Any:
    """Return rows of numbers in a form that scikit-learn can convert; messages call them `name`."""
    if type(X) is np.ndarray and X.dtype.kind == "f":
        return X
    if issparse(X):  # a TypeError, as scikit-learn's own checks expect; some sparse matrices are dicts
        raise TypeError(
            f"{name} is a sparse matrix of shape {X.shape}; regions are fitted to dense vectors: give {name}.toarray(),"
            " or reduce the columns first, for example with TruncatedSVD"
        )
    refuse_mapping(X, name)
    X = unmasked(X, name)
    if kind := _time_kind(X):
        raise DataError(f"{name} holds {kind}; a vector is a list of numbers: convert them, or leave them out")
    return _stacked(X, name)


def item_list(X: Any, name: str, kind: str) -> list[Any]:
    """Return a list of items; messages call it `name`, and each item a `kind` ("text" or "image")."""
    refuse_mapping(X, name)
    if is_frame(X):
        if X.shape[1] != 1:
            names = [str(column) for column in getattr(X, "column_names", X.columns)]
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            raise DataError(
                f"{name} is a table of {len(names)} columns ({shown}); give the one that holds the {kind}s, such as "
                f"{name}[{kind if kind in names or not names else names[0]!r}]"
            )
        return column_values(X)
    X = unmasked(X, name)
    if hasattr(X, "to_pylist"):
        return column_values(X)
    shape: tuple[int, ...] = getattr(X, "shape", (0,))
    if len(shape) == 2 and shape[1] == 1 and not issparse(X):
        return [row[0] for row in X]
    if len(shape) != 1:
        raise DataError(f"{name} has shape {shape}; give one {kind} a row: a list of {kind}s, or one column")
    try:
        return list(X)
    except TypeError:
        raise DataError(f"{name} is {short(X)} ({type(X).__name__}); give a list of {kind}s") from None


def refuse_mapping(given: Any, name: str) -> None:
    """Refuse a mapping such as {label: [texts]}, because its keys would be read as items."""
    if isinstance(given, Mapping):
        raise DataError(
            f"{name} is a {type(given).__name__} with {len(given)} keys; give a list of items, and to fit a list of "
            "their labels: X = [item for items in given.values() for item in items], "
            "y = [label for label, items in given.items() for _ in items]"
        )


def unmasked(given: Any, name: str) -> Any:
    """Return a masked array without masked values as a plain array; refuse one that masks any, as NumPy drops masks."""
    if not isinstance(given, np.ma.MaskedArray):
        return given
    if masked := int(np.ma.getmaskarray(given).sum()):
        raise DataError(
            f"{name} is a masked array with {masked} of {given.size} values masked, and NumPy would use the values "
            f"under the mask; leave those rows out, or give {name}.filled(...)"
        )
    return np.asarray(given)


def is_frame(given: Any) -> bool:
    """Return whether `given` is a table of pandas, polars or Arrow."""
    return hasattr(given, "columns") and len(getattr(given, "shape", ())) == 2


def column_values(column: Any) -> list[Any]:
    """Return the values of a column, or of a frame of one column, as Python objects; pandas' NA becomes None."""
    if is_frame(column):
        if hasattr(column, "iloc"):
            column = column.iloc[:, 0]
        else:
            column = column.column(0) if hasattr(column, "column") else column.to_series(0)
    convert = next(name for name in ("to_pylist", "to_list", "tolist") if hasattr(column, name))
    return [None if type(value).__name__ == "NAType" else value for value in getattr(column, convert)()]


def _time_kind(X: Any) -> str:
    """Return "datetimes" or "durations" if the rows hold any, or else ""."""
    dtypes: list[Any]
    if isinstance(X, list | tuple):
        try:
            dtypes = [np.asarray(X[0]).dtype] if len(X) else []
        except ValueError:  # a ragged row, which scikit-learn refuses
            dtypes = []
    elif hasattr(X, "schema"):
        times = [str(kind) for kind in getattr(X.schema, "types", ()) if str(kind).startswith(ARROW_TIMES)]
        return "durations" if "duration" in "".join(times) else "datetimes" if times else ""
    else:
        dtypes = list(X.dtypes) if is_frame(X) else [getattr(X, "dtype", None)]
    kinds = {getattr(dtype, "kind", "") for dtype in dtypes}
    return "datetimes" if "M" in kinds else "durations" if "m" in kinds else ""


def _stacked(X: Any, name: str) -> Any:
    """Return a column of vectors as an array (n, D), and anything else as it is."""
    if isinstance(X, np.ndarray):
        if X.dtype != object or not (X.ndim == 1 or (X.ndim == 2 and X.shape[1] == 1)):
            return X
        values = list(X.ravel())
    elif is_frame(X):
        if X.shape[1] != 1:
            return X
        values = column_values(X)
    elif hasattr(X, "to_pylist") or hasattr(X, "to_list"):
        values = column_values(X)
    else:
        return X
    sizes = [len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in values]
    if not any(size >= 0 for size in sizes):
        return X
    size = max(sizes)
    for number, row in enumerate(values):
        if sizes[number] < 0:
            raise DataError(f"{name}[{number}] is {row!r}; give every row a vector of {size} numbers")
        if sizes[number] != size:
            found = f"{name}[{number}] has {sizes[number]} numbers where others have {size}"
            raise DataError(f"{found}; give vectors of one encoder, all of one length")
    return np.array([np.asarray(row) for row in values])


def check_range(X: Floats, numbers: Indices | None = None, first: bool = False, name: str = "X") -> None:
    """Refuse finite rows whose squared distances overflow; messages call them `name`, and row i `numbers[i]`.

    Small rows beside larger ones are fine, but the `first` rows of a model are refused if the squares of all vanish.
    """
    total = float(np.vdot(X, X))
    if first and total < shortest_plain(X.dtype) ** 2 and X.any():
        row, column = divmod(int(np.abs(X).argmax()), X.shape[1])
        raise DataError(
            f"X[{row}] holds {X[row, column]:.3g}, and no number in X is larger; squares of such numbers vanish in "
            f"{X.dtype}: {REMEDY}"
        )
    if total < LARGEST_SQUARE[X.dtype]:
        return
    for start in range(0, len(X), BLOCK):
        rows = X[start : start + BLOCK]
        with np.errstate(over="ignore", invalid="ignore"):
            fits = np.vecdot(rows, rows) < LARGEST_SQUARE[X.dtype]
        for row in np.flatnonzero(~fits):
            if np.isfinite(rows[row]).all():
                number = start + int(row) if numbers is None else int(numbers[start + row])
                raise DataError(_out_of_range(number, rows[row], name))


def check_integers(X: Any) -> None:
    """Refuse integers that are larger than any float, naming the row."""
    for number, row in enumerate(X):
        for value in np.ravel(np.asarray(row, dtype=object)):
            if isinstance(value, int) and abs(value) > LARGEST_FLOAT:
                digits = int(abs(value).bit_length() * np.log10(2)) + 1  # Python refuses to write very long integers
                raise DataError(f"X[{number}] holds a whole number of {digits} digits; no float is that large")


def check_answers(answers: NDArray[Any], X: Floats, first: int = 0) -> None:
    """Refuse results (n,) or (n, N) that are not finite; they belong to the rows of `X` from `first` on."""
    finite = np.isfinite(answers)
    if not finite.all():
        row = first + int(np.argmin(finite if finite.ndim == 1 else finite.all(axis=1)))
        raise DataError(_out_of_range(row, X[row]))


def _out_of_range(number: int, row: Floats, name: str = "X") -> str:
    """Return the message for a row, with its number and largest value."""
    value = float(row[np.abs(row).argmax()])
    return f"{name}[{number}] holds {value:.3g}; its squared distance cannot be represented in {row.dtype}: {REMEDY}"


def unit_rows(X: Floats, out: Floats | None = None, shortest: float = 0.0) -> Floats:
    """Scale each row to length 1, into `out` if given; rows of length at most `shortest`, or 0, stay unchanged.

    A row whose squares overflow or vanish is first divided by a power of two near its largest number, which is exact.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt(np.vecdot(X, X))
        odd = np.flatnonzero(~((length > max(shortest, PLAIN_LENGTH[X.dtype])) & (length < np.inf)))
        if len(odd):
            peak = np.abs(X[odd]).max(axis=1)
            length[odd] = 1.0
            odd, peak = odd[peak > shortest], peak[peak > shortest]
            X = X.copy()
            X[odd] = np.ldexp(X[odd], -np.frexp(peak)[1][:, None])
            length[odd] = np.sqrt(np.vecdot(X[odd], X[odd]))
        scaled: Floats = np.divide(X, length[:, None], out=out)
    return scaled


def centered_unit_rows(X: Floats, mean: Doubles) -> Floats:
    """Subtract `mean` in double precision, then scale to length 1; remainders of rounding stay small."""
    return unit_rows(X - mean, shortest=SHORTEST * float(np.abs(mean).max())).astype(X.dtype, copy=False)


class RowIndex:
    """Index of rows (n, D), sorted by their projection on one direction, so that a search reads few of them."""

    def __init__(self, kept: Floats) -> None:
        self.kept = kept
        place = projection(kept)
        self._order = np.argsort(place, kind="stable")
        self._sorted = place[self._order]
        self._used: dict[int, int] = {}  # used-up rows at the start of a run of equal ones, by where the run begins

    def find(self, row: Floats, left: NDArray[Any]) -> Iterator[int]:
        """Yield the positions of rows equal to `row`, the nearest first, where `left` (n,) is above 0.

        A caller that asks for the next position must have set `left` to 0 at this one.
        """
        yield from self._identical(row, left)
        [place] = projection(row[None].astype(np.float64))
        reach = 2 * SAME * float(np.linalg.norm(row.astype(np.float64))) * np.sqrt(len(row))  # no direction is longer
        low, high = np.searchsorted(self._sorted, [place - reach, place + reach])
        near = np.sort(self._order[low:high])
        near = near[left[near] > 0]
        yield from near[equal_rows(self.kept[near], row)].tolist()

    def _identical(self, row: Floats, left: NDArray[Any]) -> Iterator[int]:
        """Yield the positions of rows with exactly the same numbers; there may be many."""
        with np.errstate(over="ignore"):
            row = row.astype(self.kept.dtype)
        [place] = projection(row[None])
        start = int(np.searchsorted(self._sorted, place))
        at = start + self._used.get(start, 0)
        while at < len(self._sorted) and self._sorted[at] == place:
            found = int(self._order[at])
            if left[found] > 0:
                if (self.kept[found] == row).all():
                    yield found
            elif at == start + self._used.get(start, 0):
                self._used[start] = at + 1 - start
            at += 1


def equal_rows(kept: Floats, row: Floats) -> Indices:
    """Return the positions of rows of `kept` (n, D) that equal `row`, the nearest first."""
    away = kept - row
    distance2 = np.vecdot(away, away)
    same = np.flatnonzero(distance2 <= SAME**2 * (row @ row))
    return same[np.argsort(distance2[same], kind="stable")]
