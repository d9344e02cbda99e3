"""The temperature: against a loop of fits and a search by hand, and calibrated on data."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from hyperproto.estimators import HypersphereClassifier
from hyperproto.estimators.temperature import (
    PSEUDO_WEIGHT,
    WIDEST,
    fit_temperature,
    matched_temperature,
    mean_confidence,
    pseudo_examples,
    spread_ratio,
)
from hyperproto.regions.left_out import left_out_measures
from tests.estimators.conftest import SETTINGS, blobs
from tests.estimators.test_left_out import refitted

EXACT = [settings for settings in SETTINGS if settings["fit_mode"] != "bayes"]


def searched(measures: Any, labels: Any, weights: Any, target: Any, without: Any = None) -> Any:
    """The best of many temperatures, by the loss as it is defined, one row after the other."""
    spread = np.abs(measures).max()
    tried = spread * np.exp(np.linspace(-14, 10, 4001))
    losses = np.zeros(len(tried))
    for i, (row, label, weight) in enumerate(zip(measures, labels, weights, strict=True)):
        here = np.delete(np.arange(len(row)), [] if without is None or without[i] < 0 else without[i])
        t = target[i] if np.ndim(target) else target
        rival = min((row[n], n) for n in here if n != label)[1]
        wanted = np.where(here == label, t, np.where(here == rival, 1 - t, 0.0))
        losses -= weight * (wanted * log_softmax(-row[here] / tried[:, None], axis=1)).sum(1)
    return tried[int(np.argmin(losses))]


def imagined_by_loops(x: Any, y: Any, ratio: Any, unit: Any) -> Any:
    """What a fresh example may be like: (row, class, class it borrowed a direction from)."""
    names = np.unique(y)
    mean = [x[y == name].mean(0) for name in names]
    count = [(y == name).sum() for name in names]
    middle = np.mean(mean, axis=0)
    found = []
    for n in range(len(names)):
        for j in range(len(names)):
            if j != n:
                v = 1.0  # any: only ratios count
                expected = middle + count[n] / (count[n] + ratio) * (mean[n] - middle)
                about, of_mean = v * (1 + 1 / (count[n] + ratio)), v / ratio + v / count[j]
                row = expected + math.sqrt(about / of_mean) * (mean[j] - middle)
                found.append((row / np.linalg.norm(row) if unit else row, n, j))
    return found


@pytest.mark.parametrize("confidence", [0.3, 0.6, 0.95])
def test_the_temperature_of_a_confidence(confidence: float) -> None:
    measures = np.random.default_rng(0).normal(size=(30, 4)) + 3
    found = matched_temperature(measures, confidence)
    likeliest = [max(np.exp(-row / found) / np.exp(-row / found).sum()) for row in measures]
    assert np.mean(likeliest) == pytest.approx(confidence)
    assert mean_confidence(measures, found) == pytest.approx(confidence)
    assert matched_temperature(1000 * measures + 7, confidence) == pytest.approx(1000 * found)


def test_a_confidence_that_no_temperature_gives() -> None:
    measures = np.random.default_rng(0).normal(size=(30, 4))
    spread = (measures - measures.min(1, keepdims=True)).mean()
    assert matched_temperature(measures, 0.1) == pytest.approx(WIDEST * spread)  # chance is 0.25
    assert matched_temperature(measures, 1.0) == pytest.approx(spread / WIDEST)
    assert matched_temperature(np.ones((30, 4)), 0.5) == 1


@pytest.mark.parametrize("target", [0.55, 0.8, 0.99])
def test_the_least_cross_entropy(target: Any) -> None:
    random = np.random.default_rng(0)
    labels, weights = random.integers(0, 4, 40), random.uniform(0.5, 2, 40)
    measures = random.normal(size=(40, 4)) + 3
    measures[np.arange(40), labels] -= 1
    found = fit_temperature(measures, labels, weights, target)
    assert found == pytest.approx(searched(measures, labels, weights, target), rel=5e-3)
    assert fit_temperature(1000 * measures + 7, labels, weights, target) == pytest.approx(1000 * found)


def by_loops(model: HypersphereClassifier, x: Any, y: Any, several: Any, correct: Any = None) -> Any:
    """The temperature by fitting again without each example, imagining the rest, and searching."""
    names = np.unique(y).tolist()
    measures = np.array([refitted(model, x, y, i) for i in several])
    labels = [names.index(y[i]) for i in several]
    for row, label, i in zip(measures, labels, several, strict=True):
        row[label] = correct(row[label], i) if correct else row[label]
    unit = model.feature_transform == "unit" or model.region == "cone"
    rows = x / np.linalg.norm(x, axis=1, keepdims=True) if unit else x
    ratio = float(spread_ratio(model._snapshot().stats, 4.0))
    guesses, classes, borrowed = zip(*imagined_by_loops(rows, y, ratio, unit), strict=True)
    options = {"break_ties": True} if model.region == "cone" else {}
    guessed = model.region_.measure(np.array(guesses), **options)
    n = len(several) + PSEUDO_WEIGHT
    return searched(
        np.vstack([measures, guessed]),
        [*labels, *classes],
        [*np.ones(len(several)), *np.full(len(classes), PSEUDO_WEIGHT / len(classes))],
        (n + 1) / (n + 2),
        np.array([*np.full(len(several), -1), *borrowed]),
    )


UNBIASED = [settings for settings in EXACT if settings["fit_mode"] == "unbiased"]


@pytest.mark.parametrize("choice", UNBIASED, ids=lambda choice: "-".join(map(str, choice.values())))
def test_it_is_that_of_a_loop_of_fits(choice: dict[str, Any]) -> None:
    x, y = blobs((5, 1, 3, 4), seed=4, apart=1.0)
    model = HypersphereClassifier(**choice).fit(x, y)
    assert model.temperature_ == pytest.approx(by_loops(model, x, y, np.flatnonzero(y != "b")), rel=5e-3)


@pytest.mark.parametrize("squared", [True, False])
def test_a_class_that_is_one_short_is_not_taken_for_farther(squared: bool) -> None:
    """Mode "point" takes a class of K - 1 for v / (K - 1) - v / K farther than one of K, on average."""
    x, y = blobs((5, 2, 3, 4), seed=4, apart=1.0)
    model = HypersphereClassifier(fit_mode="point", feature_transform="none", squared=squared).fit(x, y)
    v = sum(((x[y == n] - x[y == n].mean(0)) ** 2).sum() for n in "abcd") / (len(x) - 4)

    def correct(own: Any, i: int) -> Any:
        k = (y == y[i]).sum()
        d2 = max((own if squared else own**2) - v * (1 / (k - 1) - 1 / k), 0)
        return d2 if squared else math.sqrt(d2)

    assert model.temperature_ == pytest.approx(by_loops(model, x, y, np.arange(len(x)), correct), rel=5e-3)


@pytest.mark.parametrize(
    ("region", "mode"), [("sphere", "point"), ("sphere", "paper"), ("cone", "point"), ("cone", "paper")]
)
def test_leaving_out_of_pairs_is_fair(region: Any, mode: str) -> None:
    """Two examples each: left out, one is judged by one, and its rivals by two. Fair or not: what T becomes of it."""
    x, y = blobs((2,) * 8, dim=30, seed=2, apart=0.6)
    model = HypersphereClassifier(region=region, fit_mode=mode).fit(x, y)._snapshot()
    index, labels = np.arange(16), model.stats.labels
    own = np.arange(16), labels
    plain, fair = (
        left_out_measures(model.left_out, model.region, model.form, index, fair=fair) for fair in (False, True)
    )
    assert (fair[own] < plain[own]).all()
    others = np.ones_like(plain, dtype=bool)
    others[own] = False
    np.testing.assert_array_equal(fair[others], plain[others])
    flat, sensible = (fit_temperature(m, labels, np.ones(16), 17 / 18) for m in (plain, fair))
    assert sensible < (0.97 if (region, mode) == ("cone", "point") else 0.6) * flat


def test_bayes_comes_close_to_a_loop_of_fits() -> None:
    x, y = blobs((6, 5, 7, 6, 4, 6), dim=12, seed=3, apart=0.8)
    model = HypersphereClassifier().fit(x, y)
    assert model.temperature_ == pytest.approx(by_loops(model, x, y, np.arange(len(x))), rel=0.15)


def test_probabilities_are_calibrated_though_only_the_support_was_seen() -> None:
    """Mean confidence on fresh data is the accuracy; without leaving out it would be above."""
    gaps, naive = [], []
    for seed in range(12):
        random = np.random.default_rng(seed)
        centers = random.normal(size=(10, 20))
        y, fresh_y = np.repeat(np.arange(10), 5), np.repeat(np.arange(10), 40)
        x, fresh = (0.6 * centers[labels] + random.normal(size=(len(labels), 20)) for labels in (y, fresh_y))
        model = HypersphereClassifier(feature_transform="none").fit(x, y)
        sure = model.predict_proba(fresh).max(1).mean()
        gaps.append(sure - model.score(fresh, fresh_y))
        inner = model._snapshot()
        measures = model.measure(x).astype(np.float64)
        n = len(x)
        model.temperature = fit_temperature(measures, y, np.ones(n), (n + 1) / (n + 2))
        naive.append(model.predict_proba(fresh).max(1).mean() - model.score(fresh, fresh_y))
        assert inner.temperature > model.temperature
    assert abs(np.mean(gaps)) < 0.04
    assert np.mean(naive) > 0.05


@pytest.mark.parametrize("fit_mode", ["bayes", "point", "paper"])
def test_one_example_each_is_believed_as_far_as_it_should(fit_mode: str) -> None:
    """Nothing can be left out; what is imagined is near the truth if the classes are as far apart as the prior says."""
    sure, right = [], []
    for seed in range(20):
        random = np.random.default_rng(seed)
        centers = random.normal(size=(6, 40))
        y = np.repeat(np.arange(6), 30)
        x = centers[y] + 2 * random.normal(size=(len(y), 40))  # variance within 4 times that between
        model = HypersphereClassifier(fit_mode=fit_mode, feature_transform="none").fit(x[::30], np.arange(6))
        sure.append(model.predict_proba(x).max(1).mean())
        right.append(model.score(x, y))
    assert 0.4 < np.mean(right) < 0.8
    assert abs(np.mean(sure) - np.mean(right)) < 0.12


def test_two_examples_of_two_classes_are_believed_half_way() -> None:
    x = np.random.default_rng(0).normal(size=(2, 8))
    for fit_mode in ("bayes", "unbiased"):
        model = HypersphereClassifier(fit_mode=fit_mode).fit(x, ["a", "b"])
        np.testing.assert_allclose(np.diag(model.predict_proba(x)), 0.75, atol=1e-6)


def test_of_many_classes_some_pairs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs((2,) * 20, dim=10)
    model = HypersphereClassifier().fit(x, y)._snapshot()
    whole = pseudo_examples(model.stats, 4.0, directions=True)
    assert len(whole.labels) == 20 * 19
    monkeypatch.setattr("hyperproto.estimators.temperature.MOST_PSEUDO_SCORES", 5 * 400)
    some = pseudo_examples(model.stats, 4.0, directions=True)
    assert np.bincount(some.labels).tolist() == [5] * 20
    assert (some.labels != some.borrowed).all()
    np.testing.assert_allclose(np.linalg.norm(some.rows, axis=1), 1)


def test_the_ends() -> None:
    labels, weights = np.array([0, 1]), np.ones(2)
    assert fit_temperature(np.ones((2, 2)), labels, weights, 0.75) == 1.0  # nothing to tell classes apart by
    wrong = np.array([[1.0, 0.0], [0.0, 1.0]])  # worse than chance: as flat as can be
    assert fit_temperature(wrong, labels, weights, 0.75) == pytest.approx(0.5 * WIDEST)
    right = 1 - wrong
    assert fit_temperature(right, labels, weights, 0.75) == pytest.approx(1 / np.log(3), rel=1e-6)
    assert fit_temperature(right, labels, weights, 1.0) == pytest.approx(0.5 / WIDEST)
    half: Any = np.float32(0.5)
    model = HypersphereClassifier(temperature=half).fit([[1.0, 0], [0, 1]], [0, 1])
    assert model.temperature_ == 0.5


def test_many_examples_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs((30, 40, 35), seed=1, apart=0.7)
    whole = HypersphereClassifier().fit(x, y).temperature_
    monkeypatch.setattr("hyperproto.estimators.temperature.MOST_SCORES", 120)
    thinned = HypersphereClassifier().fit(x, y).temperature_
    assert thinned != whole
    assert thinned == pytest.approx(whole, rel=0.6)
