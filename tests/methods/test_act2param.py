"""Activation to parameter: cosine prototypes at the start, means of all examples in training, a constant encoder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.data import OUTSIDE, Pool
from hyperproto.encoders import Features, FeatureTransform
from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError
from hyperproto.methods import METHODS, Task, make_method
from hyperproto.methods.act2param import Act2Param
from hyperproto.methods.parts import class_means
from hyperproto.testing import Bench, check_method
from hyperproto.training import load_recipe, train
from tests.helpers.random_tasks import make_task

DIM = 6


def build(**options: Any) -> Act2Param:
    method = make_method("act2param", feature_shape=(DIM,), n_classes=8, **options)
    assert isinstance(method, Act2Param)
    return method.eval()


def learned(**options: Any) -> Act2Param:
    """A method whose layers and class means are not those it starts from."""
    method, random = build(**options), torch.Generator().manual_seed(1)
    for tensor in (*method.parameters(), method.class_mean):
        if tensor.ndim:
            tensor.data += 0.3 * torch.randn(tensor.shape, generator=random)
    return method


def positive(**options: Any) -> Task:
    """Episodes of activations as they follow a ReLU."""
    task = make_task(**options)
    return replace(task, support=task.support.relu() + 0.01, query=task.query.relu())


def naive_phi(method: Act2Param, x: Tensor) -> Tensor:
    """One vector after another, (D,)."""
    hidden = (method.first.weight @ (x / x.norm()) + method.first.bias).relu()
    out = method.second.weight @ hidden + method.second.bias
    scaled: Tensor = out / out.norm()
    return scaled


@pytest.mark.parametrize("pool", ["mean", "max"])
@torch.no_grad()
def test_scores_are_those_of_the_equations(pool: str) -> None:
    task, method = make_task(pads=2), learned(pool=pool)
    expected = torch.zeros(2, 12, 3)
    for b, q, n in torch.cartesian_prod(*map(torch.arange, expected.shape)).tolist():
        examples, query = task.support[b, task.support_y[b] == n], task.query[b, q]
        of_examples = [query @ naive_phi(method, x) for x in examples]
        expected[b, q, n] = max(of_examples) if pool == "max" else query @ naive_phi(method, examples.mean(0))
    torch.testing.assert_close(method(task), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_it_starts_as_cosine_prototypes_of_activations() -> None:
    """q is not scaled, which changes no answer."""
    task, method = positive(), build()
    scores = method(task)
    means = torch.stack([task.support[:, task.support_y[0] == n].mean(1) for n in range(3)], 1)
    torch.testing.assert_close(scores, task.query @ F.normalize(means, dim=-1).mT)
    cosine = make_method("cosine", feature_shape=(DIM,))(task)
    torch.testing.assert_close(scores, cosine * task.query.norm(dim=-1, keepdim=True))


@torch.no_grad()
def test_negative_numbers_are_cut_and_nothing_has_no_direction() -> None:
    task, method = make_task(), build()
    means = torch.stack([task.support[:, task.support_y[0] == n].mean(1) for n in range(3)], 1)
    scores = method(task)
    assert not torch.allclose(scores, task.query @ F.normalize(means, dim=-1).mT, atol=1e-2)
    torch.testing.assert_close(scores, task.query @ F.normalize(means.relu(), dim=-1).mT)
    nothing = replace(task, support=torch.zeros_like(task.support), query=torch.zeros_like(task.query))
    for x in (nothing, replace(task, support=-task.support.abs())):
        assert not method(x).any()


def test_zero_vectors_have_finite_gradients() -> None:
    task, method = make_task(), build().train()
    torch.autograd.backward(method.loss(replace(task, support=torch.zeros_like(task.support)))["cls"])
    for name, parameter in method.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("pool", ["mean", "max"])
@torch.no_grad()
def test_training_represents_some_classes_by_the_mean_of_all_examples(pool: str) -> None:
    task, method = make_task(), learned(pool=pool, mean_rate=1.0, temperature=0.5).train()
    assert task.query_y is not None
    logits = task.query @ method.phi(method.class_mean[task.classes]).mT / 0.5
    expected = F.cross_entropy(logits.flatten(0, 1), task.query_y.flatten())
    torch.testing.assert_close(method.loss(task)["cls"], expected)
    never = learned(pool=pool, mean_rate=0.0, temperature=0.5).train()
    torch.testing.assert_close(never.loss(task)["cls"], never.cross_entropy(never(task), task))
    torch.testing.assert_close(method.eval().loss(task)["cls"], never.loss(task)["cls"])  # nothing random


@torch.no_grad()
def test_the_mean_is_taken_with_probability_three_tenths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class of each episode by itself. Class means of 0 score 0."""
    task, method, seen = positive(counts=(1,) * 8, queries=1, batch=400), build().train(), []

    def watched(scores: Tensor, task: Task) -> Tensor:
        seen.append(scores)
        return torch.zeros(())

    monkeypatch.setattr(method, "cross_entropy", watched)
    method.loss(replace(task, query=task.query + 1))
    by_mean = (seen[0] == 0).all(1).float()  # (B, N)
    assert by_mean.mean().item() == pytest.approx(0.3, abs=0.03)
    assert 0.1 < by_mean.std(1).mean() < 0.6  # not whole episodes


@torch.no_grad()
def test_one_shot_leaves_nothing_to_pool() -> None:
    task = make_task(counts=(1, 1, 1), pads=1)
    torch.testing.assert_close(learned(pool="max")(task), learned()(task))


def test_setup_keeps_the_mean_of_every_class() -> None:
    bench = Bench(Act2Param)
    method, _ = bench.ready()
    pool = bench.pool()
    expected = np.stack([pool.items[pool.labels == n].mean(0) for n in range(8)])
    assert isinstance(method, Act2Param)
    torch.testing.assert_close(method.class_mean, torch.from_numpy(expected), rtol=1e-4, atol=1e-5)
    assert "class_mean" in method.state_dict()


def test_class_means_follow_the_transform_and_know_outside_words() -> None:
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    features = Features(Identity(shape=[4]), FeatureTransform("unit", (4,)))
    pool = Pool(x, np.array([0, 1, 1, 0, OUTSIDE, 0]), ("a", "b", "c"))
    rows = torch.from_numpy(x / np.linalg.norm(x, axis=1, keepdims=True))
    expected = torch.stack([rows[[0, 3, 5]].mean(0), rows[[1, 2]].mean(0), torch.zeros(4)])
    torch.testing.assert_close(class_means(pool, features), expected)
    words = replace(pool, offsets=np.arange(7), problem="tagging")
    torch.testing.assert_close(class_means(words, features), torch.cat([expected, rows[4:5]]))


def test_the_encoder_is_constant_and_both_layers_learn() -> None:
    bench = Bench(Act2Param)
    method, features = bench.ready()
    torch.autograd.backward(method.train().loss(bench.task(features.train(), bench.episodes()))["cls"])
    assert all(parameter.grad is None for parameter in features.parameters())
    [group] = method.param_groups().values()
    assert [*method.param_groups()] == ["head"]
    assert {id(p) for p in group.params} == {id(p) for p in method.parameters() if p.requires_grad}
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in group.params)


def test_every_option_keeps_the_contract() -> None:
    check_method(METHODS.get("act2param"), pool="max")


@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match=rf"Act2Param: mean_rate = {rate} must be a probability, from 0 to 1"):
        build(mean_rate=rate)


RECIPE = """
name = "phi"
transform = "unit"
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "identity" }}
method = {{ name = "act2param", temperature = 0.1 }}
episodes = {{ way = "all", shot = 1, query = 1 }}
optim.encoder = {{ lr = 0.001 }}
optim.head = {{ name = "sgd", lr = 0.1, momentum = 0.9 }}
training = {{ steps = 3, validate_every = 3 }}
validation = {{ way = 5, shot = 2, query = 3, episodes = 10 }}
"""


def test_a_recipe_trains_on_all_classes_at_once_and_is_evaluated_on_any(vectors_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "phi.toml"
    path.write_text(RECIPE.format(data=vectors_file))
    run = train(load_recipe(str(path)), tmp_path / "run")
    learner, _ = run.load()
    method = learner.method
    assert isinstance(method, Act2Param)
    assert method.class_mean.shape == (8, 8)
    assert 0 < method.class_mean.norm(dim=-1).min() <= method.class_mean.norm(dim=-1).max() < 1  # of unit vectors
    assert not torch.equal(method.first.weight, torch.eye(8))
    with pytest.raises(ConfigError, match="transform = 'center-unit': act2param is defined with 'none' or 'unit'"):
        load_recipe(str(path), ["transform=center-unit"])


def test_it_learns_to_look_away_from_what_all_classes_share() -> None:
    """Four coordinates are loud and say nothing; the weights learn to leave them out, also those of new classes."""
    random = torch.Generator().manual_seed(0)
    means = torch.rand(14, 8, generator=random).mul(torch.tensor([2.0] * 4 + [0.0] * 4))
    method = make_method("act2param", feature_shape=(8,), n_classes=10, temperature=0.1).train()
    assert isinstance(method, Act2Param)
    method.class_mean.copy_(F.normalize(means[:10] + torch.tensor([0.0] * 4 + [1.5] * 4), dim=-1))

    def draw(classes: Tensor) -> Task:
        """All classes given, one query each."""
        labels = torch.arange(len(classes)).repeat(16, 1)
        noise = torch.tensor([0.1] * 4 + [1.0] * 4) * torch.randn(16, 2 * len(classes), 8, generator=random)
        x = F.normalize((means[classes].repeat(2, 1) + noise + torch.tensor([0.0] * 4 + [1.5] * 4)).relu(), dim=-1)
        offsets = torch.arange(len(classes) + 1).expand(16, -1)
        return Task(x[:, : len(classes)], labels, x[:, len(classes) :], labels, classes.repeat(16, 1), offsets)

    @torch.no_grad()
    def right() -> float:
        random.manual_seed(1)
        tasks = [draw(torch.arange(10, 14)) for _ in range(10)]
        return float(torch.stack([(method(task).argmax(-1) == task.query_y).float().mean() for task in tasks]).mean())

    before = right()
    optimiser = torch.optim.Adam(method.parameters(), lr=0.02)
    for _ in range(100):
        optimiser.zero_grad()
        torch.autograd.backward(method.loss(draw(torch.arange(10)))["cls"])
        optimiser.step()
    assert right() > before + 0.1
