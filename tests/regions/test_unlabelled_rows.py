"""Unlabelled rows: memory, and how far one of them reaches."""

import tracemalloc

import numpy as np
import pytest

from hyperproto.regions import Sphere
from hyperproto.regions.known import _measure_rows
from hyperproto.regions.whitening import within_class_whitening


@pytest.mark.parametrize("shape", [(9, 30), (30, 30), (40, 7), (2, 9, 30), (2, 40, 7)])
def test_traces_are_those_of_the_covariance(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    rows, residual = random.normal(3.0, 2.0, shape), random.normal(size=(*shape[:-2], 5, shape[-1]))
    scatter = np.sum(residual**2, axis=(-2, -1)) / 5
    whiten, _ = within_class_whitening(residual, scatter, np.full_like(scatter, 5.0), scatter > 0)
    middle, spread, dim, length = _measure_rows(rows, whiten, np.float64)
    white = whiten(rows)
    away = white - white.mean(axis=-2, keepdims=True)
    covariance = np.swapaxes(away, -1, -2) @ away / shape[-2]
    trace = np.trace(covariance, axis1=-2, axis2=-1)
    np.testing.assert_allclose(middle, rows.mean(axis=-2, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(spread, trace, rtol=1e-9)
    np.testing.assert_allclose(dim, trace**2 / np.sum(covariance**2, axis=(-2, -1)), rtol=1e-9)
    np.testing.assert_allclose(length, np.sum(white**2, axis=-1), rtol=1e-9)


@pytest.mark.parametrize("refine", [False, True, "auto"])
def test_memory_grows_with_the_columns_and_not_with_their_square(refine: bool) -> None:
    random = np.random.default_rng(0)
    y, width = np.repeat(np.arange(3), 2), 4000
    place = random.normal(size=(3, width))
    x, rows = (place[each] + random.normal(size=(len(each), width)) for each in (y, np.arange(20) % 3))
    tracemalloc.start()
    Sphere.fit(x, y, 3, unlabelled=rows, refine=refine)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * (x.nbytes + rows.nbytes) < width**2 * 8 / 2
