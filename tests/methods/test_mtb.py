"""MTB's head and the loss of its pre-training: hand-worked products, the equations as loops, duplicates, signs."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from hyperproto.data import OUTSIDE
from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.mtb import MTB, MTBPretrain
from hyperproto.testing import check_method
from tests.helpers.random_tasks import make_task


def build(dim: int = 6, **options: Any) -> MTB:
    method = make_method("mtb", feature_shape=(dim,), **options)
    assert isinstance(method, MTB)
    return method.eval()


def learned(dim: int = 6, **options: Any) -> MTB:
    """A method whose LayerNorm is not the one it starts from."""
    method = build(dim, **options)
    random = torch.Generator().manual_seed(1)
    method.norm.weight.data = 1 + torch.randn(dim, generator=random) / 4
    method.norm.bias.data = torch.randn(dim, generator=random) / 4
    return method


def one_class(support: list[list[float]], query: list[list[float]], labels: list[int] | None = None) -> Task:
    """One episode of the support given, of one class unless labels say otherwise."""
    y = torch.tensor([labels or [0] * len(support)])
    way = int(y.max()) + 1
    offsets = torch.arange(len(query) + 1)[None]
    none = torch.zeros(1, len(query), dtype=torch.long)
    return Task(torch.tensor([support]), y, torch.tensor([query]), none, torch.arange(way)[None], offsets)


def test_a_vector_scores_sqrt_d_with_itself() -> None:
    """LayerNorm with gain 1 and bias 0 gives vectors of length sqrt(D)."""
    vector = torch.randn(16, generator=torch.Generator().manual_seed(0)).tolist()
    task = one_class([vector], [vector])
    assert build(16).scores(task).item() == pytest.approx(4.0, rel=1e-4)
    assert build(16, scale="none").scores(task).item() == pytest.approx(16.0, rel=1e-4)


def test_products_by_hand() -> None:
    """Two coordinates: LayerNorm leaves the signs, (1, -1) or (-1, 1), so that products are 2 or -2."""
    task = one_class([[5.0, 1.0], [2.0, 3.0], [0.0, 9.0]], [[1.0, 0.0]], labels=[0, 0, 1])
    largest = build(2, scale="none").scores(task)
    mean = build(2, combine="mean", scale="none").scores(task)
    torch.testing.assert_close(largest, torch.tensor([[[2.0, -2.0]]]), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(mean, torch.tensor([[[0.0, -2.0]]]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", ["sqrt", "none"])
@pytest.mark.parametrize("combine", ["max", "mean"])
def test_scores_are_the_equations(combine: str, scale: str) -> None:
    task, method = make_task(pads=2), learned(combine=combine, scale=scale)

    def u(v: torch.Tensor) -> torch.Tensor:
        spread = ((v - v.mean()) ** 2).mean()
        return (v - v.mean()) / (spread + 1e-5).sqrt() * method.norm.weight + method.norm.bias

    expected = torch.zeros(*task.query.shape[:2], task.way)
    for b, q, n in torch.cartesian_prod(*map(torch.arange, expected.shape)).tolist():
        mates = task.support[b, task.support_y[b] == n]
        products = [(u(task.query[b, q]) * u(x)).sum() / (math.sqrt(6) if scale == "sqrt" else 1) for x in mates]
        expected[b, q, n] = max(products) if combine == "max" else sum(products) / len(products)
    torch.testing.assert_close(method.scores(task), expected, rtol=1e-4, atol=1e-4)


def test_one_shot_leaves_nothing_to_combine() -> None:
    task = make_task(counts=(1, 1, 1))
    torch.testing.assert_close(learned(combine="max").scores(task), learned(combine="mean").scores(task))


def doubled(task: Task) -> Task:
    """The same task with its first support example twice."""
    y = torch.cat([task.support_y, task.support_y[:, :1]], 1)
    return replace(task, support=torch.cat([task.support, task.support[:, :1]], 1), support_y=y)


def test_a_duplicate_example_changes_the_mean_only() -> None:
    task = make_task()
    torch.testing.assert_close(learned().scores(doubled(task)), learned().scores(task))
    mean = learned(combine="mean")
    assert not torch.allclose(mean.scores(doubled(task)), mean.scores(task))


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task, method = make_task(), learned()
    whole = method.scores(task)
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", 1)
    torch.testing.assert_close(method.scores(task), whole)


def test_dropout_is_for_training() -> None:
    task, method = make_task(), build()
    assert torch.equal(method.scores(task), method.scores(task))
    method.train()
    assert not torch.equal(method.scores(task), method.scores(task))
    plain = build(dropout=0.0).train()
    assert torch.equal(plain.scores(task), build().scores(task))


def test_the_norm_is_the_head() -> None:
    method = build()
    [group] = method.param_groups().values()
    assert [*method.param_groups()] == ["head"]
    assert not group.table
    assert {id(p) for p in group.params} == {id(method.norm.weight), id(method.norm.bias)}
    assert {"norm.weight", "norm.bias"} <= method.state_dict().keys()


def test_a_class_without_examples_is_refused() -> None:
    task = make_task()
    task = replace(task, support_y=task.support_y.masked_fill(task.support_y == 1, PAD))
    with pytest.raises(ConfigError, match="with the examples of each class; a class of this task has none"):
        build().scores(task)


def test_dropout_of_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dropout 1.0 must be at least 0 and below 1, such as 0.5"):
        build(dropout=1.0)


@pytest.mark.parametrize("options", [{"combine": "mean"}, {"scale": "none"}, {"dropout": 0.0}])
def test_options_keep_the_contract(options: dict[str, Any]) -> None:
    check_method(MTB, **options)


def test_it_learns_a_task_by_heart() -> None:
    """The products of random vectors say nothing; a linear layer before the head can make them say the labels."""
    torch.manual_seed(0)
    task = make_task(counts=(2, 2, 2, 2), dim=16, batch=4)
    noise = replace(task, support=torch.randn_like(task.support), query=torch.randn_like(task.query))
    method, layer = build(32, dropout=0.0).train(), torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh())
    optimiser = torch.optim.Adam([*layer.parameters(), *method.parameters()], lr=0.02)
    losses = []
    for _ in range(200):
        seen = replace(noise, support=layer(noise.support), query=layer(noise.query))
        loss = method.loss(seen)["cls"]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10
    assert noise.query_y is not None
    assert (method.eval()(seen).argmax(-1) == noise.query_y).float().mean() > 0.95


# Pre-training -----------------------------------------------------------------------------------------------------


def pretrain(dim: int = 6, **options: Any) -> MTBPretrain:
    method = make_method("mtb-pretrain", feature_shape=(dim,), **options)
    assert isinstance(method, MTBPretrain)
    return method


def pairs(positive: list[bool], dim: int = 6, seed: int = 0) -> Task:
    """Random pairs, as a sampler of pairs gives them: episodes of one class, one support example and one query."""
    random = torch.Generator().manual_seed(seed)
    support, query = torch.randn(2, len(positive), 1, dim, generator=random)
    zero = torch.zeros(len(positive), 1, dtype=torch.long)
    answer = torch.tensor([[0 if same else OUTSIDE] for same in positive])
    return Task(support, zero, query, answer, zero, torch.arange(2).expand(len(positive), -1))


def test_the_loss_is_the_mean_cross_entropy_of_the_pairs() -> None:
    method, task = pretrain(), pairs([True, False, True, True, False])
    random = torch.Generator().manual_seed(1)
    method.norm.weight.data = 1 + torch.randn(6, generator=random) / 4
    method.norm.bias.data = torch.randn(6, generator=random) / 4
    total = 0.0
    for n, same in enumerate([True, False, True, True, False]):
        u, v = method.norm(task.query[n, 0]), method.norm(task.support[n, 0])
        p = 1 / (1 + math.exp(-(u * v).sum().item() / math.sqrt(6)))
        total -= math.log(p if same else 1 - p)
    assert method.loss(task)["pairs"].item() == pytest.approx(total / 5, rel=1e-5)


@pytest.mark.parametrize("same", [True, False])
def test_a_step_raises_the_product_of_a_positive_pair_only(same: bool) -> None:
    """A large product must mean the same relation."""
    method, task = pretrain(), pairs([same])
    query = task.query.clone().requires_grad_()
    [gradient] = torch.autograd.grad(method.loss(replace(task, query=query))["pairs"], query)
    method.eval()
    before = method.scores(task).item()
    after = method.scores(replace(task, query=task.query - 0.01 * gradient)).item()
    assert (after > before) == same


def test_pre_training_has_no_dropout_of_its_own() -> None:
    method, task = pretrain().train(), pairs([True, False])
    assert torch.equal(method.loss(task)["pairs"], method.loss(task)["pairs"])


def test_every_query_of_an_episode_is_paired_with_every_example() -> None:
    """Padding is in no pair."""
    task, method = make_task(pads=2), pretrain()
    assert task.query_y is not None
    hidden = task.query_y.clone()
    hidden[1, -1] = PAD
    terms = []
    for b in range(2):
        for q in range(12):
            for s in range(9):
                if hidden[b, q] != PAD:
                    u, v = method.norm(task.query[b, q]), method.norm(task.support[b, s])
                    sign = 1 if hidden[b, q] == task.support_y[b, s] else -1
                    terms.append(torch.nn.functional.softplus(-sign * (u * v).sum() / math.sqrt(6)))
    found = method.loss(replace(task, query_y=hidden))["pairs"]
    torch.testing.assert_close(found, torch.stack(terms).mean())


def test_the_norm_is_handed_on_and_scores_are_those_of_mtb() -> None:
    before, after, task = pretrain().eval(), build(), make_task()
    before.norm.weight.data.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(0))
    assert before.state_dict().keys() == after.state_dict().keys()
    after.load_state_dict(before.state_dict())
    assert torch.equal(before.scores(task), after.scores(task))


def test_pairs_are_learned_by_heart() -> None:
    torch.manual_seed(0)
    method, layer = pretrain(32), torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32))
    same = [n % 2 == 0 for n in range(16)]
    task = pairs(same)
    optimiser = torch.optim.Adam([*layer.parameters(), *method.parameters()], lr=0.01)
    losses = []
    for _ in range(150):
        seen = replace(task, support=layer(task.support), query=layer(task.query))
        loss = method.loss(seen)["pairs"]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10
    assert ((method.eval().scores(seen)[:, 0, 0] > 0) == torch.tensor(same)).all()
