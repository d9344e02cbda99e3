"""The feature transforms for other people's classifiers, so that every method sees the vectors that ours do."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import normalize


class Features(TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """`none`, `unit`, or `center-unit`, which first subtracts the mean of the class means of the support."""

    def __init__(self, name: str = "none") -> None:
        self.name = name

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Find what to subtract."""
        self.mean_ = np.mean([X[y == label].mean(axis=0) for label in np.unique(y)], axis=0)
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Transform rows."""
        if self.name == "none":
            return X
        moved = X - self.mean_ if self.name == "center-unit" else X
        unit: NDArray[Any] = normalize(moved)
        return unit
