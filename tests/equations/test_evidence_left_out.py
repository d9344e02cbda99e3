"""Leave-one-out with unlabelled rows: by loops, against fits from scratch, and its folds and samples."""

from typing import Any

import numpy as np
import pytest

from hyperproto.estimators.temperature import fit_temperature
from hyperproto.regions import ClosedForm, Evidence, Sphere, evidence_left_out
from hyperproto.regions.bayes import left_out_radii
from hyperproto.regions.evidence_left_out import sampled_rows
from hyperproto.regions.left_out import LeftOut, left_out_measures, measures_by_refitting
from hyperproto.regions.names import posterior_centers
from hyperproto.regions.statistics import FlatStatistics, moments_of
from tests.equations.test_evidence_equation import five, naive_separation, unit


def fitted(case: Any) -> tuple[LeftOut, Any, ClosedForm]:
    x, y, way, names, named, rows = case
    stats = FlatStatistics.of(x, y, np.ones(len(y)), moments_of(x, y, None, way))
    form = ClosedForm(Sphere, "bayes", {"evidence": Evidence(names, named, rows)})
    return LeftOut(stats), form.fit(stats), form


def naive_centers(sphere: Any, x: Any, y: Any, names: Any, rows: Any) -> Any:
    """Whitened centres by EM from these examples; k, g, v, d, the radii and A are those of `sphere`."""
    way, found = len(sphere.center), sphere.evidence
    k, v, d = float(sphere.ratio), float(found.scatter), float(found.clusters.dim)
    a = sphere.whiten(np.eye(x.shape[1]))
    count = np.bincount(y, minlength=way).astype(float)
    mean = np.array([x[y == n].mean(0) if count[n] else np.zeros(x.shape[1]) for n in range(way)])
    weight, cluster = np.zeros(way), np.zeros_like(mean)

    def centers() -> Any:
        total = count + weight
        both = (count[:, None] * mean + weight[:, None] * cluster) / np.maximum(total, 1e-12)[:, None]
        return posterior_centers(both @ a, total, names @ a, sphere.ratio, found.name_weight)[0]

    for number in range(8):
        c = centers()
        s, s0 = 1 + 1 / ((count + weight).mean() + k), 1 + 1 / float(found.common_ratio)
        share = np.zeros((len(rows), way))
        for u, row in enumerate(rows @ a):
            log = [
                -d / 2 * ((((row - c[n]) ** 2).sum() - sphere.bias_radius[n]) / (v * s) + np.log(s)) for n in range(way)
            ]
            log.append(-d / 2 * (((row - c.mean(0)) ** 2).sum() / (v * s0) + np.log(s0)))
            power = np.exp(np.array(log) - max(log))
            share[u] = power[:-1] / power.sum()
        size = share.sum(0)
        weight = 8 * size / (size + size.mean() + 8)
        cluster = share.T @ rows / np.maximum(size, 1e-12)[:, None]
        if number == 7:
            apart = naive_separation(rows @ a, share, cluster @ a)
            weight = weight * apart / (apart + 8)
    return centers()


@pytest.mark.parametrize("has_names", [True, False])
def test_it_is_em_without_the_fold_and_whitening_without_the_example(rng: np.random.Generator, has_names: bool) -> None:
    x, y, way, names, named, rows = five(rng, (6, 2, 5, 1, 8))
    out, sphere, form = fitted((x, y, way, names if has_names else None, named if has_names else None, rows))
    index = np.flatnonzero(y != 3)
    found = left_out_measures(out, sphere, form, index)
    folds = sphere.centers_left_out(out, form)
    names = names if has_names else np.zeros_like(names)
    for i in (0, 7, 12):
        keep = folds.fold != folds.fold[i]
        center = naive_centers(sphere, x[keep], y[keep], names, rows)
        others = np.arange(len(y)) != i
        mean = np.array([x[others & (y == n)].mean(0) for n in range(way)])
        residual = x[others] - mean[y[others]]
        values, vectors = np.linalg.eigh(np.eye(20) + float(sphere.gain) * residual.T @ residual)
        whiten = vectors @ np.diag(values**-0.5) @ vectors.T
        place = center @ np.linalg.inv(sphere.whiten(np.eye(20)))
        expected = (((x[i] - place) @ whiten) ** 2).sum(1) - left_out_radii(out, np.array([i]), sphere.bias_radius)[0]
        np.testing.assert_allclose(found[index == i][0], expected, rtol=1e-6, atol=1e-8)


def test_it_agrees_with_fits_from_scratch() -> None:
    """Gaps to the nearest rival within a quarter of their spread, and the temperature within 15 %."""
    rng = np.random.default_rng(1)
    way, place = 12, rng.normal(size=(12, 16))
    y = np.repeat(np.arange(way), 4)
    x = unit(place[y] + 0.9 * rng.normal(size=(len(y), 16)))
    rows = unit(place[rng.integers(0, way, 400)] + 0.9 * rng.normal(size=(400, 16)))
    out, sphere, form = fitted((x, y, way, None, None, rows))
    index = np.arange(len(y))

    def gaps(measures: Any) -> Any:
        gap = measures - measures[index, y][:, None]
        gap[index, y] = np.inf
        return gap.min(axis=1)

    found, exact = left_out_measures(out, sphere, form, index), measures_by_refitting(out, index, form)
    assert (gaps(found) - gaps(exact)).std() < 0.25 * gaps(exact).std()
    assert abs((gaps(found) - gaps(exact)).mean()) < 0.2 * gaps(exact).std()
    ours, theirs = (fit_temperature(each, y, np.ones(len(y)), 0.98) for each in (found, exact))
    assert ours == pytest.approx(theirs, rel=0.15)
    resubstituted = gaps(np.asarray(sphere.measure(x)))
    assert (resubstituted - gaps(exact)).mean() > 0.3 * gaps(exact).std()  # what leave-one-out is for


def test_a_part_of_the_examples_gets_the_same_measures(rng: np.random.Generator) -> None:
    out, sphere, form = fitted(five(rng, (6, 2, 5, 1, 8)))
    index = np.flatnonzero(out.has_siblings)
    whole = left_out_measures(out, sphere, form, index)
    np.testing.assert_allclose(left_out_measures(out, sphere, form, index[3:9]), whole[3:9], rtol=1e-12)


def test_the_order_of_examples_rows_and_classes_does_not_matter(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_left_out, "ROWS_OF_CLASS", 8)
    x, y, way, names, named, rows = five(rng, (6, 2, 5, 3, 8))
    out, sphere, form = fitted((x, y, way, names, named, rows))
    expected = left_out_measures(out, sphere, form, np.arange(len(y)))
    order, classes = rng.permutation(len(y)), rng.permutation(way)
    moved = x[order], np.argsort(classes)[y[order]], way, names[classes], named[classes], rng.permutation(rows)
    out, sphere, form = fitted(moved)
    found = left_out_measures(out, sphere, form, np.arange(len(y)))
    np.testing.assert_allclose(found, expected[order][:, classes], rtol=1e-9)


def test_of_many_rows_evenly_spaced_ones_are_read(rng: np.random.Generator) -> None:
    rows = rng.normal(size=(100, 3))
    found = sampled_rows(rows, 24)
    assert len(found) == 25
    mixed = sampled_rows(rng.permutation(rows), 24)
    assert {*map(tuple, found)} == {*map(tuple, mixed)}
    assert sampled_rows(rows, 60) is rows


def test_identical_rows_take_no_part(rng: np.random.Generator) -> None:
    x, y, way, names, named, _ = five(rng, (6, 2, 5, 3, 8))
    out, sphere, form = fitted((x, y, way, names, named, np.ones((5, 20))))
    assert sphere.centers_left_out(out, form) is None
    plain, same = fitted((x, y, way, names, named, None))[1:]
    index = np.arange(len(y))
    expected = left_out_measures(out, plain, same, index)
    np.testing.assert_allclose(left_out_measures(out, sphere, form, index), expected, rtol=1e-6)
