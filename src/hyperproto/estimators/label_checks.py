"""Warn of labels and examples that are probably slips, and refuse names that would add a class unseen.

check_names       refuse a name whose label differs from a class only in being a number or a string
warn_of_labels    new labels that stand for a missing value, or that differ from a class in spelling only
warn_of_items     one text, or path, under two labels
warn_of_one_class a classifier that can give one answer only
"""

import math
import sys
import warnings
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from reprlib import repr as short
from typing import Any
from unicodedata import normalize

from hyperproto.errors import DataError
from hyperproto.estimators.memory import LABEL_TYPES
from hyperproto.regions.arrays import Doubles, Indices

MISSING = ("NaN", "nan", "None", "<NA>", "NaT")  # how str() and pandas write a missing value


def check_name_label(label: Any) -> None:
    """Refuse a label of `names` that cannot be the label of a class; NaN is equal to no label, not even to itself."""
    if not isinstance(label, LABEL_TYPES) or label != label:
        raise DataError(f"names has a label {label!r} ({type(label).__name__}); one is a string or a number")


def check_names(declared: Iterable[Any], known: Container[Any]) -> None:
    """Refuse names of new classes where the other spelling of the label, as string or number, is a class in `known`."""
    for label in declared:
        twin = next((other for other in other_types(label) if other in known), None)
        if label not in known and twin is not None:
            raise DataError(
                f"names has the label {label!r} ({type(label).__name__}), and there is a class {twin!r} "
                f"({type(twin).__name__}); write {twin!r} in names, or else give the new class another label"
            )


def warn_of_labels(new: Sequence[Any], known: Collection[Any]) -> None:
    """Warn of `new` labels that look like missing values, or like another new label or one in `known`."""
    missing = [label for label in new if isinstance(label, str) and (not label.strip() or label in MISSING)]
    if missing:
        _warn(
            f"{_listed(missing)} became a class, and looks like a missing label; give such rows the label None, which "
            "marks them as unlabelled, or leave them out"
        )
    seen: dict[str, Any] = {}
    for label in new:
        other = seen.setdefault(plain_spelling(label), label)
        if other is label and known:
            other = next((twin for twin in near_spellings(label) if twin != label and twin in known), label)
        if other is not label:
            _warn(
                f"the labels {other!r} and {label!r} differ only in spaces, in Unicode form or in being a number or a "
                "string, and are two classes; if they are one, write them alike"
            )


def warn_of_items(items: Mapping[int, str], labels: Sequence[Any], codes: Indices, weights: Doubles | None) -> None:
    """Warn of items, by row, that come under two labels; rows of weight 0 do not count."""
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
    """Warn of a classifier with a single class and no coverage."""
    if len(labels) == 1:
        label = next(iter(labels))
        _warn(
            f"there is one class only, {label!r}, and every row will be given it; add examples of another class, or "
            "set coverage to reject what is unlike it"
        )


def plain_spelling(label: Any) -> str:
    """Return a label as a string in Unicode's composed form, without spaces at its ends.

    >>> plain_spelling(" cafe\\u0301 ") == plain_spelling("caf\\u00e9"), plain_spelling(3)
    (True, '3')
    """
    text = str(label).strip()
    return text if text.isascii() else normalize("NFC", text)


def near_spellings(label: Any) -> list[Any]:
    """Return labels that may be meant by this one: with and without a space, in both Unicode forms, of another type."""
    if not isinstance(label, str):
        return other_types(label)
    text = label.strip()
    forms = sorted({normalize(form, text) for form in ("NFC", "NFD")})
    return [spelled for form in forms for spelled in (form, f"{form} ", f" {form}")] + other_types(text)


def other_types(label: Any) -> list[Any]:
    """Return the string that a number is written as, or the number that a string writes.

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


def _listed(labels: Sequence[Any]) -> str:
    return ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")


def _warn(message: str) -> None:
    """Warn at the line outside this package that called it."""
    depth = 1
    while sys._getframe(depth).f_globals.get("__name__", "").startswith("hyperproto.") and sys._getframe(depth).f_back:
        depth += 1
    warnings.warn(message, UserWarning, stacklevel=depth + 1)
