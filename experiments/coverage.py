"""Does "none of these" keep its word? Empirical against nominal coverage, by shots."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.draws import Supports
from experiments.intents import Intents
from experiments.rows import Tally
from hyperproto import HypersphereClassifier
from hyperproto.transforms import TRANSFORMS

NOMINAL = (0.8, 0.9, 0.95)
KINDS: dict[str, dict[str, bool]] = {
    "one threshold": {},
    "own thresholds": {"class_thresholds": True},
    "guarantee": {"guarantee": True},
}


def coverage(data: Intents, shots: Sequence[str], draws: int, prior_ratio: float) -> dict[str, Any]:
    """Run it. The thresholds do not depend on region or mode, and so neither on the prior."""
    tally, supports = Tally("shots", "kind", "transform", "nominal"), Supports(data.name, data.train_y, shots, draws)
    for shot, rows in supports:
        x, y = data.train[rows], data.train_y[rows]
        for transform in TRANSFORMS:
            model = HypersphereClassifier(feature_transform=transform, fit_mode="unbiased").fit(x, y)
            for nominal in NOMINAL:
                for kind, settings in KINDS.items():
                    model.set_params(coverage=nominal, class_thresholds=False, guarantee=False).set_params(**settings)
                    tally.add((shot, kind, transform, str(nominal)), **held(model, data))
    return {"supports": supports.hashes, "results": tally.rows()}


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
