"""MLMAN against its equations in loops, its special cases, and padding that must not matter."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method, mlman
from hyperproto.methods.mlman import MLMAN


def made(channels: int = 6, **options: Any) -> MLMAN:
    torch.manual_seed(0)
    method = make_method("mlman", feature_shape=(-1, channels), width=6, hidden=5, **options)
    assert isinstance(method, MLMAN)
    return method.eval()


def tokens_task(
    counts: tuple[int, ...] = (2, 2),
    queries: int = 3,
    longest: int = 5,
    channels: int = 6,
    batch: int = 2,
    seed: int = 0,
) -> Task:
    """Random sentences of 1 to `longest` tokens, padded with zeros."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).expand(batch, -1)
    query_y = torch.arange(queries).remainder(len(counts)).expand(batch, -1)
    parts: dict[str, Any] = {}
    for name, y in (("support", labels), ("query", query_y)):
        lengths = torch.randint(1, longest + 1, y.shape, generator=random)
        real = torch.arange(longest) < lengths[..., None]
        parts[name] = torch.randn(*real.shape, channels, generator=random).masked_fill(~real[..., None], 0.0)
        parts[f"{name}_mask"] = real
    classes = torch.arange(len(counts)).expand(batch, -1)
    offsets = torch.arange(queries + 1).expand(batch, -1)
    return Task(support_y=labels, query_y=query_y, classes=classes, query_offsets=offsets, **parts)


def naive(method: MLMAN, task: Task) -> tuple[Tensor, Tensor]:
    """Scores (B, Q, N) and the inconsistency, sentence by sentence."""
    assert task.support_mask is not None
    assert task.query_mask is not None

    def sentence(own: Tensor, seen: Tensor) -> Tensor:
        fused = method.fuse(torch.cat([own, seen, (own - seen).abs(), own * seen], -1)).relu()
        states = method.lstm(fused)[0]
        return torch.cat([states.amax(0), states.mean(0)])

    scores, distances = torch.zeros(*task.query.shape[:2], task.way), []
    for b in range(len(task.query)):
        for q in range(task.query.shape[1]):
            query = method.resize(task.query[b, q][task.query_mask[b, q]])
            for n in range(task.way):
                examples = [
                    method.resize(x[real])
                    for x, real, y in zip(task.support[b], task.support_mask[b], task.support_y[b], strict=True)
                    if y == n
                ]
                own = sentence(query, F.softmax(query @ torch.cat(examples).T, -1) @ torch.cat(examples))
                vectors = torch.stack([sentence(x, F.softmax(x @ query.T, -1) @ query) for x in examples])
                weights = torch.stack([method.match(torch.cat([own, x]))[0] for x in vectors]).softmax(0)
                center = weights @ vectors
                scores[b, q, n] = method.match(torch.cat([own, center]))[0]
                distances += [(x - center).square().sum() for x in vectors]
    return scores, torch.stack(distances).mean()


@pytest.mark.parametrize(("counts", "channels"), [((2, 2), 6), ((1, 3, 2), 6), ((1, 1), 4)])
def test_it_computes_the_equations(counts: tuple[int, ...], channels: int) -> None:
    method, task = made(channels), tokens_task(counts, channels=channels)
    scores, inconsistency = naive(method, task)
    torch.testing.assert_close(method(task), scores, rtol=1e-4, atol=1e-5)
    losses = method.loss(task)
    torch.testing.assert_close(losses["inconsistency"], inconsistency, rtol=1e-4, atol=1e-6)
    assert task.query_y is not None
    torch.testing.assert_close(losses["cls"], F.cross_entropy(scores.flatten(0, 1), task.query_y.flatten()))
    assert torch.equal(made(channels, inconsistency=0.5).loss(task)["inconsistency"], losses["inconsistency"] / 2)


def test_one_token_each_sees_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    method, task = made(), tokens_task((1, 1), queries=1, longest=1, batch=1)
    seen: list[tuple[Tensor, Tensor]] = []
    whole = method._sentences

    def watched(own: Tensor, other: Tensor, real: Tensor) -> Tensor:
        seen.append((own.expand_as(other), other))
        return whole(own, other, real)

    monkeypatch.setattr(method, "_sentences", watched)
    losses = method.loss(task)
    (examples, of_query), (query, of_class) = seen
    torch.testing.assert_close(of_query.flatten(0, -2), query.flatten(0, -2))
    torch.testing.assert_close(of_class.flatten(0, -2), examples.flatten(0, -2))
    assert losses["inconsistency"] == 0


def test_identical_examples_count_as_one() -> None:
    method, one = made(), tokens_task((1, 1))
    assert one.support_mask is not None
    index = torch.tensor([0, 0, 0, 1, 1])
    copies = replace(
        one, support=one.support[:, index], support_mask=one.support_mask[:, index], support_y=one.support_y[:, index]
    )
    torch.testing.assert_close(method(copies), method(one))
    assert method.loss(copies)["inconsistency"] < 1e-10


def test_padding_changes_nothing() -> None:
    """More positions, whatever they hold, and more examples of no class; maxima of negative states among them."""
    method, task = made(), tokens_task()
    assert task.support_mask is not None
    assert task.query_mask is not None
    with torch.no_grad():
        biases = dict(method.lstm.named_parameters())["bias_ih_l0"]
        biases.add_(torch.tensor([9.0] * 5 + [-9.0] * 5 + [-9.0] * 5 + [9.0] * 5))  # states near -1
    long = F.pad(task.support, (0, 0, 0, 3), value=50.0), F.pad(task.support_mask, (0, 3))
    longer = replace(
        task,
        support=torch.cat([long[0], torch.full_like(long[0][:, :2], 50.0)], 1),
        support_mask=torch.cat([long[1], torch.ones_like(long[1][:, :2])], 1),
        support_y=F.pad(task.support_y, (0, 2), value=PAD),
        query=F.pad(task.query, (0, 0, 0, 4), value=50.0),
        query_mask=F.pad(task.query_mask, (0, 4)),
    )
    torch.testing.assert_close(method(longer), method(task), rtol=0, atol=1e-5)
    torch.testing.assert_close(method.loss(longer)["inconsistency"], method.loss(task)["inconsistency"])
    own = torch.randn(3, 5, 6)
    real = torch.arange(5) < torch.tensor([1, 3, 5])[:, None]
    vectors = method._sentences(own, own, real)
    assert (vectors[:, :5] < 0).all()  # the maxima of the forward states


def test_the_last_layer_at_zero_scores_all_alike() -> None:
    method, task = made(), tokens_task((2, 1, 3))
    with torch.no_grad():
        weight, bias = list(method.match.parameters())[2:]
        weight.zero_()
        bias.fill_(0.7)
    assert torch.equal(method(task), torch.full((2, 3, 3), 0.7))


def test_the_order_of_shots_does_not_matter() -> None:
    method, task = made(), tokens_task((2, 3))
    assert task.support_mask is not None
    order = torch.tensor([4, 1, 3, 0, 2])
    other = replace(
        task,
        support=task.support[:, order],
        support_mask=task.support_mask[:, order],
        support_y=task.support_y[:, order],
    )
    torch.testing.assert_close(method(other), method(task), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [1, 12, 13])
def test_blocks_change_neither_scores_nor_gradients(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1000, block):
        monkeypatch.setattr(mlman, "BLOCK", size)
        method, task = made(), tokens_task()
        task.support.requires_grad_()
        losses = method.loss(task)
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        found.append([method(task), task.support.grad, *(p.grad for p in method.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1])
    for whole, cut in zip(*found, strict=True):
        torch.testing.assert_close(cut, whole, rtol=1e-4, atol=1e-5)


def test_a_block_holds_at_most_so_many_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    method, task, held = made(), tokens_task((2, 1), queries=9), []
    whole = method._block

    def watched(query: Tensor, *rest: Tensor) -> Tensor:
        held.append(query.shape[0] * query.shape[1] * 2 * 3)
        return whole(query, *rest)

    monkeypatch.setattr(method, "_block", watched)
    monkeypatch.setattr(mlman, "BLOCK", 50)
    method(task)
    assert held == [48, 48, 12]  # two episodes, two classes, two examples and the query itself


def test_forget_biases_sum_to_one_both_ways_and_other_layers_start_as_published() -> None:
    method = made()
    for way in ("", "_reverse"):
        biases = [getattr(method.lstm, f"bias_{of}_l0{way}") for of in ("ih", "hh")]
        assert torch.equal(biases[0][5:10] + biases[1][5:10], torch.ones(5))
        assert (biases[0][:5] != 0).all()
    assert not method.fuse.bias.any()
    most = (6 / (24 + 5)) ** 0.5
    assert 0.8 * most < method.fuse.weight.abs().max() <= most
    assert isinstance(method.resize, torch.nn.Identity)
    assert made(4).resize.weight.shape == (6, 4)


def test_dropout_is_of_training_only() -> None:
    method, task = made(dropout=0.5), tokens_task()
    assert torch.equal(method(task), method(task))
    method.train()
    assert not torch.equal(method(task), method(task))


def test_queries_that_are_padding_have_no_part_in_the_loss() -> None:
    method, task = made(), tokens_task()
    assert task.query_y is not None
    less = method.loss(replace(task, query_y=torch.tensor([[0, 1, PAD]] * 2)))
    assert task.query_mask is not None
    cut = replace(
        task, query=task.query[:, :2], query_mask=task.query_mask[:, :2], query_y=torch.tensor([[0, 1]] * 2)
    )  # fmt: skip
    for name, part in method.loss(cut).items():
        torch.testing.assert_close(less[name], part)


def test_it_learns_which_token_makes_the_class() -> None:
    """Sentences of noise with one token of their class, somewhere: it overfits a few episodes."""
    torch.manual_seed(0)
    method = make_method("mlman", feature_shape=(-1, 6), width=6, hidden=12)
    random, marks = torch.Generator().manual_seed(1), 3 * torch.eye(6)

    def drawn(seed: int) -> Task:
        task = tokens_task((2, 2, 2), queries=6, longest=4, seed=seed)
        for x, real, y in (
            (task.support, task.support_mask, task.support_y),
            (task.query, task.query_mask, task.query_y),
        ):
            assert real is not None
            assert y is not None
            place = (torch.rand(real.shape, generator=random) * real).argmax(-1)  # a real token of each sentence
            x.mul_(0.3).scatter_(2, place[..., None, None].expand(-1, -1, 1, 6), marks[y][:, :, None])
        return task

    tasks = [drawn(seed) for seed in range(4)]
    optimiser = torch.optim.Adam(method.parameters(), 0.01)
    losses = []
    for step in range(60):
        parts = method.loss(tasks[step % 4])
        losses.append(parts["cls"].item())
        optimiser.zero_grad()
        torch.stack(list(parts.values())).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    method.eval()
    right = torch.stack([(method(task).argmax(-1) == task.query_y).float().mean() for task in tasks]).mean()
    assert right > 0.95, (float(right), losses[::10])
    assert losses[-1] < 0.2


def test_what_it_cannot_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'MLMAN reads token states.*choose relation-cnn .* with output = "maps"'):
        make_method("mlman", feature_shape=(230,))
    with pytest.raises(ConfigError, match=r"MLMAN: inconsistency -1.0 is a weight; use 0 or more, such as 1.0"):
        made(inconsistency=-1.0)
    with pytest.raises(ConfigError, match="MLMAN needs the masks of real tokens, but the task has none"):
        made()(replace(tokens_task(), support_mask=None))
