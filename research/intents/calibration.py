"""Calibration error of probabilities before and after the fitted temperature, and of scikit-learn's calibration."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from hyperproto import HypersphereClassifier
from research.intents.classifiers import EXACT, Labels, SupportTransform, folds, logistic
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports
from research.intents.texts import Intents

BINS = 15
REFERENCE = ("hypersphere, temperature fitted",)
STRENGTH = 10.0  # C of the logistic regression that scikit-learn calibrates: one search inside another would take long

Probabilities = NDArray[np.floating[Any]]


def calibration(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Measure the probabilities of every model, with the transform `unit` everywhere."""
    values = OverDraws("shots", "method")
    for shot, rows in supports:
        x, y = data.train[rows], data.train_y[rows]
        for name, model in models(y, prior_ratio).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scikit-learn doubts labels of few examples each
                probability = model.fit(x, y).predict_proba(data.test)
            values.add((shot, name), **errors(probability, data.test_y))
    return {
        "reference": REFERENCE[0],
        "bins": BINS,
        "supports": supports.hashes,
        "results": values.rows(),
        "comparisons": values.against(REFERENCE, ("ece", "log_loss", "brier")),
    }


def models(y: Labels, prior_ratio: float) -> dict[str, Any]:
    """Make every model; scikit-learn calibrates where some class has two examples."""
    raw = HypersphereClassifier(temperature=1.0, prior_ratio=prior_ratio)
    regression = make_pipeline(SupportTransform("unit"), LogisticRegression(C=STRENGTH, max_iter=1000, tol=EXACT))
    found = {
        "hypersphere, temperature 1": raw,
        "hypersphere, temperature fitted": HypersphereClassifier(prior_ratio=prior_ratio),
        "logistic regression": make_pipeline(SupportTransform("unit"), logistic(y)),
        f"logistic regression, C={STRENGTH:g}": regression,
    }
    if (split := folds(y)) is not None:
        for method in ("sigmoid", "temperature"):
            for name, model in (("hypersphere", raw), (f"logistic regression, C={STRENGTH:g}", regression)):
                calibrated = CalibratedClassifierCV(model, method=method, cv=split)
                found[f"{name}, CalibratedClassifierCV {method}"] = calibrated
    return found


def errors(probability: Probabilities, y: Labels) -> dict[str, float]:
    """Return expected calibration error of the likeliest class, log loss, Brier score, accuracy and confidence."""
    own = probability[np.arange(len(y)), y]
    squares = (probability**2).sum(axis=1) - 2 * own + 1
    return {
        "ece": expected_calibration_error(probability, y),
        "log_loss": float(-np.log(np.maximum(own, 1e-12)).mean()),
        "brier": float(squares.mean()),
        "accuracy": float((probability.argmax(axis=1) == y).mean()),
        "confidence": float(probability.max(axis=1).mean()),
    }


def expected_calibration_error(probability: Probabilities, y: Labels) -> float:
    """Return the mean |confidence - accuracy| over bins of equal width, weighted by their counts."""
    return confidence_gap(probability.max(axis=1), probability.argmax(axis=1) == y)


def confidence_gap(confidence: NDArray[Any], right: NDArray[np.bool_]) -> float:
    """Return the calibration error of answers (n,) with these confidences; `right` marks the right ones."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gap = np.bincount(place, confidence - right, BINS)
    return float(np.abs(gap).sum() / len(right))
