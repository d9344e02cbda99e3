"""Class labels: conversion and encoding, order, the reject label, and warnings about probable mistakes.

A label is a string, a number or a truth value. None, or the classifier's `unlabelled_label`, marks a row without one.
"""

import math
import sys
import warnings
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from reprlib import repr as short
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from hyperproto.data.formats.items import label_array
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.inputs import column_values, is_frame, unmasked
from hyperproto.regions.arrays import Doubles, Indices

LABEL_TYPES = (str, int, float, bool)  # also what JSON can hold
MISSING = ("NaN", "nan", "None", "<NA>", "NaT")  # how str() and pandas write a missing value


def plain_label(label: Any) -> Any:
    """Return a label as a Python value instead of a NumPy scalar."""
    return label.item() if isinstance(label, np.generic) else label


def plain_labels(y: Any) -> Any:
    """Return labels in a form in which NumPy keeps their types; columns of pandas, polars and Arrow keep their values.

    Given strings and numbers in one list, NumPy would convert the numbers to strings.
    """
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


def encode_labels(y: NDArray[Any]) -> tuple[list[Any], Indices]:
    """Return the distinct labels as Python values, and the index of each row's label among them (n,)."""
    if y.dtype != object:
        if y.dtype.kind in "mM":
            raise DataError(
                f"y holds dates or durations ({y.dtype}); a label is a string or a number: give y.astype(str)"
            )
        if y.dtype.kind not in "iubU":
            check_classification_targets(y)
        if len(y) == 1:  # the usual update
            return y.tolist(), np.zeros(1, dtype=np.intp)
        if y.dtype.kind in "iu" and (low := int(y.min())) + 4 * len(y) > (high := int(y.max())):
            place = (y - low).astype(np.intp)  # integers that lie close together need no sorting
            present = np.zeros(high - low + 1, dtype=bool)
            present[place] = True
            return (np.flatnonzero(present) + low).tolist(), (np.cumsum(present) - 1)[place]
        values, codes = np.unique(y, return_inverse=True)
        return values.tolist(), codes
    slots: dict[Any, int] = {}
    codes = np.empty(len(y), dtype=np.intp)
    for row, value in enumerate(y.tolist()):
        label = plain_label(value)
        if not isinstance(label, LABEL_TYPES):
            raise DataError(f"y[{row}] is {label!r} ({type(label).__name__}); a label is a string or a number")
        codes[row] = slots.setdefault(label, len(slots))
    return list(slots), codes


def without_label(y: NDArray[Any], unlabelled_label: Any = None) -> NDArray[np.bool_] | None:
    """Return a mask of the rows whose label is None or `unlabelled_label` (n,), or None if every row has a label."""
    if y.dtype != object and unlabelled_label is None:
        return None
    mark = unlabelled_label
    found = np.array([each is None or bool(mark is not None and each == mark) for each in y.tolist()], dtype=bool)
    return found if found.any() else None


def sorted_labels(labels: Sequence[Any]) -> tuple[Indices, NDArray[Any]]:
    """Return the permutation that sorts labels (numbers by value, then strings), and the sorted array of labels."""
    order = sorted(range(len(labels)), key=lambda i: (isinstance(labels[i], str), labels[i]))
    return np.array(order, dtype=np.intp), label_array([labels[i] for i in order])


def with_reject_label(classes: list[Any], reject_label: Any) -> NDArray[Any]:
    """Return the class labels followed by the reject label; "auto" is -1 among numbers, else "none of these"."""
    label = reject_label
    if isinstance(label, str) and label == "auto":
        label = "none of these" if any(isinstance(name, str) for name in classes) else -1
    if not isinstance(label, LABEL_TYPES) or label != label:
        raise ConfigError(f"reject_label={label!r}: give a string or a number")
    if label in classes:
        raise ConfigError(f"reject_label={label!r} is also a class; choose a label that no class has")
    return label_array([*classes, label])


def check_labels(batch: Any, known: Collection[Any], estimator: Any, first: bool = False) -> None:
    """Refuse or warn of labels of a `Batch` that are probably mistakes; `known` are the labels of earlier calls.

    `first` says that the classifier has no other classes and that none may follow.
    """
    no_rule = estimator.coverage is estimator.reject_rate is estimator.precision is None
    rejects = not no_rule or batch.outside is not None or bool(known and estimator._state.outside.size)
    labels = batch.labels
    if batch.weights is not None and labels:  # a row of weight 0 makes no class
        labels = [labels[code] for code in np.unique(batch.codes[batch.weights > 0])]
    labels = list(dict.fromkeys([*labels, *batch.declared]))
    new = [label for label in labels if label not in known]
    if batch.declared:
        check_names(batch.declared, {*known, *batch.labels})
    if rejects and new:
        with_reject_label([*known, *labels], estimator.reject_label)
    warn_of_labels(new, known)
    if batch.items:
        warn_of_items(batch.items, batch.labels, batch.codes, batch.weights)
    if first and not rejects:
        warn_of_one_class(labels)


def check_name_label(label: Any) -> None:
    """Refuse a key of `names` that cannot be the label of a class; NaN is not equal to itself."""
    if not isinstance(label, LABEL_TYPES) or label != label:
        raise DataError(f"names has a label {label!r} ({type(label).__name__}); a label is a string or a number")


def check_names(declared: Iterable[Any], known: Container[Any]) -> None:
    """Refuse names of new classes if `known` holds the same label as a number instead of a string, or vice versa."""
    for label in declared:
        twin = next((other for other in other_types(label) if other in known), None)
        if label not in known and twin is not None:
            raise DataError(
                f"names has the label {label!r} ({type(label).__name__}), and there is a class {twin!r} "
                f"({type(twin).__name__}); write {twin!r} in names, or give the new class another label"
            )


def warn_of_labels(new: Sequence[Any], known: Collection[Any]) -> None:
    """Warn of `new` labels that look like missing values, or like another new label or one in `known`."""
    missing = [label for label in new if isinstance(label, str) and (not label.strip() or label in MISSING)]
    if missing:
        listed = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
        _warn(
            f"{listed} became a class, and looks like a missing label; give such rows the label None, which "
            "marks them as unlabelled, or leave them out"
        )
    seen: dict[str, Any] = {}
    for label in new:
        other = seen.setdefault(plain_spelling(label), label)
        if other is label and known:
            other = next((twin for twin in similar_spellings(label) if twin != label and twin in known), label)
        if other is not label:
            _warn(
                f"the labels {other!r} and {label!r} differ only in spaces, in Unicode form or in being a number or a "
                "string, and are two classes; if they are one, write them alike"
            )


def warn_of_items(items: Mapping[int, str], labels: Sequence[Any], codes: Indices, weights: Doubles | None) -> None:
    """Warn of items, by row, that have two labels; rows of weight 0 do not count."""
    first: dict[str, int] = {}
    twice: dict[str, tuple[int, int]] = {}
    for row, item in items.items():
        if weights is None or weights[row] > 0:
            code = int(codes[row])
            before = first.setdefault(item, code)
            if before != code:
                twice.setdefault(item, (before, code))
    if twice:
        item, (one, other) = next(iter(twice.items()))
        number = f"{len(twice)} items have two labels, such as" if len(twice) > 1 else "one item has two labels:"
        _warn(f"{number} {short(item)} under {labels[one]!r} and {labels[other]!r}; keep the one that is right")


def warn_of_one_class(labels: Collection[Any]) -> None:
    """Warn of a classifier with a single class and no rule of rejection."""
    if len(labels) == 1:
        _warn(
            f"there is only one class, {next(iter(labels))!r}, and `predict` always returns it; add examples of "
            "another class, or set coverage or reject_rate to reject rows that are unlike it"
        )


def plain_spelling(label: Any) -> str:
    """Return a label as a string in Unicode's composed form, without spaces at its ends.

    >>> plain_spelling(" cafe\\u0301 ") == plain_spelling("caf\\u00e9"), plain_spelling(3)
    (True, '3')
    """
    text = str(label).strip()
    return text if text.isascii() else normalize("NFC", text)


def similar_spellings(label: Any) -> list[Any]:
    """Return other spellings of a label: with and without spaces, in both Unicode forms, as another type."""
    if not isinstance(label, str):
        return other_types(label)
    text = label.strip()
    forms = sorted({normalize(form, text) for form in ("NFC", "NFD")})
    return [spelled for form in forms for spelled in (form, f"{form} ", f" {form}")] + other_types(text)


def other_types(label: Any) -> list[Any]:
    """Return a number's spellings as a string, or the number that a string spells.

    >>> other_types("3"), other_types(3), other_types(3.0), other_types("three")
    ([3], ['3'], ['3.0', '3'], [])
    """
    if isinstance(label, bool):
        return [str(label)]
    if isinstance(label, int | float):
        whole = isinstance(label, float) and label.is_integer()
        return [str(label), *([str(int(label))] if whole else [])]
    try:
        number = float(label) if len(label) < 25 and label.isascii() else math.nan
    except ValueError:
        return []
    if not math.isfinite(number):
        return []
    return [int(number) if number.is_integer() and not number > 2**53 else number]


def _warn(message: str) -> None:
    """Warn at the line outside this package from which it was called."""
    depth = 1
    while sys._getframe(depth).f_globals.get("__name__", "").startswith("hyperproto.") and sys._getframe(depth).f_back:
        depth += 1
    warnings.warn(message, UserWarning, stacklevel=depth + 1)
