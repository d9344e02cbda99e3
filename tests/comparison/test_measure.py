"""Candidates on the same episodes: what their results say, and how they are compared."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import IntArray, Pool
from hyperproto.decisions import Decision
from hyperproto.encoders import Encoder, Units
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import EpisodeSampler, episodes_hash
from hyperproto.evaluation import EncodedPool, Result, compare
from hyperproto.methods import Method, Task, make_method
from hyperproto.problems import paired_difference
from hyperproto.training.sources import Candidate
from tests.helpers.predicting import accuracies, source


def test_results_say_what_they_are(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(noise=2.0)
    settings = {"way": 3, "shot": [1, 5, 9], "query": 4, "episodes": 50, "seed": 3}
    episodes = EpisodeSampler(pool, way=3, shot=[1, 5, 9], query=4, seed=3).draw(50)
    candidates = select([source()], ["protonet", "hyperproto"], ["bayes", "paper"], ["unit"], {})
    progress: list[tuple[int, int, str]] = []
    results = evaluate_candidates(candidates, pool, episodes, settings, progress=lambda *seen: progress.append(seen))
    assert progress[-1] == (150, 150, "episodes scored by 3 candidates")
    content = results[0].to_json()
    assert content["episode_hash"] == episodes_hash(pool, episodes)
    expected = {"method": "protonet", "fit": "point", "transform": "unit", "data": "blobs", "split": "all", **settings}
    assert {key: content[key] for key in expected} == expected
    assert 0 < content["accuracy"] < 1
    assert content["ci95"] > 0
    assert content["seconds"] > 0
    by_shot = content["metrics"]["accuracy_by_shot"]
    assert list(by_shot) == ["1", "5", "9"]
    assert np.mean(list(by_shot.values())) == pytest.approx(content["accuracy"])
    assert by_shot["1"] < by_shot["9"]  # ProtoNet all but ignores its rare classes
    rows = compare(results)
    assert [(row["a"], row["b"]) for row in rows] == [
        ("protonet point unit", "hyperproto bayes unit"),
        ("protonet point unit", "hyperproto paper unit"),
        ("hyperproto bayes unit", "hyperproto paper unit"),
    ]
    difference, ci95 = paired_difference(results[0].values, results[1].values)
    assert (rows[0]["difference"], rows[0]["ci95"]) == (difference, ci95)


def test_different_episodes_are_not_paired() -> None:
    results = [Result(name, {"episode_hash": name}, np.ones(3)) for name in ("a", "b")]
    with pytest.raises(ValueError, match="different episodes"):
        compare(results)


class CountingItems(Identity):
    """Doubles vectors, so that what was encoded differs from what was not; counts each item that it encodes."""

    def __init__(self, n_items: int) -> None:
        super().__init__(shape=[6])
        self.seen = np.zeros(n_items, int)

    def collate(self, prepared: Any, index: IntArray) -> Tensor:
        self.seen[index] += 1
        return super().collate(prepared, index)

    def forward(self, batch: Any) -> Units:
        return Units.one_each(2 * batch)

    def encode_all(self, prepared: Any, progress: Any = None) -> Units:
        return super(Identity, self).encode_all(prepared)


class MeansOfItems(Method):
    """ProtoNet that encodes the items of each episode by itself."""

    reads = "items"
    traits = frozenset({"any-way", "any-shot"})

    def scores(self, task: Task) -> Tensor:
        items = task.items
        assert items is not None
        assert task.query.shape[-1] == 0  # it gets no vectors
        rows = []
        for b, (support, query) in enumerate(zip(items.support, items.query, strict=True)):
            x, labels = items.features(items.batch(support)).x, task.support_y[b]
            means = torch.stack([x[labels == n].mean(0) for n in range(task.way)])
            rows.append(-torch.cdist(items.features(items.batch(query)).x, means))
        return torch.stack(rows)


@pytest.mark.parametrize("items_first", [True, False])
@pytest.mark.parametrize("transform", ["none", "unit"])
def test_a_method_of_items_beside_one_of_vectors(
    items_first: bool, transform: str, make_blobs: Callable[..., Pool]
) -> None:
    pool = make_blobs(noise=2.0)
    encoder = CountingItems(len(pool))
    protonet = make_method("protonet", feature_shape=(6,))
    methods = [protonet, MeansOfItems(feature_shape=(6,), n_classes=0)]
    candidates = [
        Candidate(type(m).__name__, encoder, m, "m", Decision(dimension=6), transform, {})
        for m in (reversed(methods) if items_first else methods)
    ]
    episodes = EpisodeSampler(pool, way=3, shot=2, query=4).draw(6)
    encoded: dict[Encoder, EncodedPool] = {}
    results = evaluate_candidates(candidates, pool, episodes, {}, encoded)
    plain = EncodedPool(pool, encoder, Units.one_each(2 * torch.from_numpy(pool.items)))
    correct, total = accuracies(protonet, plain, episodes, transform)
    for result in results:  # the same answers, whoever encodes
        np.testing.assert_allclose(result.values, correct.sum(1) / total.sum(1))
    assert 0 < results[0].values.mean() < 1
    drawn = np.bincount(np.concatenate([np.concatenate([e.support, e.query]) for e in episodes]), minlength=len(pool))
    assert np.array_equal(encoder.seen, 1 + drawn)  # once for the vectors, and what the episodes drew for the items
    assert list(encoded) == [encoder]  # what was not encoded is not handed to others
    assert encoded[encoder].units.x.shape == (len(pool), 6)
