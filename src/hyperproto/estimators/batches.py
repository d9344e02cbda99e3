"""Validated input of the calls of a classifier: examples, weights, unlabelled rows and class names.

scikit-learn's validation converts the rows. Arrays that need no conversion skip it, which saves most of the time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.validation import validate_data

from hyperproto.errors import DataError
from hyperproto.estimators.inputs import LARGEST_SQUARE, check_integers, check_range, check_rows, unmasked
from hyperproto.estimators.labels import check_name_label, encode_labels, plain_label, plain_labels, without_label
from hyperproto.regions.arrays import Doubles, Floats, Indices

FLOATS = [np.float64, np.float32]  # float32 stays as it is, anything else becomes float64
LARGEST_WEIGHT = 1e100  # in `score`: products of larger numbers overflow
LIGHTEST, HEAVIEST = 1e-5, 1e9  # range of the largest weight of a call: a weight is a number of examples
LARGEST_RATIO = 1e12  # of two weights: float64 has 16 digits, and sums and squares need some of them

Names = tuple[Mapping[Any, Floats], Collection[Any]]  # vectors by label; labels that are classes without any example


@dataclass(frozen=True, eq=False)
class Batch:
    """Validated input of one call of `fit`, `partial_fit` or `forget`."""

    rows: Floats  # (n, D)
    labels: list[Any]  # distinct labels
    codes: Indices  # (n,) index of each row's label
    weights: Doubles | None  # (n,); None: all are 1
    unlabelled: Floats | None = None  # (U, D)
    names: Mapping[Any, Floats] = field(default_factory=dict)  # vectors (D,) by label
    declared: Collection[Any] = ()  # labels that are classes without any example
    items: Mapping[int, str] = field(default_factory=dict)  # texts or paths of rows, by position
    has_evidence: bool = False  # whether there are names or unlabelled rows
    outside: Floats | None = None  # (O, D) out-of-class rows


def read_batch(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    names: Mapping[Any, Any] | Callable[[Sequence[Any]], Names] | None,
    unlabelled: Any,
    outside: Any = None,
    *,
    items: Mapping[int, str] | None = None,
    reset: bool = False,
) -> Batch:
    """Validate all input of a call that learns; `reset` marks a first fit.

    `names` is a mapping from labels to vectors, or a function that returns `Names` for the labels of the call.
    """
    if X is not None and not _is_float_array(X):
        X = check_rows(X)
    others = None if unlabelled is None else _read_more(estimator, unlabelled, "unlabelled")
    beyond = None if outside is None else _read_more(estimator, outside, "outside")
    no_rows = X is None or (hasattr(X, "__len__") and len(X) == 0)
    vectors, declared = _read_names(names, []) if no_rows else ({}, ())
    if no_rows and (vectors or (not reset and not (others is None and beyond is None))):
        if y is not None and len(y):
            raise DataError(f"there are no rows for {len(y)} labels; give one row a label")
        if reset:
            estimator.n_features_in_ = len(next(iter(vectors.values()))) if others is None else others.shape[1]
            vars(estimator).pop("feature_names_in_", None)
        empty = np.empty((0, estimator.n_features_in_), np.float64 if others is None else others.dtype)
        batch = Batch(empty, [], np.empty(0, np.intp), None)
    elif X is None:
        raise DataError("X is None; give rows and their labels, or names of all classes")
    else:
        batch = read_examples(estimator, X, y, sample_weight, reset)
        if batch.unlabelled is not None:
            others = batch.unlabelled if others is None else np.concatenate([batch.unlabelled, others])
        if names is not None:
            vectors, declared = _read_names(names, batch.labels)
    _check_widths(batch.rows.shape[1], vectors, unlabelled=others, outside=beyond)
    if others is None and beyond is None and not vectors and not items:
        return batch
    evidence = others is not None or bool(vectors)
    parts: dict[str, Any] = {"names": vectors, "declared": declared, "items": items or {}, "has_evidence": evidence}
    return replace(batch, unlabelled=others, outside=beyond, **parts)


def _check_widths(size: int, names: Mapping[Any, Floats], **given: Floats | None) -> None:
    """Refuse rows and names that have another length than the examples."""
    for name, rows in given.items():
        if rows is not None and rows.shape[1] != size:
            raise DataError(
                f"{name} rows have {rows.shape[1]} numbers, and the examples {size}; use vectors of one encoder"
            )
    for label, vector in names.items():
        if vector.shape != (size,):
            raise DataError(
                f"the name of {label!r} is an array of shape {vector.shape}; a name is a vector of "
                f"{size} numbers, as the examples are"
            )


def read_examples(estimator: Any, X: Any, y: Any, sample_weight: Any, reset: bool = False) -> Batch:
    """Validate rows, labels and weights.

    Rows without a label get weight 0 among the examples and are returned again as `unlabelled`.
    """
    y = y if type(y) is np.ndarray else plain_labels(y)
    quick = None
    if not reset and _is_plain(estimator, X):
        with suppress(ValueError):  # rows of different lengths, which scikit-learn refuses below
            quick = np.asarray(y)
    if quick is not None and quick.shape == X.shape[:1] and quick.dtype.kind in "iubU":
        y = quick
    else:
        later = reset and sample_weight is None  # `fit` finds rows that are not finite by the means
        X, y = validated(estimator, X, y, reset=reset, ensure_all_finite=not later)
    weights = None if sample_weight is None else read_weights(sample_weight, len(X), HEAVIEST)
    if weights is not None:
        _check_weight_range(weights)
    missing = without_label(y, estimator.unlabelled_label)
    if missing is None:
        return Batch(X, *encode_labels(y), weights)
    rows = X[missing]
    assert_all_finite(rows, estimator_name=type(estimator).__name__, input_name="X")
    labels, found = encode_labels(y[~missing]) if not missing.all() else ([], np.empty(0, np.intp))
    codes = np.zeros(len(y), np.intp)
    codes[~missing] = found
    return Batch(X, labels, codes, np.where(missing, 0.0, 1.0 if weights is None else weights), rows)


def read_rows(estimator: Any, X: Any, scaled: bool) -> Floats:
    """Validate rows to predict; `scaled` says that they will be scaled to length 1, so that none is too large."""
    if _is_plain(estimator, X):
        return X  # type: ignore[no-any-return]
    rows: Floats = validated(estimator, X, reset=False)
    if not scaled:
        check_range(rows)
    return rows


def read_weights(sample_weight: Any, size: int, heaviest: float = LARGEST_WEIGHT) -> Doubles | None:
    """Validate weights, one per row or one for all; return None if all are 1.

    Errors are ValueErrors, as those of scikit-learn are.
    """
    weights = np.asarray(unmasked(sample_weight, "sample_weight"), dtype=np.float64)
    weights = np.full(size, weights) if weights.ndim == 0 else weights
    if weights.shape != (size,):
        raise ValueError(f"sample_weight has shape {weights.shape}, and there are {size} rows; give one number a row")
    fits = (weights >= 0) & (weights <= heaviest)
    if not fits.all():
        wrong = int(np.argmin(fits))
        raise ValueError(
            f"sample_weight[{wrong}] is {weights[wrong]}; a weight is how often a row counts: from 0 to {heaviest:g}"
        )
    if not weights.any():
        raise ValueError("every sample_weight is zero, so there is nothing to learn from; give one above 0")
    return None if (weights == 1).all() else weights


def _check_weight_range(weights: Doubles) -> None:
    """Refuse weights that are all tiny, or so different that float64 loses the smaller ones."""
    most, least = int(np.argmax(weights)), int(np.argmin(np.where(weights > 0, weights, np.inf)))
    if weights[most] < LIGHTEST:
        raise ValueError(
            f"the largest sample_weight is {weights[most]:g}; a weight is how often a row counts, and the sum must be "
            f"at least {LIGHTEST:g} examples: multiply all weights by one number"
        )
    if weights[most] > LARGEST_RATIO * weights[least]:
        raise ValueError(
            f"sample_weight[{most}] is {weights[most]:g} and sample_weight[{least}] is {weights[least]:g}; beyond a "
            f"ratio of {LARGEST_RATIO:g} the smaller one is lost to rounding: set it to 0"
        )


def validated(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """Validate and convert rows, and labels, by scikit-learn."""
    X = X if _is_float_array(X) else check_rows(X)
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn sums large numbers
            return validate_data(estimator, X, *y, dtype=FLOATS, **options)
    except OverflowError:  # an integer of more than 308 digits
        check_integers(X)
        raise


def _is_float_array(X: Any) -> bool:
    return type(X) is np.ndarray and X.dtype.kind == "f"


def _is_plain(estimator: Any, X: Any) -> bool:
    """Return whether rows need no validation by scikit-learn."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype in FLOATS
        and len(X) > 0
        and X.shape[1] == getattr(estimator, "n_features_in_", -1)
        and not hasattr(estimator, "feature_names_in_")
        and bool(np.vdot(X, X) < LARGEST_SQUARE[X.dtype])  # then all rows are finite and no squared distance overflows
    )


def _read_more(estimator: Any, rows: Any, name: str) -> Floats:
    """Validate unlabelled or out-of-class rows, except for their width; messages call them `name`."""
    try:
        found: Floats = check_array(check_rows(rows, name), dtype=FLOATS, input_name=name, estimator=estimator)
    except OverflowError:  # an integer of more than 308 digits
        raise DataError(f"{name} holds a number that is too large for float64; scale the rows") from None
    return found


def _read_names(names: Any, labels: Sequence[Any]) -> Names:
    """Return the vectors of class names, and which labels they declare as classes; see `read_batch`."""
    if callable(names):
        found: Names = names(labels)
        return found
    vectors = name_vectors(names)
    return vectors, vectors.keys()


def name_vectors(names: Any) -> dict[Any, NDArray[np.float64]]:
    """Validate a mapping from labels to vectors, except for their width."""
    if names is None:
        return {}
    if not isinstance(names, Mapping):
        raise DataError(f"names is a {type(names).__name__}; give a mapping from labels to vectors")
    vectors: dict[Any, NDArray[np.float64]] = {}
    for key, vector in names.items():
        label = plain_label(key)
        check_name_label(label)
        try:
            found = np.asarray(vector, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise DataError(
                f"the name of {label!r} is {short(vector)}; here a name is a vector of numbers, as float64 has"
            ) from None
        if not np.isfinite(found).all():
            raise DataError(f"the name of {label!r} holds a number that is not finite; give another vector")
        vectors[label] = found
    return vectors
