"""The default closed form, stated once more with loops and explicit D x D matrices, and compared with the library's."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.errors import ConfigError
from hyperproto.regions import ClassStatistics, Sphere
from hyperproto.regions.bayes import effective_counts, fit_bayes
from tests.equations.references import reference


def naive_bayes(x: Any, y: Any, effective: Any = None) -> Any:
    """Return centres, radii, A, v, k and extents, for labels 0 to N - 1 that all occur."""
    size, dim = x.shape
    way = y.max() + 1
    shots = [int((y == n).sum()) for n in range(way)]
    effective = shots if effective is None else effective  # independent examples that those of a class are effective
    mean = [x[y == n].mean(0) for n in range(way)]
    r = [x[i] - mean[y[i]] for i in range(size)]
    dof = size - way
    within = sum((np.outer(v, v) for v in r), np.zeros((dim, dim))) / max(dof, 1)
    known = dof > 0 and way > 1 and np.trace(within) * dof > 1e-12 * (x**2).sum()

    whiten, strength = np.eye(dim), 0.0
    if known:
        t1, t2 = np.trace(within), np.trace(within @ within)
        above, below = (1 - 2 / dim) * t2 + t1**2, (dof + 1 - 2 / dim) * (t2 - t1**2 / dim)
        shrinkage = 1 - (1 - (above / below if above < below else 1.0)) / 2
        ridge = shrinkage * t1 / dim
        values, vectors = np.linalg.eigh((1 - shrinkage) * within + ridge * np.eye(dim))
        whiten = vectors @ np.diag(np.sqrt(ridge / values)) @ vectors.T
        strength = (1 - shrinkage) / (ridge * dof)
    z = [whiten @ m for m in mean]

    shares: list[list[float]] = [[] for _ in range(way)]  # leave-one-out squared distances, for classes of two or more
    for i in range(size):
        k = shots[y[i]]
        if k > 1:
            d = k / (k - 1) * sum((whiten @ r[i]) ** 2)
            shares[y[i]].append(d / max(1 - strength * d, 0.02))
    every = [d for share in shares for d in share]
    v = float(np.mean(every)) if every else 0.0
    own = [float(np.mean(share)) if share else v for share in shares]

    ratio, eps = 4.0, [0.0] * way
    if known:
        for _ in range(5):
            w = [k / (k + ratio) for k in effective]
            middle = sum(w[n] * z[n] for n in range(way)) / sum(w)
            spread = sum(w[n] * sum((z[n] - middle) ** 2) for n in range(way))
            noise = v * sum(w[n] / effective[n] * (1 - w[n] / sum(w)) for n in range(way))
            between = (spread - noise) / (sum(w) - sum(a * a for a in w) / sum(w))
            ratio = min(max(v / max(between, 1e-12), 0.25), 16.0)
        ratio = math.exp(((way - 1) * math.log(ratio) + 4 * math.log(4)) / (way - 1 + 4))
        eps = [(k - 1) / (k + 15) * (own[n] - v) / k for n, k in enumerate(effective)]
    w = [k / (k + ratio) for k in effective]
    middle = sum(w[n] * z[n] for n in range(way)) / sum(w)
    centers = np.array([middle + w[n] * (z[n] - middle) for n in range(way)])
    extents = [math.sqrt(own[n] * (1 + 1 / (effective[n] + ratio))) for n in range(way)]
    return centers, np.array(eps), whiten, v if known else 0.0, ratio, np.array(extents)


@st.composite
def supports(draw: st.DrawFn) -> Any:
    """Unequal counts, S < D and S > D, one shot, one class, identical points, and scatter far from round."""
    shots = draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    dim = draw(st.integers(2, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    y = rng.permutation(np.repeat(np.arange(len(shots)), shots))
    scale = np.exp(draw(st.sampled_from([0.0, 1.0, 2.0])) * rng.normal(size=dim))
    noise = draw(st.sampled_from([0.0, 0.3, 1.0]))
    x = draw(st.sampled_from([0.0, 0.5, 3.0])) * rng.normal(size=(len(shots), dim))[y] + 1
    return x + noise * scale * rng.normal(size=x.shape), y


def apart(a: Any, b: Any) -> Any:
    return np.max(np.abs(np.asarray(a) - b) / (1 + np.abs(b)), initial=0)


@settings(deadline=None, max_examples=200)
@given(supports())
def test_bayes_is_the_formula(case: Any) -> None:
    x, y = case
    q = np.random.default_rng(1).normal(size=(5, x.shape[1]))
    centers, eps, whiten, v, ratio, extents = naive_bayes(x, y)
    expected = np.array([[sum((whiten @ p - c) ** 2) - e for c, e in zip(centers, eps, strict=True)] for p in q])
    sphere = Sphere.fit(x, y, y.max() + 1)
    assert sphere.whiten is not None
    assert apart(sphere.whiten(np.eye(x.shape[1])), whiten) < 1e-9
    assert apart(sphere.center, centers) < 1e-9
    assert apart(sphere.bias_radius, eps) < 1e-9
    assert apart(sphere.scatter, v) < 1e-9
    assert apart(sphere.ratio, ratio) < 1e-9
    assert apart(sphere.extent_radius**2, extents**2) < 1e-9
    assert apart(sphere.measure(q), expected) < 1e-9
    plain = Sphere.fit(x, y, y.max() + 1, squared=False)
    assert apart(plain.measure(q) ** 2, np.maximum(expected, 0)) < 1e-9


def naive_effective_count(y: Any, groups: Any, correlation: Any) -> Any:
    """Each class in each group counts for m / (1 + (m - 1) r)."""
    effective = [0.0] * (y.max() + 1)
    for n in range(len(effective)):
        for group in set(groups.tolist()):
            m = sum(1 for label, own in zip(y, groups, strict=True) if label == n and own == group)
            effective[n] += m / (1 + (m - 1) * correlation) if m else 0.0
    return effective


@settings(deadline=None, max_examples=100)
@given(supports(), st.sampled_from([0.0, 0.2, 1.0]), st.integers(1, 4), st.integers(0, 100))
def test_correlated_examples_count_for_less(case: Any, correlation: Any, n_groups: Any, seed: int) -> None:
    x, y = case
    groups = np.random.default_rng(seed).integers(0, n_groups, len(y))
    effective = naive_effective_count(y, groups, correlation)
    sphere = Sphere.fit(x, y, y.max() + 1, groups=groups, correlation=correlation)
    centers, eps, _, v, ratio, extents = naive_bayes(x, y, effective)
    assert apart(sphere.center, centers) < 1e-9
    assert apart(sphere.bias_radius, eps) < 1e-9
    assert apart(sphere.scatter, v) < 1e-9
    assert apart(sphere.ratio, ratio) < 1e-9
    assert apart(sphere.extent_radius**2, extents**2) < 1e-9
    way = y.max() + 1
    count = effective_counts((y[:, None] == np.arange(way)).astype(float), groups, correlation)
    assert apart(count, np.array(effective)) < 1e-12
    if correlation == 0.0:
        assert apart(count, np.bincount(y)) < 1e-12
    if correlation == 1.0:  # as many examples as there are groups that have one
        assert count.tolist() == pytest.approx([len(set(groups[y == n].tolist())) for n in range(way)])


def test_only_bayes_takes_the_correlation_of_examples(rng: np.random.Generator) -> None:
    with pytest.raises(ConfigError, match="only the fit mode 'bayes' takes the correlation of examples; 'unbiased' d"):
        Sphere.fit(
            rng.normal(size=(4, 2)), np.array([0, 0, 1, 1]), 2, mode="unbiased", groups=np.arange(4), correlation=0.5
        )


def test_the_drawn_supports_do_whiten(rng: np.random.Generator) -> None:
    """Guards the test above: round scatter of few points has OAS 1 and no whitening at all."""
    y = np.repeat(np.arange(3), 5)
    x = rng.normal(size=(15, 20)) * np.exp(rng.normal(size=20) * 2)
    assert np.abs(naive_bayes(x, y)[2] - np.eye(20)).max() > 0.1


def test_an_example_that_is_the_covariance(rng: np.random.Generator) -> None:
    """One pair far apart, forty close: left out, that pair would be endlessly far, so its leverage is bounded."""
    y = np.repeat(np.arange(41), 2)
    x = 0.01 * rng.normal(size=(82, 100))
    x[0] += 10
    centers, eps, _, v, _, extents = naive_bayes(x, y)
    sphere = Sphere.fit(x, y, 41)
    assert apart(sphere.scatter, v) < 1e-9
    assert apart(sphere.bias_radius, eps) < 1e-9
    assert apart(sphere.center, centers) < 1e-9
    assert apart(sphere.extent_radius, extents) < 1e-9


def test_one_dimension_is_not_whitened(rng: np.random.Generator) -> None:
    """OAS is 0 / 0 there, and rounding must not make a number of it."""
    for size in range(5, 40):
        found = Sphere.fit(rng.normal(size=(size, 1)), np.arange(size) % 3, 3).whiten
        assert found is not None
        assert found(np.eye(1)) == 1


@pytest.mark.data
def test_bayes_is_the_shared_reference() -> None:
    shared = reference("bayes_regions")

    @settings(deadline=None, max_examples=100)
    @given(supports())
    def check(case: Any) -> None:
        x, y = case
        _, weights, bias, scatter, ratio = shared.fit(x, y)
        sphere = Sphere.fit(x, y, y.max() + 1)
        form = sphere.linear()
        found = form.weights, form.bias, sphere.scatter, sphere.ratio
        for ours, theirs in zip(found, (weights, bias, scatter, ratio), strict=True):
            assert apart(ours, theirs) < 1e-9

    check()


@pytest.mark.parametrize("shots", [3, 9])  # fewer and more examples than dimensions
def test_whitening_can_be_undone(rng: np.random.Generator, shots: int) -> None:
    x, y = rng.normal(size=(3 * shots, 8)) * np.linspace(0.2, 3.0, 8), np.repeat(np.arange(3), shots)
    whiten = fit_bayes(ClassStatistics.of(x, y, 3)).whiten
    assert np.abs(whiten(x) - x).max() > 0.1
    np.testing.assert_allclose(whiten.undo(whiten(x)), x, atol=1e-10)
    matrix = np.linalg.inv(whiten(np.eye(8)))
    np.testing.assert_allclose(whiten.undo(x), x @ matrix, atol=1e-10)
