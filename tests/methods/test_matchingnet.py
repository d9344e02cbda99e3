"""Matching networks against naive loops, cases worked by hand, and with contextual embeddings."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.matchingnet import MatchingNet
from hyperproto.testing import check_method, method_checks
from tests.helpers.random_tasks import make_task


def build(dim: int = 6, **options: Any) -> MatchingNet:
    torch.manual_seed(0)
    method = make_method("matchingnet", feature_shape=(dim,), **options)
    assert isinstance(method, MatchingNet)
    return method.eval()


def by_hand(support: list[list[float]], labels: list[int], query: list[float]) -> Task:
    return Task(
        support=torch.tensor([support]),
        support_y=torch.tensor([labels]),
        query=torch.tensor([[query]]),
        query_y=None,
        classes=torch.arange(max(labels) + 1)[None],
        query_offsets=torch.arange(2)[None],
    )


def with_pads(task: Task) -> Task:
    """The same task with padding before, between and behind its support."""
    rows = torch.tensor([0, 0, 1, 2, 0, 3, 4, 5, 6, 7, 8, 0, 0])
    pads = torch.tensor([0, 4, 11, 12])
    support, labels = task.support[:, rows].clone(), task.support_y[:, rows].clone()
    support[:, pads], labels[:, pads] = 50.0, PAD
    return replace(task, support=support, support_y=labels)


def naive_support(method: MatchingNet, rows: Tensor) -> Tensor:
    """Vectors (S, D) in the context of each other, one LSTM step at a time."""
    lstm = method.context["support"]
    size = rows.shape[1]
    found = rows.clone()
    for suffix, order in (("", range(len(rows))), ("_reverse", reversed(range(len(rows))))):
        hidden, cell = torch.zeros(size), torch.zeros(size)
        for i in order:
            gates = getattr(lstm, f"weight_ih_l0{suffix}") @ rows[i] + getattr(lstm, f"bias_ih_l0{suffix}")
            gates = gates + getattr(lstm, f"weight_hh_l0{suffix}") @ hidden + getattr(lstm, f"bias_hh_l0{suffix}")
            take, forget, new, out = gates.chunk(4)
            cell = forget.sigmoid() * cell + take.sigmoid() * new.tanh()
            hidden = out.sigmoid() * cell.tanh()
            found[i] = found[i] + hidden
    return found


def naive_query(method: MatchingNet, start: Tensor, support: Tensor) -> Tensor:
    hidden, cell = start, torch.zeros_like(start)
    for _ in range(method.steps):
        weights = [math.exp((hidden * g).sum().item()) for g in support]
        read = sum(w / sum(weights) * g for w, g in zip(weights, support, strict=True))
        hidden, cell = method.context["query"](torch.cat([start, read])[None], (hidden[None], cell[None]))
        hidden, cell = hidden[0] + start, cell[0]
    return hidden


def naive_scores(method: MatchingNet, task: Task) -> Tensor:
    scale = math.exp(method.log_scale.item())
    scores = torch.zeros(*task.query.shape[:2], task.way)
    for b in range(len(task.query)):
        real = task.support_y[b] >= 0
        support, labels = method.narrow(task.support[b][real]), task.support_y[b][real]
        if method.fce:
            support = naive_support(method, support)
        for q in range(task.query.shape[1]):
            query = method.narrow(task.query[b, q])
            if method.fce:
                query = naive_query(method, query, support)
            cosines = [F.cosine_similarity(query, g, dim=0).item() for g in support]
            if method.relu:
                cosines = [max(0.0, c) for c in cosines]
            for n in range(task.way):
                own = [math.exp(scale * c) for c, label in zip(cosines, labels.tolist(), strict=True) if label == n]
                scores[b, q, n] = math.log(sum(own) / (len(own) if method.balance else 1))
    return scores


@pytest.mark.parametrize("block", [1, 32 << 20])
@pytest.mark.parametrize(
    "options", [{}, {"relu": True, "scale": 20.0}, {"balance": True}, {"fce": True}, {"fce": True, "width": 4}]
)
@torch.no_grad()
def test_scores_are_those_of_the_equations(
    monkeypatch: pytest.MonkeyPatch, block: int, options: dict[str, Any]
) -> None:
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", block)
    task, method = with_pads(make_task(queries=2)), build(**options)
    torch.testing.assert_close(method(task), naive_scores(method, task), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 0.40461), (10.0, 0.99982)])
@torch.no_grad()
def test_one_shot_is_a_softmax_of_cosines(scale: float, expected: float) -> None:
    method = build(5, scale=scale)
    task = by_hand(torch.eye(5).tolist(), list(range(5)), [3.0, 0.0, 0.0, 0.0, 0.0])
    share = method.logits(method(task)).softmax(-1)[0, 0]
    torch.testing.assert_close(share, (scale * torch.tensor([1.0, 0, 0, 0, 0])).softmax(0))
    assert share[0].item() == pytest.approx(expected, abs=5e-6)


@torch.no_grad()
def test_a_class_sums_the_attention_to_its_examples() -> None:
    """Class A with cosines 1 and 0, class B with 0.9: log(e^10 + 1) and 9."""
    task = by_hand([[1.0, 0.0], [0.0, 1.0], [0.9, math.sqrt(1 - 0.81)]], [0, 0, 1], [2.0, 0.0])
    assert build(2)(task)[0, 0].tolist() == pytest.approx([10.00005, 9.0], abs=5e-6)


def test_the_loss_is_minus_the_logarithm_of_the_attention() -> None:
    task, method = make_task(), build()
    assert task.query_y is not None
    cosine = F.normalize(task.query, dim=-1) @ F.normalize(task.support, dim=-1).mT
    attention = (10 * cosine).softmax(-1) @ task.members()  # (B, Q, N)
    own = attention.gather(-1, task.query_y[..., None]).log()
    torch.testing.assert_close(method.loss(task)["cls"], -own.mean())


@torch.no_grad()
def test_a_floor_is_added_to_each_probability_as_in_the_released_code() -> None:
    task = make_task()
    attention = (100 * (F.normalize(task.query, dim=-1) @ F.normalize(task.support, dim=-1).mT).relu()).softmax(-1)
    released = (attention @ task.members() + 1e-6).log()
    method = build(relu=True, scale=100.0, learn_scale=False, floor=1e-6)
    torch.testing.assert_close(method(task), released)
    assert method(task).min() >= math.log(1e-6)


@torch.no_grad()
def test_a_large_scale_leaves_the_nearest_neighbour_by_cosine() -> None:
    task, method = make_task(queries=20), build(scale=1e4)
    cosine = F.normalize(task.query, dim=-1) @ F.normalize(task.support, dim=-1).mT
    nearest = task.support_y.gather(1, cosine.argmax(-1))
    assert torch.equal(method(task).argmax(-1), nearest)


@torch.no_grad()
def test_lstms_without_weights_leave_vectors_as_they_are() -> None:
    task, method = make_task(), build(fce=True)
    for parameter in method.context.parameters():
        parameter.zero_()
    real = task.support_y >= 0
    assert torch.equal(method.read_support(task.support, real), task.support)
    assert torch.equal(method.read_query(task.query, task.support, real), task.query)
    assert torch.equal(method(task), build()(task))


@pytest.mark.parametrize("options", [{}, {"fce": True}])
@torch.no_grad()
def test_padding_is_not_read(options: dict[str, Any]) -> None:
    task, method = make_task(), build(**options)
    torch.testing.assert_close(method(with_pads(task)), method(task))


@torch.no_grad()
def test_balance_takes_the_number_of_examples_away() -> None:
    same = [[1.0, 2.0]] * 5
    task = by_hand(same, [0, 1, 1, 1, 1], [0.5, -1.0])
    balanced, plain = build(2, balance=True)(task)[0, 0], build(2)(task)[0, 0]
    torch.testing.assert_close(balanced[0], balanced[1])
    torch.testing.assert_close(plain[1] - plain[0], torch.tensor(4.0).log())


@torch.no_grad()
def test_only_contexts_depend_on_the_order_of_the_support() -> None:
    task = make_task()
    order = torch.tensor([8, 3, 0, 5, 1, 7, 2, 6, 4])
    moved = replace(task, support=task.support[:, order], support_y=task.support_y[:, order])
    torch.testing.assert_close(build()(moved), build()(task))
    assert not torch.allclose(build(fce=True)(moved), build(fce=True)(task), atol=1e-3)


@torch.no_grad()
def test_training_shuffles_the_support_and_evaluation_does_not() -> None:
    task, method = with_pads(make_task()), build(fce=True)
    assert torch.equal(method(task), method(task))
    method.train()
    torch.manual_seed(1)
    first, second = method(task), method(task)
    assert not torch.allclose(first, second, atol=1e-3)
    torch.manual_seed(1)
    assert torch.equal(method(task), first)  # by the step's own seed
    order = torch.rand(2, 13, generator=torch.Generator().manual_seed(1)).masked_fill(task.support_y < 0, 2).argsort()
    rows = order[..., None].expand_as(task.support)
    shuffled = replace(task, support=task.support.gather(1, rows), support_y=task.support_y.gather(1, order))
    torch.testing.assert_close(method.eval()(shuffled), first)


def test_the_scale_is_learned_unless_it_is_fixed() -> None:
    task, method = make_task(), build()
    torch.autograd.backward(method.loss(task)["cls"])
    assert method.log_scale.grad is not None
    assert method.log_scale.grad.abs() > 0
    assert method.monitor() == {"scale": pytest.approx(10.0)}
    assert not build(learn_scale=False).log_scale.requires_grad


def test_what_is_new_beside_the_encoder_is_the_head() -> None:
    assert build().param_groups() == {}
    assert len(build(width=4).param_groups()["head"].params) == 2
    method = build(1600, fce=True, width=64)
    head = method.param_groups()["head"]
    assert not head.table
    sizes = [sum(p.numel() for p in method.context[side].parameters()) for side in ("support", "query")]
    assert sizes == [66_560, 49_664]
    assert sum(p.numel() for p in head.params) == sum(sizes) + 1600 * 64 + 64


@pytest.mark.parametrize("options", [{"balance": True}, {"relu": True, "scale": 100.0, "learn_scale": False}])
def test_options_keep_the_contract(options: dict[str, Any]) -> None:
    check_method(MatchingNet, **options)


def test_contexts_keep_the_contract_but_need_training() -> None:
    assert build(fce=True).traits == MatchingNet.traits - {"untrained"}
    for name, check in method_checks(MatchingNet, fce=True, width=5, steps=2):
        if not name.startswith("untrained"):
            check()


def test_what_it_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scale 0\.0 must be a number above 0, such as 10\.0"):
        build(scale=0.0)
    with pytest.raises(ConfigError, match="steps -1 must be 0 or more, and width None at least 1"):
        build(steps=-1)
    with pytest.raises(ConfigError, match="steps 5 must be 0 or more, and width 0 at least 1"):
        build(width=0)
    with pytest.raises(ConfigError, match=r"floor -0\.1 must be a probability from 0 to below 1, such as 1e-6"):
        build(floor=-0.1)


@pytest.mark.parametrize("options", [{}, {"fce": True, "width": 16, "steps": 2}])
def test_it_learns_a_task_by_heart(options: dict[str, Any]) -> None:
    """The cosines of random vectors say nothing; a layer before them can make them say the labels."""
    torch.manual_seed(0)
    task = make_task(counts=(2, 2, 2), dim=16, batch=2)
    noise = replace(task, support=torch.randn_like(task.support), query=torch.randn_like(task.query))
    method, layer = build(16, **options).train(), nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
    optimiser = torch.optim.Adam([*layer.parameters(), *method.parameters()], lr=0.01)
    losses = []
    for _ in range(60):
        seen = replace(noise, support=layer(noise.support), query=layer(noise.query))
        loss = method.loss(seen)["cls"]
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10
    assert noise.query_y is not None
    assert (method.eval()(seen).argmax(-1) == noise.query_y).float().mean() > 0.9
