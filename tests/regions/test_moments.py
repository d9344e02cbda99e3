"""Count, mean and squares: against plain loops, and however they are added, taken away and merged."""

from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.errors import ConfigError, DataError
from hyperproto.regions import REGIONS, Moments, Sphere
from hyperproto.regions.statistics import with_examples

WAY = 4


def naive(x: Any, y: Any, weight: Any, way: int = WAY) -> Any:
    """One class and one example at a time."""
    count, mean, squares = np.zeros(way), np.zeros((way, x.shape[1])), np.zeros(way)
    for n in range(way):
        for row, w in zip(x[y == n], weight[y == n], strict=True):
            count[n] += w
            mean[n] += w * row
        mean[n] /= count[n] if count[n] else 1
        for row, w in zip(x[y == n], weight[y == n], strict=True):
            squares[n] += w * sum((row - mean[n]) ** 2)
    return count, mean, squares


def parts(moments: Any) -> Any:
    return moments.count, moments.mean, moments.squares


def assert_same(a: Any, b: Any, tolerance: float = 1e-9) -> None:
    for one, other in zip(a, b, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@st.composite
def examples(draw: st.DrawFn, most: Any = 12) -> Any:
    """Some classes may be empty; weights are whole, broken or 1; some rows are padding."""
    size = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.normal(size=(size, 3)) + draw(st.sampled_from([0.0, 100.0]))
    weight = draw(st.sampled_from([np.ones, lambda n: rng.integers(1, 4, n) * 1.0, lambda n: rng.uniform(0.1, 3, n)]))
    return x, rng.integers(-1, WAY, size), weight(size)


@settings(deadline=None, max_examples=100)
@given(examples())
def test_moments_are_those_of_a_loop(case: Any) -> None:
    x, y, weight = case
    assert_same(parts(Moments.of(x, y, WAY, weight)), naive(x, y, weight))
    assert_same(parts(Moments.of(x, y, WAY)), naive(x, y, np.ones(len(x))))


@settings(deadline=None, max_examples=100)
@given(examples(), examples(), examples())
def test_merging_is_fitting_to_both(a: Any, b: Any, c: Any) -> None:
    one, two, three = (Moments.of(x, y, WAY, weight) for x, y, weight in (a, b, c))
    x, y, weight = (np.concatenate(part) for part in zip(a, b, c, strict=True))
    together = naive(x, y, weight)
    assert_same(parts(one.merged(two).merged(three)), together)
    assert_same(parts(three.merged(two.merged(one))), together)


@settings(deadline=None, max_examples=100)
@given(examples(), examples())
def test_taking_away_undoes_merging(a: Any, b: Any) -> None:
    one, two = (Moments.of(x, y, WAY, weight) for x, y, weight in (a, b))
    assert_same(parts(one.merged(two).without(two)), parts(one), 1e-7)


def test_nothing_is_left_of_a_class_that_loses_everything(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(6, 3)) + 1e3, np.array([0, 0, 0, 1, 1, 1])
    weight = np.array([0.1, 0.2, 0.3, 1.0, 1.0, 1.0])
    left = Moments.of(x, y, 2, weight)
    for n in range(3):
        left = left.without(Moments.of(x[n : n + 1], y[n : n + 1], 2, weight[n : n + 1]))
    assert weight[:3].sum() - 0.1 - 0.2 - 0.3 != 0  # rounding would leave a class of almost nothing
    assert left.count[0] == left.squares[0] == 0
    assert not left.mean[0].any()


def test_more_than_there_is_cannot_be_taken_away(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(4, 3)), np.array([0, 0, 1, 1])
    with pytest.raises(DataError, match="more examples of a class would be removed than it has; check their labels"):
        Moments.of(x[:2], y[:2], 2).without(Moments.of(x, y, 2))
    with pytest.raises(DataError, match=r"a weight is negative; .* use 0 or more"):
        Moments.of(x, y, 2, np.array([1.0, 1.0, -1.0, 1.0]))


def test_a_million_updates_far_from_the_origin(rng: np.random.Generator) -> None:
    """A thousand times one example to each of a thousand classes, a million away from 0, where x^2 has 12 digits."""
    classes, steps, far = 1000, 1000, 1e6
    x = rng.normal(size=(steps, classes, 2))
    moments = Moments(np.zeros(classes), np.zeros((classes, 2)), np.zeros(classes))
    for step in range(steps):
        moments = moments.merged(Moments(np.ones(classes), x[step] + far, np.zeros(classes)))
    exact = x - x.mean(axis=0)
    np.testing.assert_allclose(moments.mean - far, x.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(moments.squares, (exact**2).sum(axis=(0, 2)), rtol=1e-6)
    textbook = ((x + far) ** 2).sum(axis=(0, 2)) - steps * ((x + far).mean(axis=0) ** 2).sum(axis=-1)
    assert np.abs(textbook / (exact**2).sum(axis=(0, 2)) - 1).max() > 1e-3  # what it is that Welford avoids


@pytest.mark.parametrize("library", ["strict", "torch"])
def test_any_array_library_and_leading_axes(rng: np.random.Generator, library: Any) -> None:
    x, y, weight = rng.normal(size=(2, 9, 3)), rng.integers(-1, WAY, (2, 9)), rng.uniform(0.5, 2, (2, 9))
    as_array = array_api_strict.asarray if library == "strict" else pytest.importorskip("torch").tensor
    theirs = Moments.of(as_array(x), as_array(y), WAY, as_array(weight))
    twice = theirs.merged(theirs).without(theirs)
    for n in range(2):
        expected = naive(x[n], y[n], weight[n])
        assert_same([np.asarray(part)[n] for part in parts(theirs)], expected)
        assert_same([np.asarray(part)[n] for part in parts(twice)], expected)


@pytest.mark.parametrize(
    ("region", "options"),
    [
        ("point", {}),
        ("sphere", {"mode": "point"}),
        ("sphere", {"mode": "unbiased"}),
        ("sphere", {"mode": "paper"}),
        ("sphere", {"mode": "unbiased", "squared": False}),
        ("gaussian", {"mode": "unbiased"}),
        ("gaussian", {"mode": "paper"}),
    ],
)
def test_regions_that_live_on_statistics(rng: np.random.Generator, region: Any, options: dict[str, Any]) -> None:
    x, y, q = rng.normal(size=(9, 5)), np.array([0, 0, 0, 1, 2, 2, 2, 2, 0]), rng.normal(size=(6, 5))
    fitted = REGIONS[region].fit(x, y, 3, **options)
    from_moments = REGIONS[region].from_statistics(Moments.of(x, y, 3), **options)
    np.testing.assert_allclose(from_moments.measure(q), fitted.measure(q), rtol=1e-9)
    np.testing.assert_allclose(from_moments.extent_radius, fitted.extent_radius, rtol=1e-9)


@pytest.mark.parametrize("mode", ["unbiased", "point"])
def test_cones_live_on_statistics_but_for_their_extent(rng: np.random.Generator, mode: str) -> None:
    x, y, q = rng.normal(size=(9, 5)), np.array([0, 0, 0, 1, 2, 2, 2, 2, 0]), rng.normal(size=(6, 5))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cone = REGIONS["cone"].from_statistics(Moments.of(unit, y, 3), mode=mode)
    np.testing.assert_allclose(cone.measure(q), REGIONS["cone"].fit(x, y, 3, mode=mode).measure(q), rtol=1e-9)
    with pytest.raises(ConfigError, match="built without an extent_radius"):
        cone.inside(q)


@pytest.mark.parametrize(
    ("region", "options"),
    [("sphere", {"mode": "bayes"}), ("sphere", {"mode": "paper", "squared": False}), ("cone", {"mode": "paper"})],
)
def test_what_needs_the_examples_says_so(rng: np.random.Generator, region: Any, options: dict[str, Any]) -> None:
    moments = Moments.of(rng.normal(size=(4, 3)), np.array([0, 0, 1, 1]), 2)
    with pytest.raises(ConfigError, match=r"needs the examples themselves.*use a mode that needs statistics only"):
        REGIONS[region].from_statistics(moments, **options)


@pytest.mark.parametrize("name", ["sum", "total", "spread", "average", "residual", "weighted_residual"])
def test_moments_do_not_promise_examples(rng: np.random.Generator, name: str) -> None:
    moments = Moments.of(rng.normal(size=(4, 3)), np.array([0, 0, 1, 1]), 2)
    assert not hasattr(moments, name)
    with pytest.raises(ConfigError, match="only their statistics were kept"):
        with_examples(moments)


def test_a_sphere_of_classes_below_one_example(rng: np.random.Generator) -> None:
    """Weights may sum to less than one: the bias of the centre is v / K all the same."""
    x, y = rng.normal(size=(6, 3)), np.array([0, 0, 0, 0, 1, 1])
    weight = np.array([1.0, 1.0, 1.0, 1.0, 0.25, 0.25])
    moments = Moments.of(x, y, 2, weight)
    sphere = Sphere.from_statistics(moments, mode="unbiased")
    np.testing.assert_allclose(sphere.bias_radius, sphere.scatter / np.array([4.0, 0.5]))
    np.testing.assert_allclose(sphere.scatter, moments.squares.sum() / 3)
