"""Convert vectors, labels and items as users hold them, and refuse what would be misread.

    check_rows    vectors: a column of vectors is stacked; sparse and masked arrays, datetimes and mappings are refused
    plain_labels  labels: columns of pandas, polars and Arrow keep their values; a missing one is None
    item_list     texts or images: a list, a column, or a frame of one column

Frames and columns are recognised by their methods; none of their packages is imported.
"""

from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

import numpy as np
from scipy.sparse import issparse

from hyperproto.errors import DataError

ARROW_TIMES = ("timestamp", "date", "time", "duration")  # how the names of Arrow's types of time begin


def check_rows(X: Any, name: str = "X") -> Any:
    """Return rows of numbers in a form that scikit-learn converts; `name` is the argument, for messages."""
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


def plain_labels(y: Any) -> Any:
    """Return labels so that none changes its type: NumPy makes strings, or floats, of labels of two types."""
    y = unmasked(y, "y")
    dtype = getattr(y, "dtype", None)
    if is_frame(y):
        y = column_values(y) if y.shape[1] == 1 else y
    elif hasattr(y, "to_pylist") or (dtype is not None and not isinstance(dtype, np.dtype)):
        y = column_values(y)
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) == 2:
        array = np.empty(len(y), dtype=object)
        array[:] = y
        return array
    return y


def item_list(X: Any, name: str, kind: str) -> list[Any]:
    """Return a list of items; `kind` is "text" or "image", and `name` the argument, for messages."""
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
    """Refuse a mapping such as {label: [texts]}, whose keys would be read as items."""
    if isinstance(given, Mapping):
        raise DataError(
            f"{name} is a {type(given).__name__} with {len(given)} keys; give a list of items, and to fit a list of "
            "their labels: X = [item for items in given.values() for item in items], "
            "y = [label for label, items in given.items() for _ in items]"
        )


def unmasked(given: Any, name: str) -> Any:
    """Return the numbers of a masked array that masks nothing; refuse one that does, as its mask would be lost."""
    if not isinstance(given, np.ma.MaskedArray):
        return given
    if masked := int(np.ma.getmaskarray(given).sum()):
        raise DataError(
            f"{name} is a masked array with {masked} of {given.size} values masked, and what is under the mask would "
            f"be used; leave those rows out, or give {name}.filled(...)"
        )
    return np.asarray(given)


def is_missing(value: Any) -> bool:
    """Return whether a value stands for a missing one: None, NaN, or NA and NaT of pandas."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def is_frame(given: Any) -> bool:
    """Return whether this is a table of pandas, polars or Arrow."""
    return hasattr(given, "columns") and len(getattr(given, "shape", ())) == 2


def column_values(column: Any) -> list[Any]:
    """Return the values of a column, or of a frame's only one, as Python objects; NA of pandas is None."""
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
