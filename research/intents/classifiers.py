"""HypersphereClassifier with every region and fit, and scikit-learn's classifiers, each with every transform."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from hyperproto import HypersphereClassifier
from hyperproto.regions import REGIONS
from hyperproto.registry import TRANSFORMS

STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # C, of which cross-validation chooses
PLAIN = 1.0  # C where no class has two examples
SHRINKAGES = (0.1, 0.5, 0.9)
BALANCED = "balanced_accuracy"  # what is cross-validated: the test texts are about as many of each class
FOLDS = 3
EXACT = 1e-6  # where logistic regression stops; at scikit-learn's default it stops long before it is fitted
OURS = "hypersphere sphere bayes"

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Candidate:
    """A method with a transform; `make(labels)` returns a model, or None if the support does not allow one."""

    method: str
    transform: str
    make: Callable[[Labels], Any]
    twin: str | None = None  # the method that it is where all classes have as many examples


def candidates(prior_ratio: float) -> list[Candidate]:
    """Return every candidate."""
    found = []
    for transform in TRANSFORMS:
        for region, cls in REGIONS.items():
            for mode in cls.modes:
                settings: dict[str, Any] = {"region": region, "fit_mode": mode, "feature_transform": transform}
                settings["prior_ratio"] = prior_ratio
                found.append(Candidate(f"hypersphere {region} {mode}", transform, _ours(settings)))
        for name, make in BASELINES.items():
            found.append(Candidate(name, transform, _behind(transform, make), TWINS.get(name)))
    return found


def _ours(settings: dict[str, Any]) -> Callable[[Labels], Any]:
    return lambda y: HypersphereClassifier(**settings)


def _behind(transform: str, make: Callable[[Labels], Any]) -> Callable[[Labels], Any]:
    def made(y: Labels) -> Any:
        classifier = make(y)
        return None if classifier is None else make_pipeline(SupportTransform(transform), classifier)

    return made


class SupportTransform(TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Feature transform for scikit-learn's classifiers: `none`, `unit` or `center-unit`.

    `center-unit` first subtracts the mean of the class means of the support, as HypersphereClassifier does.
    """

    def __init__(self, name: str = "none") -> None:
        self.name = name

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Compute the mean of class means that `center-unit` subtracts."""
        self.mean_ = np.mean([X[y == label].mean(axis=0) for label in np.unique(y)], axis=0)
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Transform rows (n, D)."""
        if self.name == "none":
            return X
        moved = X - self.mean_ if self.name == "center-unit" else X
        unit: NDArray[Any] = normalize(moved)
        return unit


class CosinePrototypes(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Classifier by the largest cosine to the mean of a class's unit vectors."""

    def fit(self, X: NDArray[Any], y: Labels) -> Self:
        """Compute the prototypes."""
        self.classes_ = np.unique(y)
        unit = normalize(X)
        self.centers_ = normalize(np.stack([unit[y == label].mean(axis=0) for label in self.classes_]))
        return self

    def decision_function(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the cosines (n, N)."""
        cosines: NDArray[Any] = normalize(X) @ self.centers_.T
        return cosines

    def predict(self, X: NDArray[Any]) -> Labels:
        """Return the class of the largest cosine."""
        predicted: Labels = self.classes_[self.decision_function(X).argmax(axis=1)]
        return predicted


def folds(y: Labels) -> PredefinedSplit | None:
    """Split for cross-validation: examples of a class go to the folds in turn; a single example is always for training.

    Return None if every class has a single example.
    """
    fold = np.full(len(y), -1)  # always in the training part
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        if len(own) > 1:
            fold[own] = np.arange(len(own)) % FOLDS
    return PredefinedSplit(fold) if (fold >= 0).any() else None


def logistic(y: Labels, class_weight: str | None = None) -> Any:
    """Return logistic regression, its strength chosen by cross-validation if a class has two examples."""
    model = LogisticRegression(C=PLAIN, class_weight=class_weight, max_iter=1000, tol=EXACT)
    split = folds(y)
    return model if split is None else GridSearchCV(model, {"C": STRENGTHS}, cv=split, scoring=BALANCED)


def discriminant(y: Labels, shrinkage: str | float = "auto") -> Any:
    """Return discriminant analysis with a shrunken covariance and uniform priors; None without enough examples."""
    way = len(np.unique(y))
    if len(y) <= way:
        return None
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=np.full(way, 1 / way))


def searched_discriminant(y: Labels) -> Any:
    """Return discriminant analysis with the shrinkage chosen by cross-validation, if the folds allow it."""
    model, split = discriminant(y, 0.5), folds(y)
    if model is None or split is None or min(len(train) for train, _ in split.split()) <= len(np.unique(y)):
        return model
    return GridSearchCV(model, {"shrinkage": SHRINKAGES}, cv=split, scoring=BALANCED)


BASELINES: dict[str, Callable[[Labels], Any]] = {
    "nearest centroid": lambda y: NearestCentroid(),
    "cosine prototypes": lambda y: CosinePrototypes(),
    "1 nearest neighbour": lambda y: KNeighborsClassifier(1),
    "5 nearest neighbours": lambda y: KNeighborsClassifier(5),
    "logistic regression": logistic,
    "logistic regression, balanced": lambda y: logistic(y, "balanced"),
    "discriminant analysis, auto": discriminant,
    "discriminant analysis": searched_discriminant,
    "naive Bayes": lambda y: GaussianNB(),
}
TWINS = {"logistic regression, balanced": "logistic regression"}
