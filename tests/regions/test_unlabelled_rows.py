"""Unlabelled rows: memory, and how far one of them reaches."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from hyperproto.heads import RefinedForm
from hyperproto.regions import ClassStatistics, ClosedForm, Evidence, Sphere
from hyperproto.regions.evidence import UnlabelledRows
from hyperproto.regions.whitening import within_class_whitening


def fitted(x: Any, y: Any, way: int, refine: bool = False, **evidence: Any) -> Any:
    form = (RefinedForm if refine else ClosedForm)(Sphere, "bayes", {"evidence": Evidence(**evidence)})
    return form.fit(ClassStatistics.of(x, y, way))


@pytest.mark.parametrize("shape", [(9, 30), (30, 30), (40, 7), (2, 9, 30), (2, 40, 7)])
def test_traces_are_those_of_the_covariance(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    rows, residual = random.normal(3.0, 2.0, shape), random.normal(size=(*shape[:-2], 5, shape[-1]))
    scatter = np.sum(residual**2, axis=(-2, -1)) / 5
    whiten, _ = within_class_whitening(residual, scatter, np.full_like(scatter, 5.0), scatter > 0)
    found = UnlabelledRows.of(rows, None, whiten, np.float64)
    white = whiten(rows)
    away = white - white.mean(axis=-2, keepdims=True)
    covariance = np.swapaxes(away, -1, -2) @ away / shape[-2]
    trace = np.trace(covariance, axis1=-2, axis2=-1)
    np.testing.assert_allclose(found.middle, rows.mean(axis=-2, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(found.spread, trace, rtol=1e-9)
    np.testing.assert_allclose(found.dim, trace**2 / np.sum(covariance**2, axis=(-2, -1)), rtol=1e-9)
    np.testing.assert_allclose(found.length, np.sum(white**2, axis=-1), rtol=1e-9)


@pytest.mark.parametrize("refine", [False, True])
def test_memory_grows_with_the_columns_and_not_with_their_square(refine: bool) -> None:
    random = np.random.default_rng(0)
    y, width = np.repeat(np.arange(3), 2), 4000
    place = random.normal(size=(3, width))
    x, rows = (place[each] + random.normal(size=(len(each), width)) for each in (y, np.arange(20) % 3))
    tracemalloc.start()
    fitted(x, y, 3, unlabelled=rows, refine=refine)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * (x.nbytes + rows.nbytes) < width**2 * 8 / 2


def clouds(shot: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Examples, labels and unlabelled rows of five classes, their names, and test rows with labels."""
    random = np.random.default_rng(seed)
    place, y, test_y = 2 * random.normal(size=(5, 16)), np.repeat(np.arange(5), shot), np.arange(200) % 5
    x, rows, test = (place[each] + random.normal(size=(len(each), 16)) for each in (y, np.arange(60) % 5, test_y))
    return x, y, rows, place + random.normal(size=place.shape), test, test_y


def accuracy(sphere: Sphere, test: np.ndarray, test_y: np.ndarray) -> float:
    return float((sphere.measure(test).argmin(axis=1) == test_y).mean())


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("shot", [0, 1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_far_outside_the_cloud_counts_for_nothing(refine: bool, shot: int, dtype: type) -> None:
    x, y, rows, names, test, test_y = clouds(shot)
    given: dict[str, Any] = {"names": names} if shot == 0 else {}
    x, rows = x.astype(dtype), rows.astype(dtype)
    usual = fitted(x, y, 5, unlabelled=rows, refine=refine, **given)
    without = fitted(x, y, 5, unlabelled=np.delete(rows, 7, axis=0), refine=refine, **given)
    assert accuracy(usual, test, test_y) > 0.97
    for factor in (1e3, 1e8, 1e15):
        moved = rows.copy()
        moved[7] *= factor
        sphere = fitted(x, y, 5, unlabelled=moved, refine=refine, **given)
        np.testing.assert_allclose(sphere.center, without.center, rtol=0, atol=1e-6 if dtype == np.float64 else 0.02)
        assert accuracy(sphere, test, test_y) > 0.97


def test_far_rows_of_one_episode_leave_the_others_alone() -> None:
    sets = [clouds(2, seed) for seed in range(3)]
    x, y, rows = (np.stack([each[part] for each in sets]) for part in range(3))
    rows[1, 7] *= 1e6
    together = fitted(x, y, 5, unlabelled=rows)
    for number in range(3):
        alone = fitted(x[number], y[number], 5, unlabelled=np.delete(rows[number], [7] * (number == 1), axis=0))
        np.testing.assert_allclose(together.center[number], alone.center, rtol=1e-9, atol=1e-9)


def test_few_rows_of_a_class_far_from_the_others_are_not_far() -> None:
    """Nearly all rows are of one narrow class; that of the others is where their examples are."""
    random = np.random.default_rng(0)
    place = np.array([[0.0, 0.0], [100.0, 0.0]])
    y, u = np.array([0, 0, 1, 1]), np.repeat([0, 1], [57, 3])
    x, rows = place[y] + random.normal(size=(4, 2)), place[u] + random.normal(size=(60, 2))
    clusters = fitted(x, y, 2, unlabelled=rows).evidence.clusters
    np.testing.assert_allclose(clusters.mean[1], rows[57:].mean(axis=0), atol=0.1)


@pytest.mark.parametrize("shot", [0, 1, 3])
@pytest.mark.parametrize("refine", [False, True])
def test_names_in_another_unit_are_scaled_to_the_rows(shot: int, refine: bool) -> None:
    x, y, rows, names, test, test_y = clouds(shot)
    expected = accuracy(fitted(x, y, 5, names=names, unlabelled=rows, refine=refine), test, test_y)
    for factor in (1e3, 1e4, 1e12):
        sphere = fitted(x, y, 5, names=factor * names, unlabelled=rows, refine=refine)
        assert accuracy(sphere, test, test_y) >= expected - 0.02
        assert np.abs(sphere.center).max() < 20
