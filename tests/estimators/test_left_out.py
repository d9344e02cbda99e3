"""Each example left out, in closed form, against fitting again without it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.linalg import eigh

from hyperproto.estimators import HypersphereClassifier
from hyperproto.regions import Sphere
from hyperproto.regions.left_out import left_out_measures
from tests.estimators.conftest import SETTINGS, blobs

EXACT = [settings for settings in SETTINGS if settings["fit_mode"] != "bayes"]


def closed_form(model: HypersphereClassifier) -> Any:
    """The measure of every example that is not alone, and which these are."""
    inner = model._snapshot()
    index = np.flatnonzero(inner.left_out.has_siblings)
    return index, left_out_measures(inner.left_out, inner.region, inner.form, index)


def refitted(model: HypersphereClassifier, x: Any, y: Any, i: int, weights: Any = None) -> Any:
    """The measure of example i by a classifier that never saw one of it."""
    weights = np.ones(len(x)) if weights is None else weights.astype(float).copy()
    weights[i] = max(weights[i] - 1, 0)
    again = HypersphereClassifier(**model.get_params()).fit(x, y, weights)
    return again.measure(x[i : i + 1])[0]


@st.composite
def supports(draw: st.DrawFn) -> Any:
    shots = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4).filter(lambda shots: max(shots) > 1))
    dim, seed = draw(st.sampled_from([2, 6, 20])), draw(st.integers(0, 2**31))
    return blobs(shots, dim=dim, seed=seed, noise=draw(st.sampled_from([0.2, 1.0])))


@settings(deadline=None, max_examples=120)
@given(supports(), st.sampled_from(EXACT))
def test_leaving_out_is_fitting_again(case: Any, choice: dict[str, Any]) -> None:
    x, y = case
    model = HypersphereClassifier(**choice).fit(x, y)
    index, found = closed_form(model)
    assert len(index) == sum((y == label).sum() > 1 for label in y)
    expected = [refitted(model, x, y, i) for i in index]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("choice", EXACT, ids=lambda choice: "-".join(map(str, choice.values())))
def test_of_an_example_that_counts_twice_one_is_left_out(choice: dict[str, Any]) -> None:
    x, y = blobs((4, 1, 3), seed=2)
    weights = np.random.default_rng(0).integers(1, 4, len(x))
    model = HypersphereClassifier(**choice).fit(x, y, weights)
    index, found = closed_form(model)
    expected = [refitted(model, x, y, i, weights) for i in index]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def frozen_bayes(x: Any, y: Any, i: int, sphere: Any, way: int) -> Any:
    """Fit without example i by explicit matrices, taking only b, k and the classes' scatter from the fit to all."""
    keep = np.arange(len(x)) != i
    count = np.bincount(y[keep], minlength=way).astype(float)
    mean = np.array([x[keep & (y == n)].mean(0) for n in range(way)])
    residual = (x - mean[y])[keep]
    inverse = np.eye(x.shape[1]) + float(sphere.gain) * residual.T @ residual
    values, vectors = eigh(inverse)
    whiten = vectors @ np.diag(values**-0.5) @ vectors.T
    z = mean @ whiten
    weight = count / (count + float(sphere.ratio))
    middle = weight @ z / weight.sum()
    centers = middle + weight[:, None] * (z - middle)
    full = np.bincount(y, minlength=way)
    excess = sphere.bias_radius * full * (full - 1 + 16) / np.maximum(full - 1, 1)
    eps = (count - 1) / (count + 15) * excess / count
    return ((x[i] @ whiten - centers) ** 2).sum(1) - eps


@settings(deadline=None, max_examples=60)
@given(supports())
def test_bayes_without_an_example_is_exact_but_for_what_all_estimate_together(case: Any) -> None:
    x, y = case
    labels = np.unique(y, return_inverse=True)[1]
    model = HypersphereClassifier(feature_transform="none").fit(x, y)
    index, found = closed_form(model)
    expected = [frozen_bayes(x, labels, i, model.region_, labels.max() + 1) for i in index]
    leverage = np.abs(found).max() < 20 * np.abs(model.measure(x)).max()  # its bound is not reached
    if leverage:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("squared", [True, False])
def test_bayes_is_close_to_fitting_again(squared: bool) -> None:
    """Where there is something to whiten, and without leaving out the own class looks far too near."""
    x, y = blobs((8, 5, 6, 7, 4), dim=12, seed=1, noise=0.8)
    model = HypersphereClassifier(squared=squared).fit(x, y)
    region = model.region_
    assert isinstance(region, Sphere)
    assert region.whiten is not None
    left, right = region.whiten.left, region.whiten.right
    assert np.abs(left @ right).max() > 0.1
    index, found = closed_form(model)
    expected = np.array([refitted(model, x, y, i) for i in index])
    naive = model.measure(x[index])
    assert np.abs(found - expected).mean() < 0.4 * np.abs(naive - expected).mean()
    labels = np.unique(y, return_inverse=True)[1][index]
    agree = (found.argmin(1) == labels) == (expected.argmin(1) == labels)
    assert agree.mean() > 0.95


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs((6, 4, 5))
    for choice in SETTINGS:
        model = HypersphereClassifier(**choice).fit(x, y)
        whole = closed_form(model)[1]
        with monkeypatch.context() as patch:
            patch.setattr("hyperproto.regions.left_out.BLOCK", 7)
            np.testing.assert_allclose(closed_form(model)[1], whole, rtol=1e-9, atol=1e-9)
