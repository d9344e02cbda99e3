"""The initialisation phase: which instances every class, and O, starts from."""

import numpy as np
import pytest
import torch

from hyperproto.data import OUTSIDE, Pool
from hyperproto.errors import DataError
from hyperproto.methods import make_method
from hyperproto.methods.stored import StoredRegions, random_instances
from tests.helpers.predicting import features_of
from tests.helpers.tagged import random_sentences, tagged
from tests.helpers.tiny_words import TinyWords

POOL = random_sentences(60, 4)


def rows_of(encoder: TinyWords, pool: Pool) -> torch.Tensor:
    """The vector of every word of a pool, in its order."""
    return encoder.eval().encode_all(encoder.prepared(pool)).x


@pytest.mark.parametrize("batch", [3, 256])
def test_o_is_what_else_is_in_the_sentences_drawn(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr("hyperproto.methods.stored.BATCH", batch)
    torch.manual_seed(0)
    encoder = TinyWords(dropout=0.0)
    table = rows_of(encoder, POOL)
    vectors, labels = random_instances(POOL, features_of(encoder), 3)
    assert torch.bincount(labels).tolist()[:4] == [3] * 4
    assert POOL.offsets is not None
    sentence = np.repeat(np.arange(len(POOL)), np.diff(POOL.offsets))
    drawn = set()
    for vector, label in zip(vectors, labels.tolist(), strict=True):
        if label < POOL.n_classes:
            same = np.flatnonzero((table == vector).all(1).numpy() & (POOL.labels == label))
            assert len(same)  # a word of that class
            drawn |= set(sentence[same].tolist())
    outside = vectors[labels == POOL.n_classes]
    possible = [unit for unit in np.flatnonzero(POOL.labels == OUTSIDE) if sentence[unit] in drawn]
    assert 0 < len(outside) <= len(possible)
    assert all(any(torch.equal(vector, table[unit]) for unit in possible) for vector in outside)


def test_a_sentence_gives_its_o_once() -> None:
    pool = tagged(["a.a.a.b.b.b", "c..c.c"])
    encoder = TinyWords(dropout=0.0)
    _, labels = random_instances(
        pool, features_of(encoder), 3
    )  # every word of every class, so both sentences several times
    assert torch.bincount(labels).tolist() == [3, 3, 3, 5 + 3]


@pytest.mark.parametrize("name", ["hyperproto", "hyperproto-cone", "hyperproto-gaussian"])
@pytest.mark.parametrize("centers", ["stored", "episode"])
def test_regions_of_all_classes_and_o_start_from_equation_3(name: str, centers: str) -> None:
    encoder = TinyWords(dropout=0.0)
    assert POOL.n_labels == 5
    method = make_method(name, feature_shape=(8,), n_classes=POOL.n_labels, centers=centers, init_shot=5)
    assert isinstance(method, StoredRegions)
    torch.manual_seed(3)
    method.setup(POOL, features_of(encoder))
    torch.manual_seed(3)
    vectors, labels = random_instances(POOL, features_of(encoder), 5)
    for n in range(5):
        own = vectors[labels == n]
        region = method.closed_form(own, torch.zeros(len(own), dtype=torch.long), 1, "paper")
        radius = getattr(region, method.radius_name)
        torch.testing.assert_close(method.radius[n], radius)
        if centers == "stored":
            torch.testing.assert_close(method.center[n], region.center[0])


def test_a_class_without_words_cannot_start() -> None:
    pool = Pool([["x", "y"]], np.array([0, -1]), ("a", "b"), name="some", offsets=np.array([0, 2]))
    with pytest.raises(DataError, match=r"some \(all\): class 'b' has no instance to start its region from"):
        random_instances(pool, features_of(TinyWords()), 5)
