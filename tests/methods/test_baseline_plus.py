"""Baseline++: its layer against torch's own SGD, batches of episodes, and the head that it is trained with."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.baseline_plus import BaselinePlus, UpdateSchedule
from hyperproto.testing import check_method, method_checks
from hyperproto.training import Run, load_recipe, train
from tests.conftest import blobs
from tests.helpers.predicting import features_of
from tests.helpers.random_tasks import make_task

RELEASED: dict[str, Any] = {"init": "random", "batch": 4, "class_norm": True, "s_e": 2.0}


def build(dim: int = 6, n_classes: int = 0, **options: Any) -> BaselinePlus:
    method = make_method("baseline-plus", feature_shape=(dim,), n_classes=n_classes, **options)
    assert isinstance(method, BaselinePlus)
    return method.eval()


def joined(*tasks: Task) -> Task:
    """Episodes of unequal size in one batch, padded at the end; as many queries each."""
    size = max(task.support.shape[1] for task in tasks)
    support = [F.pad(task.support, (0, 0, 0, size - task.support.shape[1]), value=9.0) for task in tasks]
    labels = [F.pad(task.support_y, (0, size - task.support_y.shape[1]), value=PAD) for task in tasks]
    return Task(
        support=torch.cat(support),
        support_y=torch.cat(labels),
        query=torch.cat([task.query for task in tasks]),
        query_y=None,
        classes=torch.cat([task.classes for task in tasks]),
        query_offsets=torch.cat([task.query_offsets for task in tasks]),
    )


def support_loss(method: BaselinePlus, task: Task, layer: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """Cross entropy of the support of one episode, its examples weighted."""
    logits = method.s_e * norm * (F.normalize(task.support[0], dim=-1) @ F.normalize(layer, dim=-1).T)
    return (weight * F.cross_entropy(logits, task.support_y[0], reduction="none")).sum()


def by_torch(method: BaselinePlus, task: Task, layer: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Train a layer on the support of one episode by torch's SGD, an update for each row of weights."""
    layer = layer.clone().requires_grad_()
    norm = layer.detach().norm(dim=-1) if method.class_norm else torch.ones(task.way)
    norm.requires_grad_(method.class_norm)
    learned = [layer, norm] if method.class_norm else [layer]
    optimiser = torch.optim.SGD(learned, lr=0.01, momentum=0.9, dampening=0.9, weight_decay=0.001)
    for weight in weights:
        optimiser.zero_grad()
        torch.autograd.backward(support_loss(method, task, layer, norm, weight))
        optimiser.step()
    return layer.detach(), norm.detach()


def means(task: Task) -> Tensor:
    """Class means of the unit vectors of one episode, (N, D)."""
    rows = F.normalize(task.support[0], dim=-1)
    return torch.stack([rows[task.support_y[0] == n].mean(0) for n in range(task.way)])


def test_without_updates_it_is_cosine_prototypes_of_unit_vectors() -> None:
    task = make_task(pads=2)
    unit_task = replace(task, support=F.normalize(task.support, dim=-1))
    expected = 5 * make_method("cosine", feature_shape=(6,))(unit_task)
    torch.testing.assert_close(build(steps=0)(task), expected)
    torch.testing.assert_close(build(epochs=0)(task), expected)


@pytest.mark.parametrize("class_norm", [False, True])
@pytest.mark.parametrize("balanced", [False, True])
def test_updates_are_those_of_torch(class_norm: bool, balanced: bool) -> None:
    task = make_task(batch=1)  # shots 3, 1, 5
    method = build(steps=10, class_norm=class_norm, balanced=balanced)
    weight = torch.full((9,), 1 / 9)
    if balanced:
        weight = 1 / (3 * torch.tensor([3.0, 1.0, 5.0]))[task.support_y[0]]
    layer, norm = by_torch(method, task, means(task), [weight] * 10)
    found, found_norm = method.fine_tuned(task)
    assert (layer - means(task)).abs().max() > 1e-3  # it moves
    torch.testing.assert_close(found[0], layer, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found_norm[0, 0], norm, rtol=1e-4, atol=1e-6)
    expected = 5 * norm * (F.normalize(task.query[0], dim=-1) @ F.normalize(layer, dim=-1).T)
    torch.testing.assert_close(method(task)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("balanced", [False, True])
def test_released_updates_are_those_of_torch_on_mini_batches(balanced: bool) -> None:
    task = make_task(batch=1)
    method = build(epochs=4, balanced=balanced, **RELEASED)
    batches = UpdateSchedule(task, method)
    assert (batches.most, batches.in_epoch.tolist()) == (12, [3])
    weights = [batches.weights(update)[0, :, 0] for update in range(12)]
    worth = torch.ones(9) if not balanced else 9 / (3 * torch.tensor([3.0, 1.0, 5.0]))[task.support_y[0]]
    orders = set()
    for epoch in range(4):
        drawn = [weight.nonzero()[:, 0].tolist() for weight in weights[3 * epoch : 3 * epoch + 3]]
        assert [len(rows) for rows in drawn] == [4, 4, 1]
        assert sorted(row for rows in drawn for row in rows) == list(range(9))
        orders.add(str(drawn))
        for rows, weight in zip(drawn, weights[3 * epoch :], strict=False):
            torch.testing.assert_close(weight[rows], worth[rows] / len(rows))
    assert len(orders) == 4  # shuffled anew
    start = method._drawn(3).float()
    assert start.abs().max() < 1 / math.sqrt(6)
    layer, norm = by_torch(method, task, start, weights)
    found, found_norm = method.fine_tuned(task)
    torch.testing.assert_close(found[0], layer, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found_norm[0, 0], norm, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("shots", "expected"), [((1,) * 5, 200), ((5,) * 5, 700)])
def test_as_many_updates_as_published(shots: tuple[int, ...], expected: int) -> None:
    for options in ({}, {"batch": 4}):
        assert UpdateSchedule(make_task(counts=shots), build(**options)).most == expected
    assert UpdateSchedule(make_task(counts=shots), build(epochs=300)).most == 3 * expected
    assert UpdateSchedule(make_task(counts=shots), build(batch=5)).most == 100 * sum(shots) // 5
    assert UpdateSchedule(make_task(counts=shots), build(steps=7, batch=2)).most == 7


@pytest.mark.parametrize("options", [{"s_e": 5.0}, {**RELEASED, "epochs": 20}])
def test_the_loss_of_the_support_falls(options: dict[str, Any]) -> None:
    task = make_task(batch=1)
    losses = []
    for epochs in (0, 5, 20):
        method = build(**{**options, "epochs": epochs})
        layer, norm = method.fine_tuned(task)
        losses.append(support_loss(method, task, layer[0], norm[0, 0], torch.full((9,), 1 / 9)).item())
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("options", [{"epochs": 10}, {"steps": 11, "batch": 2}, {**RELEASED, "epochs": 10}])
def test_batched_episodes_are_as_alone(options: dict[str, Any]) -> None:
    """Also those of other sizes, which have fewer updates and other mini-batches."""
    tasks = [
        make_task(counts=counts, batch=1, seed=seed) for seed, counts in enumerate([(1, 1, 1), (3, 1, 5), (2, 8, 4)])
    ]
    method = build(**options)
    together = method(joined(*tasks))
    for n, task in enumerate(tasks):
        torch.testing.assert_close(together[n], method(task)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"epochs": 10, "class_norm": True}, {**RELEASED, "epochs": 10}])
def test_the_scale_of_features_does_not_matter(options: dict[str, Any]) -> None:
    task, method = make_task(), build(**options)
    scaled = replace(task, support=7 * task.support, query=7 * task.query)
    torch.testing.assert_close(method(scaled), method(task), rtol=1e-4, atol=1e-5)


def test_class_norm_of_one_change_nothing() -> None:
    """With one shot class means of unit vectors have length 1; so have norms that were not trained."""
    task = make_task(counts=(1, 1, 1))
    assert torch.allclose(build(steps=0, class_norm=True)(task), build(steps=0)(task))
    plain, normed = (build(n_classes=8, class_norm=class_norm) for class_norm in (False, True))
    torch.nn.init.normal_(plain.weight)
    normed.weight.data.copy_(plain.weight.data)
    torch.testing.assert_close(normed.class_logits(task.query), plain.class_logits(task.query))
    normed.norm.data.fill_(2.0)
    torch.testing.assert_close(normed.class_logits(task.query), 2 * plain.class_logits(task.query))


@pytest.mark.parametrize("options", [{"epochs": 10}, {"epochs": 10, "balanced": True}, {**RELEASED, "epochs": 10}])
def test_padding_is_not_read(options: dict[str, Any]) -> None:
    task, method = make_task(), build(**options)
    rows = torch.tensor([0, 0, 1, 2, 0, 3, 4, 5, 6, 7, 8, 0])
    support, labels = task.support[:, rows].clone(), task.support_y[:, rows].clone()
    support[:, [0, 4, 11]], labels[:, [0, 4, 11]] = 50.0, PAD
    torch.testing.assert_close(
        method(replace(task, support=support, support_y=labels)), method(task), rtol=1e-4, atol=1e-5
    )


def test_a_class_without_examples_has_finite_scores() -> None:
    task = make_task()
    missing = replace(task, classes=F.pad(task.classes, (0, 1)))
    for options in ({"epochs": 10}, {"epochs": 10, "balanced": True, "class_norm": True}):
        assert build(**options)(missing).isfinite().all()


def test_no_gradient_is_kept_of_the_updates() -> None:
    task = make_task()
    support = task.support.clone().requires_grad_()
    assert not build(epochs=2)(replace(task, support=support)).requires_grad


# Training ---------------------------------------------------------------------------------------------------------


def test_training_is_cross_entropy_of_cosines_with_norms() -> None:
    task, method = make_task(), build(n_classes=8, class_norm=True, temperature=0.5)
    method.setup(blobs(), features_of(Identity(shape=[6])))
    torch.testing.assert_close(method.norm, method.weight.norm(dim=-1))
    assert task.query_y is not None
    losses = []
    for b in range(2):
        for x, y in zip(task.query[b], task.query_y[b], strict=True):
            cosines = [float(x @ v / (x.norm() * v.norm())) for v in method.weight.detach()]
            logits = torch.tensor([2 * g * c for g, c in zip(method.norm.tolist(), cosines, strict=True)])
            losses.append(-logits.log_softmax(0)[task.classes[b, y]])
    torch.testing.assert_close(method.loss(task)["cls"], torch.stack(losses).mean())


def test_the_temperature_starts_at_a_thirtieth_and_is_learned() -> None:
    assert build().log_temperature.exp().item() == pytest.approx(1 / 30)
    assert build().log_temperature.requires_grad
    assert not build(learn_temperature=False).log_temperature.requires_grad


def test_training_data_are_learned_by_heart() -> None:
    torch.manual_seed(0)
    task = make_task(batch=4)
    task = replace(task, query=torch.randn_like(task.query), classes=torch.arange(12).view(4, 3))
    method, layer = build(16, n_classes=12, class_norm=True).train(), torch.nn.Linear(6, 16)
    layers = torch.nn.Sequential(layer, torch.nn.Tanh(), torch.nn.Linear(16, 16))
    method.setup(blobs(12), features_of(Identity(shape=[16])))
    optimiser = torch.optim.Adam([*layers.parameters(), *method.parameters()], lr=0.02)
    losses = []
    for _ in range(80):
        loss = method.loss(replace(task, query=layers(task.query)))["cls"]
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


RECIPE = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny" }}
method = {{ name = "baseline-plus", epochs = 2, init = "random", batch = 4, class_norm = true }}
batches = {{ size = 16 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 6, seed = 5, validate_every = 6, log_every = 1 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 5 }}
"""


def test_layers_of_episodes_follow_from_the_seed_of_the_run(vectors_file: Path, tmp_path: Path) -> None:
    from tests.training.conftest import TINY

    exec(TINY, {"__name__": "tiny"})
    path = vectors_file.with_name("plus.toml")
    path.write_text(RECIPE.format(data=vectors_file))
    run = train(load_recipe(str(path)), tmp_path / "run")
    assert run.read_metrics()[-1]["cls"] < run.read_metrics()[0]["cls"]
    method = Run(tmp_path / "run").load()[0].method
    assert isinstance(method, BaselinePlus)
    assert int(method.run_seed) == 5
    other = build(method.feature_shape[0], n_classes=method.n_classes, **RELEASED)
    assert not torch.equal(method._drawn(3), other._drawn(3))
    other.load_state_dict(method.state_dict())
    assert torch.equal(method._drawn(3), other._drawn(3))
    assert torch.equal(method._drawn(5)[:3], method._drawn(3))


def test_what_it_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match='baseline-plus has head = "cosine"; classifier has head = "linear"'):
        build(head="linear")
    with pytest.raises(ConfigError, match=r"s_e 0\.0 must be a number above 0, such as 5\.0"):
        build(s_e=0.0)
    for wrong in ({"epochs": -1}, {"steps": -1}, {"batch": 0}):
        with pytest.raises(ConfigError, match=r"epochs .* and steps .* must be 0 or more, and batch .* at least 1"):
            build(**wrong)
    with pytest.raises(ConfigError, match='class_norm is for head = "cosine"'):
        make_method("classifier", feature_shape=(6,), head="linear", class_norm=True)


@pytest.mark.parametrize("options", [{"class_norm": True, "balanced": True}, {"batch": 3}])
def test_options_keep_the_contract(options: dict[str, Any]) -> None:
    check_method(BaselinePlus, epochs=5, **options)


def test_a_drawn_layer_keeps_the_contract_but_belongs_to_positions() -> None:
    assert build(init="random").traits == BaselinePlus.traits - {"equivariant"}
    for name, check in method_checks(BaselinePlus, epochs=30, **RELEASED):
        if not name.startswith("equivariant"):
            check()
