"""Each baseline against a naive loop, or against scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.utils import compute_sample_weight

from hyperproto.errors import ConfigError
from hyperproto.methods import METHODS, Task, make_method
from hyperproto.methods.logistic import balanced, fit_logistic, log_odds
from tests.helpers.random_tasks import make_task


def scores(name: str, task: Task, **options: Any) -> torch.Tensor:
    return make_method(name, feature_shape=(6,), **options).eval().scores(task)


def naive(task: Task, score: object) -> torch.Tensor:
    """Call `score(query, examples of the class)` for every episode, query and class."""
    out = torch.empty(*task.query.shape[:2], task.way)
    for b in range(len(out)):
        for q in range(out.shape[1]):
            for n in range(task.way):
                out[b, q, n] = score(task.query[b, q], task.support[b][task.support_y[b] == n])  # type: ignore[operator]
    return out


@pytest.mark.parametrize("pads", [0, 3])
def test_against_naive_loops(pads: int) -> None:
    task = make_task(pads=pads)
    expected = {
        "protonet": naive(task, lambda q, s: -((q - s.mean(0)) ** 2).sum()),
        "simpleshot": naive(task, lambda q, s: -((q - s.mean(0)) ** 2).sum()),
        "nearest": naive(task, lambda q, s: -min(((q - x) ** 2).sum() for x in s)),
        "cosine": naive(task, lambda q, s: torch.dot(q, s.mean(0)) / (q.norm() * s.mean(0).norm())),
    }
    for name, values in expected.items():
        found = scores(name, task)
        # a term that all classes share is free
        torch.testing.assert_close(found - found[..., :1], values - values[..., :1], rtol=1e-3, atol=1e-3)
    unsquared = naive(task, lambda q, s: -(q - s.mean(0)).norm())
    torch.testing.assert_close(scores("protonet", task, squared=False), unsquared, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("scale", "C"), [(1.0, 1.0), (0.3, 1.0), (1.0, 0.1)])
def test_logistic_regression_is_scikit_learns(scale: float, C: float) -> None:
    task = make_task(counts=(4, 1, 9, 2), queries=20, pads=2)
    task = Task(
        scale * task.support, task.support_y, scale * task.query, task.query_y, task.classes, task.query_offsets
    )
    ours = scores("logistic", task, C=C)
    for b in range(2):
        real = task.support_y[b] >= 0
        model = LogisticRegression(C=C, class_weight="balanced", tol=1e-8, max_iter=10_000)
        model.fit(task.support[b][real].numpy(), task.support_y[b][real].numpy())
        theirs = model.predict_proba(task.query[b].numpy())
        assert np.abs(ours[b].softmax(-1).numpy() - theirs).max() < 0.02


@pytest.mark.parametrize("rows", [5, 40])  # in the span of the rows, and by coordinates
def test_logistic_regression_is_the_minimum_of_its_objective(rows: int) -> None:
    """Of shares of classes and weights, by the gradient of the objective as it is written."""
    random = torch.Generator().manual_seed(rows)
    x = torch.randn(3, rows, 6, generator=random)
    mass = 2 * torch.rand(3, rows, 4, generator=random).double() ** 3
    mass[1, 2:4] = 0.0  # rows that take no part
    x[1, 2:4] = torch.nan
    weights = fit_logistic(x, mass, C=5.0).requires_grad_()
    kept = x.where(mass.sum(-1, keepdim=True) > 0, 0.0)
    log_share = log_odds(kept, weights).log_softmax(-1)
    objective = (weights**2).sum() / 10 - (mass * log_share).sum()
    [gradient] = torch.autograd.grad(objective, weights)
    assert gradient.abs().max() < 1e-3
    alone = fit_logistic(x[:1], mass[:1], C=5.0)
    torch.testing.assert_close(weights.detach()[:1], alone, rtol=1e-9, atol=1e-9)  # each episode stops by itself


@pytest.mark.parametrize("rows", [0, 3])
def test_without_an_example_all_classes_are_as_likely(rows: int) -> None:
    x, mass = torch.randn(2, rows, 6), torch.zeros(2, rows, 4)
    assert (
        log_odds(torch.randn(2, 5, 6).double(), fit_logistic(x, balanced(mass), C=1.0)).tolist()
        == [[[0.0] * 4] * 5] * 2
    )


def test_balanced_weights_are_scikit_learns() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    mass = torch.eye(3)[labels][None]
    expected = compute_sample_weight("balanced", labels)
    np.testing.assert_allclose(balanced(mass).sum(-1)[0], expected, rtol=1e-6)
    assert torch.equal(balanced(torch.zeros(1, 2, 3)), torch.zeros(1, 2, 3))


@pytest.mark.parametrize("rows", [4, 12])
def test_gradients_of_logistic_regression_are_those_of_the_minimum(rows: int) -> None:
    """Against differences of the solution itself."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(1, rows, 5, generator=random).double().requires_grad_()
    mass = torch.eye(3).double()[torch.arange(rows) % 3][None]
    direction = torch.randn(1, 6, 3, generator=random).double()
    [found] = torch.autograd.grad((fit_logistic(x, mass, C=1.0) * direction).sum(), x)
    way = torch.randn(x.shape, generator=random).double()
    with torch.no_grad():
        ends = [(fit_logistic(x + sign * 1e-2 * way, mass, C=1.0) * direction).sum() for sign in (1, -1)]
    expected = (ends[0] - ends[1]) / 2e-2
    torch.testing.assert_close((found * way).sum(), expected, rtol=0.02, atol=1e-3)


def test_logistic_regression_refuses_a_penalty_without_size() -> None:
    with pytest.raises(ConfigError, match=r"C 0\.0 must be above 0"):
        make_method("logistic", feature_shape=(6,), C=0.0)


def test_simpleshot_is_its_transform() -> None:
    assert METHODS.get("simpleshot").transforms == ("center-unit",)


def test_temperature_scales_the_loss_and_may_learn(task: Task) -> None:
    warm = make_method("protonet", feature_shape=(6,), temperature=50.0)
    cold = make_method("protonet", feature_shape=(6,), temperature=0.5, learn_temperature=True)
    assert task.query_y is not None
    expected = torch.nn.functional.cross_entropy((warm.scores(task) / 50).flatten(0, 1), task.query_y.flatten())
    torch.testing.assert_close(warm.loss(task)["cls"], expected)
    assert not warm.log_temperature.requires_grad
    torch.autograd.backward(cold.loss(task)["cls"])
    assert cold.log_temperature.grad is not None
    with pytest.raises(ConfigError, match=r"temperature 0\.0 must be a number above 0"):
        make_method("protonet", feature_shape=(6,), temperature=0.0)


def test_queries_outside_all_classes_and_padding_cost_nothing(task: Task) -> None:
    assert task.query_y is not None
    method = make_method("protonet", feature_shape=(6,))
    labels = task.query_y.clone()
    labels[:, ::2] = -1
    labels[:, 1::4] = -2
    partial = Task(task.support, task.support_y, task.query, labels, task.classes, task.query_offsets)
    kept = labels[0] >= 0
    only = Task(
        task.support,
        task.support_y,
        task.query[:, kept],
        labels[:, kept],
        task.classes,
        task.query_offsets[:, : kept.sum() + 1],
    )
    torch.testing.assert_close(method.loss(partial)["cls"], method.loss(only)["cls"])
    with pytest.raises(ConfigError, match="these episodes hide the labels"):
        method.loss(Task(task.support, task.support_y, task.query, None, task.classes, task.query_offsets))


def test_wrong_names_and_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no method 'protnet'; did you mean 'protonet'\?"):
        make_method("protnet", feature_shape=(6,))
    with pytest.raises(ConfigError, match=r"option of method 'hyperproto' called 'center'; did you mean 'centers'\?"):
        make_method("hyperproto", feature_shape=(6,), center="stored")
    with pytest.raises(
        ConfigError, match=r"option 'centers': 'moving' is not valid \(Input should be 'stored' or 'episode'\)"
    ):
        make_method("hyperproto", feature_shape=(6,), centers="moving")
    with pytest.raises(ConfigError, match=r"ProtoNet: there is no fit 'bayes'\. Known: point"):
        make_method("protonet", feature_shape=(6,), fit="bayes")
    with pytest.raises(ConfigError, match=r"ProtoNet reads vectors, but the encoder gives units of shape \(6, 2, 2\)"):
        make_method("protonet", feature_shape=(6, 2, 2))
