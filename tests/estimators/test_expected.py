"""expected_: what the examples, each left out, say of a classifier, and of a coverage that protects from nothing."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hyperproto import HypersphereClassifier
from hyperproto.estimators import temperature
from hyperproto.estimators.conformal import PlausibleSets
from hyperproto.regions.left_out import measures_by_refitting
from tests.estimators.conftest import MODES

COUNTS = (1, 2, 3, 5, 8, 10, 15, 20)


def draw(counts: Any, apart: float, dim: int = 16, seed: int = 0) -> tuple[NDArray[Any], ...]:
    """Examples, their labels, fresh vectors of the same classes, their labels, and strangers."""
    random = np.random.default_rng(seed)
    centers = apart * random.normal(size=(len(counts) + 14, dim))
    y, fresh = np.repeat(np.arange(len(counts)), counts), np.repeat(np.arange(len(counts)), 40)
    of = [centers[each] + random.normal(size=(len(each), dim)) for each in (y, fresh)]
    return of[0], y, of[1], fresh, centers[len(counts) :] + random.normal(size=(14, dim))


def test_a_coverage_that_lets_every_stranger_in_says_so() -> None:
    x, y, _, _, strangers = draw(COUNTS, 0.2)
    model = HypersphereClassifier(coverage=0.9).fit(x, y)
    told = (
        r"coverage=0.9 rejects almost nothing here: with their own class removed, 0% of the examples would "
        r"have no plausible class, and \d\.\d of 8 are plausible on average; add examples to small classes, "
        r"use fewer classes, or lower the coverage"
    )
    with pytest.warns(UserWarning, match=told):
        assert model.predict_set(strangers).any(axis=1).all()
    assert (model.predict(strangers) >= 0).mean() > 0.9
    assert model.expected_.outside_rejected == 0
    assert model.expected_.set_size is not None
    assert model.expected_.set_size > 5
    assert model.set_params(coverage=None).expected_.set_size is None


@pytest.mark.parametrize("apart", [2.0, 3.0])
@pytest.mark.parametrize("options", [{}, {"class_thresholds": True}])
def test_a_coverage_that_protects_is_quiet_and_its_numbers_are_those_of_fresh_vectors(
    apart: float, options: dict[str, Any]
) -> None:
    x, y, fresh, labels, strangers = draw((6, 8, 10, 10, 12, 15, 20, 20), apart, seed=1)
    model = HypersphereClassifier(coverage=0.9, **options).fit(x, y)
    expected = model.expected_
    assert (model.predict(strangers) == -1).mean() > 0.5
    assert expected.outside_rejected is not None
    assert expected.outside_rejected > 0.5
    assert expected.set_size == pytest.approx(model.predict_set(fresh).sum(axis=1).mean(), abs=0.25)
    accuracy = (model.set_params(coverage=None).predict(fresh) == labels).mean()
    assert expected.accuracy == pytest.approx(accuracy, abs=0.07)
    assert (expected.classes, expected.examples) == (8, len(y))
    assert str(expected) == (
        f"leave-one-out accuracy {expected.accuracy:.0%}, a plausible set of {expected.set_size:.1f} classes on average"
    )


@pytest.mark.parametrize(("region", "mode"), MODES)
def test_accuracy_is_near_that_of_refitting(region: Any, mode: str) -> None:
    x, y, *_ = draw((1, 2, 4, 6, 7), 0.7)
    model = HypersphereClassifier(region=region, fit_mode=mode).fit(x, y)
    derived = model._snapshot()
    index = np.flatnonzero(derived.left_out.has_siblings)
    best = measures_by_refitting(derived.left_out, index, derived.form).argmin(axis=1)
    assert model.expected_.examples == len(index) == 19
    assert model.expected_.accuracy == pytest.approx((best == y[index]).mean(), abs=3 / 19)  # "point", "paper": fair


def test_the_plausible_set_of_an_example_is_that_of_a_vector_that_was_not_there() -> None:
    x, y, *_ = draw((4, 5, 6, 9), 1.0, seed=2)
    model = HypersphereClassifier(coverage=0.8, feature_transform="none").fit(x, y)
    thresholds, sizes, rejected = model.thresholds_, [], []
    share = thresholds / model._snapshot().scale  # one number: the quantile of the scores
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        without = HypersphereClassifier(coverage=0.8, feature_transform="none").fit(x[rest], y[rest])._snapshot()
        others = np.linalg.norm(x[i] - model.means_, axis=1) <= thresholds
        own = np.linalg.norm(x[i] - without.means[y[i]]) <= share[0] * without.scale[y[i]] * (1 + 1e-9)
        others[y[i]] = False
        sizes.append(others.sum() + own)
        rejected.append(not others.any())
    assert model.expected_.set_size == pytest.approx(np.mean(sizes))
    assert model.expected_.outside_rejected == pytest.approx(np.mean(rejected))


def test_where_nothing_can_be_left_out_the_reason_is_told() -> None:
    x, y, *_ = draw((1, 1, 1), 1.0)
    alone = HypersphereClassifier().fit(x, y).expected_
    assert (alone.accuracy, alone.set_size, alone.examples) == (None, None, 0)
    assert str(alone) == "leave-one-out accuracy unknown: every class has one example, and none can be left out"
    lean = HypersphereClassifier(fit_mode="unbiased", store_support=False, temperature=1.0).fit(x, y).expected_
    assert (lean.accuracy, lean.reason) == (None, "store_support=False keeps no examples to leave out")
    one = HypersphereClassifier(coverage=0.5).fit(draw((9,), 1.0)[0], np.zeros(9)).expected_
    assert (one.accuracy, one.outside_rejected, one.classes) == (1.0, None, 1)


def test_evenly_spaced_examples_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, *_ = draw((20,) * 10, 0.8)
    model = HypersphereClassifier(coverage=0.9).fit(x, y)
    all_of_them = model.expected_
    monkeypatch.setattr(temperature, "MOST_SCORES", 500)
    monkeypatch.setattr(temperature, "LEAST_SAMPLE", 10)
    some = HypersphereClassifier(coverage=0.9).fit(x, y).expected_
    assert (all_of_them.examples, some.examples) == (200, 50)
    assert some.accuracy == pytest.approx(all_of_them.accuracy, abs=0.2)
    assert some.set_size == pytest.approx(all_of_them.set_size, rel=0.2)
    order = np.random.default_rng(0).permutation(len(x))
    assert HypersphereClassifier(coverage=0.9).fit(x[order], y[order]).expected_ == some


def test_what_counts_as_vacuous() -> None:
    assert PlausibleSets(3.0, 0.06, 8).warning(0.9) is None
    assert "5% of the examples would have no plausible class, and 3.0 of 8" in str(
        PlausibleSets(3.0, 0.05, 8).warning(0.9)
    )
    assert "5% of the examples would have no plausible class; add" in str(PlausibleSets(None, 0.05, 8).warning(0.9))
    assert PlausibleSets(0.9, None, 1).warning(0.9) is None
    assert PlausibleSets(3.0, 0.04, 8).warning(0.95) is None
    assert PlausibleSets(3.0, 0.08, 8).warning(0.5) is None
