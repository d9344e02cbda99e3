"""The constant of the bayes fit, at several values: run it on HWU64's valid texts, and on nothing that is reported."""

from collections.abc import Sequence
from typing import Any

from experiments.accuracy import measure
from experiments.contenders import Contender
from experiments.draws import Supports
from experiments.intents import Intents
from experiments.rows import Tally
from hyperproto import HypersphereClassifier
from hyperproto.transforms import TRANSFORMS

RATIOS = (1.0, 2.0, 4.0, 8.0, 16.0)


def constants(data: Intents, shots: Sequence[str], draws: int, prior_ratio: float) -> dict[str, Any]:
    """Run it. `prior_ratio` is what the others are compared with."""
    tally, supports = Tally("shots", "prior_ratio", "transform"), Supports(data.name, data.train_y, shots, draws)
    for shot, rows in supports:
        for transform in TRANSFORMS:
            for ratio in RATIOS:
                model = HypersphereClassifier(feature_transform=transform, prior_ratio=ratio)
                contender = Contender("bayes", transform, lambda y, model=model: model)  # type: ignore[misc]
                measured = measure(contender, data.train[rows], data.train_y[rows], data)
                tally.add((shot, str(ratio), transform), **measured)
    comparisons = tally.against((str(prior_ratio), "unit"), ("accuracy", "macro_f1"))
    return {"supports": supports.hashes, "results": tally.rows(), "comparisons": comparisons}
