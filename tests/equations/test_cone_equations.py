"""The cone's measure, radius, overlap loss and unbiased cosine, against loops."""

import math
from typing import Any

import numpy as np
import pytest

from hyperproto.errors import ConfigError
from hyperproto.regions import Cone, cone_overlap_loss

Y = np.array([0, 0, 0, 1, 2, 2, 1, 2, 2, 3])
WAY = 4


@pytest.fixture
def x(rng: np.random.Generator) -> Any:
    return 3 * (rng.normal(size=(len(Y), 5)) + 2 * np.eye(5)[Y])


@pytest.fixture
def q(rng: np.random.Generator) -> Any:
    return rng.normal(size=(9, 5)) + 1.5 * np.eye(5)[np.arange(9) % 4]


def unit(v: Any) -> Any:
    return v / math.sqrt(sum(v * v))


def angle(a: Any, b: Any) -> Any:
    return math.acos(min(1.0, unit(a) @ unit(b)))


def zbar(x: Any, n: int) -> Any:
    return sum(unit(x[i]) for i in range(len(Y)) if Y[i] == n) / np.equal(n, Y).sum()


def paper_measure(theta: Any, eps: Any) -> Any:
    return -math.cos(theta - eps) if theta >= abs(eps) else -1.0


def test_paper_cone(x: Any, q: Any) -> None:
    eps = [np.mean([angle(x[i], zbar(x, n)) for i in range(len(Y)) if Y[i] == n]) for n in range(WAY)]
    expected = [[paper_measure(angle(p, zbar(x, n)), eps[n]) for n in range(WAY)] for p in q]
    cone = Cone.fit(x, Y, WAY, mode="paper")
    np.testing.assert_allclose(cone.bias_radius, eps, atol=1e-7)
    assert cone.bias_radius[3] == 0  # one example
    np.testing.assert_allclose(cone.measure(q), expected, atol=1e-7)
    assert np.any(np.asarray(expected) == -1.0)  # some query is inside


def test_stored_radii_may_be_negative(rng: np.random.Generator, q: Any) -> None:
    z, eps = rng.normal(size=(3, 5)), np.array([-0.4, 0.0, 0.7])
    q = np.concatenate([q, z + 0.1])  # some inside
    expected = [[paper_measure(angle(p, z[n]), eps[n]) for n in range(3)] for p in q]
    np.testing.assert_allclose(Cone(z, eps).measure(q), expected, atol=1e-7)


def test_unbiased_cone(x: Any, q: Any) -> None:
    shots = [np.equal(n, Y).sum() for n in range(WAY)]
    rho2 = [(k * sum(zbar(x, n) ** 2) - 1) / (k - 1) if k > 1 else None for n, k in enumerate(shots)]
    several = [n for n in range(WAY) if shots[n] > 1]
    pooled = sum((shots[n] - 1) * rho2[n] for n in several) / sum(shots[n] - 1 for n in several)
    rho = [math.sqrt(pooled if value is None else value) for value in rho2]
    expected = [[-unit(p) @ zbar(x, n) / rho[n] for n in range(WAY)] for p in q]
    np.testing.assert_allclose(Cone.fit(x, Y, WAY).measure(q), expected, rtol=1e-9)


def test_point_cone_and_extent(x: Any, q: Any) -> None:
    cone = Cone.fit(x, Y, WAY, mode="point")
    np.testing.assert_allclose(cone.measure(q), [[-math.cos(angle(p, zbar(x, n))) for n in range(WAY)] for p in q])
    theta = [[angle(x[i], zbar(x, n)) for i in range(len(Y)) if Y[i] == n] for n in range(WAY)]
    squares = [sum(a * a for a in row) for row in theta[:3]]
    v = [s / (np.equal(n, Y).sum() - 1) for n, s in enumerate(squares)] + [sum(squares) / (len(Y) - WAY)]
    expected = [math.sqrt(v[n] * (1 + 1 / np.equal(n, Y).sum())) for n in range(WAY)]
    np.testing.assert_allclose(cone.extent_radius, expected, rtol=1e-6)
    np.testing.assert_array_equal(
        cone.inside(q), [[angle(p, zbar(x, n)) <= expected[n] for n in range(WAY)] for p in q]
    )


def test_overlap_loss(rng: np.random.Generator) -> None:
    z, eps = rng.normal(size=(2, 4, 5)), rng.normal(size=(2, 4))
    expected = [
        sum(
            max(abs(eps[b, i]) + abs(eps[b, j]) - angle(z[b, i], z[b, j]), 0)
            for i in range(4)
            for j in range(4)
            if i != j
        )
        / 4
        for b in range(2)
    ]
    np.testing.assert_allclose(cone_overlap_loss(z, eps), expected, rtol=1e-6)
    assert min(expected) > 0
    assert cone_overlap_loss(np.eye(3), np.full(3, 0.7)) == 0  # right angles, 1.4 < pi / 2


def test_ties_inside_are_broken_by_depth() -> None:
    z = np.array([[1.0, 0.0], [math.cos(0.2), math.sin(0.2)], [0.0, 1.0]])
    cone = Cone(z, np.array([0.5, 0.6, 0.1]))
    q = np.array([[math.cos(0.1), math.sin(0.1)], [math.cos(1.45), math.sin(1.45)]])
    assert cone.measure(q)[0, 0] == cone.measure(q)[0, 1] == -1
    first, second = cone.measure(q, break_ties=True)
    assert first[1] < first[0] < -1 <= first[2]  # depths 0.5 and 0.4, both below a cone that is missed
    np.testing.assert_array_equal(second[:2], cone.measure(q)[1, :2])  # outside nothing changes


def test_centres_may_be_means_of_raw_vectors(x: Any, q: Any) -> None:
    mean = [sum(x[i] for i in range(len(Y)) if Y[i] == n) / np.equal(n, Y).sum() for n in range(WAY)]
    eps = [np.mean([angle(x[i], mean[n]) for i in range(len(Y)) if Y[i] == n]) for n in range(WAY)]
    cone = Cone.fit(x, Y, WAY, mode="paper", mean_of="raw")
    np.testing.assert_allclose(cone.bias_radius, eps, atol=1e-7)
    expected = [[paper_measure(angle(p, mean[n]), eps[n]) for n in range(WAY)] for p in q]
    np.testing.assert_allclose(cone.measure(q), expected, atol=1e-7)
    point = Cone.fit(x, Y, WAY, mode="point", mean_of="raw")
    np.testing.assert_allclose(point.measure(q), [[-math.cos(angle(p, mean[n])) for n in range(WAY)] for p in q])
    with pytest.raises(ConfigError, match="'unbiased' rests on means of unit vectors; mean_of='raw' goes with"):
        Cone.fit(x, Y, WAY, mean_of="raw")
    with pytest.raises(ConfigError, match="no mean_of 'row'; did you mean 'raw'"):
        Cone.fit(x, Y, WAY, mean_of="row")


def test_overlap_loss_with_the_pairs_of_a_cone_with_itself(rng: np.random.Generator) -> None:
    z, eps = rng.normal(size=(4, 5)), rng.normal(size=4)
    pairs = [(i, j) for i in range(4) for j in range(4)]
    angles = {(i, j): angle(z[i], z[j]) if i != j else 0.0 for i, j in pairs}
    expected = sum(max(abs(eps[i]) + abs(eps[j]) - angles[i, j], 0) for i, j in pairs) / 4
    np.testing.assert_allclose(cone_overlap_loss(z, eps, own_pair=True), expected, rtol=1e-6)
