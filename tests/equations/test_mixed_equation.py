"""The mean of heads: its weights, its limits, which rows it learns from, and that it is no worse where rows mislead."""

from typing import Any

import numpy as np
import pytest

from hyperproto.regions import ClosedForm, Sphere, mixed
from hyperproto.regions.known import fit_known
from hyperproto.regions.left_out import LeftOut, left_out_measures
from hyperproto.regions.mixed import by_confident_rows, mix
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


@pytest.mark.parametrize(("told", "g"), [(0.3, 0.0), (0.5, 0.0), (0.6, 0.4), (0.75, 1.0), (0.9, 1.0), (None, 1.0)])
def test_it_is_the_weighted_mean_of_five_heads(rng: np.random.Generator, told: float | None, g: float) -> None:
    case = five(rng, SHOTS, dim=6)
    known, plain = regressions(case)
    _, y, way, _, _, rows = case
    closed = Sphere(**vars(known.fit), knowledge=known.knowledge)
    share = naive_shares(closed, y, way, known.fit.whiten(rows))
    believed = share.sum(axis=1).mean() ** 4
    fewest = way / sum(1 / shot for shot in SHOTS)
    w = g * fewest / (fewest + 2 * float(known.fit.ratio))
    first = known.of_examples()
    sure = by_confident_rows(known, first, share.sum(axis=1))
    by_rows = g * (w * sure + (1 - w) * known.of_rows(first)) + (1 - g) * known.start
    by_examples = g * plain.of_examples() + (1 - g) * plain.start
    f = known.fit.whiten(rows)
    expected = believed * ((f - known.middle) @ by_rows[:-1] + by_rows[-1])
    expected += (1 - believed) * ((f - plain.middle) @ by_examples[:-1] + by_examples[-1])
    found = known.scale / 2 * scores(mix(known, plain, told), rows)
    np.testing.assert_allclose(relative(found), relative(expected), rtol=1e-6, atol=1e-6)


def test_confident_rows_are_those_above_nine_tenths_and_only_they_are_learned_from(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, _ = regressions(five(rng, SHOTS, dim=6))
    likely = rng.uniform(0.8, 1.0, size=len(known.others))
    head = known.of_examples()
    met: list[Any] = []

    def watch(rows: Any, target: Any, start: Any, hold: float, begin: Any) -> Any:
        met.append((rows, target, hold, begin))
        return begin

    monkeypatch.setattr(mixed, "solve", watch)
    assert by_confident_rows(known, head, likely) is head
    assert len(met) == 3
    rows, target, hold, begin = met[0]
    answers = [softmax(row @ head) for row in known.others]
    sure = [n for n, answer in enumerate(answers) if answer.max() * likely[n] > 0.9]
    assert 0 < len(sure) < len(known.others)
    np.testing.assert_array_equal(rows, np.concatenate([known.labelled, known.others[sure]]))
    chosen = [answers[n].argmax() for n in sure]
    size = np.bincount(chosen, minlength=5)
    for place, best in enumerate(chosen):
        assert target[len(known.labelled) + place].argmax() == best
        expected = 1000 / (size[best] + size.mean() + 1000)
        assert target[len(known.labelled) + place].sum() == pytest.approx(expected)
    assert hold == pytest.approx(0.02 * known.hold)
    assert begin is head


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
