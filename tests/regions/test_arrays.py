"""The same lines on every array library, on batches, and with padding."""

from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.regions import REGIONS, Region
from hyperproto.regions.arrays import unit

WAY = 4
LABELS = np.array(
    [
        [0, 0, 1, 1, 2, 2, 3, 3, 0, 1],
        [0, 1, 2, 3, 3, 3, 3, 3, 3, 3],  # unequal counts
        [0, 1, 2, 3, -1, -1, -1, -1, -1, -1],  # one shot
        [1, 1, 1, 1, 1, -1, -1, 1, 1, 1],  # one class only
        [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1],  # nothing at all
    ]
)


def episodes(rng: np.random.Generator, dim: int) -> Any:
    scale = np.exp(rng.normal(size=dim))  # not round, so that there is something to whiten
    support = scale * rng.normal(size=(*LABELS.shape, dim)) + 2 * rng.normal(size=(WAY, dim))[LABELS]
    return support, LABELS, scale * rng.normal(size=(len(LABELS), 6, dim))


def results(region: Any, q: Any) -> Any:
    return [region.measure(q), region.distance(q), region.bias_radius, region.extent_radius, region.inside(q)]


@pytest.mark.parametrize("dim", [3, 30])  # fewer and more dimensions than examples
def test_a_batch_is_a_loop(fit: Callable[..., Region], rng: np.random.Generator, dim: int) -> None:
    x, y, q = episodes(rng, dim)
    together = results(fit(x, y, WAY), q)
    for i in range(len(x)):
        for batched, alone in zip(together, results(fit(x[i], y[i], WAY), q[i]), strict=True):
            np.testing.assert_allclose(batched[i], alone, rtol=1e-9, atol=1e-9)


def test_leading_axes_of_any_number(fit: Callable[..., Region], rng: np.random.Generator) -> None:
    x, y, q = episodes(rng, 6)
    deep = results(fit(x[None, :, None], y[None, :, None], WAY), q[None, :, None])
    for flat, nested in zip(results(fit(x, y, WAY), q), deep, strict=True):
        np.testing.assert_allclose(nested[0, :, 0], flat, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dim", [3, 30])
def test_padding_changes_nothing_whatever_it_holds(
    fit: Callable[..., Region], rng: np.random.Generator, dim: int
) -> None:
    x, y, q = (part[0] for part in episodes(rng, dim))
    padded_x = np.concatenate([x[:5], np.full((3, dim), np.nan), x[5:], np.full((30, dim), 1e30)])
    padded_y = np.concatenate([y[:5], np.full(3, -1), y[5:], np.full(30, -7)])
    for plain, padded in zip(results(fit(x, y, WAY), q), results(fit(padded_x, padded_y, WAY), q), strict=True):
        np.testing.assert_allclose(padded, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dim", [3, 30])
def test_torch_is_numpy(fit: Callable[..., Region], rng: np.random.Generator, dim: int) -> None:
    torch = pytest.importorskip("torch")
    x, y, q = episodes(rng, dim)
    x, q = x.astype(np.float32), q.astype(np.float32)
    ours = results(fit(x, y, WAY), q)
    theirs = results(fit(torch.tensor(x), torch.tensor(y), WAY), torch.tensor(q))
    for a, b in zip(ours[:4], theirs[:4], strict=True):
        assert a.dtype == np.float32
        assert b.dtype == torch.float32
        assert np.max(np.abs(a - b.numpy()) / (1 + np.abs(a))) < 1e-5


@pytest.mark.parametrize("dim", [3, 30])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_but_the_array_api_standard(
    fit: Callable[..., Region], rng: np.random.Generator, dim: int, dtype: Any
) -> None:
    x, y, q = episodes(rng, dim)
    x, q = x.astype(dtype), q.astype(dtype)
    strict = [array_api_strict.asarray(part) for part in (x, y, q)]
    for a, b in zip(results(fit(x, y, WAY), q), results(fit(*strict[:2], WAY), strict[2]), strict=True):
        assert isinstance(b, type(strict[0]))
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_of_the_input_is_kept(fit: Callable[..., Region], rng: np.random.Generator, dtype: Any) -> None:
    x, y, q = episodes(rng, 6)
    found = results(fit(x.astype(dtype), y.astype(np.int32), WAY), q.astype(dtype))
    assert {array.dtype.name for array in found[:4]} == {dtype}
    assert found[4].dtype == np.bool_


@settings(deadline=None, max_examples=40)
@given(st.permutations(range(WAY)), st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_classes_have_no_order(order: Any, seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(WAY), rng.integers(0, WAY, 6)])
    x, q = rng.normal(size=(10, dim)), rng.normal(size=(3, dim))
    order = np.array(order)
    for region in REGIONS.values():
        for mode in region.modes:
            before = results(region.fit(x, y, WAY, mode=mode), q)
            after = results(region.fit(x, order[y], WAY, mode=mode), q)
            for a, b in zip(before[:4], after[:4], strict=True):
                np.testing.assert_allclose(b[..., order], a, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("array", [np.asarray, array_api_strict.asarray])
def test_unit_of_rows_of_any_size(array: Callable[[Any], Any]) -> None:
    rows = np.array([[3e200, -4e200], [3e-250, 4e-250], [0, 0], [3, 4]])
    found = np.asarray(unit(array(rows)))
    np.testing.assert_allclose(found, [[0.6, -0.8], [0.6, 0.8], [0.0, 0.0], [0.6, 0.8]])
    assert np.abs(np.asarray(unit(array(rows * 1e-17), 1e-12))[2:]).max() < 1e-12  # too short: left as they are
