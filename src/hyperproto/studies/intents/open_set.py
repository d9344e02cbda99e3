"""Texts of none of the classes: how well scores tell them from the others, and whether a stated coverage is kept."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError
from hyperproto.studies.intents.classifiers import CosinePrototypes, SupportTransform, logistic
from hyperproto.studies.intents.over_draws import OverDraws
from hyperproto.studies.intents.supports import Supports
from hyperproto.studies.intents.texts import Intents
from hyperproto.transforms import TRANSFORMS

NOMINAL = (0.8, 0.9, 0.95)  # coverages asked for
KINDS: dict[str, dict[str, bool]] = {
    "one threshold": {},
    "own thresholds": {"class_thresholds": True},
    "guarantee": {"guarantee": True},
}
RECALL = 0.95  # of texts that are of a class
REFERENCE = ("hypersphere, extent", "unit")

Scores = NDArray[np.floating[Any]]


def outside(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """AUROC of several scores of novelty, and the share of strangers that pass where 95 % of the others do."""
    if not len(data.outside):
        raise ConfigError(f"{data.name} has no texts outside its classes; use clinc150")
    values = OverDraws("shots", "score", "transform")
    mixed = np.concatenate([data.test, data.outside])
    strange = np.arange(len(mixed)) >= len(data.test)
    for shot, rows in supports:
        x, y = data.train[rows], data.train_y[rows]
        for transform in TRANSFORMS:
            for name, scores in novelties(x, y, mixed, transform, prior_ratio).items():
                values.add((shot, name, transform), **separation(scores, strange))
    return {
        "reference": " ".join(REFERENCE),
        "recall": RECALL,
        "supports": supports.hashes,
        "results": values.rows(),
        "comparisons": values.against(REFERENCE, ("auroc", "fpr95")),
    }


def novelties(x: Any, y: Any, rows: Any, transform: str, prior_ratio: float) -> dict[str, Scores]:
    """Several scores of each row, each larger for a stranger."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn doubts labels of few examples each
        ours = HypersphereClassifier(feature_transform=transform, prior_ratio=prior_ratio).fit(x, y)
        regression = make_pipeline(SupportTransform(transform), logistic(y)).fit(x, y)
        cosine = make_pipeline(SupportTransform(transform), CosinePrototypes()).fit(x, y)
        features = SupportTransform(transform).fit(x, y)
    neighbours = NearestNeighbors(n_neighbors=1).fit(features.transform(x))
    return {
        "hypersphere, extent": ours.novelty(rows),
        "hypersphere, max-softmax": -ours.predict_proba(rows).max(axis=1),
        "hypersphere, energy": -logsumexp(-ours.measure(rows) / ours.temperature_, axis=1),
        "logistic regression, max-softmax": -regression.predict_proba(rows).max(axis=1),
        "logistic regression, energy": -logsumexp(regression.decision_function(rows), axis=1),
        "cosine prototypes": -cosine.decision_function(rows).max(axis=1),
        "nearest neighbour": neighbours.kneighbors(features.transform(rows))[0][:, 0],
    }


def separation(scores: Scores, strange: NDArray[np.bool_]) -> dict[str, float]:
    """AUROC, and the share of strangers that pass where 95 % of the others do."""
    threshold = np.quantile(scores[~strange], RECALL, method="higher")
    return {
        "auroc": float(roc_auc_score(strange, scores)),
        "fpr95": float(np.mean(scores[strange] <= threshold)),
    }


def coverage(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Empirical against nominal coverage; the thresholds depend neither on region nor on mode, so not on the prior."""
    values = OverDraws("shots", "kind", "transform", "nominal")
    for shot, rows in supports:
        x, y = data.train[rows], data.train_y[rows]
        for transform in TRANSFORMS:
            model = HypersphereClassifier(feature_transform=transform, fit_mode="unbiased").fit(x, y)
            for nominal in NOMINAL:
                for kind, settings in KINDS.items():
                    model.set_params(coverage=nominal, class_thresholds=False, guarantee=False).set_params(**settings)
                    values.add((shot, kind, transform, str(nominal)), **held(model, data))
    return {"supports": supports.hashes, "results": values.rows()}


def held(model: HypersphereClassifier, data: Intents) -> dict[str, float]:
    """How often the own class is plausible, any class is, how many are, and how many strangers are let in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of thresholds that are infinite, which is counted
        plausible = model.predict_set(data.test)
        found = {
            "coverage": float(plausible[np.arange(len(plausible)), data.test_y].mean()),
            "accepted": float(plausible.any(axis=1).mean()),
            "set_size": float(plausible.sum(axis=1).mean()),
            "open_classes": float(np.isinf(model.thresholds_).mean()),
        }
        if len(data.outside):
            found["strangers_accepted"] = float(model.predict_set(data.outside).any(axis=1).mean())
    return found
