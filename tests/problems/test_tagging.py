"""Tagging episodes: every method at token level, through the same classes as for images."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.data import OUTSIDE, Pool
from hyperproto.decisions import DECISION_OPTIONS
from hyperproto.encoders import Units
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import Episode, GreedySampler
from hyperproto.errors import EpisodeError
from hyperproto.evaluation import EncodedPool
from hyperproto.methods import METHODS, gather_task, make_method
from hyperproto.methods.stored import StoredRegions
from hyperproto.problems import Tags, span_errors
from tests.conftest import blobs
from tests.helpers.predicting import tags_by
from tests.helpers.tagged import random_sentences

POOL = random_sentences(150, 5, most_runs=3)


def words(noise: float = 0.5) -> Units:
    """A vector for each word, around the centre of its type; O is a type of its own."""
    random = np.random.default_rng(0)
    centers = 2 * random.normal(size=(POOL.n_classes + 1, 8))
    vectors = centers[POOL.labels] + noise * random.normal(size=(len(POOL.labels), 8))
    assert POOL.offsets is not None
    return Units(torch.from_numpy(vectors.astype(np.float32)), POOL.offsets)


def tag(name: str, episodes: list[Episode], noise: float = 0.5, **options: Any) -> Tags:
    encoded = EncodedPool(POOL, Identity(shape=[8]), words(noise))
    decision = {key: value for key, value in options.items() if key in DECISION_OPTIONS}
    own = {key: value for key, value in options.items() if key not in decision}
    return tags_by(make_method(name, feature_shape=(8,), **own), encoded, episodes, **decision)


EPISODES = GreedySampler(POOL, way=3, shot=2, query=2).draw(12)


UNTRAINED = [name for name in METHODS.names() if {"untrained", "unequal-shots"} <= METHODS.get(name).traits]


@pytest.mark.parametrize(("name", "fit"), [(name, fit) for name in UNTRAINED for fit in METHODS.get(name).fits])
def test_every_method_that_needs_no_training_tags_words(name: str, fit: str) -> None:
    tags = tag(name, EPISODES, fit=fit)
    assert tags.counts("sentence").f1 > 0.4
    assert len(tags.episodes) == 13


def test_the_truth_comes_back_in_the_pools_own_classes() -> None:
    tags = tag("protonet", EPISODES)
    assert POOL.offsets is not None
    sentences = [i for episode in EPISODES for i in episode.query.tolist()]
    truth = np.concatenate([POOL.labels[POOL.offsets[i] : POOL.offsets[i + 1]] for i in sentences])
    assert np.array_equal(tags.gold, truth)  # the sampler draws no other types, so nothing becomes O
    assert np.diff(tags.sentences).tolist() == [len(POOL.items[i]) for i in sentences]
    assert tags.episodes[1] == sum(len(POOL.items[i]) for i in EPISODES[0].query.tolist())
    assert (tags.predicted == OUTSIDE).any()


def test_clear_words_are_all_right_and_conventions_differ_only_at_borders() -> None:
    tags = tag("nnshot", EPISODES, noise=0.0)
    sentence, toolkit = tags.counts("sentence"), tags.counts("toolkit")
    assert sentence.f1 == toolkit.f1 == 1.0
    assert toolkit.gold.sum() < sentence.gold.sum()
    errors = span_errors(tags, POOL.class_names)
    assert errors.rates["outside"] == errors.rates["outside_predicted"]
    assert errors.within == errors.outer == errors.false_negative == 0


def test_structshot_decodes_within_the_sentences_of_an_episode() -> None:
    """Moves that never leave a label make each sentence one label, but sentences differ."""
    stay = [0.25, 0.75, 1.0, 0.0, 0.0, 1.0, 0.0]  # any first label
    tags = tag("structshot", EPISODES, tau=1.0, temperature=1e4, transitions=stay)
    parts = np.split(tags.predicted, tags.sentences[1:-1])
    assert all(len(set(part.tolist())) == 1 for part in parts)
    assert len({part[0] for part in parts}) > 1


@pytest.mark.parametrize("name", ["hyperproto", "hyperproto-cone", "hyperproto-gaussian"])
def test_o_has_a_stored_row_of_its_own(name: str) -> None:
    method = make_method(name, feature_shape=(8,), n_classes=POOL.n_classes + 1)
    assert isinstance(method, StoredRegions)
    task = gather_task(words(), EPISODES[:2])
    assert (task.classes[:, 0] == POOL.n_classes).all()
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(0.1)
    torch.autograd.backward(list(method.loss(task).values()))
    drawn = sorted({POOL.n_classes, *(kind for episode in EPISODES[:2] for kind in episode.classes.tolist())})
    assert method.radius.grad is not None
    gradient = method.radius.grad.to_dense()
    assert gradient.flatten().nonzero().flatten().tolist() == drawn


def test_what_cannot_be_tagged() -> None:
    with pytest.raises(EpisodeError, match="hide the labels"):
        tag("protonet", [replace(EPISODES[0], query_y=None)])
    images: Pool = blobs()
    encoded = EncodedPool.encode(Identity(shape=[6]), images)
    with pytest.raises(EpisodeError, match="its items are not sentences"):
        tags_by(make_method("protonet", feature_shape=(6,)), encoded, EPISODES)
