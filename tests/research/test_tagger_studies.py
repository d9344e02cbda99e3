"""Studies of long documents and of the tagger's names: how their data are made, and what they measure."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hyperproto.data import Pool
from hyperproto.encoders import make_encoder
from hyperproto.episodes import GreedySampler
from hyperproto.evaluation import EncodedPool
from research import entity_names, long_documents
from tests.helpers.tiny_words import register


def test_most_sentences_of_a_document_are_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{label}{n}" for label in "abcd" for n in range(60)]
    monkeypatch.setattr(long_documents, "sentences_of", lambda name, part: (texts, [text[0] for text in texts]))
    found, y, classes = long_documents.documents("agnews", "train", 5)
    assert classes == ["a", "b", "c", "d"]
    assert np.bincount(y).tolist() == [5] * 4
    own = [
        word for text, label in zip(found, y.tolist(), strict=True) for word in text.split() if word[0] == "abcd"[label]
    ]
    assert len(own) == len(set(own)) == 20 * 6
    assert {len(text.split()) for text in found} == {14}
    assert long_documents.documents("agnews", "train", 5)[0] == found
    assert [text.split()[:6] for text in found] != [[word for word in text.split() if word[0] == "a"] for text in found]


def test_readings_are_compared_on_the_same_supports() -> None:
    y = np.repeat(np.arange(2), 30)
    good = np.eye(2)[y] + np.random.default_rng(0).normal(size=(60, 2), scale=0.01)
    vectors = {"truncate": good[::-1].copy(), "windows": good, "typical": good}
    found = long_documents.measure(vectors, y, ("1", "5"), 3)
    rows = {(row["shots"], row["long"]): row["accuracy"]["mean"] for row in found["results"]}
    assert rows["5", "windows"] == rows["5", "typical"] == 1.0
    assert [row["accuracy"]["difference"] for row in found["comparisons"] if row["long"] == "typical"] == [0.0, 0.0]
    assert len(found["supports"]["1"]) == 3


def test_names_are_further_words_of_their_types() -> None:
    register()
    encoder = make_encoder("tiny-words", {}).eval()
    items: list[Any] = [["a", "x1"], ["b", "x2"], ["a", "x3"], ["b", "x4"]] * 3
    labels, offsets = np.tile([0, -1, 1, -1], 6), np.arange(0, 25, 2)
    pool = Pool(items, labels, ("big-city", "person"), name="t", split="all", offsets=offsets)
    encoded = EncodedPool.encode(encoder, pool)
    [episode] = GreedySampler(pool, way=2, shot=1, query=1).draw(1)
    for variant, words in (("words", 3), ("mean 1", 2), ("mean 4", 8)):
        both, names = entity_names.with_names(pool, encoded, encoder, variant)
        given = entity_names.named(episode, both.pool, names)
        assert len(given.support_y) == len(episode.support_y) + words
        assert len(both.units.x) == len(both.pool.labels)
    both, _ = entity_names.with_names(pool, encoded, encoder, "mean 1")
    expected = encoder.encode_all(encoder.prepare([["big", "city"]])).x.mean(0)
    np.testing.assert_allclose(both.units.x[len(labels)], expected, atol=1e-6)
    assert entity_names.with_names(pool, encoded, encoder, "none")[0] is encoded
    support = entity_names.transitions_of(pool, replace(episode, support_y=np.array([1, 0, 2, 0])))
    assert support.labels.tolist() == [0, -1, 1, -1]
