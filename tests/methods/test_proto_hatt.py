"""Proto-HATT against a naive loop, hand-worked cases and ProtoNet, and the state from which it cannot learn."""

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hyperproto.errors import ConfigError
from hyperproto.methods import Task, make_method
from hyperproto.methods.proto_hatt import ProtoHATT
from tests.helpers.random_tasks import make_task


def build(shot: int, dim: int = 6, **options: Any) -> ProtoHATT:
    torch.manual_seed(0)
    method = make_method("proto-hatt", feature_shape=(dim,), shot=shot, **options)
    assert isinstance(method, ProtoHATT)
    return method.eval()


@torch.no_grad()
def without_instance_attention(method: ProtoHATT) -> ProtoHATT:
    method.attention.weight.zero_()
    torch.nn.init.zeros_(method.attention.bias)
    return method


@torch.no_grad()
def with_weights(method: ProtoHATT, value: float) -> ProtoHATT:
    """Make z one number for every feature: relu(value)."""
    method.last.weight.zero_()
    assert method.last.bias is not None
    method.last.bias.fill_(value)
    return method


def convolved(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve (channels, height, D) with kernels (out, channels, K, 1) by loops, without padding."""
    out = torch.zeros(len(weight), rows.shape[1] - weight.shape[2] + 1, rows.shape[2])
    for channel in range(len(weight)):
        for top in range(out.shape[1]):
            window = rows[:, top : top + weight.shape[2]]  # (channels, K, D)
            out[channel, top] = (weight[channel] * window).sum((0, 1)) + bias[channel]
    return out


def naive_weights(method: ProtoHATT, examples: Tensor) -> Tensor:
    """z of one class, (D,), from its examples (K, D)."""
    shot = len(examples)
    rows = examples[None]
    for layer in (method.first, method.second):
        above = torch.zeros(len(rows), (shot - 1) // 2, rows.shape[2])
        below = torch.zeros(len(rows), shot // 2, rows.shape[2])
        assert layer.bias is not None
        rows = convolved(torch.cat([above, rows, below], 1), layer.weight, layer.bias).relu()
        assert rows.shape[1] == shot
    assert method.last.bias is not None
    return convolved(rows, method.last.weight, method.last.bias).relu()[0, 0]


def naive_scores(method: ProtoHATT, task: Task) -> Tensor:
    layer = method.attention
    scores = torch.zeros(*task.query.shape[:2], task.way)
    for b, (support, labels, queries) in enumerate(zip(task.support, task.support_y, task.query, strict=True)):
        for n in range(task.way):
            examples = support[labels == n]
            weights = naive_weights(method, examples)
            for q, query in enumerate(queries):
                alike = torch.stack([(layer(x) * layer(query)).tanh().sum() for x in examples])
                prototype = sum(share * x for share, x in zip(alike.softmax(0), examples, strict=True))
                scores[b, q, n] = -(weights * (query - prototype) ** 2).sum()
    return scores


@pytest.mark.parametrize("shot", [1, 2, 3, 4])
@pytest.mark.parametrize("block", [1, 32 << 20])
@torch.no_grad()
def test_scores_are_those_of_the_equations(monkeypatch: pytest.MonkeyPatch, shot: int, block: int) -> None:
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", block)
    task, method = make_task(counts=(shot,) * 3, pads=1), build(shot)
    torch.testing.assert_close(method(task), naive_scores(method, task), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_case_worked_by_hand() -> None:
    """e = (tanh 2, tanh 6) = (0.9640, 1.0000), alpha = (0.4910, 0.5090), c = 2.0180."""
    method = with_weights(build(2, dim=1), 1.0)
    method.attention.weight.fill_(1.0)
    torch.nn.init.zeros_(method.attention.bias)
    task = Task(
        support=torch.tensor([[[1.0], [3.0]]]),
        support_y=torch.zeros(1, 2, dtype=torch.long),
        query=torch.tensor([[[2.0]]]),
        query_y=None,
        classes=torch.zeros(1, 1, dtype=torch.long),
        query_offsets=torch.arange(2)[None],
    )
    assert method(task).item() == pytest.approx(-0.00032, abs=5e-6)


@torch.no_grad()
def test_without_attention_it_is_protonet() -> None:
    task = make_task(counts=(3, 3, 3), pads=2)
    method = without_instance_attention(with_weights(build(3), 1.0))
    distance = make_method("protonet", feature_shape=(6,), squared=False)(task)
    torch.testing.assert_close(method(task), -(distance**2), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_instance_attention_alone_mixes_examples_by_likeness() -> None:
    """An example that agrees in sign with the query outweighs one that does not."""
    method = with_weights(build(2, dim=2), 1.0)
    method.attention.weight.copy_(torch.eye(2))
    torch.nn.init.zeros_(method.attention.bias)
    task = make_task(counts=(2,), queries=1, dim=2, batch=1)
    support = torch.tensor([[[5.0, 5.0], [-5.0, -5.0]]])
    task = replace(task, support=support, query=torch.tensor([[[5.0, 5.0]]]))
    share = torch.tensor([2.0, -2.0]).softmax(0)  # sums of two saturated tanh
    expected = -2 * (5 - (5 * share[0] - 5 * share[1])) ** 2
    torch.testing.assert_close(method(task).squeeze(), expected)


@torch.no_grad()
def test_with_one_shot_only_the_weights_of_features_are_left() -> None:
    task, method = make_task(counts=(1, 1, 1)), build(1)
    before = method(task)
    method.attention.weight.mul_(7)
    assert torch.equal(method(task), before)
    weights = method.feature_weights(task.by_class())  # (B, N, D)
    gap = task.query[:, :, None] - task.by_class()[:, None, :, 0]
    torch.testing.assert_close(before, -(weights[:, None] * gap**2).sum(-1))


@torch.no_grad()
def test_the_order_of_shots_matters_and_that_of_classes_does_not() -> None:
    task, method = make_task(counts=(2, 2, 2)), build(2)
    scores = method(task)
    turned = replace(task, support=task.support[:, [1, 0, 3, 2, 5, 4]])
    assert not torch.allclose(method(turned), scores, atol=1e-3)
    renamed = replace(task, support_y=(task.support_y + 1) % 3)
    torch.testing.assert_close(method(renamed), scores.roll(1, -1))


def test_weights_start_near_one_so_that_every_class_can_learn() -> None:
    method = build(5, dim=230)
    weights = method.feature_weights(make_task(counts=(5,) * 4, dim=230).by_class())
    assert weights.min() > 0.3
    assert weights.max() < 2


def test_training_warns_once_of_weights_that_are_all_zero() -> None:
    task, method = make_task(counts=(2, 2, 2)), with_weights(build(2), -1.0)
    assert not method(task).any()  # all scores are 0
    method.train()
    with pytest.warns(UserWarning, match=r"the weights of all features of a class are 0.*rate of \[optim\.head\]"):
        method.loss(task)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.loss(task)
        build(2).train().loss(task)


def test_the_spread_of_weights_over_classes_is_watched_in_training() -> None:
    task, method = make_task(counts=(2, 2, 2)), build(2, dropout=0.0)
    method(task)
    assert method.monitor() == {}
    totals = method.feature_weights(task.by_class()).sum(-1)
    method.train().loss(task)
    expected = {"weight_mean": totals.mean().item(), "weight_spread": totals.std(unbiased=False).item()}
    assert method.monitor() == pytest.approx(expected)
    assert expected["weight_spread"] > 0


def test_what_it_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"shot is None; train it with one number of shots for all classes"):
        make_method("proto-hatt", feature_shape=(6,))
    with pytest.raises(ConfigError, match=r"shot is \[1, 2\]; train it with one number"):
        make_method("proto-hatt", feature_shape=(6,), shot=[1, 2])
    with pytest.raises(ConfigError, match=r"dropout 1\.0 must be at least 0 and below 1"):
        build(2, dropout=1.0)
    with pytest.raises(ConfigError, match=r"different numbers of examples \(1, 2\); this method needs equal shots"):
        build(2)(make_task(counts=(2, 1, 2)))
    with pytest.raises(ConfigError, match="made for 2 shots, but these classes have 3 examples; use its own number"):
        build(2)(make_task(counts=(3, 3, 3)))


def test_it_learns_which_features_matter() -> None:
    """Two features tell four classes apart; the others are noise, and lie far out."""
    method = build(2, dim=8, dropout=0.0, temperature=10.0).train()
    optimiser = torch.optim.Adam(method.parameters(), lr=0.003)
    task = make_task(counts=(2,) * 4, queries=5, dim=8, batch=4)
    random = torch.Generator().manual_seed(0)
    centres = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    labels = torch.arange(4)
    places = centres[torch.cat([labels.repeat_interleave(2), labels.repeat_interleave(5)])]  # (28, 2)
    told = places + 0.3 * torch.randn(4, 28, 2, generator=random)
    x = torch.cat([told, 5 + 1.5 * torch.randn(4, 28, 6, generator=random)], -1)
    task = replace(task, support=x[:, :8], query=x[:, 8:])
    first = method.loss(task)["cls"].item()
    for _ in range(80):
        optimiser.zero_grad()
        torch.autograd.backward(method.loss(task)["cls"])
        optimiser.step()
    right = (method(task).argmax(-1) == task.query_y).float().mean()
    assert method.loss(task)["cls"].item() < 0.2 * first
    assert right > 0.95
