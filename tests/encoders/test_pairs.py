"""Pairs of texts as one input: as the tokenizer itself would make them, cut to what the model reads."""

import numpy as np
import pytest
import torch

from hyperproto.data import Pool
from hyperproto.encoders import Features, FeatureTransform, make_encoder
from hyperproto.encoders.parts.transformer import TextTransformer
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


def test_pairs_that_would_be_too_long_are_refused_by_the_length_to_choose(bert: str) -> None:
    texts = [" ".join(["queen"] * 120), "a river"]
    model = encoder(bert, max_length=128)  # of the tiny model's 162 positions
    with pytest.raises(ConfigError, match="a pair of texts of 122 word pieces each is longer than the 162 that the "
                                          "model reads; use max_length = 81"):  # fmt: skip
        model.collate_pairs(model.prepare(texts), np.array([1]), np.array([1]))  # from the first batch on
    model = encoder(bert, max_length=81)
    with pytest.warns(UserWarning, match="1 of 2 sentences are longer than 81 word pieces"):
        prepared = model.prepare(texts)
    assert model.collate_pairs(prepared, np.array([0]), np.array([0]))["lengths"].tolist() == [161]


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_neither_sentence_of_a_pair_loses_its_head_or_tail(kind: str, request: pytest.FixtureRequest) -> None:
    """Two sentences of 300 words, the entities far apart: pieces, types and mask of what is left."""
    tokens = ["river"] * 300
    tokens[250], tokens[290] = "anna", "bob"
    relations = [{"tokens": tokens, "head": [250], "tail": [290]}, {"tokens": tokens, "head": [290], "tail": [250]}]
    options = {"model": request.getfixturevalue(kind), "representation": "pooled", "frozen": False, "max_length": 78}
    model = make_encoder("relation-transformer", options).eval()
    assert isinstance(model, TextTransformer)
    with pytest.warns(UserWarning, match="2 of 2 sentences are longer than 78 word pieces"):
        prepared = model.prepare(relations)
    batch = model.collate_pairs(prepared, np.array([0, 1]), np.array([1, 1]))
    given: dict[str, torch.Tensor] = {}
    model.model.register_forward_pre_hook(lambda _, __, kwargs: given.update(kwargs), with_kwargs=True)
    model(batch)
    head, tail = (model.tokenizer.convert_tokens_to_ids(name) for name in ("[HEAD]", "[TAIL]"))
    between = [model.tokenizer.sep_token_id] * (1 if kind == "bert" else 2)
    rows = prepared.pieces
    for row, (a, b) in enumerate([(0, 1), (1, 1)]):
        pieces = given["input_ids"][row, : int(batch["lengths"][row])].tolist()
        assert pieces == [*rows.row(a).tolist()[:-1], *between, *rows.row(b).tolist()[1:]]
        assert (pieces.count(head), pieces.count(tail)) == (2, 2)
        words = model.tokenizer.decode(pieces)
        assert (words.count("anna"), words.count("bob")) == (2, 2)
        if kind == "bert":
            first = len(rows.row(a))  # up to and with the first [SEP]
            assert given["token_type_ids"][row].tolist() == [0] * first + [1] * (len(pieces) - first)
    assert ("token_type_ids" in given) == (kind == "bert")
    assert given["attention_mask"].all()


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
    with pytest.raises(ConfigError, match="a pair of sentences has no vector at head and tail of one; choose"):
        made.collate_pairs(made.prepare(relations), np.array([0]), np.array([1]))
    pooled = make_encoder("relation-transformer", {"model": bert, "representation": "pooled", "frozen": False})
    batch = pooled.collate_pairs(pooled.prepare(relations), np.array([0]), np.array([1]))
    assert pooled(batch).x.shape == (1, 32)
