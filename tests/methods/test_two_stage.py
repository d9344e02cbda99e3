"""The two-stage approach against its equations in loops: from ProtoNet to its metric, from that to prototypes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.two_stage import TwoStage, relative_features
from hyperproto.testing import Bench, check_method
from tests.helpers.random_tasks import make_task

DIM = 6


def build(**options: Any) -> TwoStage:
    torch.manual_seed(0)
    method = make_method("two-stage", feature_shape=(DIM,), n_classes=8, **options)
    assert isinstance(method, TwoStage)
    return method.eval()


def learned(**options: Any) -> TwoStage:
    """A method that has learned something, and stored some means."""
    method, random = build(**options), torch.Generator().manual_seed(1)
    for name, tensor in method.state_dict().items():
        if name != "log_temperature":
            tensor += 0.3 * torch.randn(tensor.shape, generator=random)
    return method


def without_omega(method: TwoStage) -> TwoStage:
    method.omega.data.fill_(-math.inf)
    return method


def naive_scores(method: TwoStage, task: Task, centers: Tensor, means: Tensor) -> Tensor:
    """One query and one class after another; centers and means (B, N, D)."""
    scores = torch.zeros(*task.query.shape[:2], task.way)
    omega = F.softplus(method.omega)
    for b, q, n in torch.cartesian_prod(*map(torch.arange, scores.shape)).tolist():
        query, own = task.query[b, q], centers[b, n]
        variance = 0.01 + torch.log1p(method.variance(means[b, n]).exp())
        relative = 0.0
        for other in centers[b]:
            relative += float(((query - other) ** 2).sum() / DIM - ((own - other) ** 2).sum() / DIM) ** 2
        scores[b, q, n] = -((query - own) ** 2 / variance).sum() - omega * relative
    return scores


def naive_means(task: Task) -> Tensor:
    return torch.stack(
        [
            torch.stack([x[y == n].mean(0) for n in range(task.way)])
            for x, y in zip(task.support, task.support_y, strict=True)
        ]
    )


def naive_prototypes(method: TwoStage, task: Task, hide: bool) -> Tensor:
    """Attention of one mean after another to the stored ones, without the episode's own where they are hidden."""
    means = naive_means(task)
    found = torch.zeros_like(means)
    for b, n in torch.cartesian_prod(torch.arange(len(means)), torch.arange(task.way)).tolist():
        rows = [m for m in range(8) if not hide or m not in task.classes[b].tolist()]
        asked = method.query(means[b, n])
        alike = torch.stack(
            [method.sharpness * F.cosine_similarity(asked, method.key(method.base[m]), 0) for m in rows]
        )
        context = sum((a * method.base[m] for a, m in zip(alike.softmax(0), rows, strict=True)), torch.zeros(DIM))
        found[b, n] = means[b, n] + method.map(torch.cat([means[b, n], context]))
    return found


@torch.no_grad()
def test_the_metric_is_that_of_the_equations() -> None:
    task, method = make_task(pads=2), learned()
    means = naive_means(task)
    torch.testing.assert_close(method(task), naive_scores(method, task, means, means), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("training", [False, True])
@torch.no_grad()
def test_prototypes_are_those_of_the_equations(training: bool) -> None:
    task, method = make_task(pads=2), learned(stage="prototype", map_weight=2.0, temperature=5.0).train(training)
    prototypes = naive_prototypes(method, task, hide=training)
    expected = naive_scores(method, task, prototypes, naive_means(task))
    torch.testing.assert_close(method(task), expected, rtol=1e-4, atol=1e-3)
    parts = method.loss(task)
    assert parts.keys() == {"cls", "map"}
    assert task.query_y is not None
    torch.testing.assert_close(
        parts["cls"], F.cross_entropy(expected.flatten(0, 1) / 5, task.query_y.flatten()), rtol=1e-4, atol=1e-4
    )
    error = [
        ((p - method.base[c]) ** 2).sum() / DIM
        for b in range(2)
        for p, c in zip(prototypes[b], task.classes[b], strict=True)
    ]
    torch.testing.assert_close(parts["map"], 2 * torch.stack(error).mean(), rtol=1e-4, atol=1e-5)


def test_a_center_is_no_distance_from_itself() -> None:
    """Exactly, and without a gradient that is not finite."""
    centers = (1e3 * torch.randn(2, 5, DIM, generator=torch.Generator().manual_seed(0))).requires_grad_()
    relative = relative_features(centers)
    assert not relative.diagonal(dim1=1, dim2=2).any()
    assert relative[0, 1, 3].item() == pytest.approx(((centers[0, 1] - centers[0, 3]) ** 2).mean().item(), rel=1e-4)
    torch.autograd.backward(relative.sum())
    assert centers.grad is not None
    assert centers.grad.isfinite().all()


@torch.no_grad()
def test_it_starts_as_protonet_divided_by_the_variance() -> None:
    task = make_task(pads=1)
    protonet = make_method("protonet", feature_shape=(DIM,), squared=False)(task)
    torch.testing.assert_close(without_omega(build())(task), -(protonet**2) / 1.01, rtol=1e-4, atol=1e-4)
    assert F.softplus(build().omega).item() == pytest.approx(0.1, abs=1e-4)


@torch.no_grad()
def test_the_second_stage_starts_where_the_first_ended() -> None:
    task, first, second = make_task(), learned(), build(stage="prototype")
    second.load_state_dict(first.state_dict(), strict=False)
    second.base.normal_(generator=torch.Generator().manual_seed(0))
    means = naive_means(task)
    assert torch.equal(second.prototypes(task, means), means)
    torch.testing.assert_close(second(task), first(task))
    torch.testing.assert_close(second.train()(task), first(task))


@pytest.mark.parametrize("stage", ["metric", "prototype"])
@torch.no_grad()
def test_renaming_the_classes_renames_the_scores(stage: str) -> None:
    """Though relative features are indexed by class."""
    task, method = make_task(pads=1), learned(stage=stage)
    new = (task.support_y + 1) % 3
    renamed = replace(task, support_y=new.masked_fill(task.support_y == PAD, PAD), classes=task.classes.roll(1, -1))
    for training in (False, True):
        method.train(training)
        torch.testing.assert_close(method(renamed), method(task).roll(1, -1), rtol=1e-4, atol=1e-3)


@torch.no_grad()
def test_an_episode_does_not_see_the_stored_means_of_its_own_classes() -> None:
    """In training: at evaluation numbers of classes are those of other data, and all stored means count."""
    task, method = make_task(batch=1), learned(stage="prototype")
    before = {training: method.train(training)(task) for training in (True, False)}
    method.base[task.classes[0]] += 5
    assert torch.equal(method.train()(task), before[True])
    assert not torch.allclose(method.eval()(task), before[False], atol=1e-2)
    others = [n for n in range(8) if n not in task.classes[0].tolist()]
    method.base[others] += 1
    assert not torch.allclose(method.train()(task), before[True], atol=1e-2)


@pytest.mark.parametrize("stage", ["metric", "prototype"])
def test_one_class_is_finite(stage: str) -> None:
    task, method = make_task(counts=(3,), pads=1), learned(stage=stage).train()
    assert method(task).isfinite().all()
    losses = method.loss(task)
    torch.autograd.backward(torch.stack(list(losses.values())).sum())
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())


@torch.no_grad()
def test_no_stored_mean_to_attend_to_leaves_a_context_of_0() -> None:
    """An episode of all training classes, and a method that was never trained."""
    task = replace(make_task(counts=(1,) * 8), classes=torch.arange(8).expand(2, -1))
    method = learned(stage="prototype").train()
    means = naive_means(task)
    expected = means + method.map(torch.cat([means, torch.zeros_like(means)], -1))
    torch.testing.assert_close(method.prototypes(task, means), expected)
    untrained = make_method("two-stage", feature_shape=(DIM,), stage="prototype").eval()
    torch.testing.assert_close(untrained(task), build()(task))


def test_the_second_stage_learns_its_map_alone() -> None:
    bench = Bench(TwoStage, {"stage": "prototype", "learn_temperature": True})
    method, features = bench.ready()
    assert isinstance(method, TwoStage)
    losses = method.train().loss(bench.task(features.train(), bench.episodes()))
    torch.autograd.backward(torch.stack(list(losses.values())).sum())
    assert all(parameter.grad is None for parameter in features.parameters())
    learns = {name.partition(".")[0] for name, p in method.named_parameters() if p.requires_grad}
    assert learns == {"query", "key", "sharpness", "map"}
    [group] = method.param_groups().values()
    assert {id(p) for p in group.params} == {id(p) for p in method.parameters() if p.requires_grad}
    assert not group.table
    assert "base" not in dict(method.named_parameters())


def test_the_first_stage_learns_metric_encoder_and_temperature() -> None:
    method = build()
    learns = {name.partition(".")[0] for name, p in method.named_parameters() if p.requires_grad}
    assert learns == {"variance", "omega", "log_temperature"}
    assert not build(learn_temperature=False).log_temperature.requires_grad
    [group] = method.param_groups().values()
    assert {id(p) for p in group.params} == {id(method.omega), *(id(p) for p in method.variance.parameters())}
    bench = Bench(TwoStage)
    trained, features = bench.ready()
    torch.autograd.backward(trained.loss(bench.task(features, bench.episodes()))["cls"])
    assert all(p.grad is not None for p in features.parameters())


def test_setup_stores_the_mean_of_every_class() -> None:
    bench = Bench(TwoStage, {"stage": "prototype"})
    method, _ = bench.ready()
    pool = bench.pool()
    expected = np.stack([pool.items[pool.labels == n].mean(0) for n in range(8)])
    torch.testing.assert_close(method.get_buffer("base"), torch.from_numpy(expected), rtol=1e-4, atol=1e-5)


def test_variances_have_a_floor() -> None:
    method, task = without_omega(build()), make_task()
    method.variance.get_parameter("2.bias").data.fill_(-1e4)
    protonet = make_method("protonet", feature_shape=(DIM,), squared=False)(task)
    torch.testing.assert_close(method(task), -(protonet**2) / 0.01, rtol=1e-3, atol=1e-2)


def test_the_second_stage_keeps_the_contract() -> None:
    check_method(TwoStage, stage="prototype")


def test_options_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"TwoStage: map_weight = -1\.0 must be 0 or more"):
        build(stage="prototype", map_weight=-1.0)
    with pytest.raises(ConfigError, match="option 'stage': 'both' is not valid"):
        build(stage="both")


def fitted(method: TwoStage, task: Task, steps: int, lr: float) -> tuple[dict[str, float], dict[str, float]]:
    """Losses before and after some steps on the same episodes."""
    optimiser = torch.optim.Adam([p for p in method.train().parameters() if p.requires_grad], lr=lr)
    found = []
    for _ in range(steps):
        losses = method.loss(task)
        found.append({name: part.item() for name, part in losses.items()})
        optimiser.zero_grad()
        torch.autograd.backward(torch.stack(list(losses.values())).sum())
        optimiser.step()
    return found[0], found[-1]


def test_variances_learn_which_coordinates_are_noise() -> None:
    task = make_task(counts=(2, 2, 2), batch=8, queries=6)
    loud = torch.tensor([1.0, 1, 1, 4, 4, 4]) * 0.5
    random = torch.Generator().manual_seed(0)
    noisy = replace(
        task,
        support=0.5 * task.support + loud * torch.randn(task.support.shape, generator=random),
        query=0.5 * task.query + loud * torch.randn(task.query.shape, generator=random),
    )
    method = build()
    before, after = fitted(method, noisy, 80, 0.01)
    assert after["cls"] < 0.5 * before["cls"]
    with torch.no_grad():
        variance = F.softplus(method.variance(noisy.support)).flatten(0, 1).mean(0)
    assert variance[3:].min() > variance[:3].max()


def test_the_map_learns_where_prototypes_lie() -> None:
    """The stored means are the support's, moved and turned."""
    task, method = make_task(counts=(1, 1, 1), batch=1), build(stage="prototype")
    method.base.normal_(generator=torch.Generator().manual_seed(0))
    before, after = fitted(method, task, 60, 0.01)
    assert after["map"] < 0.1 * before["map"]
