"""The mean of heads: its weights, its limits, which rows it learns from, and that it is no worse where rows mislead."""

import math
from typing import Any

import numpy as np
import pytest

from hyperproto.regions import ClosedForm, Sphere, mixed
from hyperproto.regions.known import fit_known
from hyperproto.regions.left_out import LeftOut, left_out_measures
from hyperproto.regions.mixed import by_self_training, mix
from hyperproto.regions.refined import Regression
from hyperproto.regions.statistics import ClassStatistics, FlatStatistics, flat, moments_of
from tests.equations.test_known_equation import five
from tests.equations.test_refined_equation import fitted, naive_shares, softmax

SHOTS = (2, 3, 4, 2, 6)


def regressions(case: Any) -> tuple[Regression, Regression]:
    x, y, way, names, named, rows = case
    stats = ClassStatistics.of(x, y, way)
    known = Regression.of(*fit_known(stats, names=names, named=named, unlabelled=rows), stats, stats.count, rows)
    plain = Regression.of(*fit_known(stats, names=names, named=named), stats, stats.count)
    assert known is not None
    assert plain is not None
    return known, plain


def scores(fit: Any, rows: Any) -> Any:
    """Of a fit, up to a number that all classes share and one factor."""
    return -Sphere(**vars(fit), under_root=True).measure(rows)


def relative(values: Any) -> Any:
    return values - values.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("b", [1.0, 0.25, 0.0])
@pytest.mark.parametrize(("told", "g"), [(0.3, 0.0), (0.5, 0.0), (0.6, 0.4), (0.75, 1.0), (0.9, 1.0), (None, 1.0)])
def test_it_is_the_weighted_mean_of_five_heads(
    rng: np.random.Generator, told: float | None, g: float, b: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, way, names, named, rows = five(rng, SHOTS, dim=6)
    known, plain = regressions((x, y, way, names, named, rows))
    closed = Sphere(**vars(known.fit), knowledge=known.knowledge)
    share = naive_shares(closed, y, way, known.fit.whiten(rows))
    size = share.sum(axis=0) / share.sum()
    evenness = math.exp(-sum(part * math.log(part) for part in size)) / way
    assert mixed.EVEN == (0.7, 0.9)
    monkeypatch.setattr(mixed, "EVEN", (evenness - 0.2 * b, evenness - 0.2 * b + 0.2))
    k = float(known.fit.ratio)
    few = sorted(SHOTS)[1]  # of five
    believed = min(1.0, share.sum(axis=1).mean() / 0.92) ** 6 * (1 - (1 - b) * few / (few + k))
    w = g * b * few**4 / (few**4 + (4 * k / 3) ** 4)
    f = known.fit.whiten(rows)
    refined = known.of_rows(known.of_examples())
    if w > 0:
        before = plain.of_examples()
        before[-1] += (known.middle - plain.middle) @ before[:-1]
        own = by_self_training(known, before, share.sum(axis=1), float(plain.knowledge.strength))
        width = [relative((f - known.middle) @ head[:-1] + head[-1]).std() for head in (refined, own)]
        refined = w * width[0] / width[1] * own + (1 - w) * refined
    by_rows = g * refined + (1 - g) * known.start
    by_examples = g * plain.of_examples() + (1 - g) * plain.start
    expected = believed * ((f - known.middle) @ by_rows[:-1] + by_rows[-1])
    expected += (1 - believed) * ((f - plain.middle) @ by_examples[:-1] + by_examples[-1])
    found = known.scale / 2 * scores(mix(known, plain, told), rows)
    np.testing.assert_allclose(relative(found), relative(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("strength", "weight"), [(0.02, 0.0), (0.08, 0.6), (0.3, 1.0)])
def test_self_training_fits_sure_rows_examples_and_names_as_they_came(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, strength: float, weight: float
) -> None:
    case = five(rng, SHOTS, dim=6)
    x, y, way, names, _, unlabelled = case
    known, plain = regressions(case)
    likely = rng.uniform(0.8, 1.0, size=len(known.others))
    head = plain.of_examples()
    met: list[Any] = []
    step = rng.normal(size=head.shape)

    def watch(rows: Any, target: Any, start: Any, hold: float, begin: Any) -> Any:
        met.append((rows, target, start, hold, begin))
        return begin + step

    monkeypatch.setattr(mixed, "solve", watch)
    found = by_self_training(known, head, likely, strength)
    assert len(met) == 4
    middle = unlabelled.mean(axis=0)
    about = unlabelled - middle
    for number, (rows, target, start, hold, begin) in enumerate(met):
        assert not start.any()
        np.testing.assert_allclose(begin, number * step)
        assert hold == pytest.approx(0.1 * (about**2).sum(axis=1).mean())
        if number == 0:
            answers, least = [softmax(row @ head) for row in known.others], 0.9
        else:
            answers, least = [softmax(row @ begin[:-1] + begin[-1]) for row in about], 0.3
        sure = [n for n, answer in enumerate(answers) if answer.max() * likely[n] > least]
        assert 0 < len(sure) <= len(about)
        expected = np.concatenate([x - middle, names - names.mean(axis=0), about[sure]])
        np.testing.assert_allclose(rows, np.column_stack([expected, np.ones(len(expected))]), atol=1e-9)
        labels = [*y, *range(way), *(int(answers[n].argmax()) for n in sure)]
        weights = [1.0] * len(y) + [weight] * way + [1.0] * len(sure)
        mass = np.bincount(labels, weights, minlength=way)
        for row, label, own in zip(target, labels, weights, strict=True):
            assert row[label] == pytest.approx(own * mass.mean() / mass[label])
            assert np.count_nonzero(row) == (own > 0)
    last = 4 * step  # the same scores in the whitened space
    np.testing.assert_allclose(known.others @ found, about @ last[:-1] + last[-1], atol=1e-8)


def test_auto_without_rows_is_the_closed_form(rng: np.random.Generator) -> None:
    x, y, way, names, named, _ = five(rng, SHOTS, dim=6)
    plain, auto = (fitted((x, y, way, names, named, None), refine=refine) for refine in (False, "auto"))
    np.testing.assert_array_equal(plain.center, auto.center)
    np.testing.assert_array_equal(plain.bias_radius, auto.bias_radius)
    assert not auto.is_refined
    for mode in ("unbiased", "paper", "point"):  # it asks nothing of them
        Sphere.fit(x, y, way, mode=mode, refine="auto")


def test_a_truth_value_of_numpy_is_no_word(rng: np.random.Generator) -> None:
    case = five(rng, SHOTS, dim=6)
    always, numpy = (fitted(case, refine=refine) for refine in (True, np.True_))
    np.testing.assert_array_equal(always.center, numpy.center)


def test_how_often_examples_are_told_is_measured_class_by_class(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = five(rng, (1, 3, 4, 2, 6), dim=6)
    x, y, way, names, named, _ = case
    met: list[float | None] = []

    def watch(known: Any, plain: Any, told: float | None) -> Any:
        met.append(told)
        return mix(known, plain, told)

    monkeypatch.setattr("hyperproto.regions.sphere.mix", watch)
    assert fitted(case, refine="auto").is_refined
    sphere = Sphere.fit(x, y, way, names=names, named=named)
    out = LeftOut(FlatStatistics.of(x, y, np.ones(len(y)), moments_of(x, y, np.ones(len(y)), way)))
    every = np.arange(len(y))
    right = left_out_measures(out, sphere, ClosedForm(Sphere, "bayes"), every).argmin(axis=1) == y
    assert met == [pytest.approx(np.mean([right[y == n].mean() for n in range(way) if (y == n).sum() > 1]))]
    fitted(five(rng, (1, 1, 1, 1, 1), dim=6), refine="auto")
    assert met[1] is None


def test_no_example_at_all_and_a_single_one(rng: np.random.Generator) -> None:
    """Names and rows alone: there is no head without rows; then one example, of one class."""
    for shots in ((0, 0, 0, 0, 0), (0, 1, 0, 0, 0)):
        x, y, way, names, named, rows = five(rng, shots, dim=6)
        sphere = fitted((x, y, way, names, named, rows), refine="auto")
        assert np.isfinite(sphere.center).all()
        assert np.isfinite(sphere.bias_radius).all()
    same = np.tile(rows[:1], (30, 1))  # rows that say nothing
    closed, auto = (fitted((x, y, way, names, named, same), refine=refine) for refine in (False, "auto"))
    np.testing.assert_array_equal(closed.center, auto.center)


def test_classes_and_rows_may_come_in_any_order(rng: np.random.Generator) -> None:
    x, y, way, names, named, rows = five(rng, SHOTS, dim=6)
    order = rng.permutation(way)
    place = np.argsort(order)
    one = fitted((x, y, way, names, named, rows), refine="auto")
    named = None if named is None else named[order]
    other = fitted((x, place[y], way, names[order], named, rows[rng.permutation(len(rows))]), refine="auto")
    np.testing.assert_allclose(one.measure(rows)[:, order], other.measure(rows), rtol=1e-5, atol=1e-5)


def test_strangers_count_for_little(rng: np.random.Generator) -> None:
    """Far more rows of other classes than of the known ones: closer to the head without rows than refinement is."""
    x, y, way, names, named, rows = five(rng, SHOTS, dim=24)
    strangers = np.concatenate([rows[:20], 3 * rng.normal(size=(400, 24))])
    alone = fitted((x, y, way, names, named, None))
    refined, auto = (fitted((x, y, way, names, named, strangers), refine=refine) for refine in (True, "auto"))
    away = [np.linalg.norm(each.center - alone.center) for each in (refined, auto)]
    assert away[1] < away[0]


def test_flat_statistics_are_the_same(rng: np.random.Generator) -> None:
    x, y, way, *_ = five(rng, (2, 1, 3, 2, 1), dim=6)
    padded = ClassStatistics.of(np.concatenate([x, np.full((2, 6), np.nan)]), np.append(y, [-1, -1]), way)
    found = flat(padded)
    np.testing.assert_array_equal(found.labels, y)
    np.testing.assert_allclose(found.mean, padded.mean, atol=1e-12)
    np.testing.assert_allclose(found.squares, padded.squares, atol=1e-12)
    assert flat(found) is found
