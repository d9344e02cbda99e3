"""Our classifier, logistic regression and self-training behind the interface of `worker`."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import SelfTrainingClassifier

from hyperproto import HypersphereClassifier
from research.intents.classifiers import EXACT
from research.intents.evidence import SELF_TRAINING

Rows = NDArray[Any]


class Ours:
    """HypersphereClassifier; `names` (N, D) are vectors of the names of all classes."""

    def __init__(self, refine: bool = False, names: Rows | None = None, unlabelled: Rows | None = None) -> None:
        self.refine, self.names, self.unlabelled = refine, names, unlabelled

    def fit(self, texts: Sequence[str], x: Rows, y: Rows) -> None:
        """Fit to examples."""
        self.model = HypersphereClassifier(refine=self.refine)
        self.model.fit(x, y, names=self._names(y), unlabelled=self.unlabelled)

    def add(self, texts: Sequence[str], x: Rows, y: Rows) -> None:
        """Add examples of new classes."""
        self.model.partial_fit(x, y, names=self._names(y))

    def answer(self, texts: Sequence[str], x: Rows) -> dict[str, Any]:
        """Return the likeliest class, its probability and `novelty`."""
        return {**likeliest(self.model, x), "novelty": self.model.novelty(x)}

    def _names(self, y: Rows) -> dict[int, Rows] | None:
        return None if self.names is None else {label: self.names[label] for label in np.unique(y).tolist()}


class Learn:
    """Balanced logistic regression of a `strength` C, self-trained if there are `unlabelled` rows."""

    def __init__(self, strength: float, unlabelled: Rows | None = None) -> None:
        self.strength, self.unlabelled = strength, unlabelled

    def fit(self, texts: Sequence[str], x: Rows, y: Rows) -> None:
        """Fit to examples."""
        model = LogisticRegression(C=self.strength, class_weight="balanced", tol=EXACT, max_iter=10_000)
        if self.unlabelled is None:
            self.model = model.fit(x, y)
            return
        marked = np.concatenate([y, np.full(len(self.unlabelled), -1)])
        self.model = SelfTrainingClassifier(model, **SELF_TRAINING).fit(np.concatenate([x, self.unlabelled]), marked)

    def answer(self, texts: Sequence[str], x: Rows) -> dict[str, Any]:
        """Return the likeliest class and its probability."""
        return likeliest(self.model, x)


def likeliest(model: Any, x: Rows) -> dict[str, Any]:
    """Return the likeliest class of each row and its probability."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn doubts labels of few examples each
        probability = model.predict_proba(x)
    return {"labels": model.classes_[probability.argmax(axis=1)], "confidence": probability.max(axis=1)}
