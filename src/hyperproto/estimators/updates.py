"""Learning and unlearning: examples and classes come and go; the result is that of one fit to those that are left."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted, validate_data

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.labels import IntArray, encode, plain_labels
from hyperproto.estimators.memory import Memory
from hyperproto.estimators.settings import Settings
from hyperproto.estimators.state import FLOATS, State
from hyperproto.estimators.vectors import Floats

Batch = tuple[Floats, list[Any], IntArray, NDArray[np.float64] | None]


class Updates(State):
    """The methods that change what a classifier remembers. A call that fails changes nothing."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a region to the examples of each class; one example is enough, and counts may differ.

        An example of weight w counts as w examples; w need not be whole.
        """
        settings = Settings.of(self)
        batch = self._batch(X, y, sample_weight, reset=True)
        memory = Memory(batch[0].shape[1], batch[0].dtype, settings.unit, settings.store_support)
        with np.errstate(over="ignore", invalid="ignore"):
            memory.add(*batch)
        if not memory.finite:  # as it is not if any row is not
            assert_all_finite(batch[0], estimator_name=type(self).__name__, input_name="X")
        self._memory = memory
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add examples, of old classes or of new ones, as if they had been there from the start.

        `classes` is accepted because scikit-learn's own classifiers need it; this one does not.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, sample_weight)
        self._settings()  # they may have changed
        self._memory.add(*self._batch(X, y, sample_weight))
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take examples away as if they had never been there; a class without examples goes with them.

        With `store_support` each must be one of the examples. Without it nobody can tell: what was never added can be
        taken away too, and leaves nonsense.
        """
        check_is_fitted(self)
        self._memory.forget(*self._batch(X, y, sample_weight))
        return self

    def remove_class(self, label: Any) -> Self:
        """Take a class away with all its examples."""
        check_is_fitted(self)
        self._memory.remove(label.item() if isinstance(label, np.generic) else label)
        return self

    def merge(self, other: "Updates") -> Self:
        """Add everything that another classifier was fitted to; where both know a class, their examples join."""
        check_is_fitted(self)
        check_is_fitted(other)
        ours, theirs = Settings.of(self), Settings.of(other)
        for name in ("transform", "unit", "store_support"):
            if getattr(ours, name) != getattr(theirs, name):
                setting = {"transform": "feature_transform", "unit": "region"}.get(name, name)
                raise ConfigError(
                    f"the two classifiers differ in {setting} ({getattr(self, setting)!r} and "
                    f"{getattr(other, setting)!r}), so they do not remember the same things; fit both alike"
                )
        if self.n_features_in_ != other.n_features_in_:
            raise DataError(
                f"this classifier was fitted to vectors of {self.n_features_in_} numbers, the other to "
                f"{other.n_features_in_}; only those of one encoder can be merged"
            )
        self._memory.absorb(other._memory)
        return self

    def _batch(self, X: Any, y: Any, sample_weight: Any, reset: bool = False) -> Batch:
        """Check examples; one that scikit-learn has seen before is recognised quickly."""
        y = plain_labels(y)
        quick = np.asarray(y) if not reset and self._is_plain(X) else None
        if quick is not None and quick.shape == X.shape[:1] and quick.dtype.kind in "iubU":
            y = quick
        else:
            later = reset and sample_weight is None  # `fit` sees from the means whether all rows are finite
            X, y = validate_data(self, X, y, reset=reset, dtype=FLOATS, ensure_all_finite=not later)
        weights = None if sample_weight is None else _weights(sample_weight, len(X))
        return (X, *encode(y), weights)


def _weights(sample_weight: Any, size: int) -> NDArray[np.float64] | None:
    """Check weights, one a row or one for all; None if all are 1. Errors are ValueErrors, as scikit-learn's are."""
    weights = np.asarray(sample_weight, dtype=np.float64)
    weights = np.full(size, weights) if weights.ndim == 0 else weights
    if weights.shape != (size,):
        raise ValueError(f"sample_weight has shape {weights.shape}, and there are {size} rows; give one number a row")
    if not np.isfinite(weights).all() or (weights < 0).any():
        wrong = int(np.flatnonzero(~np.isfinite(weights) | (weights < 0))[0])
        raise ValueError(f"sample_weight[{wrong}] is {weights[wrong]}; a weight is how often a row counts: 0 or more")
    if not weights.any():
        raise ValueError("every sample_weight is zero, so there is nothing to learn from; give one above 0")
    return None if (weights == 1).all() else weights
