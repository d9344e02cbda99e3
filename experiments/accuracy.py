"""Accuracy and macro-F1 of every contender, by shots, on the same supports; with times."""

import warnings
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from experiments.contenders import OURS, Contender, contenders
from experiments.draws import Supports
from experiments.intents import Intents
from experiments.rows import Tally

REFERENCE = (OURS, "unit")


def accuracy(data: Intents, shots: Sequence[str], draws: int, prior_ratio: float) -> dict[str, Any]:
    """Run it."""
    tally, supports = Tally("shots", "method", "transform"), Supports(data.name, data.train_y, shots, draws)
    competing = contenders(prior_ratio)
    for shot, rows in supports:
        x, y = data.train[rows], data.train_y[rows]
        equal = len(set(np.bincount(y).tolist())) == 1
        done: dict[tuple[str | None, str], dict[str, float]] = {}
        for contender in competing:
            known = (contender.twin, contender.transform)
            measured = done[known] if equal and known in done else measure(contender, x, y, data)
            done[contender.method, contender.transform] = measured
            if measured:
                tally.add((shot, contender.method, contender.transform), **measured)
    return {
        "reference": " ".join(REFERENCE),
        "supports": supports.hashes,
        "results": tally.rows(),
        "comparisons": tally.against(REFERENCE, ("accuracy", "macro_f1")),
    }


def measure(contender: Contender, x: Any, y: Any, data: Intents) -> dict[str, float]:
    """Fit and predict; nothing where the method cannot be fitted to such a support."""
    start = perf_counter()
    model = contender.make(y)
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
