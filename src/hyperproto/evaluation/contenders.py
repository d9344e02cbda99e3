"""Contenders: encoders x methods x closed forms x transforms, all on the same episodes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hyperproto.data import Pool, Progress
from hyperproto.encoders import Encoder, FeatureTransform
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.evaluation.results import Result, accuracy_by_shot
from hyperproto.evaluation.scoring import EncodedPool, episode_accuracies
from hyperproto.methods import Method


@dataclass(frozen=True, eq=False)
class Contender:
    """One row of a comparison: an encoder (shared by many), a method with its closed form, a transform."""

    label: str
    encoder: Encoder
    method: Method
    method_name: str
    transform: str
    settings: dict[str, Any]  # what else the result should say: run, encoder
    center: Tensor | None = None  # the mean of the training data, where there is any


def evaluate_contenders(
    contenders: Sequence[Contender],
    pool: Pool,
    episodes: Sequence[Episode],
    settings: dict[str, Any],
    encoded: dict[Encoder, EncodedPool] | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """Score every contender on the same episodes; each encoder encodes the pool once."""
    encoded = {} if encoded is None else encoded
    settings = {**settings, "data": pool.name, "split": pool.split, "episode_hash": episodes_hash(pool, episodes)}
    shots = settings.get("shot")
    results = []
    for number, contender in enumerate(contenders):
        start = time.perf_counter()
        if contender.encoder not in encoded:
            encoded[contender.encoder] = EncodedPool.encode(contender.encoder, pool)
        device = encoded[contender.encoder].units.x.device
        method = contender.method.to(device)
        transform = FeatureTransform(contender.transform, contender.encoder.feature_shape).to(device)
        if contender.center is not None:
            transform.set_center(contender.center)

        def report(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number * total + done, len(contenders) * total)

        correct, total = episode_accuracies(method, transform, encoded[contender.encoder], episodes, report)
        by_shot = {"accuracy_by_shot": accuracy_by_shot(correct, total, shots)} if isinstance(shots, list) else {}
        own = {"method": contender.method_name, "fit": contender.method.fit, "transform": contender.transform}
        accuracies = correct.sum(1) / total.sum(1)
        seconds = time.perf_counter() - start
        results.append(Result(contender.label, {**contender.settings, **own, **settings}, accuracies, by_shot, seconds))
    return results
