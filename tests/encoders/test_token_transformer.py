"""Vectors of words: against the model called by hand, a sentence at a time, and words looked up in a loop."""

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.encoders import Encoder, base, make_encoder, resolve_encoder
from hyperproto.encoders.parts import cache, word_pieces
from hyperproto.encoders.parts.pretrained import INSTALL, PACKAGE, find_model
from hyperproto.encoders.parts.word_pieces import spell
from hyperproto.encoders.token_transformer import TokenTransformer, best_windows, word_windows
from hyperproto.errors import ConfigError, DataError
from hyperproto.evaluation import EncodedPool
from hyperproto.windows import window_starts

TEXTS = [
    "Anna Maria was born in Paris , the city of kings .",
    "Bob",
    "Été \u200b of unbelievable rivers",  # the second word has no piece
    "in London the Queen met Bob , and Queen Anna of the river city met the king of Paris in the city",
]
SENTENCES = [text.split(" ") for text in TEXTS]
LABELS = [np.where(np.arange(len(words)) % 3, -1, 0) for words in SENTENCES]
OFFSETS = np.cumsum([0, *map(len, SENTENCES)])
POOL = Pool(SENTENCES, np.concatenate(LABELS), ("thing",), name="some", offsets=OFFSETS)


@pytest.fixture(scope="module")
def minilm() -> str:
    if find_spec(PACKAGE) is None:
        pytest.skip(f"no package {PACKAGE}; {INSTALL}")
    return str(find_model("minilm"))


def vectors(encoder: Encoder, sentences: list[list[str]]) -> Tensor:
    return encoder.encode_all(encoder.prepare(sentences)).x


@torch.no_grad()
def by_hand(encoder: TokenTransformer, words: list[str]) -> Tensor:
    """Read one sentence, word after word, without padding; look the words up in a loop."""
    tokenizer = encoder.tokenizer
    ids: list[int] = []
    spans = []
    for word in words:
        pieces = tokenizer(f" {word}", add_special_tokens=False)["input_ids"] or [tokenizer.unk_token_id]
        spans.append((len(ids), len(ids) + len(pieces)))
        ids += pieces
    opening, closing = tokenizer.cls_token_id, tokenizer.sep_token_id
    output = encoder.model.eval()(input_ids=torch.tensor([[opening, *ids, closing]]), output_hidden_states=True)
    states = output.last_hidden_state[0]
    if encoder.layers == "last4":
        states = sum(output.hidden_states[-n][0] for n in range(1, min(4, len(output.hidden_states) - 1) + 1))
    if encoder.pieces == "first":
        return torch.stack([states[1 + start] for start, _ in spans])
    return torch.stack([states[1 + start : 1 + end].mean(0) for start, end in spans])


@pytest.mark.parametrize("pieces", ["first", "mean"])
@pytest.mark.parametrize("layers", ["last4", "last"])
@pytest.mark.parametrize("model", ["bert", "roberta", "minilm"])
def test_words_are_what_a_plain_loop_finds(
    model: str, layers: Any, pieces: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "BATCH", 3)
    encoder = TokenTransformer(model=request.getfixturevalue(model), layers=layers, pieces=pieces)
    units = encoder.encode_all(encoder.prepare(SENTENCES))
    assert units.offsets.tolist() == OFFSETS.tolist()
    for n, words in enumerate(SENTENCES):
        found = units.x[units.offsets[n] : units.offsets[n + 1]]
        torch.testing.assert_close(found, by_hand(encoder, words), rtol=1e-4, atol=1e-4)


def test_the_defaults_are_the_toolkits(minilm: str) -> None:
    encoder = make_encoder(*resolve_encoder(f"token-transformer:{minilm}", {}, POOL))
    assert isinstance(encoder, TokenTransformer)
    assert (encoder.layers, encoder.pieces, encoder.feature_shape, encoder.frozen) == ("last4", "first", (384,), True)
    last = vectors(TokenTransformer(model=minilm, layers="last"), SENTENCES)
    assert (vectors(encoder, SENTENCES) - last).abs().max() > 0.5


def test_the_order_of_sentences_does_not_matter(bert: str) -> None:
    encoder = TokenTransformer(model=bert, max_length=12)
    prepared = encoder.prepare(SENTENCES)
    together, order = encoder.encode_all(prepared), np.array([2, 0, 3, 1, 0])
    some = encoder(encoder.collate(prepared, order))
    expected = together.of_items(order)
    torch.testing.assert_close(some.x, expected.x, rtol=1e-4, atol=1e-5)
    assert some.offsets.tolist() == expected.offsets.tolist()


@torch.no_grad()
def read_in_windows(encoder: TokenTransformer, words: list[str], room: int) -> Tensor:
    """Try every window for every word, and take the one that shows most of the text on the side that shows less."""
    spelled = [encoder.tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
    ids = [piece for word in spelled for piece in word]
    starts = [*range(0, len(ids) - room, room // 2), len(ids) - room]
    found, place = [], 0
    for word in spelled:
        best, chosen = -1, None
        for start in starts:
            before, behind = place - start, start + room - place - len(word)
            shown = min(10**6 if start == 0 else before, 10**6 if start + room == len(ids) else behind)
            if before >= 0 and behind >= 0 and shown > best:
                best, chosen = shown, start
        assert chosen is not None
        window = [encoder.tokenizer.cls_token_id, *ids[chosen : chosen + room], encoder.tokenizer.sep_token_id]
        states = encoder.model(input_ids=torch.tensor([window])).last_hidden_state[0]
        found.append(states[1 + place - chosen : 1 + place - chosen + len(word)].mean(0))
        place += len(word)
    return torch.stack(found)


def test_long_sentences_are_read_in_windows_and_no_word_is_lost(bert: str) -> None:
    encoder = TokenTransformer(model=bert, max_length=14, layers="last", pieces="mean")
    long = SENTENCES[3] * 2 + SENTENCES[0]
    units = encoder.encode_all(encoder.prepare([SENTENCES[0], long, SENTENCES[1]]))
    assert np.diff(units.offsets).tolist() == [len(SENTENCES[0]), len(long), 1]
    torch.testing.assert_close(units.x[12:-1], read_in_windows(encoder, long, 12), rtol=1e-4, atol=1e-4)
    whole = TokenTransformer(model=bert, max_length=160, layers="last", pieces="mean")
    assert not torch.allclose(units.x[12:-1], vectors(whole, [long]))  # the windows made a difference


def test_a_word_longer_than_a_window_has_its_beginning_read(bert: str) -> None:
    encoder = TokenTransformer(model=bert, max_length=10, layers="last", pieces="mean")
    prepared = encoder.prepare([["the", "q" * 30, "king"]])
    assert prepared.lengths.tolist() == [10 * len(window_starts(32, 8))]
    assert encoder.encode_all(prepared).x.isfinite().all()
    first = int(prepared.first[1])
    assert prepared.pieces.row(int(prepared.window[1])).tolist()[first] == encoder.tokenizer.convert_tokens_to_ids("q")
    assert first + prepared.count[1] == 9  # as much as there is before [SEP]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 12, 13, 40])
def test_windows_cover_a_text_and_overlap_by_half(length: int) -> None:
    starts = window_starts(length, 8).tolist()
    assert starts[0] == 0
    assert starts[-1] == max(0, length - 8)
    assert all(0 < b - a <= 4 for a, b in pairwise(starts))
    places = np.arange(length)
    best = best_windows(places, places + 1, np.array(starts), 8, length)
    for place, chosen in enumerate(best.tolist()):
        at = place - starts[chosen]
        assert 0 <= at < 8
        assert at >= 2 or starts[chosen] == 0
        assert at <= 5 or starts[chosen] + 8 >= length


def test_the_best_windows_are_those_of_a_search_over_all() -> None:
    random = np.random.default_rng(0)
    for length, room in ((9, 8), (40, 7), (41, 1), (30, 2), (300, 3), (300, 64)):
        start = np.sort(random.choice(length, 9 if length == 9 else 20, replace=False))
        end = np.append(start[1:], length)
        places = window_starts(length, room)
        before = np.where(places == 0, length, start[:, None] - places)  # (n_words, n_windows)
        behind = np.where(places + room >= length, length, places + room - end[:, None])
        holds = (places <= start[:, None]) & (start[:, None] < places + room)
        expected = np.argmax(np.where(holds, np.minimum(before, behind), -2 * length), axis=1)
        np.testing.assert_array_equal(best_windows(start, end, places, room, length), expected)


def test_a_long_text_of_many_words_takes_memory_in_proportion() -> None:
    import tracemalloc

    length = 200_000
    start, places = np.arange(length), window_starts(length, 126)
    tracemalloc.start()
    best_windows(start, start + 1, places, 126, length)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 500 * length  # bytes; all words by all windows take 8 * length * 3,000


def test_a_sentence_without_words_and_a_model_without_special_pieces(bert: str) -> None:
    encoder = TokenTransformer(model=bert)
    assert np.diff(encoder.encode_all(encoder.prepare([["the"], [], ["king"]])).offsets).tolist() == [1, 0, 1]
    bare = word_windows(spell(encoder.tokenizer, [["the"], []]), 4, [], [], fill=3)
    assert [row.tolist() for row in bare.pieces.rows()][1] == [3]


def test_a_model_that_learns_has_gradients_and_dropout(bert: str) -> None:
    encoder = TokenTransformer(model=bert, frozen=False, dropout=0.5, pieces="mean")
    batch = encoder.collate(encoder.prepare(SENTENCES), np.arange(4))
    x = encoder(batch).x
    assert 0.3 < float((x == 0).double().mean()) < 0.7
    (x * torch.randn_like(x)).sum().backward()
    assert [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.any()] == []
    frozen = TokenTransformer(model=bert, dropout=0.5).train()
    assert not (frozen(batch).x == 0).any()


def test_sentences_are_tokenised_once(bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_pieces, "FEW", 2)
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path))
    first = TokenTransformer(model=bert).prepare(SENTENCES)
    monkeypatch.setattr("hyperproto.encoders.token_transformer.spell", lambda *_, **__: pytest.fail("again"))
    second = TokenTransformer(model=bert).prepare(SENTENCES)
    for name in ("windows", "words", "window", "first", "count"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert np.array_equal(first.pieces.flat, second.pieces.flat)
    with pytest.raises(pytest.fail.Exception):
        TokenTransformer(model=bert, max_length=12).prepare(SENTENCES)


def test_vectors_of_words_are_kept(bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MIN_SECONDS", 0.0)
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path))
    options = {"model": bert}
    first = EncodedPool.encode(make_encoder("token-transformer", options), POOL, cached=True).units
    monkeypatch.setattr(TokenTransformer, "forward", lambda *_: pytest.fail("again"))
    second = EncodedPool.encode(make_encoder("token-transformer", options), POOL, cached=True).units
    assert torch.equal(first.x, second.x)
    assert np.array_equal(first.offsets, second.offsets)


def test_what_reads_what() -> None:
    images = Pool(np.zeros((2, 4, 4), np.uint8), np.zeros(2, int), ("a",), name="noise")
    relations = Pool([{"tokens": ["a"], "head": [0], "tail": [0]}], np.zeros(1, int), ("a",))
    texts = Pool(["a b"], np.zeros(1, int), ("a",))
    for pool, name in ((POOL, "token"), (relations, "relation"), (texts, "sentence")):
        assert resolve_encoder("minilm", {}, pool) == (f"{name}-transformer", {"model": "minilm"})
    with pytest.raises(
        DataError,
        match=r"encoder 'bert' is a language model, and none of them reads these data\n"
        r"noise \(all\): token-transformer reads sentences with a label for each word, but the items are ndarray of",
    ):
        resolve_encoder("bert", {}, images)
    with pytest.raises(DataError, match=r"token-transformer reads sentences with a label for each word, but .* texts"):
        resolve_encoder("token-transformer:minilm", {}, texts)
    with pytest.raises(ConfigError, match="option 'layers': 'first' is not valid"):
        resolve_encoder("token-transformer", {"layers": "first"}, POOL)
