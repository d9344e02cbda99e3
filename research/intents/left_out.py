"""Out-of-class scores compared: test texts of classes that were left out, and CLINC150's texts of no class.

A quarter of the classes is left out, those of `research.rivals`; CLINC150's texts of no class are scored by models of
all classes. With `--split train` the other training texts are classified, and logistic regression is measured at every
strength: STRENGTHS was chosen so on HWU64, as the constants of the novelty score were.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from hyperproto import HypersphereClassifier
from hyperproto.files import read_json
from research.intents.classifiers import EXACT, CosinePrototypes
from research.intents.open_set import least_distance
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports, some_classes
from research.intents.texts import Intents

REFERENCE = "novelty, names"
LEAST_DISTANCE = "least distance, the novelty of 0.2"
LOGISTIC, NAMED = "logistic regression", ", name as example"
PROBABILITY, ENERGY = "max probability", "energy"
GRID = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # strengths C of logistic regression
STRENGTHS = {  # C with the largest mean AUROC on HWU64's training texts; for other shots that of 5
    f"{LOGISTIC}, {PROBABILITY}": {"1": 1.0, "5": 10.0, "20": 3.0},
    f"{LOGISTIC}, {ENERGY}": {"1": 300.0, "5": 300.0, "20": 100.0},
    f"{LOGISTIC}{NAMED}, {PROBABILITY}": {"1": 100.0, "5": 10.0, "20": 3.0},
    f"{LOGISTIC}{NAMED}, {ENERGY}": {"1": 300.0, "5": 300.0, "20": 100.0},
}
RIVALS = Path(__file__).parents[2] / "results" / "rivals"
RIVAL = "adaptive-classifier"

Rows = NDArray[Any]


def left_out(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Measure AUROC of out-of-class scores where a quarter of the classes is left out, and of texts of no class."""
    values, way = OverDraws("shots", "score"), len(data.classes)
    for shot, rows in supports:
        known = known_classes(way, supports.index)
        rest = np.setdiff1d(np.arange(len(data.train)), rows)
        texts, y = (data.train[rest], data.train_y[rest]) if data.split == "train" else (data.test, data.test_y)
        own, strange = rows[np.isin(data.train_y[rows], known)], ~np.isin(y, known)
        scores = scores_of(data, own, texts, shot, prior_ratio)
        found = {name: {"auroc": roc_auc_score(strange, score)} for name, score in scores.items()}
        if len(data.outside) and data.split == "test":
            mixed = np.concatenate([data.test, data.outside])
            strange = np.arange(len(mixed)) >= len(data.test)
            for name, score in scores_of(data, rows, mixed, shot, prior_ratio).items():
                found[name]["auroc_out_of_scope"] = roc_auc_score(strange, score)
        for name, measured in found.items():
            values.add((shot, name), **measured)
    add_rival(values, data, supports)
    return {
        "reference": REFERENCE,
        "supports": supports.hashes,
        "results": values.rows(),
        "comparisons": values.against((REFERENCE,), ("auroc", "auroc_out_of_scope")),
    }


def known_classes(way: int, index: int) -> Rows:
    """Return the classes that a draw does not leave out, ascending: three quarters, as in `research.rivals`."""
    return np.sort(some_classes(way, way - max(way // 4, 1), index))


def scores_of(data: Intents, own: Rows, rows: Rows, shot: str, prior_ratio: float) -> dict[str, Rows]:
    """Return out-of-class scores (n,) of rows (n, D), larger for those of no class, given the examples `own`."""
    x, y, unit = normalize(data.train[own]), data.train_y[own], normalize(rows)
    classes = np.unique(y)
    plain = HypersphereClassifier(prior_ratio=prior_ratio).fit(x, y)
    names = {int(n): data.names[n] for n in classes}
    named = HypersphereClassifier(prior_ratio=prior_ratio).fit(x, y, names=names)
    measures = named.measure(unit)
    neighbours = NearestNeighbors(n_neighbors=1).fit(x)
    found = {
        REFERENCE: named.novelty(unit),
        "novelty": plain.novelty(unit),
        f"{PROBABILITY}, names": -named.predict_proba(unit).max(axis=1),
        "relative measure, names": measures.min(axis=1) - measures.mean(axis=1),
        f"{ENERGY}, names": -logsumexp(-measures / named.temperature_, axis=1),
        LEAST_DISTANCE: least_distance(plain, unit),
        "cosine prototypes": -CosinePrototypes().fit(x, y).decision_function(unit).max(axis=1),
        "nearest neighbour": neighbours.kneighbors(unit)[0][:, 0],
    }
    extended = np.concatenate([x, normalize(data.names[classes])]), np.concatenate([y, classes])
    for ending, examples in (("", (x, y)), (NAMED, extended)):
        found |= logistic_scores(f"{LOGISTIC}{ending}", examples, unit, shot, every=data.split == "train")
    return found


def logistic_scores(name: str, examples: tuple[Rows, Rows], unit: Rows, shot: str, every: bool) -> dict[str, Rows]:
    """Return both scores of balanced logistic regression at its strengths; `every`: at all strengths of the grid."""
    chosen = {score: STRENGTHS[f"{name}, {score}"] for score in (PROBABILITY, ENERGY)}
    strengths = {score: GRID if every else (by_shot.get(shot, by_shot["5"]),) for score, by_shot in chosen.items()}
    found = {}
    for strength in sorted({c for each in strengths.values() for c in each}):
        model = LogisticRegression(C=strength, class_weight="balanced", tol=EXACT, max_iter=10_000).fit(*examples)
        logits = model.decision_function(unit)
        energy = -logsumexp(logits, axis=1)
        for score, values in ((PROBABILITY, -logits.max(axis=1) - energy), (ENERGY, energy)):
            if strength in strengths[score]:
                found[f"{name}, {score}" + (f", C = {strength:g}" if every else "")] = values
    return found


def add_rival(values: OverDraws, data: Intents, supports: Supports, folder: Path = RIVALS) -> None:
    """Add the rows of adaptive-classifier that `research.rivals` measured on the same supports."""
    file = folder / f"rivals-{data.name}.json"
    content: Mapping[str, Any] = read_json(file) if file.exists() and data.split == "test" else {"results": []}
    asked = content.get("asked")  # number of test texts that were classified; None: all
    part = f" ({asked:,} of the texts)" if asked else ""
    for row in content["results"]:
        method, shot = row["method"], row["shots"]
        if not method.startswith(RIVAL) or shot not in supports.hashes:
            continue
        pairs = zip(supports.hashes[shot], content["supports"][shot], strict=False)
        same = [now == then for now, then in pairs]
        for index in range(same.index(False) if False in same else len(same)):
            for measure, score in (("auroc", "own score"), ("auroc_confidence", PROBABILITY)):
                if index < len(row[measure]["draws"]):
                    values.add((shot, f"{method}, {score}{part}"), auroc=row[measure]["draws"][index])
