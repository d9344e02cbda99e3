"""Accuracy with class names and unlabelled texts, beside other methods with the same evidence.

A pool (see `pools`) decides which texts are unlabelled and which classes have examples. Vectors have length 1.
Constants of the other methods were chosen on HWU64's valid texts, for each number of shots.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError
from research.intents.calibration import errors
from research.intents.classifiers import EXACT
from research.intents.over_draws import OverDraws
from research.intents.pools import situation
from research.intents.setfit import SetFit
from research.intents.supports import UNEQUAL, Supports
from research.intents.texts import Intents
from research.journal import Journal, Measured

NO_SHOTS = "0"
SETFIT = "SetFit"
SLOW = ("self-training", "label spreading", SETFIT)  # prefixes of methods that take seconds to minutes
REFERENCE = ("names + unlabelled",)
STRENGTH = {"1": 3.0, "2": 10.0, "5": 3.0, "8": 10.0, "10": 10.0, "20": 3.0, UNEQUAL: 1.0}  # C of logistic regression
# ... with names as examples; of 8 shots, that of 10
STRENGTH_NAMED = {"1": 30.0, "2": 30.0, "5": 3.0, "8": 10.0, "10": 10.0, "20": 30.0, UNEQUAL: 1.0}
SHARPNESS, SHARPNESS_UNEQUAL = 50.0, 10.0  # of soft k-means
SELF_TRAINING: dict[str, Any] = {"threshold": 0.3, "max_iter": 3}
SELF_TRAINING_STRENGTH = 10.0
SPREADING: dict[str, Any] = {"kernel": "knn", "n_neighbors": 30, "alpha": 0.2}

Rows = NDArray[Any]
Method = Callable[[], Any]  # returns a fitted object with `predict`


def evidence(
    data: Intents,
    supports: Supports,
    prior_ratio: float,
    pool: str = "all",
    only: Sequence[str] = (),
    probabilities: bool = False,
    journal: Journal | None = None,
    setfit: str | None = None,
    slow_draws: int | None = None,
) -> dict[str, Any]:
    """Measure the methods, or `only` some, on the same supports, names and unlabelled texts.

    `probabilities`: measure the calibration error of methods with probabilities. `journal`: values measured before.
    `setfit`: a Python interpreter with SetFit, which is then measured too. `slow_draws`: number of draws of slow
    methods.
    """
    journal = Journal(None, {}) if journal is None else journal
    values = OverDraws("shots", "method")
    train, test, names = (normalize(part) for part in (data.train, data.test, data.names))
    there = methods(names, np.arange(len(names)), names, names, "1", prior_ratio)
    if missing := sorted(set(only) - set(there)):
        raise ConfigError(f"no method is called {', '.join(missing)}; there are: {'; '.join(there)}")
    for shot, rows in supports:
        now = situation(pool, data.train_y, rows, supports.index)
        x, y, true = train[now.support], now.codes(data.train_y[now.support]), now.codes(data.test_y)
        asked, true = test[true >= 0], true[true >= 0]
        bare = np.setdiff1d(np.arange(len(now.classes)), y)  # classes with a name only
        every = methods(x, y, names[now.classes], train[now.unlabelled], shot, prior_ratio)
        if setfit is not None:
            texts = [data.train_texts[row] for row in now.support.tolist()]
            questions = [data.test_texts[row] for row in np.flatnonzero(now.codes(data.test_y) >= 0).tolist()]
            every[SETFIT] = partial(SetFit, setfit, data.encoder, texts, y.tolist(), questions)
        for name, fit in every.items():
            if (only and name not in {*only, SETFIT}) or (len(bare) and "name" not in name):
                continue
            if slow_draws is not None and supports.index >= slow_draws and name.startswith(SLOW):
                continue
            measure = partial(_measured, fit, asked, true, bare, probabilities)
            values.add((shot, name), **journal.measured(_key(shot, supports.index, name), measure))
    return {
        "reference": REFERENCE[0],
        "pool": pool,
        "supports": supports.hashes,
        "results": values.rows(),
        "comparisons": values.against(REFERENCE, ("accuracy",)),
    }


def values_of(content: dict[str, Any]) -> dict[str, Measured]:
    """Return the values of each draw in a file of results of this study, by the keys of its journal."""
    found = {}
    for row in content["results"]:
        draws = {name: value["draws"] for name, value in row.items() if isinstance(value, dict)}
        for index in range(len(draws["accuracy"])):
            key = _key(row["shots"], index, row["method"])
            found[key] = {name: values[index] for name, values in draws.items()}
    return found


def _key(shot: str, draw: int, name: str) -> str:
    return f"{shot} shots, draw {draw}: {name}"


def _measured(fit: Method, asked: Rows, true: Rows, bare: Rows, probabilities: bool) -> Measured:
    """Fit and classify; also measure the classes `bare`, which have a name but no example."""
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn doubts labels of few examples each
        model = fit()
        right = model.predict(asked) == true
        measured = {"accuracy": float(right.mean()), "seconds": getattr(model, "seconds", perf_counter() - start)}
        if len(set(np.unique(true, return_counts=True)[1].tolist())) > 1:  # the test texts of the classes are unequal
            measured["macro accuracy"] = float(np.mean([right[true == n].mean() for n in np.unique(true)]))
        if probabilities and hasattr(model, "predict_proba"):
            measured |= errors(model.predict_proba(asked), true)
    alone = np.isin(true, bare)
    if alone.any() and not alone.all():
        measured["accuracy of classes known by name"] = float(right[alone].mean())
    return measured


def methods(x: Rows, y: Rows, names: Rows, unlabelled: Rows, shot: str, prior_ratio: float) -> dict[str, Method]:
    """Return all methods for a support, by name. Labels are 0 to N - 1; `names` (N, D) are vectors of the names."""
    named = dict(enumerate(names))

    extended = np.concatenate([x, names]), np.concatenate([y, np.arange(len(names))])

    def ours(refine: bool = False, support: tuple[Rows, Rows] = (x, y), **given: Any) -> Method:
        model = HypersphereClassifier(prior_ratio=prior_ratio, refine=refine)
        return lambda: model.fit(*(support if len(support[0]) else (None, None)), **given)

    both: dict[str, Any] = {"names": named, "unlabelled": unlabelled}
    found = {
        "names": ours(names=named),
        REFERENCE[0]: ours(**both),
        "names + unlabelled, refined": ours(refine=True, **both),
    }
    if shot == NO_SHOTS:
        return found
    found |= {
        "plain": ours(),
        "refined": ours(refine=True),
        "unlabelled": ours(unlabelled=unlabelled),
        "unlabelled, refined": ours(refine=True, unlabelled=unlabelled),
        "names, refined": ours(refine=True, names=named),
        "name as example": ours(support=extended),
        "name as example + unlabelled": ours(support=extended, unlabelled=unlabelled),
    }
    for ending, (rows, labels), strength in (
        ("", (x, y), STRENGTH[shot]),
        (", name as example", extended, STRENGTH_NAMED[shot]),
    ):
        found |= {
            f"{name}{ending}": method
            for name, method in rivals(rows, labels, unlabelled, strength, shot == UNEQUAL).items()
        }
    return found


def rivals(x: Rows, y: Rows, unlabelled: Rows, strength: float, unequal: bool) -> dict[str, Method]:
    """Return the other methods, by name."""
    every, marked = np.concatenate([x, unlabelled]), np.concatenate([y, np.full(len(unlabelled), -1)])

    def logistic(c: float) -> LogisticRegression:
        return LogisticRegression(C=c, class_weight="balanced", tol=EXACT, max_iter=10_000)

    sharpness = SHARPNESS_UNEQUAL if unequal else SHARPNESS
    return {
        "cosine prototypes": lambda: NearestPrototype(prototypes(x, y)),
        "logistic regression": lambda: logistic(strength).fit(x, y),
        "soft k-means prototypes": lambda: NearestPrototype(soft_prototypes(x, y, unlabelled, sharpness)),
        "self-training": lambda: SelfTrainingClassifier(logistic(SELF_TRAINING_STRENGTH), **SELF_TRAINING).fit(
            every, marked
        ),
        "label spreading": lambda: LabelSpreading(**SPREADING).fit(every, marked),
    }


class NearestPrototype:
    """Classifier by the largest product of a row with prototypes (N, D)."""

    def __init__(self, center: Rows) -> None:
        self.center = normalize(center)

    def predict(self, X: Rows) -> Rows:
        """Return labels 0 to N - 1."""
        best: Rows = (X @ self.center.T).argmax(axis=1)
        return best


def prototypes(x: Rows, y: Rows) -> Rows:
    """Return the mean of each class (N, D)."""
    member = np.eye(y.max() + 1)[y]
    found: Rows = member.T @ x / member.sum(axis=0)[:, None]
    return found


def soft_prototypes(x: Rows, y: Rows, unlabelled: Rows, sharpness: float) -> Rows:
    """Return prototypes after one step of soft k-means, labelled rows fixed to their class (Ren et al. 2018)."""
    center, member = prototypes(x, y), np.eye(y.max() + 1)[y]
    power = 2 * unlabelled @ center.T - (center**2).sum(axis=1)  # minus the squared distance, but for a common term
    share = np.exp(sharpness * (power - power.max(axis=1, keepdims=True)))
    share /= share.sum(axis=1, keepdims=True)
    size = member.sum(axis=0) + share.sum(axis=0)
    found: Rows = (member.T @ x + share.T @ unlabelled) / size[:, None]
    return found
