"""Out-of-class texts: separation by the scores of 0.2, empirical coverage, and warnings of a vacuous coverage."""

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
from hyperproto.registry import TRANSFORMS
from research.intents.classifiers import CosinePrototypes, SupportTransform, logistic
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports, some_classes
from research.intents.texts import Intents

NOMINAL = (0.8, 0.9, 0.95)  # coverages asked for
KINDS: dict[str, dict[str, bool]] = {
    "one threshold": {},
    "own thresholds": {"class_thresholds": True},
    "guarantee": {"guarantee": True},
}
RECALL = 0.95  # of texts that are of a class
SIZES = (3, 8, 30)  # numbers of classes, besides all and nearly all, with which coverages may be vacuous
LEFT_OUT = 8  # classes, of nearly all
WARNED = (0.9, 0.95)  # coverages
LITTLE = 0.05  # a coverage that rejects at most this share of out-of-class texts rejects almost nothing
REJECTED = -1  # the reject label among numbers
REFERENCE = ("hypersphere, extent", "unit")

Scores = NDArray[np.floating[Any]]


def outside(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Measure AUROC of scores of novelty, and the share of out-of-class texts that pass where 95 % of the others do."""
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
    """Return several scores of each row, larger for out-of-class texts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn doubts labels of few examples each
        ours = HypersphereClassifier(feature_transform=transform, prior_ratio=prior_ratio).fit(x, y)
        regression = make_pipeline(SupportTransform(transform), logistic(y)).fit(x, y)
        cosine = make_pipeline(SupportTransform(transform), CosinePrototypes()).fit(x, y)
        features = SupportTransform(transform).fit(x, y)
    neighbours = NearestNeighbors(n_neighbors=1).fit(features.transform(x))
    return {
        "hypersphere, extent": least_distance(ours, rows),
        "hypersphere, max-softmax": -ours.predict_proba(rows).max(axis=1),
        "hypersphere, energy": -logsumexp(-ours.measure(rows) / ours.temperature_, axis=1),
        "logistic regression, max-softmax": -regression.predict_proba(rows).max(axis=1),
        "logistic regression, energy": -logsumexp(regression.decision_function(rows), axis=1),
        "cosine prototypes": -cosine.decision_function(rows).max(axis=1),
        "nearest neighbour": neighbours.kneighbors(features.transform(rows))[0][:, 0],
    }


def least_distance(model: HypersphereClassifier, rows: Any) -> Scores:
    """Return the least distance of each row to a class mean, relative to the scatter of the class: novelty in 0.2."""
    now = model._snapshot()
    found: Scores = (now.distance(now.prepare(rows)) / now.scale).min(axis=1)
    return found


def separation(scores: Scores, strange: NDArray[np.bool_]) -> dict[str, float]:
    """Return AUROC, and the share of out-of-class texts that pass where 95 % of the others do."""
    threshold = np.quantile(scores[~strange], RECALL, method="higher")
    return {
        "auroc": float(roc_auc_score(strange, scores)),
        "fpr95": float(np.mean(scores[strange] <= threshold)),
    }


def coverage(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Measure empirical against nominal coverage; thresholds depend neither on the region nor on its fit."""
    values = OverDraws("shots", "kind", "transform", "nominal")
    for shot, rows in supports:
        x, y = data.train[rows], data.train_y[rows]
        for transform in TRANSFORMS:
            model = HypersphereClassifier(feature_transform=transform).fit(x, y)
            for nominal in NOMINAL:
                for kind, settings in KINDS.items():
                    model.set_params(coverage=nominal, class_thresholds=False, guarantee=False).set_params(**settings)
                    values.add((shot, kind, transform, str(nominal)), **held(model, data))
    return {"supports": supports.hashes, "results": values.rows()}


def held(model: HypersphereClassifier, data: Intents) -> dict[str, float]:
    """Measure coverage, plausible sets, accepted out-of-scope texts, and the accuracy of the answers that are given.

    `kept_accuracy` is that of `predict`, which rejects a text whose likeliest class is not plausible;
    `demoted_accuracy` is that of the likeliest among the plausible classes, which answers more often.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of thresholds that are infinite, which is counted
        plausible, answer = model.predict_set(data.test), model.predict(data.test)
        any_plausible, kept = plausible.any(axis=1), answer != REJECTED
        demoted = np.where(plausible, model.measure(data.test), np.inf).argmin(axis=1)
        found = {
            "coverage": float(plausible[np.arange(len(plausible)), data.test_y].mean()),
            "accepted": float(any_plausible.mean()),
            "set_size": float(plausible.sum(axis=1).mean()),
            "open_classes": float(np.isinf(model.thresholds_).mean()),
            "kept": float(kept.mean()),
            "kept_accuracy": float((answer == data.test_y)[kept].mean()),
            "demoted_accuracy": float((demoted == data.test_y)[any_plausible].mean()),
        }
        if len(data.outside):
            found["out_of_class_accepted"] = float(model.predict_set(data.outside).any(axis=1).mean())
    return found


def vacuous(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Compare `expected_` and the warning of a vacuous coverage with the share of out-of-class texts rejected.

    Out-of-class texts are the test texts of omitted classes, and CLINC150's texts of no class.
    """
    values, models = OverDraws("shots", "classes", "nominal"), []
    way = len(data.classes)
    sizes = sorted({*SIZES, way - LEFT_OUT, *([way] if len(data.outside) else [])})
    for shot, rows in supports:
        for size in (size for size in sizes if 1 < size <= way):
            classes = some_classes(way, size, supports.index)
            own = rows[np.isin(data.train_y[rows], classes)]
            others = {"left_out": data.test[~np.isin(data.test_y, classes)], "outside": data.outside}
            model = HypersphereClassifier(fit_mode="unbiased").fit(data.train[own], data.train_y[own])
            for nominal in WARNED:
                found = rejected(model.set_params(coverage=nominal), others)
                models.append(found)
                values.add((shot, str(size), str(nominal)), **found)
    return {"supports": supports.hashes, "warnings": by_warning(models), "results": values.rows()}


def rejected(model: HypersphereClassifier, others: dict[str, Scores]) -> dict[str, float]:
    """Return the warning, the expected share, and the rejected share of each kind of out-of-class texts."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        expected, few = model.expected_, np.isinf(model.thresholds_).any()
    found = {
        "too_few": float(few),  # examples for the coverage: another warning
        "vacuous": float(any("rejects almost nothing" in str(warning.message) for warning in given)),
        "expected_rejected": expected.outside_rejected or 0.0,
        # None where leave-one-out is impossible; every class then accepts everything.
        "expected_set_size": len(model.classes_) if expected.set_size is None else expected.set_size,
    }
    for kind, rows in others.items():
        if len(rows):
            found[f"{kind}_rejected"] = float((~model.predict_set(rows).any(axis=1)).mean())
    return found


def by_warning(models: list[dict[str, float]]) -> dict[str, Any]:
    """Count the models with each warning, or none, and the shares of out-of-class texts that they rejected."""
    found: dict[str, Any] = {}
    for warning in ("too_few", "vacuous", "none"):
        group = [model for model in models if model.get(warning, not (model["too_few"] or model["vacuous"]))]
        found[warning] = {}
        for name in ("left_out_rejected", "outside_rejected"):
            pairs = np.array([(model[name], model["expected_rejected"]) for model in group if name in model])
            if len(pairs):
                shares, expected = pairs.T
                found[warning][name] = {
                    "models": len(shares),
                    f"at_most_{LITTLE}": int((shares <= LITTLE).sum()),
                    "least": round(float(shares.min()), 5),
                    "mean": round(float(shares.mean()), 5),
                    "most": round(float(shares.max()), 5),
                    "from_expected": round(float(np.abs(shares - expected).mean()), 5),
                }
    return found
