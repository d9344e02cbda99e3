"""Simulations: what "unbiased" promises, that it holds, and that the paper's closed form does not keep it."""

import math
from typing import Any

import numpy as np
import pytest

from hyperproto.regions import Cone, Gaussian, Sphere

RUNS = 20_000
SHOTS = (1, 2, 5)
Y = np.broadcast_to(np.repeat(np.arange(3), SHOTS), (RUNS, sum(SHOTS)))
DIM = 8
MU = np.linspace(-1, 1, 3 * DIM).reshape(3, DIM)  # the true means
QUERY = np.full((1, DIM), 0.5)


@pytest.fixture(scope="module")
def support() -> Any:
    return MU[Y] + 0.7 * np.random.default_rng(0).normal(size=(*Y.shape, DIM))


def errors(values: Any, truth: Any) -> Any:
    """How many standard errors the mean of `values` (RUNS, 1, N) lies from the truth (N,)."""
    values = values[:, 0]
    return np.abs(values.mean(0) - truth) / (values.std(0) / math.sqrt(RUNS) + 1e-12)


def test_sphere(support: Any) -> None:
    truth = ((QUERY - MU) ** 2).sum(-1)
    assert np.all(errors(Sphere.fit(support, Y, 3, mode="unbiased").measure(QUERY), truth) < 4)
    for mode in ("paper", "point"):
        wrong = errors(Sphere.fit(support, Y, 3, mode=mode).measure(QUERY), truth)
        assert wrong[0] > 20
        assert wrong[2] > 20
    # At two examples eq. 3's radius happens to be v / K.
    assert errors(Sphere.fit(support, Y, 3, mode="paper").measure(QUERY), truth)[1] < 4


def test_gaussian(support: Any) -> None:
    d2 = ((QUERY - MU) ** 2).sum(-1)
    truth = d2 / (2 * 0.49) + DIM * math.log(0.7) + DIM / 2 * math.log(2 * math.pi)
    assert np.all(errors(Gaussian.fit(support, Y, 3).measure(QUERY), truth) < 4)
    assert np.all(errors(Gaussian.fit(support, Y, 3, mode="paper").measure(QUERY), truth) > 20)


def test_cone() -> None:
    rng = np.random.default_rng(0)
    shot = 10
    mu = np.eye(DIM)[0]
    x = mu + 0.4 * rng.normal(size=(RUNS, shot, DIM))
    unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
    rho = unit[..., 0].mean()  # attenuation of the mean direction
    assert rho < 0.75
    query = np.eye(DIM)[:1] + np.eye(DIM)[1:2]  # at 45 degrees
    cone = Cone.fit(x, np.zeros((RUNS, shot), dtype=int), 1)
    zbar = unit.mean(1)
    rho2 = (np.linalg.norm(zbar, axis=-1) / cone.gain[:, 0]) ** 2
    assert rho2.mean() == pytest.approx(rho**2, rel=0.005)  # rho^2 itself is unbiased
    truth = -math.cos(math.pi / 4)
    assert cone.measure(query).mean() == pytest.approx(truth, rel=0.02)
    assert -(zbar @ query[0]).mean() / math.sqrt(2) == pytest.approx(truth * rho, rel=0.01)  # uncorrected
    paper = Cone.fit(x, np.zeros((RUNS, shot), dtype=int), 1, mode="paper").measure(query).mean()
    assert abs(paper - truth) > 0.1  # subtracting an angle over-corrects
