"""Centres between examples and names: against a naive loop, their limits, and that names are learned."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hyperproto.errors import ConfigError
from hyperproto.methods import Task, make_method
from tests.helpers.random_tasks import make_task


def build(**options: Any) -> Any:
    return make_method("hyperproto-named", feature_shape=(6,), **options)


def named_task(shots: tuple[int, ...], size: int = 6, without: int | None = None) -> Task:
    task = make_task(shots)
    names = torch.randn(*task.classes.shape, size, generator=torch.Generator().manual_seed(1)).to(task.support)
    mask = torch.ones(task.classes.shape, dtype=torch.bool)
    if without is not None:
        mask[:, without] = False
        names[:, without] = 0.0
    return task.with_evidence(names=names, named=mask)


def naive_scores(task: Task, k: float, v: float) -> Tensor:
    scores = torch.zeros(*task.query.shape[:2], task.way, dtype=task.support.dtype)
    assert task.names is not None
    for b in range(len(task.support)):
        for n in range(task.way):
            own = [x for x, y in zip(task.support[b], task.support_y[b].tolist(), strict=True) if y == n]
            worth = k if task.evidence.named[b, n] else 0.0
            total = sum(own, torch.zeros_like(task.names[b, n])) + worth * task.names[b, n]
            center, count = total / (len(own) + worth), len(own) + worth
            for q, x in enumerate(task.query[b]):
                scores[b, q, n] = -(((x - center) ** 2).sum() - v / count)
    return scores


@pytest.mark.parametrize("without", [None, 1])
@pytest.mark.parametrize(("k", "v"), [(1.0, 0.5), (3.0, 2.0)])
def test_scores_are_those_of_posterior_centres(without: int | None, k: float, v: float) -> None:
    task = named_task((1, 2, 4), without=without)
    found = build(name_worth=k, scatter=v).scores(task)
    torch.testing.assert_close(found, naive_scores(task, k, v).to(found), rtol=1e-4, atol=1e-4)


def test_a_class_without_examples_lies_where_its_name_is() -> None:
    task = named_task((1, 2, 4))
    assert task.names is not None
    alone = replace(task, support_y=torch.full_like(task.support_y, -2))
    torch.testing.assert_close(build().fitted(alone).center, task.names)


def test_names_worth_little_leave_the_means_and_names_worth_much_leave_the_names() -> None:
    task = named_task((1, 2, 4))
    means = make_method("protonet", feature_shape=(6,)).scores(task)
    little = build(name_worth=1e-6, scatter=1e-6).scores(task)
    torch.testing.assert_close(little - little.mean(-1, keepdim=True), means - means.mean(-1, keepdim=True),
                               rtol=1e-3, atol=1e-3)  # fmt: skip
    assert task.names is not None
    torch.testing.assert_close(build(name_worth=1e6).fitted(task).center, task.names, rtol=1e-4, atol=1e-4)


def test_gradients_reach_names_examples_and_the_worth() -> None:
    task = named_task((1, 2, 4))
    assert task.names is not None
    task.names.requires_grad_()
    task.support.requires_grad_()
    method = build()
    method.loss(task)["cls"].backward()
    for part in (task.names, task.support, method.log_worth, method.log_scatter):
        assert part.grad is not None
        assert part.grad.isfinite().all()
        assert part.grad.abs().sum() > 0
    assert not build(learn_worth=False).log_worth.requires_grad
    assert build(name_worth=2.0).monitor() == pytest.approx({"name_worth": 2.0, "scatter": 0.5})


def test_names_of_another_space_go_through_a_learned_map() -> None:
    task = named_task((1, 2, 4), size=9)
    with pytest.raises(ConfigError, match=r"vectors of 9 numbers, items of 6; .* name_size = 9 in \[method\]"):
        build().scores(task)
    method = build(name_size=9)
    assert method.uses_evidence == frozenset()
    assert build().uses_evidence == {"names"}
    assert task.names is not None
    mapped = task.with_evidence(names=method.name_map(task.names))
    torch.testing.assert_close(method.scores(task), build().scores(mapped))


@pytest.mark.parametrize("name", ["name_worth", "scatter"])
def test_numbers_that_are_not_positive_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} 0\.0 must be above 0"):
        build(**{name: 0.0})
