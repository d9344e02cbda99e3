"""The novelty score against a loop of fits, its meaning, and the classes that it separates."""

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score

from hyperproto.estimators import HypersphereClassifier
from hyperproto.estimators.novelty import preferences, removed_scores
from tests.estimators.conftest import blobs

PLAIN: dict[str, Any] = {"fit_mode": "unbiased", "feature_transform": "none"}


def naive_preference(measures: Any, temperature: float) -> Any:
    power = -measures / (3 * temperature)
    return np.log(measures.shape[1]) + power.max(axis=1) - logsumexp(power, axis=1)


def naive_typical(preference: Any, labels: Any, way: int) -> Any:
    """Mean preference of each class, shrunk towards the mean of the classes."""
    own = [preference[labels == n] for n in range(way)]
    mean = np.mean([values.mean() for values in own if len(values)])
    typical = [mean + len(v) / (len(v) + 16) * (v.mean() - mean) if len(v) else mean for v in own]
    return np.array(typical), mean


@pytest.mark.parametrize("shots", [(3, 4, 2, 5), (1, 6, 2), (3, 2), (2, 3, 1, 2, 4, 3)])
def test_the_score_is_that_of_a_loop_of_fits(shots: Any) -> None:
    x, y = blobs(shots, dim=5, seed=3)
    way, labels = len(shots), np.unique(y, return_inverse=True)[1]
    model = HypersphereClassifier(**PLAIN).fit(x, y)
    snapshot, q = model._snapshot(), np.random.default_rng(1).normal(size=(7, 5)) * 3
    paired = [i for i in range(len(x)) if (y == y[i]).sum() > 1]
    without = []
    for i in paired:
        rest = np.arange(len(x)) != i
        without.append(HypersphereClassifier(**PLAIN).fit(x[rest], y[rest]).measure(x[i : i + 1])[0])
    left_out, temperature = np.array(without), model.temperature_
    typical, mean = naive_typical(naive_preference(left_out, temperature), labels[paired], way)
    share = softmax(-model.measure(q) / temperature, axis=1)
    away = ((snapshot.distance(snapshot.prepare(q)) / snapshot.scale).min(axis=1)) ** 2
    expected = 1 + (share @ typical - naive_preference(model.measure(q), temperature)) / mean
    expected += min(1, 4 / way) * (away - 1)
    np.testing.assert_allclose(model.novelty(q), expected, rtol=1e-6)


def test_one_class_is_scored_by_its_distance_alone() -> None:
    x, _ = blobs((6,), dim=4)
    model = HypersphereClassifier(feature_transform="none", coverage=0.5).fit(x, ["a"] * 6)
    snapshot = model._snapshot()
    np.testing.assert_allclose(model.novelty(x), (snapshot.distance(x)[:, 0] / snapshot.scale[0]) ** 2)


def test_preferences_leave_a_class_out() -> None:
    scores = np.random.default_rng(0).normal(size=(6, 5))
    without = np.array([0, 4, -1, 2, 2, -1])
    for temperature in (0.7, np.inf):
        preference, share = preferences(scores, temperature, without)
        for row, gone in enumerate(without):
            kept = np.arange(5) != gone
            alone, rest = preferences(scores[row : row + 1, kept], temperature)
            np.testing.assert_allclose(preference[row], alone[0])
            np.testing.assert_allclose(share[row, kept], rest[0])
            assert gone < 0 or share[row, gone] == 0


def test_the_relative_measure_is_the_limit_of_high_temperatures() -> None:
    scores = np.random.default_rng(0).normal(size=(6, 5))
    at_most, _ = preferences(scores, 1e7)
    np.testing.assert_allclose(at_most * 3e7, preferences(scores, np.inf)[0], rtol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"region": "cone", "fit_mode": "unbiased"}, {"region": "gaussian"}])
@pytest.mark.parametrize("shot", [1, 2, 8])
def test_a_typical_row_scores_1_and_rows_of_new_classes_more(settings: dict[str, Any], shot: int) -> None:
    settings = {"fit_mode": "bayes", **settings} if "region" not in settings else settings
    if settings.get("region") == "gaussian":
        settings["fit_mode"] = "unbiased"
    random = np.random.default_rng(5)
    centers = random.normal(size=(12, 16))

    def draw(n: int, number: int) -> Any:
        return centers[n] + 0.6 * random.normal(size=(number, 16))

    x = np.concatenate([draw(n, shot) for n in range(9)])
    model = HypersphereClassifier(**settings).fit(x, np.repeat(np.arange(9), shot))
    genuine = model.novelty(np.concatenate([draw(n, 20) for n in range(9)]))
    strange = model.novelty(np.concatenate([draw(n, 60) for n in range(9, 12)]))
    assert (0.6 if shot > 1 else 0) < np.median(genuine) < 1.4  # one example a class: only the prior tells the scale
    assert roc_auc_score(np.repeat([0, 1], 180), np.concatenate([genuine, strange])) > 0.8


def test_far_rows_are_novel_in_spite_of_a_clear_class() -> None:
    """Untransformed rows far away in the direction of a class prefer it more than its own examples do."""
    x, y = blobs((5, 5, 5, 5, 5), dim=6, seed=1)
    model = HypersphereClassifier(feature_transform="none").fit(x, y)
    assert model.novelty(1000 * x).min() > model.novelty(x).max()


def test_evidence_enters_the_score() -> None:
    x, y = blobs((1, 1, 1, 1), dim=6, seed=2)
    names = {label: x[n] + 0.1 for n, label in enumerate(y)}
    plain = HypersphereClassifier().fit(x, y)
    assert not np.allclose(plain.novelty(x + 0.5), HypersphereClassifier().fit(x, y, names=names).novelty(x + 0.5))


def test_removed_scores_are_those_of_a_fit_without_the_class() -> None:
    """Up to temperature and what is typical, which the class has helped to estimate."""
    x, y = blobs((30, 30, 30, 30, 30), dim=8, seed=4)
    model = HypersphereClassifier(**PLAIN).fit(x, y)
    novelty, confidence, _ = removed_scores(model._snapshot())
    for label in np.unique(y)[:2]:
        rest = y != label
        other = HypersphereClassifier(**PLAIN, temperature=model.temperature_).fit(x[rest], y[rest])
        np.testing.assert_allclose(confidence[~rest], other.predict_proba(x[~rest]).max(axis=1), rtol=0.1, atol=0.05)
        assert abs(np.median(novelty[~rest]) / np.median(other.novelty(x[~rest])) - 1) < 0.15
