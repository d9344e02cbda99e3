"""Encode once, score in blocks: the same answers as one episode at a time, and no item encoded twice."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.comparison.measure import evaluate_candidates
from hyperproto.data import Pool
from hyperproto.decisions import Decision
from hyperproto.encoders import Units
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import EpisodeSampler
from hyperproto.errors import ConfigError, DataError
from hyperproto.evaluation import EncodedPool, predict_episodes, scoring, training_center
from hyperproto.evaluation.scoring import check_shape
from hyperproto.methods import Method, Task, make_method
from hyperproto.training.sources import Candidate
from tests.helpers.predicting import accuracies, predictor


class Counting(Identity):
    """Counts how often each item is encoded."""

    def __init__(self, n_items: int) -> None:
        super().__init__(shape=[6])
        self.seen = np.zeros(n_items, int)

    def encode_all(self, prepared: object, progress: object = None) -> Units:
        return super(Identity, self).encode_all(prepared)  # the general way, in batches

    def collate(self, prepared: object, index: np.ndarray) -> torch.Tensor:
        self.seen[index] += 1
        return super().collate(prepared, index)  # type: ignore[arg-type]


def test_each_item_is_encoded_once(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs()
    encoder = Counting(len(pool))
    encoded = EncodedPool.encode(encoder, pool)
    episodes = EpisodeSampler(pool, way=4, shot=2, query=5).draw(50)
    for name in ("protonet", "hyperproto"):
        accuracies(make_method(name, feature_shape=(6,)), encoded, episodes)
    assert (encoder.seen == 1).all()


@pytest.mark.parametrize("kind", ["none", "unit", "center-unit"])
@pytest.mark.parametrize("shot", [1, (1, 4, 2)])
def test_blocks_give_what_single_episodes_give(
    kind: str, shot: int, make_blobs: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_blobs(noise=2.5)
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    episodes = EpisodeSampler(pool, way=3, shot=shot, query=5).draw(40)
    for name, fit in (("protonet", "point"), ("hyperproto", "bayes"), ("hyperproto", "paper")):
        method = make_method(name, feature_shape=(6,), fit=fit)
        together = accuracies(method, encoded, episodes, kind)
        monkeypatch.setattr(scoring, "BLOCK_BYTES", 1)
        alone = accuracies(method, encoded, episodes, kind)
        monkeypatch.undo()
        assert np.array_equal(together[0], alone[0])
        assert np.array_equal(together[1], alone[1])


def test_accuracy_against_a_plain_loop(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(noise=2.5)
    episodes = EpisodeSampler(pool, way=3, shot=(1, 4, 2), query=5).draw(30)
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    correct, total = accuracies(make_method("protonet", feature_shape=(6,)), encoded, episodes, "unit")
    x = pool.items / np.linalg.norm(pool.items, axis=1, keepdims=True)
    for row, episode in zip(correct, episodes, strict=True):
        means = [x[episode.support[episode.support_y == n]].mean(0) for n in range(3)]
        right = [0, 0, 0]
        assert episode.query_y is not None
        for item, label in zip(episode.query, episode.query_y, strict=True):
            right[label] += int(np.argmin([((x[item] - mean) ** 2).sum() for mean in means]) == label)
        assert row.tolist() == right
    assert (total == 5).all()


def test_center_unit_subtracts_the_training_mean_or_the_mean_of_class_means(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs()
    episode = EpisodeSampler(pool, way=3, shot=(1, 9, 2), query=2)[0]
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    method = make_method("simpleshot", feature_shape=(6,))
    for center in (None, torch.arange(6.0)):
        if center is None:
            rows = [pool.items[episode.support[episode.support_y == n]].mean(0) for n in range(3)]
            expected_center = np.mean(rows, axis=0)
        else:
            expected_center = center.numpy()
        [answers] = predict_episodes(predictor(method, encoded, "center-unit", center), encoded, [episode])
        shifted = pool.items[episode.query] - expected_center
        expected = shifted / np.linalg.norm(shifted, axis=1, keepdims=True)
        np.testing.assert_allclose(answers.task.query[0].numpy(), expected, rtol=1e-4, atol=1e-5)


def test_the_training_center_is_the_mean_of_the_training_vectors(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs()
    encoder = Identity(shape=[6]).train()
    np.testing.assert_allclose(training_center(encoder, pool).numpy(), pool.items.mean(0), rtol=1e-4, atol=1e-5)
    assert encoder.training


def test_the_matrix_is_never_changed(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs()
    before = pool.items.copy()
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    episodes = EpisodeSampler(pool, way=3, shot=2, query=5).draw(10)
    for kind in ("unit", "center-unit"):
        accuracies(make_method("hyperproto", feature_shape=(6,)), encoded, episodes, kind)
    assert np.array_equal(pool.items, before)


class Fixed(Method):
    """Serves the way and shot it was made for."""

    def scores(self, task: Task) -> torch.Tensor:
        return torch.zeros(*task.query.shape[:2], task.way)


class AnyWay(Fixed):
    """Fixed in its shots only."""

    traits = frozenset({"any-way"})


class AnyShot(Fixed):
    """Fixed in its way only."""

    traits = frozenset({"any-shot"})


class Closed(Identity):
    """Fails if anything is encoded."""

    def encode_all(self, prepared: object, progress: object = None) -> Units:
        raise AssertionError("encoded before the episodes were looked at")


FIVE = "was trained with 5 classes an episode and serves no other number, but these have 3; evaluate it 5-way, or"
TWO = "was trained with 2 shots and serves no other number, but these episodes have"


@pytest.mark.parametrize(
    ("cls", "own", "shot", "words"),
    [
        (Fixed, {"way": 5, "shot": 2}, 2, f"Fixed {FIVE} train it 3-way"),
        (AnyShot, {"way": 5, "shot": 9}, 2, f"AnyShot {FIVE}"),
        (Fixed, {"way": 3, "shot": 2}, 4, f"Fixed {TWO} 4; evaluate it with its own, or train it with these"),
        (AnyWay, {"way": 5, "shot": 2}, 1, f"AnyWay {TWO} 1;"),
        (Fixed, {"way": 3, "shot": 2}, (2, 2, 1), f"{TWO} 1, 2;"),
        (AnyWay, {"shot": [1, 2, 4]}, (1, 2, 2), r"was trained with \[1, 2, 4\] shots and .* have 1, 2;"),
        (AnyWay, {"shot": [1, 2, 4]}, 2, r"was trained with \[1, 2, 4\] shots and .* have 2;"),
    ],
)
def test_other_episodes_than_a_method_serves_are_refused_before_anything_is_encoded(
    cls: type[Method], own: dict[str, Any], shot: int | tuple[int, ...], words: str, make_blobs: Callable[..., Pool]
) -> None:
    pool = make_blobs()
    episodes = EpisodeSampler(pool, way=3, shot=shot, query=2).draw(3)
    method, encoder = cls(feature_shape=(6,), n_classes=0, **own), Closed(shape=[6])
    free = make_method("protonet", feature_shape=(6,))  # comes first, and would be encoded for first
    candidates = [
        Candidate(type(m).__name__, encoder, m, "m", Decision(dimension=6), "none", {}) for m in (free, method)
    ]
    with pytest.raises(ConfigError, match=words):
        evaluate_candidates(candidates, pool, episodes, {})
    with pytest.raises(ConfigError, match=words):
        next(predict_episodes(candidates[1].predictor, EncodedPool.unread(encoder, pool), episodes))


def test_its_own_episodes_and_any_where_nothing_is_fixed_are_served(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs()

    def check(cls: type[Method], own: dict[str, Any], way: int, shot: int | tuple[int, ...]) -> None:
        episodes = EpisodeSampler(pool, way=way, shot=shot, query=2).draw(2)
        check_shape(cls(feature_shape=(6,), n_classes=0, **own), episodes)

    check(Fixed, {"way": 3, "shot": 2}, 3, 2)
    check(Fixed, {"way": 3, "shot": [1, 2, 4]}, 3, (1, 2, 4))
    check(AnyWay, {"way": 3, "shot": 2}, 4, 2)
    check(AnyShot, {"way": 3, "shot": 2}, 3, (1, 5, 2))
    check(Fixed, {}, 4, 7)  # made without a recipe: nothing is known
    mixed = [EpisodeSampler(pool, way=way, shot=2, query=2)[0] for way in (3, 3, 4)]
    with pytest.raises(ConfigError, match="serves no other number, but these have 4"):  # not only the first counts
        check_shape(Fixed(feature_shape=(6,), n_classes=0, way=3, shot=2), mixed)


@pytest.mark.parametrize("value", [3e20, 3e200])
def test_vectors_whose_squares_cannot_be_represented_are_refused_by_row(
    make_blobs: Callable[..., Pool], value: float
) -> None:
    pool = make_blobs()
    items = np.asarray(pool.items).astype(np.float32 if value < 1e30 else np.float64)
    items[11, 2] = -value
    pool = replace(pool, items=items, name="vectors:large.npz")
    episodes = EpisodeSampler(pool, way=3, shot=2, query=2, seed=0).draw(3)
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    wanted = rf"vectors:large.npz: row 11 of the vectors holds -{value:.0e}; its squared distance cannot be represented"
    for name in ("hyperproto", "cosine"):
        method = make_method(name, feature_shape=(6,), n_classes=0)
        with pytest.raises(DataError, match=wanted.replace("+", r"\+")):
            list(predict_episodes(predictor(method, encoded), encoded, episodes))
        answers = predict_episodes(predictor(method, encoded, "unit"), encoded, episodes)
        assert all(bool(torch.isfinite(each.scores).all()) for each in answers)
