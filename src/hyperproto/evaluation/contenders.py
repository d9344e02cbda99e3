"""Contenders: encoders x methods x closed forms x transforms, all on the same episodes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hyperproto.data import Pool, Progress
from hyperproto.encoders import Encoder, FeatureTransform
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.evaluation.rejection import Rejection, judge_episodes
from hyperproto.evaluation.results import Result, accuracy_by_shot
from hyperproto.evaluation.scoring import EncodedPool, episode_accuracies
from hyperproto.evaluation.spans import Convention, Tags
from hyperproto.evaluation.tagged_metrics import tagged_metrics
from hyperproto.evaluation.tagging import tag_episodes
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

    def on(self, device: torch.device) -> tuple[Method, FeatureTransform]:
        """Its method and its transform, where the vectors are."""
        transform = FeatureTransform(self.transform, self.encoder.feature_shape).to(device)
        if self.center is not None:
            transform.set_center(self.center)
        return self.method.to(device), transform


def evaluate_contenders(
    contenders: Sequence[Contender],
    pool: Pool,
    episodes: Sequence[Episode],
    settings: dict[str, Any],
    encoded: dict[Encoder, EncodedPool] | None = None,
    progress: Progress | None = None,
    rejection: Rejection | None = None,
    convention: Convention = "sentence",
) -> list[Result]:
    """Score every contender on the same episodes; each encoder encodes the pool once.

    With `rejection`, for episodes with queries of none of the classes, a contender may reject queries: by its novelty,
    at the threshold that is best for it on the episodes named there. Accuracies are then those with NOTA.

    Where words are tagged, results are F1 of exact spans; `convention` says which one comes first.
    """
    encoded = {} if encoded is None else encoded
    settings = {**settings, "data": pool.name, "split": pool.split, "episode_hash": episodes_hash(pool, episodes)}
    if rejection is not None:
        settings |= rejection.settings()
    if pool.offsets is not None:
        settings |= {"convention": convention}
    results = []
    for number, contender in enumerate(contenders):
        start = time.perf_counter()
        if contender.encoder not in encoded:
            encoded[contender.encoder] = EncodedPool.encode(contender.encoder, pool, cached=True)
        vectors = encoded[contender.encoder]

        def report(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number * total + done, len(contenders) * total)

        own = {"method": contender.method_name, "fit": contender.method.fit, "transform": contender.transform}
        parts = *contender.on(vectors.units.x.device), vectors, episodes
        if pool.offsets is None:
            measured = _accuracy(*parts, settings.get("shot"), rejection, report)
        else:
            measured = _f1(tag_episodes(*parts, report), pool, convention)
        seconds = time.perf_counter() - start
        own_settings = {**contender.settings, **own, **settings}
        results.append(Result(contender.label, own_settings, seconds=seconds, **measured))
    return results


def _f1(tags: Tags, pool: Pool, convention: Convention) -> dict[str, Any]:
    """F1 in the convention asked for, and in the other one; further metrics: parts of a result."""
    values, metrics = tagged_metrics(tags, pool.class_names)
    first = values.pop(convention)
    return {"metric": "f1", "values": first, "metrics": metrics, "others": values}


def _accuracy(
    method: Method,
    transform: FeatureTransform,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    shots: Any,
    rejection: Rejection | None,
    progress: Progress,
) -> dict[str, Any]:
    """Accuracies of the episodes, further metrics and, with rejection, AUROCs of the episodes: parts of a result."""
    unequal = isinstance(shots, list)
    if rejection is None:
        correct, total = episode_accuracies(method, transform, encoded, episodes, progress)
        by_shot = {"accuracy_by_shot": accuracy_by_shot(correct, total, shots)} if unequal else {}
        return {"values": correct.sum(1) / total.sum(1), "metrics": by_shot}
    threshold = rejection.threshold(method, transform, encoded.encoder)
    verdicts = judge_episodes(method, transform, encoded, episodes, progress)
    by_shot = {"accuracy_by_shot": accuracy_by_shot(*verdicts.counts(threshold, len(shots)), shots)} if unequal else {}
    metrics = {**by_shot, "nota": verdicts.metrics(threshold)}
    return {"values": verdicts.accuracies(threshold), "metrics": metrics, "others": {"auroc": verdicts.aurocs()}}
