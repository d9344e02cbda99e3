"""Pairs of texts as one input: as the tokenizer itself would make them, cut to what the model reads."""

import numpy as np
import pytest
import torch

from hyperproto.data import Pool
from hyperproto.encoders import Features, FeatureTransform, make_encoder
from hyperproto.encoders.transformer import TextTransformer
from hyperproto.episodes import EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.methods import TaskItems

TEXTS = ["anna was born in london", "bob", "the queen met the king in the city of paris", "a river"]
FIRST, SECOND = np.array([0, 2, 1]), np.array([1, 3, 1])


def encoder(model: str, **options: object) -> TextTransformer:
    made = make_encoder("sentence-transformer", {"model": model, **options})
    assert isinstance(made, TextTransformer)
    return made.eval()


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_pairs_are_those_of_the_tokenizer(kind: str, request: pytest.FixtureRequest) -> None:
    model = encoder(request.getfixturevalue(kind))
    batch = model.collate_pairs(model.prepare(TEXTS), FIRST, SECOND)
    for row, (a, b) in enumerate(zip(FIRST.tolist(), SECOND.tolist(), strict=True)):
        expected = model.tokenizer(TEXTS[a], TEXTS[b])
        length = int(batch["lengths"][row])
        assert batch["pieces"][row, :length].tolist() == expected["input_ids"]
        assert (batch["pieces"][row, length:] == model.fill).all()
        states = model.model(**{key: torch.tensor([values]) for key, values in expected.items()}).last_hidden_state
        torch.testing.assert_close(model(batch).x[row], states[0].mean(0), rtol=1e-4, atol=1e-4)


def test_the_second_text_has_a_type_of_its_own(bert: str) -> None:
    model = encoder(bert)
    batch = model.collate_pairs(model.prepare(TEXTS), FIRST, SECOND)
    plain = {key: values for key, values in batch.items() if key != "second"}
    assert not torch.allclose(model(batch).x, model(plain).x, atol=1e-3)


def test_a_pair_that_is_too_long_loses_the_end_of_its_longer_text(bert: str) -> None:
    model = encoder(bert, max_length=128)
    long, short = " ".join(["queen"] * 120), " ".join(["river"] * 70)
    prepared = model.prepare([long, short])
    batch = model.collate_pairs(prepared, np.array([0, 1]), np.array([1, 0]))
    assert batch["lengths"].tolist() == [162, 162]  # the tiny model's positions
    queen, river = (model.tokenizer.convert_tokens_to_ids(word) for word in ("queen", "river"))
    for row in batch["pieces"]:
        assert ((row == queen).sum(), (row == river).sum()) == (89, 70)


def test_items_of_a_task_make_pairs(bert: str) -> None:
    pool = Pool(TEXTS, np.array([0, 1, 0, 1]), ("a", "b"))
    features = Features(encoder(bert), FeatureTransform("unit", (32,)))
    items = TaskItems.of(features, pool, EpisodeSampler(pool, way=2, shot=1, query=1).draw(1))
    x = features(items.pairs(FIRST, SECOND)).x
    assert x.shape == (3, 32)
    torch.testing.assert_close(x.norm(dim=-1), torch.ones(3))


def test_markers_of_one_sentence_are_no_vector_of_a_pair(bert: str) -> None:
    relations = [{"tokens": text.split(), "head": [0], "tail": [1]} for text in ("anna met bob", "the king met")]
    made = make_encoder("relation-transformer", {"model": bert, "representation": "markers", "frozen": False})
    with pytest.raises(ConfigError, match="a pair of sentences has no vector at the markers of one; choose"):
        made.collate_pairs(made.prepare(relations), np.array([0]), np.array([1]))
    pooled = make_encoder("relation-transformer", {"model": bert, "representation": "pooled", "frozen": False})
    batch = pooled.collate_pairs(pooled.prepare(relations), np.array([0]), np.array([1]))
    assert pooled(batch).x.shape == (1, 32)
