"""Equations 1-3, and the unbiased radius, against loops that read like the formulas."""

from typing import Any

import numpy as np
import pytest

from hyperproto.errors import ConfigError
from hyperproto.regions import Point, Sphere

Y = np.array([0, 0, 0, 1, 2, 2, 2, 2, 0])  # four, one and four examples, in no order
WAY = 3


@pytest.fixture
def x(rng: np.random.Generator) -> Any:
    return rng.normal(size=(len(Y), 6)) + 2 * Y[:, None]


@pytest.fixture
def q(rng: np.random.Generator) -> Any:
    return rng.normal(size=(7, 6))


def center(x: Any, n: int) -> Any:
    return sum(x[i] for i in range(len(Y)) if Y[i] == n) / np.equal(n, Y).sum()


def squares(x: Any, n: int) -> Any:
    return sum(((x[i] - center(x, n)) ** 2).sum() for i in range(len(Y)) if Y[i] == n)


def pooled(x: Any) -> Any:
    return sum(squares(x, n) for n in range(WAY)) / (len(Y) - WAY)


def extent(x: Any, n: int) -> Any:
    k = np.equal(n, Y).sum()
    v = squares(x, n) / (k - 1) if k > 1 else pooled(x)
    return np.sqrt(v * (1 + 1 / k))


def table(q: Any, measure: Any) -> Any:
    return np.array([[measure(point, n) for n in range(WAY)] for point in q])


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_paper_is_equations_2_and_3(x: Any, q: Any, squared: bool, weight: Any) -> None:
    power = 2 if squared else 1

    def measure(point: Any, n: int) -> Any:
        distances = [np.linalg.norm(x[i] - center(x, n)) ** power for i in range(len(Y)) if Y[i] == n]
        return np.linalg.norm(point - center(x, n)) ** power - weight * np.mean(distances)

    sphere = Sphere.fit(x, Y, WAY, mode="paper", squared=squared, radius_weight=weight)
    np.testing.assert_allclose(sphere.measure(q), table(q, measure), rtol=1e-9)


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_the_radius_may_be_a_mean_of_plain_distances_beside_the_squared_measure(x: Any, q: Any, weight: Any) -> None:
    def measure(point: Any, n: int) -> Any:
        distances = [np.linalg.norm(x[i] - center(x, n)) for i in range(len(Y)) if Y[i] == n]
        return ((point - center(x, n)) ** 2).sum() - weight * np.mean(distances)

    sphere = Sphere.fit(x, Y, WAY, mode="paper", radius_distance="plain", radius_weight=weight)
    np.testing.assert_allclose(sphere.measure(q), table(q, measure), rtol=1e-9)
    form = sphere.linear()
    weights, bias = form.weights, form.bias
    np.testing.assert_allclose((q**2).sum(1)[:, None] - (q @ weights + bias), table(q, measure), rtol=1e-9, atol=1e-9)


def test_readings_of_the_radius_that_make_no_sense(x: Any) -> None:
    with pytest.raises(ConfigError, match="'plain' goes with the squared measure; with squared=False the radius is"):
        Sphere.fit(x, Y, WAY, mode="paper", radius_distance="plain", squared=False)
    with pytest.raises(ConfigError, match=r"a reading of eq\. 3; the fit mode 'bayes' has no such radius: use 'paper'"):
        Sphere.fit(x, Y, WAY, mode="bayes", radius_distance="plain")
    with pytest.raises(ConfigError, match="no radius_distance 'plan'; did you mean 'plain'"):
        Sphere.fit(x, Y, WAY, mode="paper", radius_distance="plan")


def test_unbiased_subtracts_pooled_scatter_over_count(x: Any, q: Any) -> None:
    def squared(point: Any, n: int) -> Any:
        return ((point - center(x, n)) ** 2).sum() - pooled(x) / np.equal(n, Y).sum()

    np.testing.assert_allclose(Sphere.fit(x, Y, WAY, mode="unbiased").measure(q), table(q, squared), rtol=1e-9)
    plain = Sphere.fit(x, Y, WAY, mode="unbiased", squared=False)
    near = np.concatenate([q, plain.center])  # at the centre the difference is negative, and the measure 0
    np.testing.assert_allclose(
        plain.measure(near), table(near, lambda point, n: np.sqrt(max(squared(point, n), 0))), rtol=1e-9, atol=1e-9
    )
    assert np.all(np.diagonal(plain.measure(plain.center)) == 0)


@pytest.mark.parametrize("squared", [True, False])
def test_point_is_the_distance_to_the_mean(x: Any, q: Any, squared: bool) -> None:
    expected = table(q, lambda point, n: np.linalg.norm(point - center(x, n)) ** (2 if squared else 1))
    for region in (Point.fit(x, Y, WAY, squared=squared), Sphere.fit(x, Y, WAY, mode="point", squared=squared)):
        np.testing.assert_allclose(region.measure(q), expected, rtol=1e-9)
        np.testing.assert_array_equal(region.bias_radius, np.zeros(WAY))


@pytest.mark.parametrize("region", [Point.fit, lambda *a: Sphere.fit(*a, mode="unbiased")])
def test_extent_and_inside(x: Any, q: Any, region: Any) -> None:
    fitted = region(x, Y, WAY)
    np.testing.assert_allclose(fitted.extent_radius, [extent(x, n) for n in range(WAY)])
    near = np.concatenate([q, x])
    inside = table(near, lambda point, n: np.linalg.norm(point - center(x, n)) <= extent(x, n))
    np.testing.assert_array_equal(fitted.inside(near), inside)
    assert 0 < inside.mean() < 1
