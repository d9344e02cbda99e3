"""Five methods unlike ours, in a few lines each: if one of them did not fit, the contract would be wrong."""

from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.comparison.measure import evaluate_candidates
from hyperproto.data import Pool
from hyperproto.decisions import Decision
from hyperproto.encoders import Encoder, Features, FeatureTransform, Units
from hyperproto.encoders.conv4 import Conv4
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, Predictor, predict_episodes, score_episodes
from hyperproto.methods import PAD, Method, Task, TaskItems, gather_task
from hyperproto.methods.parts import masked_mean
from hyperproto.problems.classification import count_correct
from hyperproto.recipes import Augmentation
from hyperproto.testing import check_method
from hyperproto.training import Learner, load_recipe
from hyperproto.training.sources import Candidate
from tests.conftest import blobs
from tests.helpers.predicting import accuracies, decided


class NearestWord(Method):
    """A token method: minus the distance to the nearest word of each class."""

    def scores(self, task: Task) -> Tensor:
        distance = torch.cdist(task.query, task.support)
        classes = torch.arange(task.way)
        return torch.stack(
            [-distance.masked_fill((task.support_y != n)[:, None], torch.inf).amin(-1) for n in classes], -1
        )


class NoMove(Decision):
    """The best path within each sentence, without a move from class 1 to class 2."""

    def decide(self, scores: Tensor, task: Task) -> Tensor:
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
    method, decision = NearestWord(feature_shape=(1,), n_classes=0), NoMove(dimension=1)
    path = decided(method, task, decision)
    for offsets, labels in zip(task.query_offsets.tolist(), path.tolist(), strict=True):
        for start, stop in pairwise(offsets):
            assert (1, 2) not in list(pairwise(labels[start:stop]))
    free = method.scores(task).argmax(-1)
    assert free[0, :2].tolist() == [1, 2]  # what the path forbids is what the words alone would say
    encoder = Identity(shape=[1])
    encoded = EncodedPool(Pool(["w"] * 4, np.zeros(9, int), ("x",), offsets=units.offsets), encoder, units)
    found = predict_episodes(Predictor.of(method, encoder, decision=decision), encoded, episodes)
    correct, total = count_correct(found)
    assert total.tolist() == [[1, 2, 3], [0, 1, 1]]
    assert correct.sum() < total.sum()


class PairOfTexts(Method):
    """A method on the items themselves: counts the words that a query shares with each support text."""

    reads: ClassVar = "items"

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
    """Prepares sets of words; has no vectors to give, and says so if it is asked for some."""

    feature_shape = (0,)

    def prepare(self, items: Any) -> Any:
        return [set(item.split()) for item in items]

    def forward(self, batch: Any) -> Units:
        raise AssertionError("nothing asked for vectors")


def test_a_method_on_pairs_of_texts_causes_no_encoding() -> None:
    texts = ["red fox", "blue sea", "a red fox runs", "the sea is blue", "one fox", "deep sea"]
    pool = Pool(texts, np.array([0, 1, 0, 1, 0, 1]), ("fox", "sea"))
    episode = Episode(np.arange(2), np.array([0, 1]), np.array([0, 1]), np.array([2, 3, 4, 5]), np.array([0, 1, 0, 1]))
    method = PairOfTexts(feature_shape=(0,), n_classes=0)
    candidate = Candidate("pairs", Words(), method, "pairs", Decision(dimension=0), "none", {})
    [result] = evaluate_candidates([candidate], pool, [episode], {})
    assert result.values.tolist() == [1.0]
    with pytest.raises(ConfigError, match="Words reads items one by one, not in pairs; choose a text transformer"):
        TaskItems.of(candidate.predictor.features, pool, [episode]).pairs(episode.support, episode.query[:2])


class Counting(Identity):
    """Scales vectors by a weight, and counts what is encoded."""

    def __init__(self, *, shape: list[int]) -> None:
        super().__init__(shape=shape)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.encoded = 0

    def forward(self, batch: Tensor) -> Units:
        self.encoded += len(batch)
        return Units.one_each(self.scale * batch)


class OneStep(Method):
    """Gradient adaptation: one step of the encoder's own weights on the support, in training and evaluation alike."""

    reads: ClassVar = "items"
    traits = frozenset({"any-way", "any-shot", "unequal-shots", "untrained"})

    def scores(self, task: Task) -> Tensor:
        items = task.items
        assert items is not None
        rows = []
        for b, (support, query) in enumerate(zip(items.support, items.query, strict=True)):
            batch, labels = items.batch(support), task.support_y[b, : len(support)]
            with torch.enable_grad():
                weights = {name: p.detach().requires_grad_() for name, p in items.features.encoder.named_parameters()}
                loss = F.cross_entropy(self._against(items.features(batch, weights).x, labels, task.way), labels)
                slopes = torch.autograd.grad(loss, list(weights.values()))
            stepped = {name: p - 0.01 * s for (name, p), s in zip(weights.items(), slopes, strict=True)}
            means = self._means(items.features(batch, stepped).x, labels, task.way)
            rows.append(-torch.cdist(items.features(items.batch(query), stepped).x, means))
        return torch.stack(rows)

    def _means(self, x: Tensor, labels: Tensor, way: int) -> Tensor:
        return torch.stack([x[labels == n].mean(0) for n in range(way)])

    def _against(self, x: Tensor, labels: Tensor, way: int) -> Tensor:
        return -torch.cdist(x, self._means(x, labels, way))


@pytest.mark.parametrize("transform", ["none", "unit"])
def test_items_come_with_the_same_features_in_training_and_evaluation(transform: str) -> None:
    pool = blobs()
    encoder = Counting(shape=[6])
    learner = Learner.of(OneStep(feature_shape=(6,), n_classes=8), encoder, transform)
    episodes = EpisodeSampler(pool, way=3, shot=5, query=5).draw(4)
    batch, drawn, items = learner.train().collate(pool, episodes[:1])
    assert batch is None
    assert items is not None
    assert items.features is learner.features
    learner(batch, drawn, items)
    assert encoder.encoded == 15 + 15 + 15  # support before and after its step, and the queries: nothing else
    encoder.encoded = 0
    [(task, scores)] = score_episodes(learner, EncodedPool.unread(encoder, pool), episodes)
    assert encoder.encoded == 4 * 45
    assert task.items is not None
    assert task.items.features is learner.features
    x = task.items.features(task.items.batch(episodes[0].support)).x
    lengths = x.norm(dim=-1)
    assert torch.allclose(lengths, torch.ones(15)) == (transform == "unit")
    assert task.query_y is not None
    assert (scores.argmax(-1) == task.query_y).float().mean() > 0.6


def test_items_are_augmented_in_training_only() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 16, 16), dtype=np.uint8)
    pool = Pool(pixels, np.arange(8) % 2, ("a", "b"))
    encoder = Conv4(size=16)
    transform = FeatureTransform("none", encoder.feature_shape)
    features = Features(encoder, transform, Augmentation(crop=4, flip=True))
    items = TaskItems.of(features, pool, EpisodeSampler(pool, way=2, shot=1, query=1).draw(1))
    plain = features.collate(features.prepared(pool), np.arange(8))
    features.eval()
    assert torch.equal(items.batch(np.arange(8)), plain)
    features.train()
    torch.manual_seed(0)
    assert not torch.equal(items.batch(np.arange(8)), plain)


class StoredCenters(Method):
    """Keeps a centre for every training class and needs no support at all in training."""

    traits = frozenset({"any-way"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.center = nn.Parameter(torch.zeros(self.n_classes, *self.feature_shape))

    def setup(self, pool: Pool, features: Features) -> None:
        vectors = features.encode_all(features.prepared(pool)).x
        with torch.no_grad():
            for n in range(self.n_classes):
                self.center[n] = vectors[torch.from_numpy(pool.labels == n)].mean(0)

    def scores(self, task: Task) -> Tensor:
        return -torch.cdist(task.query, self.center[task.classes])


def test_a_method_with_stored_centres_trains_without_support() -> None:
    pool = blobs()
    method = StoredCenters(feature_shape=(6,), n_classes=pool.n_classes)
    method.setup(pool, Features(Identity(shape=[6]), FeatureTransform("none", (6,))))
    task = gather_task(
        Units.one_each(torch.from_numpy(pool.items)), EpisodeSampler(pool, way=3, shot=0, query=4).draw(2)
    )
    assert task.support.shape == (2, 0, 6)
    torch.autograd.backward(method.loss(task)["cls"])
    assert method.center.grad is not None


class LocalDescriptors(Method):
    """A method on feature maps: a query matches a class by its best local descriptors."""

    reads: ClassVar = "maps"
    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})

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
    encoder = Identity(shape=[2, 3, 3])
    encoded = EncodedPool(Pool(maps.numpy(), labels, ("a", "b")), encoder, Units.one_each(maps))
    for kind in ("none", "unit", "center-unit"):
        method = LocalDescriptors(feature_shape=(2, 3, 3), n_classes=0)
        assert accuracies(method, encoded, [episode], kind)[0].tolist() == [[3, 3]]
    check_method(LocalDescriptors)
    with pytest.raises(ConfigError, match=r"LocalDescriptors reads feature maps, but the encoder gives vectors of "
                                          r'shape \(6,\); add output = "maps" to \[encoder\]'):  # fmt: skip
        LocalDescriptors(feature_shape=(6,), n_classes=0)


class NearestTokens(Method):
    """A method on token states: a query matches a class by the nearest token of it that each of its own has."""

    reads: ClassVar = "tokens"
    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})

    def scores(self, task: Task) -> Tensor:
        assert task.support_mask is not None
        assert task.query_mask is not None
        tokens = task.query[:, :, None, :, None] - task.support[:, None, :, None]  # (B, Q, S, L', L, C)
        absent = ~task.support_mask[:, None, :, None]  # (B, 1, S, 1, L)
        nearest = tokens.square().sum(-1).masked_fill(absent, torch.inf).amin(-1)  # (B, Q, S, L')
        near = -masked_mean(nearest, task.query_mask[:, :, None], -1)  # (B, Q, S)
        return near @ (task.members() / task.counts()[:, None].clamp(min=1))


class ForgetsTheMask(NearestTokens):
    """Takes the zeros of padding for tokens."""

    def scores(self, task: Task) -> Tensor:
        return task.query.mean(2) @ (task.support.mean(2).mT @ task.members())


class Embeddings(NearestTokens):
    """Reads what the filters of the CNN read."""

    token_output: ClassVar = "embeddings"


def test_a_method_on_token_states() -> None:
    check_method(NearestTokens)
    with pytest.raises(AssertionError, match="scores differently alone and in a batch"):
        check_method(ForgetsTheMask)


def test_a_task_has_token_states_and_masks_as_long_as_its_longest_item() -> None:
    mask = torch.arange(7) < torch.tensor([2, 5, 1, 7])[:, None]
    units = Units.one_each(torch.randn(4, 7, 3).masked_fill(~mask[..., None], 0.0), mask)
    episode = Episode(np.arange(1), np.array([2, 0]), np.array([0, 0]), np.array([1]), np.array([0]))
    task = gather_task(units, [episode])
    assert task.support_mask is not None
    assert task.query_mask is not None
    assert task.support_mask.shape == task.support.shape[:-1] == (1, 2, 5)
    assert task.query_mask.shape == task.query.shape[:-1] == (1, 1, 5)
    assert task.support_mask.sum(-1).tolist() == [[1, 2]]
    assert torch.equal(task.support[0], units.x[[2, 0], :5])


@pytest.mark.parametrize(
    ("cls", "shape", "words"),
    [
        (NearestTokens, (6,), r"NearestTokens reads token states, but the encoder gives vectors of shape \(6,\); "
         r'choose relation-cnn or relation-transformer with output = "maps" in \[encoder\]'),
        (NearestTokens, (8, 3, 3), r"token states, but the encoder gives maps of shape \(8, 3, 3\); choose relation"),
        (Embeddings, (6,), r'\(6,\); choose relation-cnn with output = "embeddings" in \[encoder\]'),
        (LocalDescriptors, (-1, 6), r"reads feature maps of one size, but the encoder gives token states of shape "
         r'\(-1, 6\); choose an image encoder, with output = "maps"'),
        (NearestWord, (-1, 6), r"reads vectors, but the encoder gives units of shape \(-1, 6\); leave output out of"),
    ],
)  # fmt: skip
def test_units_of_another_shape_are_refused_by_the_output_to_choose(
    cls: type[Method], shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        cls(feature_shape=shape, n_classes=0)


def test_a_recipe_with_a_method_on_token_states_is_checked() -> None:
    name = f"{Path(__file__)}:NearestTokens"
    recipe = load_recipe("fewrel-cnn:protonet", [f"method={{name='{name}'}}", "encoder.output='maps'"])
    assert recipe.method.name == name
    with pytest.raises(ConfigError, match=r"optim\.head: there is no optimiser section 'head'"):
        load_recipe("fewrel-cnn:protonet", [f"method={{name='{name}'}}", "optim.head={lr=0.1}"])
