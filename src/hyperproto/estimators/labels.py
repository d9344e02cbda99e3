"""Labels of any kind: strings, numbers, or both. Each class has a slot, in order of its first example."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from hyperproto.errors import DataError

IntArray = NDArray[np.intp]
LABEL_TYPES = (str, int, float, bool)  # also what JSON can hold


def plain_labels(y: Any) -> Any:
    """Keep a list of strings and numbers as it is; NumPy would make strings of the numbers."""
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) == 2:
        array = np.empty(len(y), dtype=object)
        array[:] = y
        return array
    return y


def encode(y: NDArray[Any]) -> tuple[list[Any], IntArray]:
    """The different labels, as plain Python values, and which of them each row has."""
    if y.dtype != object:
        if y.dtype.kind not in "iubU":
            check_classification_targets(y)
        if len(y) == 1:  # the usual update
            return y.tolist(), np.zeros(1, dtype=np.intp)
        if y.dtype.kind in "iu" and (low := int(y.min())) + 4 * len(y) > (high := int(y.max())):
            return _encode_near(y, low, high)
        values, codes = np.unique(y, return_inverse=True)
        return values.tolist(), codes
    slots: dict[Any, int] = {}
    codes = np.empty(len(y), dtype=np.intp)
    for row, label in enumerate(y.tolist()):
        if isinstance(label, np.generic):
            label = label.item()
        if not isinstance(label, LABEL_TYPES):
            raise DataError(f"y[{row}] is {label!r} ({type(label).__name__}); a label is a string or a number")
        codes[row] = slots.setdefault(label, len(slots))
    return list(slots), codes


def _encode_near(y: NDArray[Any], low: int, high: int) -> tuple[list[Any], IntArray]:
    """The same for whole numbers that lie close together, without sorting."""
    place = (y - low).astype(np.intp)
    present = np.zeros(high - low + 1, dtype=bool)
    present[place] = True
    return (np.flatnonzero(present) + low).tolist(), (np.cumsum(present) - 1)[place]


def sort_order(labels: Sequence[Any]) -> IntArray:
    """The order of labels: numbers by size, then strings by the alphabet."""
    return np.array(sorted(range(len(labels)), key=lambda i: (isinstance(labels[i], str), labels[i])), dtype=np.intp)


def label_array(labels: Iterable[Any]) -> NDArray[Any]:
    """An array of labels, of dtype object only if strings and numbers, or truth values and numbers, are mixed."""
    labels = list(labels)
    if len({str if isinstance(label, str) else bool if isinstance(label, bool) else int for label in labels}) > 1:
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
        return array
    return np.array(labels)
