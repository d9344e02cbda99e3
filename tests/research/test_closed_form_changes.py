"""The change of `bayes` that was tried is its formula, and keeps the contract of methods."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.methods import Task
from hyperproto.regions import Sphere
from hyperproto.testing import check_method
from research.closed_form_changes import Predictive

SHOTS = (1, 2, 5, 9)


@pytest.fixture
def episode() -> Any:
    """Support, labels and queries of four classes."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), SHOTS)
    center = 2 * rng.normal(size=(4, 12))
    scale = np.exp(rng.normal(size=12))  # far from round, or nothing is whitened
    return center[y] + scale * rng.normal(size=(len(y), 12)), y, center[[0, 1, 2, 3, 3]] + rng.normal(size=(5, 12))


def scores(method: Any, x: Any, y: Any, q: Any) -> Any:
    task = Task(
        torch.tensor(x)[None], torch.tensor(y)[None], torch.tensor(q)[None], None, torch.arange(4)[None],
        torch.arange(len(q) + 1)[None],
    )  # fmt: skip
    made = method(feature_shape=(12,), n_classes=0, init_shot=1).double()
    return made.scores(task)[0].numpy()


def test_the_predictive_score_has_the_tails_of_t(episode: Any) -> None:
    x, y, q = episode
    sphere = Sphere.fit(x, y, 4)
    assert sphere.whiten is not None
    distances = []
    for i, n in enumerate(y):
        if SHOTS[n] > 1:
            d = SHOTS[n] / (SHOTS[n] - 1) * sum(sphere.whiten((x[i] - x[y == n].mean(0))[None])[0] ** 2)
            distances.append(d / (1 - sphere.gain * d))
    h = 2 / (12 * np.var(distances) / np.mean(distances) ** 2)
    v, k = float(sphere.scatter), float(sphere.ratio)
    for row, point in zip(scores(Predictive, x, y, q), q, strict=True):
        for n in range(4):
            r = 1 / (SHOTS[n] + k)
            measure = sum((sphere.whiten(point[None])[0] - sphere.center[n]) ** 2) - sphere.bias_radius[n]
            expected = (1 + h) * math.log(1 + measure / (h * v * (1 + r))) + math.log(1 + r)
            assert row[n] == pytest.approx(-expected, abs=1e-9)


def test_without_a_second_example_the_predictive_score_is_the_measure(episode: Any) -> None:
    x, _, q = episode
    found = scores(Predictive, x[:4], np.arange(4), q)
    np.testing.assert_allclose(found, -np.asarray(Sphere.fit(x[:4], np.arange(4), 4).measure(q)), atol=1e-9)


def test_it_keeps_the_contract() -> None:
    check_method(Predictive)
