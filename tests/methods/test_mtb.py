"""MTB's head and the loss of its pre-training: hand-worked products, the equations as loops, duplicates, signs."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.mtb import MTB
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
    monkeypatch.setattr("hyperproto.methods.blocks.BLOCK_BYTES", 1)
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
