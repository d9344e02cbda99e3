"""Accuracy, macro-F1 and times of every classifier by shots, on the same supports; choice of `prior_ratio`.

`constants` tries several values of `prior_ratio`: run it on HWU64's valid texts only, which are not reported.
"""

import warnings
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from hyperproto import HypersphereClassifier
from hyperproto.registry import TRANSFORMS
from research.intents.classifiers import OURS, Candidate, candidates
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports
from research.intents.texts import Intents

REFERENCE = (OURS, "unit")
RATIOS = (1.0, 2.0, 4.0, 8.0, 16.0)


def accuracy(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Measure every classifier with every transform."""
    values = OverDraws("shots", "method", "transform")
    competing = candidates(prior_ratio)
    for shot, rows in supports:
        x, y = data.train[rows], data.train_y[rows]
        equal = len(set(np.bincount(y).tolist())) == 1
        done: dict[tuple[str | None, str], dict[str, float]] = {}
        for candidate in competing:
            known = (candidate.twin, candidate.transform)
            measured = done[known] if equal and known in done else measure(candidate, x, y, data)
            done[candidate.method, candidate.transform] = measured
            if measured:
                values.add((shot, candidate.method, candidate.transform), **measured)
    return {
        "reference": " ".join(REFERENCE),
        "supports": supports.hashes,
        "results": values.rows(),
        "comparisons": values.against(REFERENCE, ("accuracy", "macro_f1")),
    }


def constants(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Measure the bayes fit at every value of RATIOS; `prior_ratio` is what the others are compared with."""
    values = OverDraws("shots", "prior_ratio", "transform")
    for shot, rows in supports:
        for transform in TRANSFORMS:
            for ratio in RATIOS:
                model = HypersphereClassifier(feature_transform=transform, prior_ratio=ratio)
                candidate = Candidate("bayes", transform, lambda y, model=model: model)  # type: ignore[misc]
                measured = measure(candidate, data.train[rows], data.train_y[rows], data)
                values.add((shot, str(ratio), transform), **measured)
    comparisons = values.against((str(prior_ratio), "unit"), ("accuracy", "macro_f1"))
    return {"supports": supports.hashes, "results": values.rows(), "comparisons": comparisons}


def measure(candidate: Candidate, x: Any, y: Any, data: Intents) -> dict[str, float]:
    """Fit and predict; return {} if the method cannot be fitted to such a support."""
    start = perf_counter()
    model = candidate.make(y)
    if model is None:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn doubts labels of few examples each
        model.fit(x, y)
        getattr(model, "region_", None)  # ours is fitted when it is first needed
        fitted = perf_counter()
        predicted = model.predict(data.test)
        done = perf_counter()
    return {
        "accuracy": float(np.mean(predicted == data.test_y)),
        "macro_f1": float(f1_score(data.test_y, predicted, average="macro")),
        "fit_seconds": fitted - start,
        "predict_seconds": done - fitted,
    }
