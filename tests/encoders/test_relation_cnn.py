from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.data.formats.relations import Relation
from hyperproto.encoders import make_encoder, resolve_encoder
from hyperproto.encoders.relation_cnn import RelationCNN
from hyperproto.errors import DataError

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", ",", "."]


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    lines = [" ".join([word, *(f"{x:.4f}" for x in random.normal(size=8))]) for word in WORDS]
    path = tmp_path / "vectors.txt"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def relation(text: str, head: list[int], tail: list[int]) -> Relation:
    return {"tokens": text.split(), "head": head, "tail": tail}


SENTENCES = [
    relation("The cat sat on a mat .", [1], [4, 5]),
    relation("a Dög", [1], [0]),
    relation("on the mat , the cat and the zebra sat .", [7, 8], [2]),
]


def made(vectors: str, **options: object) -> RelationCNN:
    torch.manual_seed(0)
    encoder = make_encoder("relation-cnn", {"vectors": vectors, **options})
    assert isinstance(encoder, RelationCNN)
    return encoder


@torch.no_grad()
def naive(encoder: RelationCNN, item: Relation) -> torch.Tensor:
    """One sentence, one word and one filter at a time."""
    columns = []
    for place, word in enumerate(item["tokens"]):
        word = word.lower().replace("ö", "o")
        row = WORDS.index(word) if word in WORDS else len(WORDS)
        parts = [cast(Tensor, encoder.words)[row]]
        for which, entity in enumerate((item["head"], item["tail"])):
            places = cast(Tensor, encoder.places[which].weight)
            parts.append(places[place - entity[0] + encoder.max_length])
        columns.append(torch.cat(parts))
    nothing = torch.zeros_like(columns[0])
    padded = [nothing, *columns, nothing]
    assert encoder.convolution.bias is not None
    out = torch.zeros(encoder.feature_shape)
    for filter_ in range(len(out)):
        weight, bias = encoder.convolution.weight[filter_], encoder.convolution.bias[filter_]
        sums = [
            sum((weight[:, tap] * padded[place + tap]).sum() for tap in range(3)) + bias
            for place in range(len(columns))
        ]
        out[filter_] = max(0.0, max(float(value) for value in sums))
    return out


def test_it_is_the_toolkits_network(vectors: str) -> None:
    encoder = made(vectors, filters=6)
    prepared, expected = encoder.prepare(SENTENCES), torch.stack([naive(encoder, item) for item in SENTENCES])
    torch.testing.assert_close(encoder.encode_all(prepared).x, expected)
    torch.testing.assert_close(encoder(encoder.collate(prepared, np.arange(3))).x.detach(), expected)


def test_many_sentences_are_encoded_in_the_order_asked_for(vectors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = made(vectors, filters=6)
    prepared, order = encoder.prepare(SENTENCES), np.array([2, 0, 1, 2, 2])
    seen: list[tuple[int, int]] = []
    expected = torch.stack([naive(encoder, SENTENCES[i]) for i in order])
    for module in ("relation_cnn.BLOCK", "relation_cnn.TOGETHER"):
        monkeypatch.setattr(f"hyperproto.encoders.{module}", 2)
        seen.clear()
        torch.testing.assert_close(
            encoder.encode(prepared, order, lambda done, total: seen.append((done, total))).x, expected
        )
        assert seen[-1] == (5, 5)
    assert seen == [(1, 5), (2, 5), (4, 5), (5, 5)]  # those of one length together


def test_padding_has_no_say(vectors: str) -> None:
    encoder = made(vectors)
    assert encoder.convolution.bias is not None
    with torch.no_grad():
        encoder.convolution.bias.fill_(3.0)  # were padding looked at, this would be the maximum
    prepared = encoder.prepare(SENTENCES)
    together = encoder(encoder.collate(prepared, np.arange(3))).x
    alone = torch.cat([encoder(encoder.collate(prepared, np.array([i]))).x for i in range(3)])
    torch.testing.assert_close(together, alone)
    together.sum().backward()
    assert encoder.words.grad is not None
    assert not encoder.words.grad.to_dense()[encoder.padding].any()  # nor does it learn


def test_the_published_sizes() -> None:
    encoder = RelationCNN(learn_words=False)
    assert encoder.feature_shape == (230,)
    assert encoder.convolution.weight.shape == (230, 60, 3)
    assert sum(p.numel() for p in encoder.places.parameters()) == 2 * 256 * 5


@pytest.mark.parametrize("learn_words", [True, False])
def test_word_vectors_have_length_one_if_asked_for(vectors: str, learn_words: bool) -> None:
    plain, scaled = (made(vectors, learn_words=learn_words, unit_words=unit) for unit in (False, True))
    words = len(WORDS)
    lengths = plain.words[:words].norm(dim=1, keepdim=True)
    torch.testing.assert_close(scaled.words[:words], plain.words[:words] / lengths)
    torch.testing.assert_close(scaled.words[words], scaled.words[:words].mean(0))  # an unknown word
    assert (lengths - 1).abs().max() > 0.1


def test_word_vectors_that_do_not_learn_are_not_kept_in_a_run(vectors: str) -> None:
    frozen, learned = made(vectors, learn_words=False), made(vectors)
    assert "words" not in frozen.state_dict()
    assert frozen.param_groups() == {}
    assert "words" in learned.state_dict()
    [table] = learned.param_groups()["words"]
    learned(learned.collate(learned.prepare(SENTENCES), np.array([1]))).x.sum().backward()
    assert table.grad is not None
    assert table.grad.is_sparse
    assert set(table.grad.coalesce().indices()[0].tolist()) <= {WORDS.index("a"), WORDS.index("dog")}


def test_case_and_accents_count_only_if_asked_for(vectors: str) -> None:
    uncased, cased = made(vectors), made(vectors, uncased=False)
    rows = [encoder.prepare(SENTENCES[1:2]).words.padded(np.array([0]), 0)[0].tolist() for encoder in (uncased, cased)]
    assert rows == [[WORDS.index("a"), WORDS.index("dog")], [WORDS.index("a"), len(WORDS)]]


def test_a_sentence_that_is_too_long_keeps_head_and_tail(vectors: str) -> None:
    encoder = made(vectors, max_length=6)
    item = relation("the the the cat " + ", " * 20 + "dog the the", [3], [24])
    with pytest.warns(UserWarning, match=r"1 of 2 sentences are longer than 6 words; 21 words were left out, heads"):
        prepared = encoder.prepare([item, SENTENCES[1]])
    rows, starts = encoder.collate(prepared, np.array([0]))
    assert rows.shape == (1, 6)
    assert rows[0, starts[0]].tolist() == [WORDS.index("cat"), WORDS.index("dog")]


def test_it_reads_relations_only(vectors: str) -> None:
    pool = Pool(np.zeros((2, 3), np.float32), np.zeros(2, int), ("a",), name="vectors")
    with pytest.raises(DataError, match=r"vectors \(all\): relation-cnn reads sentences with a head and a tail, but "
                                        r"the items are ndarray of shape \(3,\)"):  # fmt: skip
        resolve_encoder("relation-cnn", {}, pool)
    good = Pool(SENTENCES, np.zeros(3, int), ("a",))
    assert resolve_encoder(f"relation-cnn:{vectors}", {}, good) == ("relation-cnn", {"vectors": vectors})


def test_dropout_is_for_training(vectors: str) -> None:
    encoder = made(vectors, dropout=0.9)
    batch = encoder.collate(encoder.prepare(SENTENCES), np.arange(3))
    full = encoder.eval()(batch).x
    dropped = encoder.train()(batch).x
    assert (dropped == 0).sum() > (full == 0).sum()
