"""HypersphereClassifier: few labelled vectors to a working classifier, scikit-learn style, without torch."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.regions import REGIONS
from hyperproto.transforms import TRANSFORMS


class HypersphereClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Classify vectors by the regions of their classes, fitted in closed form.

    Parameters
    ----------
    region : "sphere", "point", "cone" or "gaussian".
    fit_mode : the closed form: "bayes" (sphere only), "unbiased", "paper" (eq. 3), "point" (nearest mean).
    feature_transform : "unit" scales every vector to length 1, "center-unit" subtracts the mean of the class means
        first, "none" or None leaves them alone. (Not called `transform`: scikit-learn takes whatever has that
        attribute for a transformer.)
    squared : measure by the squared distance (sphere and point).

    Attributes
    ----------
    classes_, counts_, centers_, radii_ (what the measure subtracts), extents_ (how far each class reaches).

    Examples
    --------
    >>> from hyperproto import HypersphereClassifier
    >>> X = [[1.0, 0.1], [0.9, 0.2], [1.0, 0.0], [0.1, 1.0]]
    >>> HypersphereClassifier().fit(X, ["cat", "cat", "cat", "dog"]).predict([[0.8, 0.3], [0.2, 0.7]]).tolist()
    ['cat', 'dog']
    """

    def __init__(
        self,
        region: str = "sphere",
        fit_mode: str = "bayes",
        feature_transform: str | None = "unit",
        squared: bool = True,
    ) -> None:
        self.region = region
        self.fit_mode = fit_mode
        self.feature_transform = feature_transform
        self.squared = squared

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a region to the examples of each class; one example is enough, and counts may differ."""
        if self.region not in REGIONS:
            raise ConfigError(unknown_name("region", self.region, REGIONS))
        if self.feature_transform not in (None, *TRANSFORMS):
            raise ConfigError(unknown_name("transform", str(self.feature_transform), TRANSFORMS))
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.counts_ = np.bincount(labels)
        self.mean_ = (X / self.counts_[labels, None]).sum(axis=0) / len(self.classes_)  # of class means: counts differ
        options = {"squared": self.squared} if self.region in ("sphere", "point") else {}
        fit: Any = REGIONS[self.region].fit
        self.region_ = fit(self._transformed(X), labels, len(self.classes_), mode=self.fit_mode, **options)
        self.centers_ = self.region_.center
        self.radii_ = self.region_.bias_radius
        self.extents_ = self.region_.extent_radius
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Name the class of each row: the one with the least measure."""
        best = self._scores(X).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Minus the measure of each class, (n, n_classes); of two classes their difference, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores: NDArray[np.float64] = -self.region_.measure(self._transformed(X))
        return scores

    def _transformed(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.feature_transform in (None, "none"):
            return X
        if self.feature_transform == "center-unit":
            X = X - self.mean_
        length = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.where(length > 0, length, 1.0)
