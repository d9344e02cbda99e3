"""Class statistics by sparse products, and the fast way to the measure: against float64 loops, in float32, far away."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.estimators import HypersphereClassifier
from hyperproto.estimators.labels import encode_labels
from hyperproto.estimators.state import AppendableArray
from hyperproto.regions import REGIONS, Moments
from hyperproto.regions.statistics import moments_of
from tests.estimators.conftest import SETTINGS, blobs


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(1, 6), st.booleans(), st.integers(0, 2**31), st.sampled_from([0.0, 1e4]))
def test_moments_are_those_of_the_regions(size: int, way: int, weighted: Any, seed: int, far: Any) -> None:
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(size, 3)) + far, random.integers(0, way, size)
    weights = random.uniform(0.1, 3, size) if weighted else None
    found, expected = moments_of(x, y, weights, way), Moments.of(x, y, way, weights)
    np.testing.assert_allclose(found.count, expected.count)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.squares, expected.squares, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("way", [1, 2, 700])
@pytest.mark.parametrize("far", [0.0, 10_000.0])
@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_float32_is_summed_as_if_it_were_float64(way: int, far: Any, heavy: Any, weighted: Any) -> None:
    """Ten thousand rows ten thousand away from 0: plain float32 sums would be off by more than the scatter."""
    random = np.random.default_rng(0)
    x = (random.normal(size=(10_000, 4)) + far).astype(np.float32)
    y = random.integers(0, way, len(x))
    if heavy:
        y[random.random(len(x)) < 0.9] = way - 1
    weights = random.uniform(0.5, 2, len(x)) if weighted else None
    exact = Moments.of(x.astype(np.float64), y, way, weights)
    found = moments_of(x, y, weights, way)
    spread = 1e-7 * max(1.0, np.abs(exact.mean).max() * 1e-4)
    np.testing.assert_allclose(found.mean, exact.mean, atol=30 * spread, rtol=0)
    np.testing.assert_allclose(found.squares, exact.squares, rtol=1e-5, atol=1e-5)
    assert found.mean.dtype == found.squares.dtype == np.float64


def test_no_rows() -> None:
    empty = moments_of(np.empty((0, 3)), np.empty(0, dtype=np.intp), None, 2)
    assert not empty.count.any()
    assert not empty.squares.any()
    assert empty.mean.shape == (2, 3)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-5, 30), min_size=1, max_size=40), st.sampled_from([np.int64, np.int32, np.int8, np.uint8]))
def test_whole_numbers_are_told_apart_without_sorting(labels: Any, dtype: Any) -> None:
    y = np.array(labels).astype(dtype)
    values, codes = encode_labels(y)
    expected, places = np.unique(y, return_inverse=True)
    assert values == expected.tolist()
    assert codes.tolist() == places.tolist()


@pytest.mark.parametrize("y", [[0, 10**12], [-(2**62), 2**62], [2**63 + 5, 3]])
def test_whole_numbers_far_apart(y: Any) -> None:
    array = np.array(y, dtype=np.uint64 if max(y) > 2**63 else np.int64)
    assert sorted(encode_labels(array)[0]) == sorted(y)


@pytest.mark.parametrize("choice", SETTINGS, ids=lambda choice: "-".join(map(str, choice.values())))
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_float32_measures_as_well_as_its_rows_allow(choice: dict[str, Any], far: Any) -> None:
    x, y = blobs((8, 5, 1, 6), seed=1)
    x, q = (x + far).astype(np.float32), (x[::2] + far + 0.1).astype(np.float32)
    model = HypersphereClassifier(**choice).fit(x, y)
    exact = HypersphereClassifier(**choice).fit(x.astype(np.float64), y)
    scale = np.abs(exact.measure(q.astype(np.float64))).max()
    tolerance = (
        1e-4 if far == 0 or choice.get("feature_transform") == "none" else 0.05
    )  # far away, directions are alike
    if far and choice.get("region") == "cone":
        return  # and cones see nothing else
    away = np.abs(model.predict_proba(q) - exact.predict_proba(q.astype(np.float64)))
    assert away.max() < 20 * tolerance
    assert np.abs(model.measure(q) - exact.measure(q.astype(np.float64))).max() < tolerance * max(scale, 1)


def test_scores_are_the_measure_up_to_a_common_term(make: Callable[..., HypersphereClassifier]) -> None:
    x, y = blobs((8, 5, 1, 6), seed=1)
    model = make().fit(x, y)._snapshot()
    rows = model.prepare(np.random.default_rng(3).normal(size=(9, 5)))
    both = model.scores(rows) + model.measure(rows)
    np.testing.assert_allclose(both, np.tile(both[:, :1], (1, 4)), atol=1e-9)


def test_rows_are_scored_in_blocks(monkeypatch: pytest.MonkeyPatch, make: Callable[..., HypersphereClassifier]) -> None:
    x, y = blobs((8, 5, 1, 6), seed=1)
    model = make(coverage=0.8).fit(x, y)
    calls = ("measure", "predict_proba", "predict", "novelty", "predict_set", "decision_function")
    whole = [getattr(model, call)(x) for call in calls]
    monkeypatch.setattr("hyperproto.estimators.snapshot.ROWS", 3)
    for call, expected in zip(calls, whole, strict=True):
        found = getattr(model, call)(x)
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(found, expected)


def test_every_linear_measure_has_a_linear_form() -> None:
    x, y = blobs()
    for name, region in REGIONS.items():
        for mode in region.modes:
            model = HypersphereClassifier(region=name, fit_mode=mode).fit(x, y)._snapshot()
            assert (model.linear is None) == (name == "cone" and mode == "paper")
    assert HypersphereClassifier(squared=False).fit(x, y)._snapshot().linear is None


def test_growing_arrays() -> None:
    array = AppendableArray((2,), np.float32)
    for n in range(100):
        array.append(np.full((1, 2), n, dtype=np.float32))
    assert array.view[:, 0].tolist() == list(range(100))
    array.room(3)[...] = -1
    array.keep(array.view[:, 0] % 2 == 0)
    assert array.view[:, 1].tolist() == list(range(0, 100, 2))
    array.widen(np.float32)
    assert array.view.dtype == np.float32
    array.widen(np.float64)
    array.append(np.array([[0.1, 0.1]]))
    assert array.view[-1, 0] == 0.1
    again = AppendableArray.__new__(AppendableArray)
    again.__setstate__(array.__getstate__())
    np.testing.assert_array_equal(again.view, array.view)
