"""Strangers: how well a score tells texts of no class from texts of one, by shots."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from experiments.contenders import CosinePrototypes, logistic
from experiments.draws import Supports
from experiments.feature_transform import Features
from experiments.intents import Intents
from experiments.rows import Tally
from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError
from hyperproto.transforms import TRANSFORMS

RECALL = 0.95  # of texts that are of a class
REFERENCE = ("hypersphere, extent", "unit")

Scores = NDArray[np.floating[Any]]


def outside(data: Intents, shots: Sequence[str], draws: int, prior_ratio: float) -> dict[str, Any]:
    """Run it."""
    if not len(data.outside):
        raise ConfigError(f"{data.name} has no texts outside its classes; use clinc150")
    tally, supports = Tally("shots", "score", "transform"), Supports(data.name, data.train_y, shots, draws)
    mixed = np.concatenate([data.test, data.outside])
    strange = np.arange(len(mixed)) >= len(data.test)
    for shot, rows in supports:
        x, y = data.train[rows], data.train_y[rows]
        for transform in TRANSFORMS:
            for name, scores in novelties(x, y, mixed, transform, prior_ratio).items():
                tally.add((shot, name, transform), **separation(scores, strange))
    return {
        "reference": " ".join(REFERENCE),
        "recall": RECALL,
        "supports": supports.hashes,
        "results": tally.rows(),
        "comparisons": tally.against(REFERENCE, ("auroc", "fpr95")),
    }


def novelties(x: Any, y: Any, rows: Any, transform: str, prior_ratio: float) -> dict[str, Scores]:
    """Several scores of each row, each larger for a stranger."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn doubts labels of few examples each
        ours = HypersphereClassifier(feature_transform=transform, prior_ratio=prior_ratio).fit(x, y)
        regression = make_pipeline(Features(transform), logistic(y)).fit(x, y)
        cosine = make_pipeline(Features(transform), CosinePrototypes()).fit(x, y)
        features = Features(transform).fit(x, y)
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
