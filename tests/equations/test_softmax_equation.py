"""The refined head: its loss stated with loops, its optimum, the reference, and leave-one-out."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hyperproto.errors import ConfigError
from hyperproto.heads import RefinedForm, softmax
from hyperproto.regions import ClassStatistics, ClosedForm, Evidence, Sphere, left_out
from hyperproto.regions.evidence import predictive_scale
from hyperproto.regions.left_out import LeftOut, left_out_measures
from hyperproto.regions.statistics import FlatStatistics, moments_of
from tests.equations.references import reference
from tests.equations.test_evidence_equation import cases, five, unit


def fitted(case: Any, refine: bool = False) -> Any:
    x, y, way, names, named, rows = case
    form = (RefinedForm if refine else ClosedForm)(Sphere, "bayes", {"evidence": Evidence(names, named, rows)})
    return form.fit(ClassStatistics.of(x, y, way))


def scale_of(sphere: Any, y: Any, way: int) -> float:
    """2 / T = 20 / (v s)."""
    count = sphere.evidence.posterior_count(np.bincount(y, minlength=way).astype(float))
    return 20 / (float(sphere.evidence.scatter) * float(predictive_scale(count, sphere.ratio)))


def head_of(sphere: Any, scale: float, middle: Any) -> Any:
    """W (D, N) and b (N,) for whitened rows about their middle."""
    w = scale * sphere.center.T
    return w, scale / 2 * (sphere.bias_radius - (sphere.center**2).sum(1)) + middle @ w


def naive_softmax(scores: Any) -> Any:
    power = [math.exp(score - max(scores)) for score in scores]
    return np.array(power) / sum(power)


def naive_loss(w: Any, b: Any, rows: Any, target: Any, start: Any, hold: float) -> Any:
    way = target.shape[1]
    mass = [sum(target[:, n]) for n in range(way)]
    loss = hold / 2 * (((w - start[0]) ** 2).sum() + ((b - start[1]) ** 2).sum())
    for row, wanted in zip(rows, target, strict=True):
        scores = [row @ w[:, n] + b[n] + math.log(max(mass[n], 1e-6) / np.mean(mass)) for n in range(way)]
        loss -= sum(wanted[n] * math.log(naive_softmax(scores)[n]) for n in range(way) if wanted[n] > 0)
    return loss


def naive_shares(sphere: Any, y: Any, way: int, u: Any) -> Any:
    """Responsibilities under the final centres, without that of the background."""
    found = sphere.evidence
    s = float(predictive_scale(found.posterior_count(np.bincount(y, minlength=way).astype(float)), sphere.ratio))
    d, v, s0 = float(found.clusters.dim), float(found.scatter), 1 + 1 / float(found.common_ratio)
    shares = []
    for row in u:
        away = [((row - c) ** 2).sum() - eps for c, eps in zip(sphere.center, sphere.bias_radius, strict=True)]
        log = [-d / 2 * (each / (v * s) + math.log(s)) for each in away]
        log.append(-d / 2 * (((row - sphere.center.mean(0)) ** 2).sum() / (v * s0) + math.log(s0)))
        shares.append(naive_softmax(log)[:-1])
    return np.array(shares)


@pytest.mark.parametrize("shots", [(1, 2, 3, 2, 4), (0, 1, 4, 2, 1), (1, 1, 1, 1, 1)])
@pytest.mark.parametrize("has_rows", [True, False])
def test_it_is_the_optimum_of_the_loss(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, shots: Any, has_rows: bool
) -> None:
    """With steps enough; twenty, as the reference takes, stop on the way."""
    monkeypatch.setattr(softmax, "STEPS", 2000)
    x, y, way, names, named, rows = five(rng, shots, dim=6)
    rows = rows[:25] if has_rows else None
    plain, sphere = (fitted((x, y, way, names, named, rows), refine=refine) for refine in (False, True))
    f, u = sphere.whiten(x), sphere.whiten(rows) if has_rows else np.empty((0, 6))
    scale, middle = scale_of(plain, y, way), (u if has_rows else f).mean(0)
    v, count = float(plain.evidence.scatter), np.bincount(y, minlength=way).astype(float)
    s = 20 / (v * scale)
    hold = v * s * s * float(plain.ratio) / 20
    start: Any = head_of(plain, scale, middle)
    target = np.eye(way)[y]
    every = f - middle
    if has_rows:
        with monkeypatch.context() as patch:
            patch.setattr(softmax, "_targets", lambda *_: np.zeros((25, way)))  # the first stage, once more
            first = head_of(fitted((x, y, way, names, named, rows), refine=True), scale, middle)
        shares = naive_shares(plain, y, way, u)
        total = plain.evidence.posterior_count(count)
        label_weight = count.mean() / (total + float(plain.ratio)).mean()
        sharp = float(plain.evidence.clusters.dim) / 20
        own = [
            share.sum() * naive_softmax(sharp * (row @ first[0] + first[1]))
            for row, share in zip(u - middle, shares, strict=True)
        ]
        soft = label_weight * np.array(own) + (1 - label_weight) * shares
        size = soft.sum(0)
        target, every = (
            np.concatenate([target, soft * 50 / (size + size.mean() + 50)]),
            np.concatenate([every, u - middle]),
        )
    w, b = head_of(sphere, scale, middle)
    found = naive_loss(w, b, every, target, start, hold)
    assert found < naive_loss(start[0], start[1], every, target, start, hold)
    step = 1e-5
    for _ in range(20):  # no direction leads down
        dw, db = rng.normal(size=w.shape), rng.normal(size=b.shape)
        up = naive_loss(w + step * dw, b + step * db, every, target, start, hold)
        down = naive_loss(w - step * dw, b - step * db, every, target, start, hold)
        assert abs(up - down) / (2 * step) < 2e-3 * max(1.0, hold)


@pytest.mark.data
def test_it_is_the_shared_reference_in_float64() -> None:
    """The refinement of our closed form: `known_regions.py` is that of version 0.2."""
    shared = reference("refined_regions", ("np.float32", "np.float64"))

    @settings(deadline=None, max_examples=40)
    @given(cases())
    def check(case: Any) -> None:
        x, y, way, names, named, rows = case
        if names is None or not named.all():
            return
        plain, sphere = fitted(case), fitted(case, refine=True)
        differ = rows is not None and len(rows) > 1 and (rows != rows[0]).any()
        given: dict[str, Any] = {"whiten": plain.whiten(np.eye(x.shape[1]))}
        if differ:
            u, clusters = plain.whiten(rows), plain.evidence.clusters
            given |= {"rows": u, "share": naive_shares(plain, y, way, u)}
            given |= {"worth": clusters.weight, "dim": float(clusters.dim)}
        parts = plain.center, plain.bias_radius, float(plain.evidence.scatter), float(plain.ratio)
        weights, bias = shared.refine(plain.whiten(x), y, np.bincount(y, minlength=way), *parts, **given)
        form = sphere.linear()
        moved = float(sphere.evidence.scatter) > 0 and (len(y) or differ)  # else there is nothing to refine by
        scale = scale_of(sphere, y, way) / 2 if moved else 1.0
        np.testing.assert_allclose(scale * form.weights, weights, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(scale * form.bias, bias, rtol=1e-6, atol=1e-6)

    check()


def test_float32_rows_give_the_same_probabilities(rng: np.random.Generator) -> None:
    x, y, way, names, named, rows = five(rng, (1, 2, 5, 3, 8, 2, 4, 6), dim=40)
    q = unit(rows + 0.3 * rng.normal(size=rows.shape))
    exact = fitted((x, y, way, names, named, rows), refine=True)
    single = fitted((x, y, way, names, named, rows.astype(np.float32)), refine=True)
    scale = scale_of(exact, y, way) / 2
    one, other = (np.array([naive_softmax(-scale * row) for row in sphere.measure(q)]) for sphere in (exact, single))
    assert np.abs(one - other).max() < 1e-3
    assert (one.argmax(1) == other.argmax(1)).all()


def test_it_learns_from_errors_of_the_closed_form(rng: np.random.Generator) -> None:
    """Two classes whose means say little, as one is spread in two clumps about the other."""
    place = np.zeros((3, 8))
    place[0, 0], place[1, 0], place[2, :2] = 1.0, -0.2, (-0.6, 0.6)
    y = np.repeat([0, 1, 2], 40)
    x = place[y] + 0.25 * rng.normal(size=(120, 8))
    test_y = np.repeat([0, 1, 2], 400)
    test = place[test_y] + 0.25 * rng.normal(size=(1200, 8))
    x[y == 0, 0] += 2.0 * (rng.random(40) < 0.3)  # a long tail moves the mean away
    plain, sharper = (fitted((x, y, 3, None, None, None), refine=refine) for refine in (False, True))
    right = [(sphere.measure(test).argmin(1) == test_y).mean() for sphere in (plain, sharper)]
    assert right[1] >= right[0]
    assert np.abs(sharper.center - plain.center).max() > 0.01


def test_where_nothing_is_known_of_scatter_the_closed_form_stands() -> None:
    x, y = np.array([[1.0, 0.0]]), np.array([0])
    plain, same = (fitted((x, y, 1, None, None, None), refine=refine) for refine in (False, True))
    assert np.array_equal(plain.center, same.center)
    names = np.eye(2)
    alone, closed = (fitted((x[:0], y[:0], 2, names, None, None), refine=refine) for refine in (True, False))
    assert np.array_equal(alone.center, closed.center)


def test_leave_one_out_of_a_refined_head_is_that_of_the_closed_form(rng: np.random.Generator) -> None:
    case = five(rng, (6, 2, 5, 1, 8))
    stats = FlatStatistics.of(case[0], case[1], np.ones(22), moments_of(case[0], case[1], None, 5))
    index = np.flatnonzero(case[1] != 3)
    form, closed = (kind(Sphere, "bayes", {"evidence": Evidence(*case[3:])}) for kind in (RefinedForm, ClosedForm))
    refined: Any = replace(form.fit(stats), sharpness=3.0)  # type: ignore[type-var]
    expected = left_out_measures(LeftOut(stats), closed.fit(stats), closed, index)
    np.testing.assert_allclose(left_out_measures(LeftOut(stats), refined, form, index), 3 * expected, rtol=1e-9)


@pytest.mark.parametrize("kind", [RefinedForm, ClosedForm])
def test_heads_are_fitted_without_a_fold(rng: np.random.Generator, kind: Any) -> None:
    x, y, way, names, named, rows = five(rng, (6, 2, 5, 1, 8))
    stats = FlatStatistics.of(x, y, np.ones(len(y)), moments_of(x, y, None, way))
    form = kind(Sphere, "bayes", {"evidence": Evidence(names, named, rows)})
    folds = left_out.Folds.fit(stats, form)
    found = folds.measures(x, np.arange(len(y)))
    for n in range(way):
        each = np.bincount(folds.fold[y == n], minlength=5)
        assert each.max() - each.min() <= 1
    for i in (0, 7, 12):
        keep = folds.fold != folds.fold[i]
        alone = fitted((x[keep], y[keep], way, names, named, rows), refine=kind is RefinedForm)
        expected = alone.measure(x[i : i + 1])[0]
        np.testing.assert_allclose(found[i] - found[i].mean(), expected - expected.mean(), rtol=1e-6, atol=1e-6)
    stored = replace(form.fit(stats), folds=folds)
    np.testing.assert_allclose(left_out_measures(LeftOut(stats), stored, form, np.arange(3)), found[:3], rtol=1e-12)


def test_what_it_cannot_do_is_refused(rng: np.random.Generator) -> None:
    x, y, way, *_ = five(rng)
    with pytest.raises(ConfigError, match="refine takes one support set of NumPy arrays; fit episodes one by one"):
        fitted((x[None], y[None], way, None, None, None), refine=True)
    with pytest.raises(ConfigError, match="refine is for the fit mode 'bayes' of spheres; 'unbiased' cannot use it"):
        RefinedForm(Sphere, "unbiased")
    with pytest.raises(ConfigError, match="unlabelled rows and refine go with the squared measure; use squared=True"):
        RefinedForm(Sphere, "bayes", {"squared": False})
