"""Four methods unlike ours, in a few lines each: if one of them did not fit, the contract would be wrong."""

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import Pool
from hyperproto.encoders import FeatureTransform, Units
from hyperproto.encoders.base import Encoder
from hyperproto.episodes import Episode
from hyperproto.evaluation import EncodedPool, episode_accuracies
from hyperproto.methods import PAD, Method, Task, TaskItems, gather_task


class Viterbi(Method):
    """A token method: nearest word, then the best path within each sentence (no move from class 1 to class 2)."""

    def scores(self, task: Task) -> Tensor:
        distance = torch.cdist(task.query, task.support)
        classes = torch.arange(task.way)
        return torch.stack(
            [-distance.masked_fill((task.support_y != n)[:, None], torch.inf).amin(-1) for n in classes], -1
        )

    def decode(self, scores: Tensor, task: Task) -> Tensor:
        allowed = torch.zeros(task.way, task.way)
        allowed[1, 2] = -torch.inf
        labels = torch.full(scores.shape[:2], PAD)
        for b, offsets in enumerate(task.query_offsets.tolist()):
            for start, stop in pairwise(offsets):
                labels[b, start:stop] = self.best_path(scores[b, start:stop], allowed)
        return labels

    @staticmethod
    def best_path(scores: Tensor, moves: Tensor) -> Tensor:
        if not len(scores):
            return torch.zeros(0, dtype=torch.long)
        total, back = scores[0], []
        for score in scores[1:]:
            best = (total[:, None] + moves).max(0)
            back.append(best.indices)
            total = best.values + score
        path = [int(total.argmax())]
        for step in reversed(back):
            path.append(int(step[path[-1]]))
        return torch.tensor(path[::-1])


def sentences() -> tuple[Units, list[Episode]]:
    """Words are numbers; a word's class is its rounded value. Sentences of 3, 0, 2 and 4 words."""
    words = torch.tensor([0.0, 1.0, 2.1, 1.1, 1.9, 0.1, 1.0, 1.6, 2.0])[:, None]
    units = Units(words, np.array([0, 3, 3, 5, 9]))
    episodes = [
        Episode(np.arange(3), np.array([0]), np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([1, 2, 0, 1, 2, 2])),
        Episode(np.arange(3), np.array([3]), np.array([0, 1, 2, 2]), np.array([2]), np.array([1, 2])),
    ]
    return units, episodes


def test_words_are_gathered_padded_and_keep_their_sentences() -> None:
    units, episodes = sentences()
    task = gather_task(units, episodes)
    assert task.support_y.tolist() == [[0, 1, 2, PAD], [0, 1, 2, 2]]
    assert task.query[0, :, 0].tolist() == units.x[3:9, 0].tolist()
    assert task.query[1, :2, 0].tolist() == units.x[3:5, 0].tolist()
    assert task.query_y is not None
    assert task.query_y.tolist() == [[1, 2, 0, 1, 2, 2], [1, 2, PAD, PAD, PAD, PAD]]
    assert task.query_offsets.tolist() == [[0, 0, 2, 6], [0, 2, 2, 2]]


def test_a_token_method_decodes_sentence_by_sentence() -> None:
    units, episodes = sentences()
    task = gather_task(units, episodes)
    method = Viterbi(feature_shape=(1,), n_classes=0)
    path = method.decode(method.scores(task), task)
    for offsets, labels in zip(task.query_offsets.tolist(), path.tolist(), strict=True):
        for start, stop in pairwise(offsets):
            assert (1, 2) not in list(pairwise(labels[start:stop]))
    free = method.scores(task).argmax(-1)
    assert free[0, :2].tolist() == [1, 2]  # what the path forbids is what the words alone would say
    encoded = EncodedPool(Pool(["w"] * 4, np.zeros(9, int), ("x",), offsets=units.offsets), Words(), units)
    correct, total = episode_accuracies(method, FeatureTransform("none", (1,)), encoded, episodes)
    assert total.tolist() == [[1, 2, 3], [0, 1, 1]]
    assert correct.sum() < total.sum()


class PairOfTexts(Method):
    """A method on the items themselves: counts the words that a query shares with each support text."""

    needs: ClassVar = "items"

    def scores(self, task: Task) -> Tensor:
        assert isinstance(task.items, TaskItems)
        scores = torch.zeros(*task.query.shape[:2], task.way)
        for b, (support, query) in enumerate(zip(task.items.support, task.items.query, strict=True)):
            for q, item in enumerate(query):
                for s, other in enumerate(support):
                    shared = len(task.items.prepared[item] & task.items.prepared[other])
                    scores[b, q, task.support_y[b, s]] += shared
        return scores


class Words(Encoder):
    """Prepares sets of words; has no vectors to give."""

    feature_shape = (0,)

    def prepare(self, items: Any) -> Any:
        return [set(item.split()) for item in items]

    def collate(self, prepared: Any, index: Any) -> int:
        return len(index)

    def forward(self, batch: int) -> Units:
        return Units.one_each(torch.zeros(batch, 0))


def test_a_method_on_pairs_of_texts() -> None:
    texts = ["red fox", "blue sea", "a red fox runs", "the sea is blue", "one fox", "deep sea"]
    pool = Pool(texts, np.array([0, 1, 0, 1, 0, 1]), ("fox", "sea"))
    episode = Episode(np.arange(2), np.array([0, 1]), np.array([0, 1]), np.array([2, 3, 4, 5]), np.array([0, 1, 0, 1]))
    encoded = EncodedPool.encode(Words(), pool)
    correct, total = episode_accuracies(
        PairOfTexts(feature_shape=(0,), n_classes=0), FeatureTransform("none", (0,)), encoded, [episode]
    )
    assert correct.tolist() == total.tolist() == [[2, 2]]


class OneStep(Method):
    """Gradient adaptation: one step of a linear head on the support, at evaluation."""

    needs: ClassVar = "items"

    def scores(self, task: Task) -> Tensor:
        assert task.items is not None
        assert isinstance(task.items.encoder, Encoder)
        with torch.enable_grad():
            head = torch.zeros(len(task.classes), task.support.shape[-1], task.way, requires_grad=True)
            logits = task.support @ head
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), task.support_y.flatten())
            [slope] = torch.autograd.grad(loss, [head])
        return task.query @ -slope


def test_a_method_may_take_gradient_steps_at_evaluation() -> None:
    from hyperproto.encoders.identity import Identity
    from hyperproto.episodes import EpisodeSampler
    from tests.conftest import blobs

    pool = blobs()
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    episodes = EpisodeSampler(pool, way=3, shot=5, query=5).draw(10)
    correct, total = episode_accuracies(
        OneStep(feature_shape=(6,), n_classes=0), FeatureTransform("none", (6,)), encoded, episodes
    )
    assert correct.sum() / total.sum() > 0.6


class StoredCenters(Method):
    """Keeps a centre for every training class and needs no support at all in training."""

    traits: ClassVar = frozenset({"any-way"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.center = nn.Parameter(torch.zeros(self.n_classes, *self.feature_shape))

    def setup(self, pool: Pool, encoder: Encoder) -> None:
        vectors = encoder.encode_all(encoder.prepare(pool.items)).x
        with torch.no_grad():
            for n in range(self.n_classes):
                self.center[n] = vectors[torch.from_numpy(pool.labels == n)].mean(0)

    def scores(self, task: Task) -> Tensor:
        return -torch.cdist(task.query, self.center[task.classes])


def test_a_method_with_stored_centres_trains_without_support() -> None:
    from hyperproto.encoders.identity import Identity
    from hyperproto.episodes import EpisodeSampler
    from tests.conftest import blobs

    pool = blobs()
    method = StoredCenters(feature_shape=(6,), n_classes=pool.n_classes)
    method.setup(pool, Identity(shape=[6]))
    task = gather_task(
        Units.one_each(torch.from_numpy(pool.items)), EpisodeSampler(pool, way=3, shot=0, query=4).draw(2)
    )
    assert task.support.shape == (2, 0, 6)
    method.loss(task)["cls"].backward()
    assert method.center.grad is not None


class LocalDescriptors(Method):
    """A method on feature maps: a query matches a class by its best local descriptors."""

    traits: ClassVar = frozenset({"feature-maps", "any-way"})

    def scores(self, task: Task) -> Tensor:
        support, query = task.support.flatten(3), task.query.flatten(3)  # (B, S, C, places)
        likeness = torch.einsum("bqcp,bscr->bqspr", query, support).amax(-1).mean(-1)  # (B, Q, S)
        member = (task.support_y[..., None] == torch.arange(task.way)).float()
        return likeness @ (member / member.sum(1, keepdim=True).clamp(min=1))


def test_a_method_on_feature_maps() -> None:
    maps = torch.zeros(8, 2, 3, 3)
    labels = np.arange(8) % 2
    for item, label in enumerate(labels):
        maps[item, label, item % 3, item // 3] = 1  # the class is the channel, wherever the spot is
    episode = Episode(np.arange(2), np.array([0, 1]), labels[:2], np.arange(2, 8), labels[2:])
    encoded = EncodedPool(Pool(maps.numpy(), labels, ("a", "b")), Words(), Units.one_each(maps))
    for kind in ("none", "unit", "center-unit"):
        transform = FeatureTransform(kind, (2, 3, 3))
        correct, _ = episode_accuracies(
            LocalDescriptors(feature_shape=(2, 3, 3), n_classes=0), transform, encoded, [episode]
        )
        assert correct.tolist() == [[3, 3]]
