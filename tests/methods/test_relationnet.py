"""RelationNet against its equations in loops, the sizes of its maps, its batch norm, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.encoders.conv4 import Conv4
from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.relationnet import RelationNet
from hyperproto.testing import check_method
from tests.helpers.random_tasks import make_task

SHAPE = (4, 5, 5)


def build(shape: tuple[int, ...] = SHAPE, **options: Any) -> RelationNet:
    torch.manual_seed(0)
    method = make_method("relationnet", feature_shape=shape, **options)
    assert isinstance(method, RelationNet)
    for norm in norms(method):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    return method.eval()


def norms(method: RelationNet) -> list[nn.BatchNorm2d]:
    return [module for module in method.modules() if isinstance(module, nn.BatchNorm2d)]


def maps_task(shape: tuple[int, ...] = SHAPE, **how: Any) -> Task:
    """Random maps, of classes that differ."""
    task = make_task(dim=torch.Size(shape).numel(), **{"queries": 2, **how})
    support, query = (x.reshape(*x.shape[:2], *shape) for x in (task.support, task.query))
    return replace(task, support=support, query=query)


def naive_logit(method: RelationNet, examples: Tensor, query: Tensor) -> Tensor:
    """The equations for one class and one query: join, then two blocks and two layers."""
    first, second = (m for m in method.modules() if isinstance(m, nn.Conv2d))
    linear, last = (m for m in method.modules() if isinstance(m, nn.Linear))
    x = torch.cat([examples.sum(0) if method.combine == "sum" else examples.mean(0), query])[None]  # (1, 2C, H, W)
    padding = 0 if min(query.shape[1:]) >= 10 else 1
    for convolution, norm in zip((first, second), norms(method), strict=True):
        x = F.conv2d(x, convolution.weight, convolution.bias, padding=padding)
        x = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias).relu()
        if min(x.shape[2:]) > 1:
            x = F.max_pool2d(x, 2)
    return last(linear(x.flatten()).relu())[0]  # type: ignore[no-any-return]


def naive_scores(method: RelationNet, task: Task) -> Tensor:
    found = torch.empty(*task.query.shape[:2], task.way)
    for b, labels in enumerate(task.support_y):
        for q, query in enumerate(task.query[b]):
            for n in range(task.way):
                found[b, q, n] = naive_logit(method, task.support[b][labels == n], query)
    return found


@pytest.mark.parametrize("combine", ["mean", "sum"])
@pytest.mark.parametrize("shape", [(4, 5, 5), (3, 12, 12), (2, 3, 1)])
def test_scores_are_those_of_the_equations(shape: tuple[int, ...], combine: str) -> None:
    method, task = build(shape, combine=combine), maps_task(shape)
    torch.testing.assert_close(method(task), naive_scores(method, task), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("side", "rest"), [(21, 3), (19, 3), (10, 1), (9, 2), (7, 1), (5, 1), (3, 1), (2, 1), (1, 1)])
def test_what_remains_of_a_map(side: int, rest: int) -> None:
    method = build((2, side, side))
    linear = next(m for m in method.modules() if isinstance(m, nn.Linear))
    assert (linear.in_features, linear.out_features) == (2 * rest * rest, 8)
    task = maps_task((2, side, side), counts=(1, 1), queries=1)
    for training in (True, False):
        assert method.train(training)(task).shape == (2, 2, 2)


def test_the_published_size_and_start() -> None:
    method = build((64, 21, 21))
    assert sum(p.numel() for group in method.param_groups().values() for p in group.params) == 115_601
    assert float(method.first.weight.detach().std()) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    assert [norm.momentum for norm in norms(method)] == [0.1, 0.1]
    assert Conv4(size=84, channels=3, poolings=2, output="maps").feature_shape == (64, 21, 21)


def test_at_one_shot_the_sum_is_the_mean() -> None:
    task = maps_task(counts=(1, 1, 1))
    assert torch.equal(build(combine="sum")(task), build(combine="mean")(task))
    several = maps_task(counts=(3, 3, 3))
    assert not torch.allclose(build(combine="sum")(several), build(combine="mean")(several), atol=1e-3)
    assert build(combine="sum").traits == {"any-way", "equivariant"}
    assert build().traits == RelationNet.traits


@pytest.mark.parametrize("shape", [(4, 5, 5), (3, 12, 12)])
def test_the_split_first_convolution_is_that_of_joined_maps(shape: tuple[int, ...]) -> None:
    method, task = build(shape), maps_task(shape)
    classes = method.class_maps(task)
    found = method.pairs(classes, task.query)
    for b in range(2):
        for q in range(task.query.shape[1]):
            for n in range(task.way):
                joined = torch.cat([classes[b, n], task.query[b, q]])
                torch.testing.assert_close(found[b, q, n], method.first(joined[None])[0], rtol=1e-4, atol=1e-5)


def test_the_squared_error_of_logits_of_zero_is_a_quarter() -> None:
    method = build(loss="mse")
    last = list(method.modules())[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    assert method.loss(maps_task())["cls"].item() == 0.25


def test_losses_are_those_of_the_equations() -> None:
    task = maps_task(counts=(2, 1, 1), queries=1)
    task = replace(task, query_y=torch.tensor([[0, 2, -1], [1, PAD, 2]]))
    method = build(loss="mse")
    scores = method(task).detach()
    rows = {(0, 0): 0, (0, 1): 2, (1, 0): 1, (1, 2): 2}
    squares = [(float(scores[at][n].sigmoid()) - (n == y)) ** 2 for at, y in rows.items() for n in range(3)]
    assert method.loss(task)["cls"].item() == pytest.approx(sum(squares) / 12, rel=1e-5)
    entropies = [-float(scores[at].log_softmax(0)[y]) for at, y in rows.items()]
    assert build(loss="ce").loss(task)["cls"].item() == pytest.approx(sum(entropies) / 4, rel=1e-5)


def test_class_and_query_are_not_interchangeable() -> None:
    method, task = build(), maps_task(counts=(1, 1), queries=1)
    swapped = replace(task, support=task.query, query=task.support)
    assert (method(swapped) - method(task).mT).abs().max() > 1e-3


@torch.no_grad()
def test_blocks_are_of_evaluation_only(monkeypatch: pytest.MonkeyPatch) -> None:
    method, task = build(), maps_task()
    whole, learned = method(task), build().train()(task)
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", 1)
    calls: list[int] = []
    method.rest.register_forward_hook(lambda *given: calls.append(len(given[1][0])))
    torch.testing.assert_close(method(task), whole)
    assert calls == [6] * 6  # two episodes, one query at a time, three classes
    calls.clear()
    torch.testing.assert_close(method.train()(task), learned)
    assert calls == [36]


def test_in_training_the_order_of_pairs_does_not_matter() -> None:
    task = maps_task(counts=(2, 2, 2))
    order, classes = torch.tensor([3, 0, 5, 1, 4, 2]), torch.tensor([2, 0, 1])
    moved = replace(task, query=task.query[:, order], support_y=classes.argsort()[task.support_y])
    found = [build().train() for _ in range(2)]
    scores, other = found[0](task), found[1](moved)
    torch.testing.assert_close(other, scores[:, order][:, :, classes], rtol=1e-4, atol=1e-5)
    for a, b in zip(norms(found[0]), norms(found[1]), strict=True):
        torch.testing.assert_close(a.running_mean, b.running_mean)
        torch.testing.assert_close(a.running_var, b.running_var)


def test_padding_enters_neither_class_maps_nor_batch_norm() -> None:
    task = maps_task(counts=(2, 1, 3))
    padded = maps_task(counts=(2, 1, 3), pads=4)
    padded = replace(padded, query=task.query)
    torch.testing.assert_close(build().class_maps(padded), build().class_maps(task))
    assert task.query_y is not None
    longer = replace(
        task,
        query=torch.cat([task.query, 100 * torch.ones(2, 3, *SHAPE)], 1),
        query_y=torch.cat([task.query_y, torch.full((2, 3), PAD)], 1),
    )
    plain, beside = build().train(), build().train()
    scores = beside(longer)
    torch.testing.assert_close(scores[:, :6], plain(task))
    assert (scores[:, 6:] == 0).all()
    torch.testing.assert_close(norms(beside)[0].running_mean, norms(plain)[0].running_mean)
    torch.testing.assert_close(beside.loss(longer)["cls"], plain.loss(task)["cls"])
    assert plain(replace(task, query_y=None)).isfinite().all()


def test_queries_mix_in_training_and_are_independent_in_evaluation() -> None:
    task = maps_task()
    one = replace(task, query=task.query[:, :1], query_y=None)
    assert torch.allclose(build()(task)[:, :1], build()(one), atol=1e-6)
    assert not torch.allclose(build().train()(task)[:, :1], build().train()(one), atol=1e-3)


def test_maps_of_another_size_and_vectors_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"RelationNet was made for maps of shape \(4, 5, 5\), but these are of shape "
                                          r"\(4, 6, 6\); use images of the size that it was trained with"):  # fmt: skip
        build()(maps_task((4, 6, 6)))
    with pytest.raises(ConfigError, match=r'reads feature maps, but .* \(6,\); add output = "maps" to \[encoder\]'):
        make_method("relationnet", feature_shape=(6,))
    with pytest.raises(ConfigError, match="option 'loss': 'bce' is not valid"):
        build(loss="bce")
    with pytest.raises(ConfigError, match="option 'combine': 'max' is not valid"):
        build(combine="max")


@pytest.mark.parametrize("options", [{"combine": "sum"}, {"loss": "mse"}])
def test_every_option_keeps_the_contract(options: dict[str, Any]) -> None:
    check_method(RelationNet, **options)


@pytest.mark.parametrize("loss", ["ce", "mse"])
def test_it_learns_to_compare_maps(loss: str) -> None:
    """New episodes of classes that are patterns: a query has the pattern of its class, with noise."""
    random = torch.Generator().manual_seed(0)
    patterns = torch.randn(6, *SHAPE, generator=random)
    method = build(loss=loss).train()
    optimiser = torch.optim.Adam(method.parameters(), lr=2e-2)
    labels = torch.arange(2).repeat(1, 8)

    def draw() -> Task:
        classes = torch.randperm(6, generator=random)[None, :2]
        support = patterns[classes] + 0.3 * torch.randn(1, 2, *SHAPE, generator=random)
        query = patterns[classes[:, labels[0]]] + 0.3 * torch.randn(1, 16, *SHAPE, generator=random)
        return Task(support, labels[:, :2], query, labels, classes, torch.arange(17)[None])

    for _ in range(80):
        optimiser.zero_grad()
        torch.autograd.backward(method.loss(draw())["cls"])
        optimiser.step()
    method.eval()
    right = [(method(task).argmax(-1) == task.query_y).float().mean() for task in [draw() for _ in range(20)]]
    assert torch.stack(right).mean() > 0.95
