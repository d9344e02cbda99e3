"""Names and unlabelled rows in the closed form, stated once more with loops, and compared with the library's."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.errors import ConfigError, DataError
from hyperproto.regions import ClosedForm, Evidence, Sphere, bayes, evidence
from hyperproto.regions import names as class_names
from hyperproto.regions.bayes import fit_bayes
from hyperproto.regions.evidence import fit_with_evidence
from hyperproto.regions.left_out import LeftOut, left_out_measures
from hyperproto.regions.statistics import ClassStatistics, FlatStatistics, moments_of
from tests.equations.test_bayes_equation import apart, naive_bayes


def naive_prior(z: Any, count: Any, p: Any, k: float) -> Any:
    """w, m and g of z_n ~ m + g p_n, class by class, and log of the factor of k."""
    way = len(z)
    w = [count[n] / (count[n] + k) for n in range(way)]
    total = sum(w) or 1.0
    middle = sum(w[n] * z[n] for n in range(way)) / total
    origin = sum(w[n] * p[n] for n in range(way)) / total
    if sum(sum((p[n] - origin) ** 2) for n in range(way)) <= 1e-24 * sum(sum(each**2) for each in p):
        return w, middle, 0.0, 0.0
    product = sum(w[n] * sum((z[n] - middle) * (p[n] - origin)) for n in range(way))
    square = sum(w[n] * sum((p[n] - origin) ** 2) for n in range(way))
    all_of_it = sum(w[n] * sum((z[n] - middle) ** 2) for n in range(way))
    estimate = precision = 0.0
    if sum(each > 0 for each in count) > 1 and square > 0 and all_of_it > 0:
        estimate = product / square
        left = max(all_of_it - max(estimate, 0) * product, 1e-6 * all_of_it)
        residual = left / max(1, sum(count[n] > 0 for n in range(way)) - 1)
        precision = min(100, z.shape[1]) * square / residual
    inside = max(0.0, (precision * estimate + 0.4 / 0.2**2) / (precision + 1 / 0.2**2))
    logs = [precision * g * (estimate - g / 2) for g in (0.1, 0.2, 0.4, 0.8)]
    odds = 0.95 / 0.05 * sum(math.exp(max(-700, min(700, each))) for each in logs) / 4
    odds = min(max(odds, math.exp(-50)), math.exp(50))
    meaningful = odds / (1 + odds)
    g = meaningful * inside
    return w, middle - g * origin, g, meaningful * math.log(min(4, max(0.25, 0.4 / max(inside, 1e-9))))


def naive_centers(z: Any, count: Any, p: Any, k: float, g: Any = None) -> Any:
    w, m, found, _ = naive_prior(z, count, p, k)
    if g is None:
        g = found
    elif any(w):
        m = sum(w[n] * (z[n] - g * p[n]) for n in range(len(z))) / sum(w)
    else:
        m = 0 * m
    return np.array([m + g * p[n] + w[n] * (z[n] - m - g * p[n]) for n in range(len(z))]), g


def naive_ratio(z: Any, count: Any, p: Any, v: float) -> Any:
    """k about m + g p_n, of the classes that have examples."""
    there = [n for n in range(len(z)) if count[n] > 0]
    measured = 4.0
    if v > 0:
        for _ in range(5):
            w, m, g, _ = naive_prior(z, count, p, measured)
            spread = sum(w[n] * sum((z[n] - m - g * p[n]) ** 2) for n in there)
            noise = v * sum(w[n] / count[n] * (1 - w[n] / sum(w)) for n in there)
            between = (spread - noise) / (sum(w) - sum(a * a for a in w) / sum(w))
            measured = min(max(v / max(between, 1e-12), 0.25), 16.0)
    expected = math.log(4) + naive_prior(z, count, p, measured)[3]
    if not v > 0:
        return math.exp(expected)
    return math.exp(((len(there) - 1) * math.log(measured) + 4 * expected) / (len(there) - 1 + 4))


def naive_separation(u: Any, share: Any, b: Any) -> Any:
    """Squared distance to the nearest other cluster over the variance of the rows of both along the line."""
    size, found = share.sum(0), np.zeros(len(b))
    for n in range(len(b)):
        others = [m for m in range(len(b)) if m != n and size[m] > 1e-12]
        if size[n] <= 1e-12 or not others:
            continue
        m = min(others, key=lambda m: sum((b[n] - b[m]) ** 2))
        length = np.linalg.norm(b[n] - b[m])
        line = (b[n] - b[m]) / (length or 1.0)
        variance = sum(sum(share[i, c] * ((u[i] - b[c]) @ line) ** 2 for i in range(len(u))) / size[c] for c in (n, m))
        found[n] = sum((b[n] - b[m]) ** 2) / max(variance, 1e-12)
    return found


def naive_fit(x: Any, y: Any, way: int, names: Any, named: Any, rows: Any) -> Any:
    """Return centres, radii, A, v, k, g and what clusters are worth."""
    dim = x.shape[1]
    count = [int((y == n).sum()) for n in range(way)]
    there = [n for n in range(way) if count[n]]
    whiten, v, loose, eps = np.eye(dim), 0.0, 4.0, np.zeros(way)
    if there:
        _, found, whiten, v, loose, _ = naive_bayes(x, np.searchsorted(there, y))
        eps[there] = found
    z = np.array([whiten @ x[y == n].mean(0) if count[n] else np.zeros(dim) for n in range(way)])
    p = np.zeros((way, dim))
    if names is not None and any(named):
        middle = 0 if all(named) else np.mean([names[n] for n in range(way) if named[n]], axis=0)
        p = np.array([whiten @ (names[n] - middle) if named[n] else np.zeros(dim) for n in range(way)])
    k = loose if names is None else naive_ratio(z, count, p, v)
    centers, g = naive_centers(z, count, p, k)
    worth: list[Any] = [0.0] * way
    if rows is None or len(rows) < 2 or (rows == rows[0]).all():
        return centers, eps, whiten, v, k, g, worth
    u = np.array([whiten @ row for row in rows])
    gram = np.cov(u.T, bias=True).reshape(dim, dim)
    d = np.trace(gram) ** 2 / np.trace(gram @ gram)
    v_rows = v or np.trace(gram) / (1 + 1 / k)
    if not there:
        centers = centers - centers.mean(0) + u.mean(0)
    for number in range(8):
        s, s0 = 1 + 1 / (np.mean([count[n] + worth[n] for n in range(way)]) + k), 1 + 1 / loose
        size, total, share = [0.0] * way, np.zeros((way, dim)), np.zeros((len(u), way))
        for i, row in enumerate(u):
            log = [-d / 2 * ((sum((row - centers[n]) ** 2) - eps[n]) / (v_rows * s) + math.log(s)) for n in range(way)]
            log.append(-d / 2 * (sum((row - centers.mean(0)) ** 2) / (v_rows * s0) + math.log(s0)))
            odds = [math.exp(each - max(log)) for each in log]
            for n in range(way):
                size[n] += odds[n] / sum(odds)
                total[n] += odds[n] / sum(odds) * row
                share[i, n] = odds[n] / sum(odds)
        worth = [8 * size[n] / (size[n] + np.mean(size) + 8) for n in range(way)]
        if number == 7 and way > 1:
            apart = naive_separation(u, share, total / np.maximum(size, 1e-12)[:, None])
            worth = [worth[n] * apart[n] / (apart[n] + 8) for n in range(way)]
        both = [
            (count[n] * z[n] + worth[n] * total[n] / max(size[n], 1e-12)) / max(count[n] + worth[n], 1e-12)
            for n in range(way)
        ]
        centers, g = naive_centers(np.array(both), [count[n] + worth[n] for n in range(way)], p, k, g)
    return centers, eps, whiten, v, k, g, worth


@st.composite
def cases(draw: st.DrawFn) -> Any:
    """Examples of unit length, unequal counts, empty classes, some names, rows from the classes and from elsewhere."""
    way, dim = draw(st.integers(1, 5)), draw(st.integers(2, 16))
    shots = draw(st.lists(st.integers(0, 5), min_size=way, max_size=way))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    place = rng.normal(size=(way + 1, dim))
    noise = draw(st.sampled_from([0.3, 1.0])) * np.exp(draw(st.sampled_from([0.0, 1.0])) * rng.normal(size=dim))
    y = rng.permutation(np.repeat(np.arange(way), shots))
    x = unit(place[y] + noise * rng.normal(size=(len(y), dim)))
    names = named = rows = None
    if draw(st.booleans()):
        names = unit(place[:way] + draw(st.sampled_from([0.3, 3.0])) * rng.normal(size=(way, dim)))
        named = np.array(draw(st.lists(st.booleans(), min_size=way, max_size=way)))
    if size := draw(st.sampled_from([0, 0, 1, 12, 30])):
        rows = unit(place[rng.integers(0, way + 1, size)] + noise * rng.normal(size=(size, dim)))
        rows = rows if draw(st.integers(0, 5)) else np.tile(rows[:1], (size, 1))
    return x, y, way, names, named, rows


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def fitted(case: Any) -> Any:
    x, y, way, names, named, rows = case
    return fit_with_evidence(ClassStatistics.of(x, y, way), evidence=Evidence(names, named, rows))


def spread_of(names: Any) -> float:
    """How far names differ; where they do not, g means nothing."""
    return 0.0 if names is None else np.abs(names - names[:1]).max()


def assert_is(case: Any, expected: Any, tolerance: float = 1e-9) -> None:
    fit, found = fitted(case)
    centers, eps, whiten, v, k, g, worth = expected
    assert apart(fit.whiten(np.eye(case[0].shape[1])), whiten) < tolerance
    assert apart(fit.ratio, k) < tolerance
    assert apart(fit.scatter, v) < tolerance
    said = spread_of(found.names)
    assert apart(said * found.name_weight, said * g) < tolerance
    assert apart(fit.bias_radius, eps) < tolerance
    if found.clusters is not None:
        assert apart(found.clusters.weight, np.array(worth)) < tolerance
    assert apart(fit.center, centers) < tolerance


@settings(deadline=None, max_examples=100)
@given(cases())
def test_it_is_the_formula(case: Any) -> None:
    assert_is(case, naive_fit(*case))


@settings(deadline=None, max_examples=60)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_classes_and_rows_is_nothing(case: Any, random: Any) -> None:
    x, y, way, names, named, rows = case
    order, places = list(range(way)), list(range(len(y)))
    random.shuffle(order)
    random.shuffle(places)
    turned = np.argsort(order)  # class n is now turned[n]
    again = (
        x[places],
        turned[y[places]] if len(y) else y,
        way,
        None if names is None else names[order],
        None if named is None else named[order],
        None if rows is None else rows[::-1],
    )
    (one, known_one), (other, known_other) = fitted(case), fitted(again)
    assert apart(other.center, one.center[order]) < 1e-7
    assert apart(other.ratio, one.ratio) < 1e-9
    assert apart(known_other.name_weight, known_one.name_weight) < 1e-7


def five(rng: np.random.Generator, shots: Any = (1, 2, 5, 3, 8), dim: int = 20) -> Any:
    """Classes, names that say something, and rows of all of them."""
    place = rng.normal(size=(len(shots), dim))
    y = np.repeat(np.arange(len(shots)), shots)
    x = unit(place[y] + 0.8 * rng.normal(size=(len(y), dim)) * np.exp(rng.normal(size=dim)))
    rows = unit(place[rng.integers(0, len(shots), 80)] + 0.8 * rng.normal(size=(80, dim)))
    return x, y, len(shots), unit(place + 0.5 * rng.normal(size=place.shape)), np.ones(len(shots), bool), rows


@pytest.mark.parametrize("shots", [(1, 1, 1), (2, 2, 2), (5, 5, 5), (1, 7, 3, 2)])
def test_without_names_and_rows_it_is_bayes_to_the_last_bit(rng: np.random.Generator, shots: Any) -> None:
    x, y, way, *_ = five(rng, shots)
    plain = fit_bayes(ClassStatistics.of(x, y, way))
    fit, found = fit_with_evidence(ClassStatistics.of(x, y, way))
    for name in ("center", "bias_radius", "extent_radius", "scatter", "ratio", "gain"):
        assert np.array_equal(getattr(fit, name), getattr(plain, name)), name
    assert found.name_weight == 0
    assert found.clusters is None
    assert not Sphere.fit(x, y, way).evidence


def test_names_that_say_nothing_leave_bayes(rng: np.random.Generator) -> None:
    """All alike, none at all, or on the other side."""
    x, y, way, names, _, _ = five(rng)
    plain = fit_bayes(ClassStatistics.of(x, y, way))
    for same, named in ((np.tile(names[:1], (way, 1)), np.ones(way, bool)), (names, np.zeros(way, bool))):
        fit, _ = fitted((x, y, way, same, named, None))
        assert apart(fit.center, plain.center) < 1e-9
        assert apart(fit.ratio, plain.ratio) < 1e-9
    assert fitted((x, y, way, -names, None, None))[1].name_weight == 0  # never to the other side


def test_the_origin_and_the_scale_of_names_drop_out(rng: np.random.Generator) -> None:
    """Names as a body may lie elsewhere than texts do; but for the weak prior of g, whose unit is theirs."""
    x, y, way, names, named, rows = five(rng)
    plain = fitted((x, y, way, names, named, rows))
    moved = fitted((x, y, way, names + rng.normal(size=20), named, rows))
    assert apart(moved[0].center, plain[0].center) < 1e-7
    scaled = fitted((x, y, way, 3 * names, named, rows))
    assert apart(scaled[0].center, plain[0].center) < 0.05
    assert scaled[1].name_weight * 3 == pytest.approx(float(plain[1].name_weight), rel=0.1)


def test_a_class_without_examples_lies_where_its_name_says(rng: np.random.Generator) -> None:
    x, y, way, names, named, _ = five(rng, (0, 2, 5, 3, 8))
    fit, found = fitted((x, y, way, names, named, None))
    g, w = float(found.name_weight), np.bincount(y) / (np.bincount(y) + float(fit.ratio))
    z = np.array([x[y == n].mean(0) if n else np.zeros(20) for n in range(way)])
    m = w @ (z - g * names) / w.sum()
    assert apart(fit.center[0], fit.whiten(m + g * names[0])) < 1e-9
    named = np.array([False, True, True, True, True])
    fit, _ = fitted((x, y, way, names, named, None))
    common = np.bincount(y, minlength=way) / (np.bincount(y, minlength=way) + float(fit.ratio))
    assert apart(fit.center[0], fit.whiten(common @ z / common.sum())) < 0.2  # the common mean, but for the names


def test_no_examples_at_all_is_cosine_to_the_names(rng: np.random.Generator) -> None:
    names, q = unit(rng.normal(size=(6, 20))), unit(rng.normal(size=(50, 20)))
    x, y = np.empty((0, 20)), np.empty(0, int)
    sphere = Sphere.fit(x, y, 6, evidence=Evidence(names))
    assert (sphere.measure(q).argmin(1) == (q @ names.T).argmax(1)).all()
    assert sphere.evidence
    assert sphere.evidence.name_weight == pytest.approx(0.95 * 0.4)  # the prior mean
    rows = unit(np.repeat(names, 20, axis=0) + 0.2 * rng.normal(size=(120, 20)))
    learnt = Sphere.fit(x, y, 6, evidence=Evidence(names, unlabelled=rows))
    assert (learnt.measure(rows).argmin(1) == np.repeat(np.arange(6), 20)).mean() > 0.9


def test_a_large_ratio_leaves_the_names_alone(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, way, names, named, rows = five(rng)
    for name in ("LEAST_RATIO", "MOST_RATIO"):
        monkeypatch.setattr(bayes, name, 1e9)
        monkeypatch.setattr(class_names, name, 1e9)
    fit, found = fit_with_evidence(ClassStatistics.of(x, y, way), 1e9, evidence=Evidence(names))
    between = fit.center - fit.center.mean(0)
    assert apart(between, found.name_weight * fit.whiten(names - names.mean(0))) < 1e-6
    monkeypatch.undo()
    monkeypatch.setattr(evidence, "MOST_WEIGHT", 1e-9)
    without = fitted((x, y, way, names, named, None))[0]
    assert apart(fitted((x, y, way, names, named, rows))[0].center, without.center) < 1e-6


def test_a_thousand_times_more_rows_never_drown_the_labels(rng: np.random.Generator) -> None:
    x, y, way, names, named, rows = five(rng)
    weight = fitted((x, y, way, names, named, np.tile(rows, (1000, 1))))[1].clusters.weight
    assert (weight < 8).all()
    absent = five(rng, (3, 3, 3, 3, 3))
    lacking = fitted((*absent[:5], absent[5][:2]))[1].clusters
    assert lacking.weight.min() < 0.1 * 8  # what no row is of gains nothing


def test_float32_rows_give_the_same_to_their_precision(rng: np.random.Generator) -> None:
    case = five(rng)
    exact, known_exact = fitted(case)
    single, known_single = fitted((*case[:5], case[5].astype(np.float32)))
    assert single.center.dtype == np.float64
    assert apart(single.center, exact.center) < 1e-4
    assert apart(known_single.clusters.weight, known_exact.clusters.weight) < 1e-3


def test_blocks_change_nothing(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    case = five(rng)
    whole = fitted(case)[0].center
    monkeypatch.setattr(evidence, "BLOCK", 1)
    monkeypatch.setattr(evidence, "LEAST_ROWS", 7)
    sizes = []
    call = evidence.Responsibilities.__call__

    def noted(self: Any, rows: Any, length: Any) -> Any:
        sizes.append(len(rows))
        return call(self, rows, length)

    monkeypatch.setattr(evidence.Responsibilities, "__call__", noted)
    assert apart(fitted(case)[0].center, whole) < 1e-9
    assert max(sizes) == 7


def test_clusters_stand_for_their_rows(rng: np.random.Generator) -> None:
    x, y, way, names, named, rows = five(rng)
    fit, found = fitted((x, y, way, names, named, rows))
    stats = ClassStatistics.of(x, y, way)
    again, same = fit_with_evidence(stats, evidence=Evidence(names, named, clusters=found.clusters))
    assert apart(again.center, fit.center) < 1e-9
    assert apart(again.extent_radius, fit.extent_radius) < 1e-9
    assert apart(same.scatter, found.scatter) < 1e-9
    raw = found.center(stats.mean, stats.count, fit.ratio)
    assert apart(fit.whiten(raw), fit.center) < 1e-9


@pytest.mark.parametrize("clusters", [False, True])
def test_leaving_out_is_fitting_again_with_what_all_estimate_together(rng: np.random.Generator, clusters: bool) -> None:
    """k, g and the gain of the whitening are those of the fit to all; clusters without their rows take no part."""
    x, y, way, names, named, rows = five(rng, (4, 2, 5, 3, 0))
    stats = FlatStatistics.of(x, y, np.ones(len(y)), moments_of(x, y, None, way))
    summary = fitted((x, y, way, names, named, rows))[1].clusters if clusters else None
    form = ClosedForm(Sphere, "bayes", {"evidence": Evidence(names, named, clusters=summary)})
    sphere: Any = form.fit(stats)
    found = left_out_measures(LeftOut(stats), sphere, form, np.arange(len(y)))
    k, b, prior = float(sphere.ratio), float(sphere.gain), float(sphere.evidence.name_weight) * names
    full = np.bincount(y, minlength=way)
    excess = sphere.bias_radius * full * (full + 15) / np.maximum(full - 1, 1)
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        count = np.bincount(y[keep], minlength=way)
        mean = np.array([x[keep & (y == n)].mean(0) if count[n] else np.zeros(20) for n in range(way)])
        residual = x[keep] - mean[y[keep]]
        values, vectors = np.linalg.eigh(np.eye(20) + b * residual.T @ residual)
        whiten = vectors @ np.diag(values**-0.5) @ vectors.T
        w = count / (count + k)
        m = w @ (mean - prior) / w.sum()
        centers = (m + prior + w[:, None] * (mean - m - prior)) @ whiten
        spare = np.maximum(count - 1, 0)
        eps = spare / (spare + 16) * excess / np.maximum(count, 1)
        expected = ((x[i] @ whiten - centers) ** 2).sum(1) - eps
        np.testing.assert_allclose(found[i], expected, rtol=1e-6, atol=1e-8)


def test_novelty_of_what_is_far_from_every_class(rng: np.random.Generator) -> None:
    """Also where classes have no examples, or one each, and scatter is not known from them."""
    place = 3 * np.eye(4, 12)
    rows = np.repeat(place, 20, axis=0) + 0.3 * rng.normal(size=(80, 12))
    stranger = -3 * np.eye(12)[5:6]
    for shots in ([0, 0, 0, 0], [1, 1, 1, 1], [4, 4, 4, 0]):
        y = np.repeat(np.arange(4), shots)
        x = place[y] + 0.3 * rng.normal(size=(len(y), 12))
        sphere = Sphere.fit(x, y, 4, evidence=Evidence(place, unlabelled=rows))
        novelty = sphere.novelty(np.concatenate([rows, stranger]), np.array(shots, float))
        assert np.isfinite(novelty).all()
        assert (novelty[-1] > novelty[:-1]).all()


def test_what_does_not_fit_is_refused(rng: np.random.Generator) -> None:
    x, y, way, names, _, rows = five(rng)
    with pytest.raises(DataError, match=r"names have shape \(4, 20\); the classes need \(5, 20\): one vector a class"):
        Sphere.fit(x, y, way, evidence=Evidence(names[:4]))
    with pytest.raises(DataError, match=r"named has shape \(4,\); the classes need \(5,\): one truth value a class"):
        Sphere.fit(x, y, way, evidence=Evidence(names, np.ones(4, bool)))
    with pytest.raises(DataError, match=r"unlabelled rows have shape \(80, 19\); they need \('U', 20\)"):
        Sphere.fit(x, y, way, evidence=Evidence(unlabelled=rows[:, 1:]))
    with pytest.raises(ConfigError, match="unlabelled rows and refine go with the squared measure; use squared=True"):
        Sphere.fit(x, y, way, squared=False, evidence=Evidence(unlabelled=rows))
    with pytest.raises(ConfigError, match="names and unlabelled rows are for the fit mode 'bayes'; 'paper' cannot"):
        Sphere.fit(x, y, way, mode="paper", evidence=Evidence(unlabelled=rows))
