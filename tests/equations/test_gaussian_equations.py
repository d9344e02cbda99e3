"""The Gaussian's measure, sigma and unbiased form, against loops."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from hyperproto.regions import Gaussian
from hyperproto.regions.gaussian import digamma

Y = np.array([0, 0, 0, 1, 2, 2, 1, 2, 2, 3])
WAY, DIM = 4, 5


@pytest.fixture
def x(rng: np.random.Generator) -> Any:
    return rng.normal(size=(len(Y), DIM)) * (1 + Y[:, None])


@pytest.fixture
def q(rng: np.random.Generator) -> Any:
    return rng.normal(size=(6, DIM))


def squares(x: Any, n: int) -> Any:
    return sum(sum((row - x[n == Y].mean(0)) ** 2) for row in x[n == Y])


def test_measure_is_minus_the_log_density(rng: np.random.Generator, q: Any) -> None:
    z, sigma = rng.normal(size=(3, DIM)), np.array([0.5, 1.0, -2.0])  # a stored sigma counts by its size
    expected = [
        [-stats.multivariate_normal(z[n], sigma[n] ** 2 * np.eye(DIM)).logpdf(point) for n in range(3)] for point in q
    ]
    np.testing.assert_allclose(Gaussian(z, sigma).measure(q), expected)


@pytest.mark.parametrize(("reading", "divisor"), [("ml", DIM), ("eq3", 1)])
def test_paper_sigma(x: Any, reading: Any, divisor: Any) -> None:
    shots = [np.equal(n, Y).sum() for n in range(WAY)]
    expected = [math.sqrt(squares(x, n) / shots[n] / divisor) for n in range(3)]
    pooled = sum(squares(x, n) for n in range(3)) / sum(shots[:3])
    fitted = Gaussian.fit(x, Y, WAY, mode="paper", sigma=reading)
    np.testing.assert_allclose(fitted.sigma, [*expected, math.sqrt(pooled / divisor)])
    np.testing.assert_array_equal(fitted.bias_radius, np.zeros(WAY))


def test_unbiased_measure(x: Any, q: Any) -> None:
    total = sum(squares(x, n) for n in range(WAY))

    def measure(point: Any, n: int) -> Any:
        k = np.equal(n, Y).sum()
        nu, ss = (DIM * (k - 1), squares(x, n)) if k > 1 else (DIM * (len(Y) - WAY), total)
        s2 = ss / nu
        d2 = sum((point - x[n == Y].mean(0)) ** 2)
        log = math.log(s2) - special.psi(nu / 2) + math.log(nu / 2)
        return (nu - 2) / nu * d2 / (2 * s2) - DIM / (2 * k) + DIM / 2 * (log + math.log(2 * math.pi))

    expected = [[measure(point, n) for n in range(WAY)] for point in q]
    np.testing.assert_allclose(Gaussian.fit(x, Y, WAY).measure(q), expected, rtol=1e-9)


def test_digamma() -> None:
    x = np.concatenate([np.arange(1, 200) / 2, [1e3, 1e6]])
    np.testing.assert_allclose(digamma(x), special.psi(x), rtol=1e-12, atol=1e-12)
