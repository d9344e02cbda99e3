"""BERT-pair: its equations by hand, blocks, remembered pairs, and what the encoder is asked for."""

from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hyperproto.data import IntArray, Pool
from hyperproto.encoders import Features, FeatureTransform, make_encoder
from hyperproto.encoders.parts.transformer import TextTransformer
from hyperproto.episodes import Episode
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, Predictor, score_episodes
from hyperproto.methods import PAD, Task, TaskItems, bert_pair, gather_task, make_method
from hyperproto.methods.bert_pair import BertPair
from hyperproto.testing import Bench, LinearEncoder
from hyperproto.training import load_recipe
from tests.helpers.tiny_models import tiny_bert

BENCH = Bench(BertPair)


def ready(**changes: Any) -> tuple[BertPair, Features]:
    method, features = BENCH.ready(**changes)
    assert isinstance(method, BertPair)
    with torch.no_grad():
        method.classifier.weight.mul_(50)  # scores that differ
    return method.eval(), features


def episode(support: list[int], support_y: list[int], query: list[int], query_y: list[int] | None = None) -> Episode:
    labels = [0] * len(query) if query_y is None else query_y
    way = max(support_y) + 1
    return Episode(np.arange(way), np.array(support), np.array(support_y), np.array(query), np.array(labels))


def given(outputs: Tensor, support_y: list[int], query_y: list[int], monkeypatch: pytest.MonkeyPatch) -> Task:
    """A task of one episode for which the network says `outputs` (Q, S, 2)."""
    monkeypatch.setattr(BertPair, "_outputs", lambda *_: outputs[None])
    features = BENCH.features()
    return BENCH.task(features, [episode(list(range(len(support_y))), support_y, list(range(len(query_y))), query_y)])


def test_the_case_worked_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = torch.tensor([[[-1.0, 2.0], [1.0, 0.0]]])  # (not the same, the same) for each of two classes
    task = given(outputs, [0, 1], [0], monkeypatch)
    method, _ = ready()
    assert method(task).tolist() == [[[2.0, 0.0]]]
    same, nota = method.scores_and_nota(task)
    assert nota.tolist() == [[-1.0]]
    assert method.doubt(task, same).tolist() == [[-3.0]]
    assert method.loss(task)["cls"].item() == pytest.approx(0.1698, abs=1e-4)


def test_scores_are_means_over_the_examples_of_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = torch.tensor([[[0.0, 1.0], [3.0, 2.0], [6.0, 6.0], [-2.0, 5.0]]])
    method, _ = ready()
    task = given(outputs, [0, 1, 1, 1], [1], monkeypatch)
    assert method(task)[0, 0].tolist() == pytest.approx([1.0, 13 / 3])
    assert method.scores_and_nota(task)[1].item() == pytest.approx(0.0)  # the lesser of 0 and 7 / 3


@pytest.mark.parametrize(("label", "column"), [(0, 0), (1, 1), (-1, 2)])
def test_a_query_of_no_class_trains_the_column_behind_them(
    label: int, column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = torch.tensor([[[-1.0, 2.0], [1.0, 0.0]]])
    loss = ready()[0].loss(given(outputs, [0, 1], [label], monkeypatch))["cls"]
    expected = -torch.tensor([2.0, 0.0, -1.0]).log_softmax(0)[column]
    torch.testing.assert_close(loss, expected)


def test_padded_queries_have_no_part_in_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = torch.tensor([[[-1.0, 2.0], [1.0, 0.0]], [[7.0, 1.0], [1.0, 5.0]]])
    task = given(outputs, [0, 1], [0, 1], monkeypatch)
    loss = ready()[0].loss(replace(task, query_y=torch.tensor([[0, PAD]])))["cls"]
    assert loss.item() == pytest.approx(0.1698, abs=1e-4)
    with pytest.raises(ConfigError, match="hide the labels"):
        ready()[0].loss(replace(task, query_y=None))


def test_a_last_layer_of_zeros_knows_nothing() -> None:
    method, features = ready()
    with torch.no_grad():
        method.classifier.weight.zero_()
    task = BENCH.task(features, BENCH.episodes())
    assert not method(task).any()
    assert method.loss(task)["cls"].item() == pytest.approx(log(4))


def test_it_is_the_formula_pair_by_pair() -> None:
    method, features = ready()
    x, weight = torch.from_numpy(BENCH.pool().items), method.classifier
    drawn = episode([3, 40, 41, 70], [0, 1, 1, 2], [5, 45])
    scores = method(BENCH.task(features, [drawn]))
    for q, query in enumerate(drawn.query):
        for n in range(3):
            pairs = x[drawn.support[drawn.support_y == n]] * x[query]  # of the bench's encoder, as it starts
            expected = weight(torch.tanh(method.pooler(pairs)))[:, 1].mean()
            torch.testing.assert_close(scores[0, q, n], expected)


def test_copies_of_an_example_score_as_one() -> None:
    method, features = ready()
    one, copies = episode([3, 40], [0, 1], [5, 45]), episode([3, 3, 3, 40], [0, 0, 0, 1], [5, 45])
    with torch.no_grad():
        found = [method(BENCH.task(features, [each])) for each in (one, copies)]
    torch.testing.assert_close(*found)
    torch.testing.assert_close(method(BENCH.task(features, [copies])), found[0])  # with gradients, without memory


class Counting(LinearEncoder):
    """Counts what it is asked to encode, and refuses single sentences."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.blocks: list[int] = []

    def collate(self, prepared: Any, index: IntArray) -> Tensor:
        raise AssertionError("a single sentence is encoded")

    def forward(self, batch: Tensor) -> Any:
        self.blocks.append(len(batch))
        return super().forward(batch)

    def lengths(self, prepared: Any) -> IntArray:
        return 1 + np.arange(len(prepared)) * 7 % 31


def counting() -> tuple[BertPair, Features, Counting]:
    encoder = Counting((24,))
    return ready()[0], Features(encoder, FeatureTransform("none", (24,))), encoder


@pytest.mark.parametrize("block", [1, 7])
def test_blocks_change_neither_scores_nor_gradients(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1000, block):
        monkeypatch.setattr(bert_pair, "BLOCK", size)
        method, features, encoder = counting()
        task = BENCH.task(features, BENCH.episodes())
        losses = method.loss(task)
        assert max(encoder.blocks) <= size
        losses["cls"].backward()  # type: ignore[no-untyped-call]
        parameters = [method.pooler.weight, method.classifier.bias, encoder.weight]
        found.append([method(task), *(parameter.grad for parameter in parameters)])
    for whole, cut in zip(*found, strict=True):
        torch.testing.assert_close(cut, whole, rtol=1e-5, atol=1e-5)


def test_pairs_of_like_length_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    method, features, encoder = counting()
    spreads, whole = [], encoder.collate_pairs
    lengths = encoder.lengths(range(240))

    def watched(prepared: Any, first: IntArray, second: IntArray) -> Tensor:
        spreads.append(np.ptp(lengths[first] + lengths[second]))
        return whole(prepared, first, second)

    monkeypatch.setattr(encoder, "collate_pairs", watched)
    method.train()
    method.loss(BENCH.task(features, BENCH.episodes(4)))
    assert encoder.blocks == [32] * 9  # 4 episodes of 12 queries and 6 support sentences
    assert max(spreads) < 20


@pytest.mark.parametrize("blocks", [1, 2])
def test_dropout_of_a_block_is_the_same_when_it_is_computed_again(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients at dropout 0.5 agree with finite differences of the same draw."""
    monkeypatch.setattr(bert_pair, "BLOCK", 72 // blocks)
    method, features = ready(dropout=0.5)
    method.double().train(), features.double()
    task = BENCH.task(features, BENCH.episodes(1))
    assert task.items is not None
    task = replace(task, items=replace(task.items, prepared=task.items.prepared.astype(np.float64)))

    def loss() -> Tensor:
        torch.manual_seed(3)
        return method.loss(task)["cls"]

    bias = method.pooler.bias
    [slope] = torch.autograd.grad(loss(), [bias])
    with torch.no_grad():
        bias[2] += 1e-6
        ahead = loss()
        bias[2] -= 2e-6
        behind = loss()
    assert slope[2].item() == pytest.approx(((ahead - behind) / 2e-6).item(), rel=1e-4)


def test_an_evaluation_reads_each_pair_once_and_says_the_same() -> None:
    method, features, encoder = counting()
    pool, episodes = BENCH.pool(), BENCH.episodes(3)
    predictor = Predictor.of(method, encoder)

    def scored() -> list[Tensor]:
        return [scores for _, scores in score_episodes(predictor, EncodedPool.unread(encoder, pool), episodes)]

    first = scored()
    pairs = {(s, q) for e in episodes for s in e.support.tolist() for q in e.query.tolist()}
    assert sum(encoder.blocks) == len(pairs)
    again = scored()
    assert sum(encoder.blocks) == len(pairs)
    task = gather_task(TaskItems.of(features, pool, episodes).units, episodes, TaskItems.of(features, pool, episodes))
    fresh = method(task)  # with gradients: nothing is remembered
    assert sum(encoder.blocks) == len(pairs) + 3 * 72
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one, two)
    torch.testing.assert_close(torch.cat(first), fresh)


@pytest.mark.parametrize("change", ["encoder", "head", "pool"])
@torch.no_grad()
def test_what_is_remembered_is_forgotten_with_the_weights_and_the_pool(change: str) -> None:
    method, features, encoder = counting()
    drawn = BENCH.episodes(1)
    task = BENCH.task(features, drawn)
    before = method(task)
    read = sum(encoder.blocks)
    if change == "encoder":
        encoder.weight.mul_(0.5)
    elif change == "head":
        method.load_state_dict({**method.state_dict(), "classifier.bias": torch.tensor([0.0, 1.0])})
    else:
        other = BENCH.pool(shift=1.0)
        items = TaskItems.of(features, other, drawn)
        task = gather_task(items.units, drawn, items)
    after = method(task)
    assert sum(encoder.blocks) == 2 * read
    assert not torch.allclose(before, after)
    with torch.enable_grad():
        torch.testing.assert_close(after, method(task).detach())


@torch.no_grad()
def test_no_more_pairs_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert_pair, "MOST_CACHED", 100)
    method, features, encoder = counting()
    pool = BENCH.pool()
    each = [(drawn, TaskItems.of(features, pool, [drawn])) for drawn in BENCH.episodes(2)]  # 72 pairs each
    tasks = [gather_task(items.units, [drawn], items) for drawn, items in each]
    found = [method(task) for task in (*tasks, *tasks)]
    assert len(method._cached.keys) == 72
    assert sum(encoder.blocks) == 3 * 72
    assert torch.equal(found[1], found[3])


def test_doubt_costs_no_second_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert_pair, "MOST_CACHED", 0)
    method, features, encoder = counting()
    task = BENCH.task(features, BENCH.episodes(1))
    with torch.no_grad():
        scores = method(task)
        read = sum(encoder.blocks)
        doubt = method.doubt(task, scores)
        assert sum(encoder.blocks) == read
        fresh = method.doubt(replace(task), scores)  # of a task that nothing is known of
    torch.testing.assert_close(doubt, fresh)


def test_it_learns_which_vectors_are_alike() -> None:
    torch.manual_seed(0)
    method, features = BENCH.ready()
    tasks = [BENCH.task(features, [drawn]) for drawn in BENCH.episodes(4)]
    optimiser = torch.optim.Adam([*method.parameters(), *features.parameters()], 0.01)
    losses = []
    method.train()
    for step in range(120):
        loss = method.loss(tasks[step % 4])["cls"]
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    method.eval()
    right = torch.stack([(method(task).argmax(-1) == task.query_y).float().mean() for task in tasks]).mean()
    assert right > 0.95, (float(right), losses[::10])
    assert losses[-1] < 0.2


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


RELATIONS: list[Any] = [
    {"tokens": text.split(), "head": [0], "tail": [len(text.split()) - 1]}
    for text in ("anna met bob", "king of paris", "bob met the queen", "queen of london", "anna met a king", "a river")
]


def texts_task(bert: Path, **options: Any) -> tuple[BertPair, Features, Task]:
    torch.manual_seed(0)
    encoder = make_encoder("relation-transformer", {"model": str(bert), "frozen": False, **options}).eval()
    method = make_method("bert-pair", feature_shape=encoder.feature_shape)
    assert isinstance(method, BertPair)
    features = Features(encoder, FeatureTransform("none", encoder.feature_shape))
    pool = Pool(RELATIONS, np.array([0, 1, 0, 1, 0, 1]), ("met", "of"))
    drawn = [episode([0, 1], [0, 1], [2, 3, 4, 5])]
    method.eval().setup(pool, features)
    with torch.no_grad():
        method.classifier.weight.mul_(100)  # scores that differ
    items = TaskItems.of(features, pool, drawn)
    return method, features, gather_task(items.units, drawn, items)


def test_it_is_the_language_models_own_sentence_pair_classifier(bert: Path) -> None:
    """The tokenizer's own pairs, the model with its own pooler, and the last layer."""
    from transformers import BertModel

    method, features, task = texts_task(bert, representation="pooled")
    encoder = features.encoder
    assert isinstance(encoder, TextTransformer)
    whole: Any = BertModel.from_pretrained(bert)
    whole.resize_token_embeddings(len(encoder.tokenizer), mean_resizing=False)
    whole.load_state_dict(encoder.model.state_dict(), strict=False)
    assert torch.equal(method.pooler.weight, whole.pooler.dense.weight)
    assert torch.equal(method.pooler.bias, whole.pooler.dense.bias)
    scores, (_, nota) = method(task), method.scores_and_nota(task)
    with torch.no_grad():
        for q, query in enumerate((2, 3, 4, 5)):
            pairs = [encoder.tokenizer(*(marked(n) for n in (s, query)), return_tensors="pt") for s in (0, 1)]
            outputs = torch.cat([method.classifier(whole.eval()(**pair).pooler_output) for pair in pairs])
            torch.testing.assert_close(scores[0, q], outputs[:, 1], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(nota[0, q], outputs[:, 0].min(), rtol=1e-4, atol=1e-5)


def marked(item: int) -> str:
    head, *middle, tail = RELATIONS[item]["tokens"]
    return " ".join(["[HEAD]", head, "[/HEAD]", *middle, "[TAIL]", tail, "[/TAIL]"])


def test_a_checkpoint_without_a_pooler_leaves_the_layer_as_it_was_drawn(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TextTransformer, "pooler_weights", lambda _: None)
    method, _, task = texts_task(bert, representation="pooled")
    assert 0.9 / 32**0.5 < method.pooler.weight.abs().max() <= 1 / 32**0.5
    assert method(task).isfinite().all()


def test_a_pair_scores_otherwise_the_other_way_round(bert: Path) -> None:
    method, _, task = texts_task(bert, representation="pooled")
    assert task.items is not None
    there = method._read(task.items, np.array([0]), np.array([1]))
    back = method._read(task.items, np.array([1]), np.array([0]))
    assert not torch.allclose(there, back, atol=1e-4)


def test_what_it_cannot_read_is_refused(bert: Path) -> None:
    with pytest.raises(ConfigError, match=r"BertPair reads one vector a pair.*shape \(-1, 32\); leave output out"):
        make_method("bert-pair", feature_shape=(-1, 32))
    with pytest.raises(ConfigError, match=r"reads the state at the first piece of a pair, but the encoder gives "
                                          r"'markers'; add representation = \"pooled\" to \[encoder\]"):  # fmt: skip
        texts_task(bert)
    with pytest.raises(ConfigError, match="transform = 'unit': bert-pair is defined with 'none'"):
        load_recipe("fewrel-minilm:bert-pair", ["transform=unit"])
    method, features = ready()
    task = BENCH.task(features, BENCH.episodes())
    with pytest.raises(ConfigError, match="BertPair reads the sentences themselves: the task has no items"):
        method(replace(task, items=None))
    assert task.items is not None
    with pytest.raises(ConfigError, match="compares whole sentences; these items have a label for each word"):
        method(replace(task, items=replace(task.items, offsets=2 * task.items.offsets)))
