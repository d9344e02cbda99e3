"""Scoring many episodes in one batched call, against a loop over the episodes on the same vectors."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Measurement, in_turns
from hyperproto.data import Pool
from hyperproto.encoders import make_encoder
from hyperproto.episodes import EpisodeSampler
from hyperproto.evaluation import EncodedPool, Predictor, measure_episodes, predict_episodes
from hyperproto.methods import make_method

WAY, SHOT, QUERY = 5, 5, 15
Predict = Callable[[Tensor, Tensor], Tensor]
TARGETS = {768: 1.5, 64: 5.0}  # by dimension


def batched_scoring(quick: bool) -> list[Measurement]:
    """Measure ProtoNet on ready vectors, 5-way 5-shot, 15 queries a class."""
    return [_at(dimension, target, quick) for dimension, target in TARGETS.items()]


def _at(dimension: int, target: float, quick: bool) -> Measurement:
    n_episodes, repeats = (50, 3) if quick else (2000, 25)
    encoded = EncodedPool.encode(make_encoder("identity", {"shape": [dimension]}), _vectors(dimension))
    episodes = EpisodeSampler(encoded.pool, way=WAY, shot=SHOT, query=QUERY).draw(n_episodes)
    method = make_method("protonet", feature_shape=(dimension,)).eval()
    predictor = Predictor.of(method, encoded.encoder)

    def batched() -> Tensor:
        return torch.from_numpy(measure_episodes(predictor, encoded, episodes).values)

    vectors = encoded.units.x
    tasks = [tuple(map(torch.from_numpy, (e.support, e.query, e.query_y))) for e in episodes]
    times = in_turns(batched, lambda: accuracies_one_by_one(vectors, tasks, nearest_mean), repeats)
    by_product = in_turns(batched, lambda: accuracies_one_by_one(vectors, tasks, nearest_mean_by_product), repeats)
    predicted = torch.cat([block.labels for block in predict_episodes(predictor, encoded, episodes)])
    looped = torch.stack([nearest_mean(vectors[support], vectors[query]) for support, query, _ in tasks])
    name = f"batched scoring, D = {dimension}"
    measured = times.measurement(
        name,
        "a torch loop over the episodes (cdist)",
        ">=",
        target,
        ratio_to_loop_by_product=by_product.measurement(name, "", ">=", target).ratio,
        episodes=n_episodes,
        agreement=(predicted == looped).double().mean().item(),
    )
    for who, spent in (("ours", measured.ours_seconds), ("baseline", measured.baseline_seconds)):
        measured.detail[f"{who}_episodes_per_second"] = round(n_episodes / (spent or np.inf))
    return measured


@torch.inference_mode()
def accuracies_one_by_one(vectors: Tensor, tasks: Iterable[tuple[Tensor, ...]], predict: Predict) -> Tensor:
    """Score episodes (support, query, query_y) in a plain loop."""
    accuracies = []
    for support, query, query_y in tasks:
        predicted = predict(vectors[support], vectors[query])
        accuracies.append((predicted == query_y).double().mean())
    return torch.stack(accuracies)


def nearest_mean(support: Tensor, query: Tensor) -> Tensor:
    """Classify the queries (Q, D) of one episode by the nearest mean of its support (WAY * SHOT, D)."""
    means = support.reshape(WAY, SHOT, -1).mean(1)
    return torch.cdist(query, means).argmin(1)


def nearest_mean_by_product(support: Tensor, query: Tensor) -> Tensor:
    """Classify by the same distances as one matrix product, without the term ||x||^2 that all classes share."""
    means = support.reshape(WAY, SHOT, -1).mean(1)
    return ((means * means).sum(1) - 2 * query @ means.T).argmin(1)


def _vectors(dimension: int) -> Pool:
    """Draw 100 classes of 100 vectors, about as separable as real ones."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 100)
    centers = 2 * random.standard_normal((100, dimension), np.float32) / dimension**0.25
    vectors = centers[labels] + random.standard_normal((len(labels), dimension), np.float32)
    return Pool(vectors, labels, tuple(map(str, range(100))))
