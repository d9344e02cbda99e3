"""Encoding each item of the pool once, against encoding every episode anew."""

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from benchmarks.batched_scoring import QUERY, SHOT, WAY, nearest_mean
from benchmarks.measure import Measurement, Times, seconds
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import Encoder, make_encoder, resolve_encoder
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.evaluation import EncodedPool, Predictor, measure_episodes, predict_episodes
from hyperproto.methods import make_method

SHARE = 0.8  # of the redundancy: what of the encodings saved must show as time saved


def encode_once(quick: bool) -> list[Measurement]:
    """Measure an evaluation of ProtoNet on glyphs with an untrained Conv4: its speed does not depend on its weights."""
    n_episodes, repeats = (200, 2) if quick else (2000, 5)
    pool = open_pool("glyphs", "test")
    if quick:
        pool = replace(pool, items=pool.items[:400], labels=pool.labels[:400], class_names=pool.class_names[:10])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = make_encoder(*resolve_encoder("conv4", {}, pool)).eval()
    episodes = EpisodeSampler(pool, way=WAY, shot=SHOT, query=QUERY).draw(n_episodes)
    method = make_method("protonet", feature_shape=encoder.feature_shape).eval()
    predictor = Predictor.of(method, encoder)

    def once_and_anew() -> tuple[float, float, int]:
        """Encode and score; after each batch our clock stops and the baseline runs for a while."""
        anew: list[float] = []
        pairs = iter(zip(episodes[::2], episodes[1::2], strict=True))

        def turn(done: int, total: int) -> None:
            pair = next(pairs)
            anew.append(seconds(lambda: predict_anew(encoder, pool, pair)))

        start = perf_counter()
        measure_episodes(predictor, EncodedPool.encode(encoder, pool, turn), episodes)
        return perf_counter() - start - sum(anew), sum(anew), 2 * len(anew)

    once_and_anew()  # to warm up
    runs = [once_and_anew() for _ in range(repeats)]
    n_anew = runs[0][2]
    times = Times([once for once, _, _ in runs], [anew * n_episodes / n_anew for _, anew, _ in runs])
    few = episodes[:n_anew]
    encoded = EncodedPool.encode(encoder, pool)
    predicted = torch.cat([block.labels for block in predict_episodes(predictor, encoded, few)])
    redundancy = n_episodes * len(_items(episodes[0])) / len(pool)
    measured = times.measurement(
        "encode once",
        "encoding every episode anew",
        ">=",
        SHARE * redundancy,
        redundancy=redundancy,
        episodes=n_episodes,
        items=len(pool),
        baseline_extrapolated_from_episodes=n_anew,
        agreement=(predicted == predict_anew(encoder, pool, few)).double().mean().item(),
    )
    return [measured]


@torch.inference_mode()
def predict_anew(encoder: Encoder, pool: Pool, episodes: Sequence[Episode]) -> Tensor:
    """Encode the items of each episode in one forward, and classify its queries: (E, Q)."""
    predicted = []
    for episode in episodes:
        vectors = encoder(encoder.collate(pool.items, _items(episode))).x
        n_support = len(episode.support)
        predicted.append(nearest_mean(vectors[:n_support], vectors[n_support:]))
    return torch.stack(predicted)


def _items(episode: Episode) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate([episode.support, episode.query])
