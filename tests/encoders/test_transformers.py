"""Encoders that are language models: against the model called by hand, one sentence at a time, without padding."""

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hyperproto.data import Pool
from hyperproto.data.formats.relations import Relation
from hyperproto.encoders import Units, base, make_encoder, resolve_encoder
from hyperproto.encoders.parts import word_pieces
from hyperproto.encoders.parts.pretrained import INSTALL, PACKAGE, find_model
from hyperproto.encoders.parts.transformer import Batch, TextTransformer, Tokens
from hyperproto.encoders.relation_transformer import RelationTransformer
from hyperproto.encoders.sentence_transformer import SentenceTransformer
from hyperproto.errors import ConfigError, DataError
from tests.helpers.tiny_models import WORDS


def relation(text: str, head: list[int], tail: list[int]) -> Relation:
    return {"tokens": text.split(" "), "head": head, "tail": tail}


RELATIONS = [
    relation("Anna Maria was born in Paris , the city of kings .", [0, 1], [5]),
    relation("in London the Queen met Bob", [5], [1]),  # the tail comes first
    relation("Bob", [0], [0]),  # both the same
    relation("the king of Paris met the river", [0, 1, 2, 3], [3]),  # one in the other
    relation("queen anna of london met", [0, 1], [1, 2, 3]),  # across
    relation("anna bob", [0], [1]),
    relation("Été [UNK] \u200b q,x", [0], [2]),  # a word without any piece
]
MARKED = [
    "[HEAD] anna m ##a ##r ##i ##a [/HEAD] was born in [TAIL] paris [/TAIL] , the city of king ##s .",
    "in [TAIL] london [/TAIL] the queen met [HEAD] bob [/HEAD]",
    "[HEAD] [TAIL] bob [/TAIL] [/HEAD]",
    "[HEAD] the king of [TAIL] paris [/TAIL] [/HEAD] met the river",
    "[HEAD] queen [TAIL] anna [/HEAD] of london [/TAIL] met",
    "[HEAD] anna [/HEAD] [TAIL] bob [/TAIL]",
    "[HEAD] e ##t ##e [/HEAD] [UNK] [TAIL] [/TAIL] q , x",
]
SENTENCES = ["Paris is the city.", "", "A much longer sentence, in which Anna met the queen of London.", "bob"]


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformer:
    if find_spec(PACKAGE) is None:
        pytest.skip(f"no package {PACKAGE}; {INSTALL}")
    return SentenceTransformer(model="minilm")


def vectors(encoder: TextTransformer, items: list[Any]) -> Tensor:
    return encoder.encode_all(encoder.prepare(items)).x


@torch.no_grad()
def by_hand(model: nn.Module, pieces: list[int]) -> Tensor:
    """The last layer of one sentence, (L, D)."""
    states: Tensor = model.eval()(input_ids=torch.tensor([pieces])).last_hidden_state[0]
    return states


def pieces_of(encoder: TextTransformer, tokens: Tokens) -> list[str]:
    rows = [tokens.pieces.row(n).tolist() for n in range(len(tokens))]
    return [" ".join(encoder.tokenizer.convert_ids_to_tokens(row)) for row in rows]


def test_minilm_is_what_sentence_transformers_averages(minilm: SentenceTransformer) -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = find_model("minilm")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    plain = SentenceTransformer(model="minilm", pooling="plain")
    for sentence, found, raw in zip(SENTENCES, vectors(minilm, SENTENCES), vectors(plain, SENTENCES), strict=True):
        inputs = tokenizer(sentence, padding=False, truncation=False)
        expected = by_hand(model, inputs["input_ids"]).mean(0)
        torch.testing.assert_close(raw, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(found, expected / expected.norm(), rtol=0, atol=1e-6)  # 2_Normalize
    assert minilm.feature_shape == (384,)
    assert (minilm.max_length, plain.max_length) == (256, 512)  # sentence_bert_config.json; positions


def test_minilm_reads_relations_without_training(minilm: SentenceTransformer) -> None:
    pool = Pool(RELATIONS, np.zeros(len(RELATIONS), int), ("a",))
    plain = SentenceTransformer(model="minilm", pooling="plain")
    sentences = [" ".join(relation["tokens"]) for relation in RELATIONS]
    both = [[" ".join(r["tokens"][part[0] : part[-1] + 1]) for part in (r["head"], r["tail"])] for r in RELATIONS]
    prompts = [f"{head} and {tail}: {text}" for (head, tail), text in zip(both, sentences, strict=True)]
    for options, texts in (({}, prompts), ({"representation": "mean"}, sentences), ({"markers": False}, sentences)):
        encoder = make_encoder(*resolve_encoder("relation-transformer:minilm", options, pool))
        assert encoder.feature_shape == (384,)
        found = encoder.encode_all(encoder.prepared(pool)).x
        torch.testing.assert_close(found, vectors(plain, texts), rtol=0, atol=1e-5)  # these words, and nothing else


def test_minilm_knows_what_is_alike(minilm: SentenceTransformer) -> None:
    x = vectors(minilm, ["A cat sits on the mat.", "There is a kitten on the carpet.", "Shares fell sharply today."])
    alike = nn.functional.cosine_similarity(x[0], x[1:])
    assert alike[0] > 0.5 > 0.2 > alike[1]


@pytest.mark.parametrize("markers", [True, False])
def test_markers_stand_where_they_should(bert: str, markers: bool) -> None:
    encoder = RelationTransformer(model=bert, markers=markers)
    tokens = encoder.prepare(RELATIONS)
    expected = [f"[CLS] {text} [SEP]" for text in MARKED]
    starts = [[text.split().index(marker) for marker in ("[HEAD]", "[TAIL]")] for text in expected]
    if markers:
        assert pieces_of(encoder, tokens) == expected
        assert tokens.starts.tolist() == starts
    else:
        kept = [[piece for piece in text.split() if "HEAD" not in piece and "TAIL" not in piece] for text in expected]
        assert pieces_of(encoder, tokens) == [" ".join(text) for text in kept]
        for text, both, found in zip(expected, starts, tokens.starts.tolist(), strict=True):
            before = [text.split()[:start] for start in both]
            assert found == [sum("HEAD" not in p and "TAIL" not in p for p in some) for some in before]
    assert tokens.cut == 0
    assert encoder.lengths(tokens).tolist() == [len(text.split()) for text in pieces_of(encoder, tokens)]


@pytest.mark.parametrize("tiny", ["bert", "roberta"])
@pytest.mark.parametrize("representation", ["markers", "pooled", "pooler", "mean"])
def test_representations(tiny: str, representation: Any, request: pytest.FixtureRequest) -> None:
    encoder = RelationTransformer(
        model=request.getfixturevalue(tiny), representation=representation, markers=True, frozen=False
    )
    tokens = encoder.prepare(RELATIONS)
    for n, found in enumerate(encoder.encode_all(tokens).x):
        pieces = tokens.pieces.row(n).tolist()
        states = by_hand(encoder.model, pieces)
        start, tail = (pieces.index(encoder.tokenizer.convert_tokens_to_ids(m)) for m in ("[HEAD]", "[TAIL]"))
        naive: dict[str, Callable[[Tensor], Tensor]] = {
            "markers": lambda s: torch.cat([s[start], s[tail]]),  # noqa: B023 - called at once
            "pooled": lambda s: s[0],
            "pooler": lambda s: torch.tanh(encoder.model.pooler.dense(s[0])),
            "mean": lambda s: s.mean(0),
        }
        torch.testing.assert_close(found, naive[representation](states), rtol=1e-4, atol=1e-4)
        assert found.shape == encoder.feature_shape
    assert encoder.encode_all(tokens).x.std() > 0.1


@pytest.mark.parametrize("tiny", ["bert", "roberta"])
@pytest.mark.parametrize("markers", [True, False])
def test_entities_are_averaged_behind_the_whole(tiny: str, markers: bool, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(tiny)
    encoder = RelationTransformer(model=model, representation="entities", markers=markers, frozen=not markers)
    tokens = encoder.prepare(RELATIONS)
    for n, found in enumerate(encoder.encode_all(tokens).x):
        states = by_hand(encoder.model, tokens.pieces.row(n).tolist())
        spans = zip(tokens.starts[n], tokens.ends[n], strict=True)
        parts = [states[start : max(end, start + 1)].mean(0) for start, end in spans]  # a word may have no piece
        torch.testing.assert_close(found, torch.cat([states.mean(0), *parts]), rtol=1e-4, atol=1e-4)
        assert found.shape == encoder.feature_shape == (96,)
    first = tokens.pieces.row(0)[tokens.starts[0, 0] : tokens.ends[0, 0]]
    if tiny == "bert":
        expected = MARKED[0].split("was")[0] if markers else "anna m ##a ##r ##i ##a"
        assert encoder.tokenizer.convert_ids_to_tokens(first) == expected.split()


def test_a_prompt_names_head_and_tail_first(bert: str) -> None:
    encoder = RelationTransformer(model=bert, representation="prompt", frozen=False)
    tokens = encoder.prepare(RELATIONS)
    found = pieces_of(encoder, tokens)
    assert found[1] == "[CLS] bob a ##n ##d london [UNK] in london the queen met bob [SEP]"
    assert found[5] == "[CLS] anna a ##n ##d bob [UNK] anna bob [SEP]"
    assert (tokens.starts[1].tolist(), tokens.ends[1].tolist()) == ([1, 5], [2, 6])
    states = by_hand(encoder.model, tokens.pieces.row(0).tolist())
    torch.testing.assert_close(encoder.encode_all(tokens).x[0], states.mean(0), rtol=1e-4, atol=1e-4)
    assert (encoder.markers, encoder.feature_shape) == (False, (32,))
    with pytest.raises(ConfigError, match="'prompt' names head and tail before the sentence, without markers; leave"):
        RelationTransformer(model=bert, representation="prompt", markers=True)


def test_vectors_are_dropped_in_training_only(bert: str) -> None:
    plain, dropped = (RelationTransformer(model=bert, frozen=False, markers=False, dropout=p) for p in (0.0, 0.5))
    tokens = plain.prepare(RELATIONS)
    torch.testing.assert_close(dropped.encode_all(tokens).x, plain.encode_all(tokens).x)
    batch = dropped.collate(tokens, np.arange(len(tokens)))
    with torch.no_grad():
        whole = dropped.eval()(batch).x
        dropped.dropout.train()
        found = dropped(batch).x
    zero = found == 0
    assert 0.3 < zero.float().mean() < 0.7
    torch.testing.assert_close(found[~zero], 2 * whole[~zero])


def test_a_pooler_that_is_not_there_is_said(roberta: str, tmp_path: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    folder = tmp_path / "model"
    shutil.copytree(roberta, folder)
    (folder / "model.safetensors").unlink()
    DistilBertModel(DistilBertConfig(vocab_size=400, dim=32, n_layers=1, n_heads=2, hidden_dim=32)).save_pretrained(
        folder
    )
    with pytest.raises(ConfigError, match="DistilBertModel has no pooler; choose another representation"):
        RelationTransformer(model=str(folder), representation="pooler", max_length=64)


def test_words_are_what_the_tokenizer_makes_of_lists_of_words(minilm: SentenceTransformer) -> None:
    expected = minilm.tokenizer([relation["tokens"] for relation in RELATIONS], is_split_into_words=True)
    tokens = RelationTransformer(model="minilm", representation="mean").prepare(RELATIONS)
    assert [tokens.pieces.row(n).tolist() for n in range(len(tokens))] == expected["input_ids"]


def test_words_are_what_they_are_in_a_text(roberta: str) -> None:
    """A tokenizer that keeps spaces takes a word without one for the end of another."""
    encoder = RelationTransformer(model=roberta, representation="mean")
    tokens = encoder.prepare(RELATIONS)
    for n, relation in enumerate(RELATIONS):
        expected = encoder.tokenizer(" " + " ".join(relation["tokens"]))["input_ids"]
        assert tokens.pieces.row(n).tolist() == expected
    marked = RelationTransformer(model=roberta, markers=True)
    first = pieces_of(marked, marked.prepare(RELATIONS[5:6]))
    assert first == ["<s> [HEAD] Ġanna [/HEAD] [TAIL] Ġbob [/TAIL] </s>"]


@pytest.mark.parametrize("tiny", ["bert", "roberta"])
def test_a_vector_does_not_depend_on_the_batch(
    tiny: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "BATCH", 3)
    encoder = RelationTransformer(model=request.getfixturevalue(tiny))
    together = vectors(encoder, RELATIONS)
    alone = torch.cat([vectors(encoder, [relation]) for relation in RELATIONS])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(vectors(encoder, RELATIONS[::-1]), together.flip(0), rtol=1e-4, atol=1e-5)


def test_batches_are_padded_to_their_longest(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BATCH", 2)
    encoder = SentenceTransformer(model=bert)
    shapes, forward = [], encoder.forward

    def watched(batch: Batch) -> Units:
        shapes.append(batch["pieces"].shape)
        return forward(batch)

    monkeypatch.setattr(encoder, "forward", watched)
    found = vectors(encoder, ["paris", "the king of paris", "the", "the queen of the king"])
    assert shapes == [(2, 7), (2, 3)]  # [CLS] and [SEP] with five pieces and four, and with one
    assert found.shape == (4, 32)


def test_an_empty_text_has_a_vector(bert: str, roberta: str) -> None:
    for model in (bert, roberta):
        encoder = SentenceTransformer(model=model)
        found = vectors(encoder, ["", "the king of london"])
        assert found.isfinite().all()
        torch.testing.assert_close(found[0], by_hand(encoder.model, [*encoder.before, *encoder.after]).mean(0))
    encoder.before, encoder.after = [], []  # as GPT-2 has it
    assert vectors(encoder, ["", "the king of london"]).isfinite().all()


def far_apart(gap: int) -> Relation:
    words = ["anna", *["the"] * gap, "bob", *["of"] * 30]
    return {"tokens": words, "head": [gap + 1], "tail": [0]}


@pytest.mark.parametrize("markers", [True, False])
def test_no_entity_is_ever_cut_off(bert: str, markers: bool) -> None:
    encoder = RelationTransformer(model=bert, markers=markers, max_length=20)
    sentences = [far_apart(3), far_apart(100), RELATIONS[1]]
    with pytest.warns(UserWarning, match="2 of 3 sentences are longer than 20 word pieces") as caught:
        tokens = encoder.prepare(sentences)
    lost = (35 + 132) - 2 * 18 + 2 * 4 * markers
    assert [str(warning.message) for warning in caught] == [
        f"relation-transformer: 2 of 3 sentences are longer than 20 word pieces; {lost} pieces were left out, "
        "heads and tails were kept (raise max_length to keep all)"
    ]
    assert tokens.cut == 2
    assert tokens.lost.sum() == lost
    assert tokens.pieces.lengths.tolist()[:2] == [20, 20]
    near, far, _ = pieces_of(encoder, tokens)
    for text, starts in zip((near, far), tokens.starts.tolist(), strict=False):
        pieces = text.split()
        assert (pieces[0], pieces[-1]) == ("[CLS]", "[SEP]")
        assert [pieces[start] for start in starts] == (["[HEAD]", "[TAIL]"] if markers else ["bob", "anna"])
    if markers:
        assert near == "[CLS] [TAIL] anna [/TAIL] the the the [HEAD] bob [/HEAD]" + 9 * " of" + " [SEP]"
        assert far == "[CLS] [TAIL] anna [/TAIL]" + 8 * " the" + " [HEAD] bob [/HEAD]" + 4 * " of" + " [SEP]"
    assert len(encoder.prepare(RELATIONS[1:2])) == 1  # no warning where nothing is cut


def test_an_entity_longer_than_the_limit_keeps_its_beginning(bert: str) -> None:
    encoder = RelationTransformer(model=bert, markers=True, max_length=12)
    sentence: Relation = {"tokens": ["king"] * 40, "head": list(range(20)), "tail": list(range(15, 30))}
    with pytest.warns(UserWarning, match="34 pieces were left out"):
        tokens = encoder.prepare([sentence])
    assert pieces_of(encoder, tokens) == ["[CLS] [HEAD]" + 4 * " king" + " [TAIL]" + 4 * " king" + " [SEP]"]
    assert tokens.starts.tolist() == [[1, 6]]


def test_a_long_text_keeps_its_beginning(bert: str) -> None:
    encoder = SentenceTransformer(model=bert, max_length=6)
    with pytest.warns(
        UserWarning, match="sentence-transformer: 1 of 1 sentences .*; 3 pieces were left out, the beginnin"
    ):
        tokens = encoder.prepare(["the king of paris met the queen"])
    assert pieces_of(encoder, tokens) == ["[CLS] the king of paris [SEP]"]


def test_lengths_that_a_model_cannot_read(bert: str, roberta: str) -> None:
    with pytest.raises(
        ConfigError, match=r"max_length 163 is more word pieces than .*bert.* can read; use at most 162"
    ):
        RelationTransformer(model=bert, max_length=163)
    with pytest.raises(ConfigError, match="use at most 160"):  # two rows before the first position
        SentenceTransformer(model=roberta, max_length=161)
    encoder = SentenceTransformer(model=roberta, max_length=160)
    with pytest.warns(UserWarning, match="longer than 160"):
        assert vectors(encoder, [" ".join(WORDS * 20)]).isfinite().all()
    with pytest.raises(ConfigError, match="relation-transformer: max_length 5 is too short; use at least 6"):
        RelationTransformer(model=bert, max_length=5)


def test_what_a_frozen_and_a_learning_model_do_by_default(bert: str) -> None:
    frozen, learning = RelationTransformer(model=bert), RelationTransformer(model=bert, frozen=False)
    assert (frozen.markers, frozen.representation, frozen.feature_shape) == (False, "prompt", (32,))
    assert (learning.markers, learning.representation, learning.feature_shape) == (True, "markers", (64,))
    asked = RelationTransformer(model=bert, representation="markers")
    assert (asked.frozen, asked.markers, asked.feature_shape) == (True, True, (64,))
    plain = RelationTransformer(model=bert, frozen=False, markers=False)
    assert (plain.representation, plain.feature_shape) == ("mean", (32,))
    with pytest.raises(ConfigError, match="'markers' needs the markers that 'markers = false' leaves out; choose"):
        RelationTransformer(model=bert, representation="markers", markers=False)


def test_a_frozen_model_stays_as_it_is(bert: str) -> None:
    encoder = RelationTransformer(model=bert, representation="markers")
    assert encoder.train() is encoder
    nn.Sequential(encoder).train()
    assert not any(module.training for module in encoder.modules())
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    tokens = encoder.prepare(RELATIONS)
    assert not encoder(encoder.collate(tokens, np.arange(3))).x.requires_grad


def test_a_model_that_learns(bert: str) -> None:
    encoder = RelationTransformer(model=bert, frozen=False)
    assert all(module.training for module in encoder.modules())
    batch = encoder.collate(encoder.prepare(RELATIONS), np.arange(len(RELATIONS)))
    assert not torch.equal(encoder(batch).x, encoder(batch).x)  # dropout
    x = encoder(batch).x
    (x * torch.randn_like(x)).sum().backward()
    assert [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.any()] == []
    table = encoder.model.get_input_embeddings()
    assert table.num_embeddings == len(encoder.tokenizer)
    assert table.weight.grad[-4:].any(1).all()  # each of the four markers
    assert not table.weight.grad[encoder.fill].any()


def test_markers_follow_from_the_seed(bert: str) -> None:
    def rows(seed: int) -> Tensor:
        torch.manual_seed(seed)
        table: Tensor = RelationTransformer(model=bert, frozen=False).model.get_input_embeddings().weight.data
        return table

    assert torch.equal(rows(1), rows(1))
    assert torch.equal(rows(1)[:-4], rows(2)[:-4])
    assert not (rows(1)[-4:] == rows(2)[-4:]).any()
    assert 0.01 < rows(1)[-4:].std() < 0.03  # BERT's own initializer_range is 0.02


def test_markers_that_a_checkpoint_has_learned_stay(bert: str, tmp_path: Path) -> None:
    trained = RelationTransformer(model=bert, frozen=False)
    trained.tokenizer.save_pretrained(tmp_path)
    trained.model.save_pretrained(tmp_path)
    again = RelationTransformer(model=str(tmp_path), frozen=False)
    found, expected = (encoder.encode_all(encoder.prepare(RELATIONS)).x for encoder in (again, trained))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("frozen", [True, False])
def test_state_round_trip(bert: str, frozen: bool) -> None:
    options = {"model": bert, "frozen": frozen}
    trained, fresh = (make_encoder("relation-transformer", options) for _ in range(2))
    for parameter in trained.parameters():
        parameter.data.add_(0.01)
    tokens = trained.prepare(RELATIONS)
    assert not torch.equal(trained.encode_all(tokens).x, fresh.encode_all(tokens).x)
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(trained.encode_all(tokens).x, fresh.encode_all(tokens).x)


def test_all_texts_go_to_the_tokenizer_in_one_call(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = RelationTransformer(model=bert, representation="mean")
    expected, backend, calls = encoder.prepare(RELATIONS), encoder.tokenizer.backend_tokenizer, []

    def encode_batch(texts: list[str], **options: bool) -> Any:
        calls.append(len(texts))
        return backend.encode_batch(texts, **options)

    counted = SimpleNamespace(backend_tokenizer=SimpleNamespace(encode_batch=encode_batch))
    monkeypatch.setattr(encoder, "tokenizer", counted)
    assert same(encoder.prepare(RELATIONS), expected)
    assert calls == [len({word for relation in RELATIONS for word in relation["tokens"]})]  # each word once


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """A cache that is used for few items, too, and the number of items each time that they are read."""
    monkeypatch.setattr(word_pieces, "FEW", 2)
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path))
    found: list[int] = []
    read = RelationTransformer.read

    def watched(self: RelationTransformer, items: list[Relation]) -> Any:
        found.append(len(items))
        return read(self, items)

    monkeypatch.setattr(RelationTransformer, "read", watched)
    return found


def same(a: Tokens, b: Tokens) -> bool:
    pairs: list[tuple[Any, Any]] = [
        (a.pieces.flat, b.pieces.flat),
        (a.pieces.offsets, b.pieces.offsets),
        (a.starts, b.starts),
        (a.lost, b.lost),
    ]
    return all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in pairs)


def test_texts_are_tokenised_once(bert: str, calls: list[int], tmp_path: Path) -> None:
    encoder = RelationTransformer(model=bert, markers=True)
    first = encoder.prepare(RELATIONS)
    assert calls == [len(RELATIONS)]
    assert same(RelationTransformer(model=bert, markers=True).prepare(RELATIONS), first)
    assert len(calls) == 1
    with pytest.warns(UserWarning, match="sentences are longer than 10 word pieces"):
        RelationTransformer(model=bert, markers=True, max_length=10).prepare(RELATIONS)
    with pytest.warns(UserWarning, match="sentences are longer than 10 word pieces"):  # of cached ones, too
        RelationTransformer(model=bert, markers=True, max_length=10).prepare(RELATIONS)
    assert len(calls) == 2
    RelationTransformer(model=bert, markers=False).prepare(RELATIONS)
    encoder.prepare(RELATIONS[:-1])
    encoder.prepare([*RELATIONS[:-1], {**RELATIONS[-1], "head": [1]}])
    encoder.tokenizer.add_tokens(["river"])
    encoder.prepare(RELATIONS)
    assert len(calls) == 6
    encoder.prepare(RELATIONS[:1])  # so few are not kept
    assert len(list((tmp_path / "tokens").iterdir())) == 6


@pytest.mark.parametrize("damage", ["short", "empty", "changed", "folder"])
def test_a_damaged_cache_is_made_again(bert: str, calls: list[int], tmp_path: Path, damage: str) -> None:
    encoder = RelationTransformer(model=bert)
    first = encoder.prepare(RELATIONS)
    [path] = (tmp_path / "tokens").iterdir()
    content = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        middle = len(content) // 2
        changed = content[:300] + bytes([content[300] ^ 1]) + content[301:]  # one bit
        path.write_bytes({"short": content[:middle], "empty": b"", "changed": changed}[damage])
    with pytest.warns(UserWarning, match=r"\.npz: a damaged file of the cache \(.*\); it is made again"):
        assert same(encoder.prepare(RELATIONS), first)
    assert len(calls) == 2
    if damage != "folder":  # that cannot be replaced, and does no harm
        assert same(encoder.prepare(RELATIONS), first)
        assert len(calls) == 2


def test_a_cache_that_cannot_be_written_to(
    bert: str, calls: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "file"))
    encoder = RelationTransformer(model=bert)
    assert same(encoder.prepare(RELATIONS), encoder.prepare(RELATIONS))
    assert len(calls) == 2


def test_items_of_another_kind_are_refused() -> None:
    images = Pool(np.zeros((2, 4, 4), np.uint8), np.zeros(2, int), ("a",), name="noise")
    relations = Pool(RELATIONS[:1], np.zeros(1, int), ("a",), name="fewrel")
    with pytest.raises(DataError, match=r"noise \(all\): relation-transformer reads sentences with a head and a tail"):
        resolve_encoder("relation-transformer:minilm", {}, images)
    with pytest.raises(
        DataError, match=r"fewrel \(all\): sentence-transformer reads texts, each a string, but .* dict"
    ):
        resolve_encoder("sentence-transformer:minilm", {}, relations)
    texts = Pool(["a", "b"], np.zeros(2, int), ("a",))
    assert resolve_encoder("sentence-transformer:mpnet", {}, texts)[1] == {"model": "mpnet"}
    with pytest.raises(ConfigError, match="option 'representation': 'max' is not valid"):
        resolve_encoder("relation-transformer", {"representation": "max"}, relations)
    with pytest.raises(
        ConfigError, match="no option of encoder 'relation-transformer' called 'length'; did you mean 'max_"
    ):
        resolve_encoder("relation-transformer", {"length": 3}, relations)


@pytest.mark.data
@pytest.mark.slow
def test_relations_are_told_apart_without_training(minilm: SentenceTransformer) -> None:
    from hyperproto.data import open_pool

    if not os.environ.get("HYPERPROTO_DATA"):
        pytest.skip("HYPERPROTO_DATA names no folder")
    pool = open_pool("fewrel", "val")
    rows = np.concatenate([members[:12] for members in pool.members])
    encoder = RelationTransformer()
    x = nn.functional.normalize(
        encoder.encode(encoder.prepare([pool.items[row] for row in rows]), np.arange(len(rows))).x
    )
    alike = (x @ x.T).fill_diagonal_(-1)
    right = pool.labels[rows][alike.argmax(1).numpy()] == pool.labels[rows]
    assert right.mean() > 0.4  # the nearest other sentence; 0.06 by chance
