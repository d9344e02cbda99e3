"""None of these: scores and thresholds against loops of fits, and the coverage that was asked for on fresh data."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.errors import ConfigError
from hyperproto.estimators import HypersphereClassifier
from hyperproto.estimators.conformal import enough as enough_examples
from hyperproto.estimators.conformal import quantile, rank
from tests.estimators.conftest import assert_equal_models, blobs

PLAIN: dict[str, Any] = {"fit_mode": "point", "feature_transform": "none"}
CHOICES: list[dict[str, Any]] = [{}, {"guarantee": True}, {"class_thresholds": True}]


def naive_scale(x: Any, y: Any, n: Any) -> Any:
    """Usual distance of a new example to the mean of class n; None if nobody can tell."""
    own = x[y == n]
    squares = {m: ((x[y == m] - x[y == m].mean(0)) ** 2).sum() for m in np.unique(y)}
    dof = sum((y == m).sum() - 1 for m in np.unique(y))
    if sum(squares.values()) <= 1e-12 * (x**2).sum():
        return None
    pooled = sum(squares.values()) / max(dof, 1)
    k = len(own)
    scatter = squares[n] / (k - 1) if k > 1 else pooled
    trust = (k - 1) / (k - 1 + 16)
    return math.sqrt((pooled + trust * (scatter - pooled)) * (1 + 1 / k))


def naive_scores(x: Any, y: Any) -> Any:
    """The score of each example, by forgetting it and measuring afresh."""
    scores = []
    for i in range(len(x)):
        keep = np.arange(len(x)) != i
        scale = naive_scale(x[keep], y[keep], y[i]) if (y[keep] == y[i]).any() else None
        away = x[i] - x[keep & (y == y[i])].mean(0) if scale else 0
        scores.append(np.linalg.norm(away) / scale if scale else np.inf)
    return np.array(scores)


@st.composite
def supports(draw: st.DrawFn) -> Any:
    shots = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    return blobs(shots, dim=draw(st.sampled_from([1, 3, 12])), seed=draw(st.integers(0, 2**31)))


@pytest.mark.filterwarnings("ignore:there is only one class")
@settings(deadline=None, max_examples=80)
@given(supports())
def test_scores_are_those_of_a_loop(case: Any) -> None:
    x, y = case
    model = HypersphereClassifier(**PLAIN).fit(x, y)
    np.testing.assert_allclose(model._snapshot().conformal.scores, naive_scores(x, y), rtol=1e-6)
    scales = [naive_scale(x, y, n) or 1.0 for n in np.unique(y)]
    q = np.random.default_rng(0).normal(size=(5, x.shape[1]))
    expected = [
        min(np.linalg.norm(p - x[y == n].mean(0)) / s for n, s in zip(np.unique(y), scales, strict=True)) for p in q
    ]
    snapshot = model._snapshot()
    np.testing.assert_allclose(
        (snapshot.distance(snapshot.prepare(q)) / snapshot.scale).min(axis=1), expected, rtol=1e-6
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.floats(0.05, 0.95), st.integers(0, 2**31))
def test_the_threshold_is_the_score_of_the_right_rank(scores: Any, coverage: float, seed: int) -> None:
    weights = np.random.default_rng(seed).integers(1, 4, len(scores))
    repeated = sorted(np.repeat(scores, weights))
    k = math.ceil(coverage * (len(repeated) + 1) - 1e-9)
    expected = repeated[k - 1] if k <= len(repeated) else math.inf
    assert quantile(np.array(scores), weights.astype(np.float64), coverage) == expected


@pytest.mark.parametrize(("coverage", "enough"), [(0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_how_many_examples_are_enough(coverage: float, enough: Any) -> None:
    """ceil(1 / alpha) - 1, in spite of rounding: 1 / (1 - 0.9) is above 10."""
    assert rank(coverage, enough) <= enough
    assert rank(coverage, enough - 1) > enough - 1
    assert enough_examples(coverage) == enough


@pytest.mark.parametrize("by_class", [False, True])
def test_thresholds_are_those_of_a_loop(by_class: Any) -> None:
    x, y = blobs((9, 3, 12, 1), seed=8)
    model = HypersphereClassifier(**PLAIN, coverage=0.9, class_thresholds=by_class).fit(x, y)
    scores = naive_scores(x, y)
    for n, label in enumerate("abcd"):
        of = scores[y == label] if by_class and label in "ac" else scores[np.isfinite(scores)]
        expected = sorted(of)[math.ceil(0.9 * (len(of) + 1) - 1e-9) - 1] * naive_scale(x, y, label)
        assert model.thresholds_[n] == pytest.approx(expected)
    q = 2 * np.random.default_rng(1).normal(size=(50, 5))
    away = np.linalg.norm(q[:, None] - model.means_, axis=2)
    np.testing.assert_array_equal(model.predict_set(q), away <= model.thresholds_)


def test_the_same_thresholds_whatever_classifies() -> None:
    x, y = blobs((9, 3, 12, 1), seed=8)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    first = HypersphereClassifier(coverage=0.9).fit(x, y).thresholds_
    for settings_ in ({"fit_mode": "paper", "squared": False}, {"region": "cone", "fit_mode": "unbiased"}):
        np.testing.assert_allclose(HypersphereClassifier(coverage=0.9, **settings_).fit(x, y).thresholds_, first)


def jackknife_plus(x: Any, y: Any, q: Any, label: Any, coverage: float) -> Any:
    """Whether jackknife+ finds the label plausible for q: each left-out model judges both its example and q."""
    scores = naive_scores(x, y)
    against = 0
    for i in range(len(x)):
        keep = np.arange(len(x)) != i
        if np.isinf(scores[i]):
            continue  # an infinite score counts against nobody
        scale = naive_scale(x[keep], y[keep], label)
        theirs = np.linalg.norm(q - x[keep & (y == label)].mean(0)) / scale
        against += scores[i] < theirs
    return against < coverage * (len(x) + 1) - 1e-9


def test_with_a_guarantee_the_sets_hold_those_of_jackknife_plus() -> None:
    """So their coverage is certain, for any distribution, to be 2 * coverage - 1 at least."""
    x, y = blobs((4, 5, 6), seed=11, dim=3)
    random = np.random.default_rng(2)
    q = x[random.integers(0, len(x), 60)] + 1.5 * random.normal(size=(60, 3))
    for coverage in (0.6, 0.8):
        sets = HypersphereClassifier(**PLAIN, coverage=coverage, guarantee=True).fit(x, y).predict_set(q)
        plain = HypersphereClassifier(**PLAIN, coverage=coverage).fit(x, y).predict_set(q)
        theirs = np.array([[jackknife_plus(x, y, p, label, coverage) for label in "abc"] for p in q])
        assert (sets >= theirs).all()
        assert 0.2 < theirs.mean() < 0.9  # so that this says something
        assert abs(plain.mean() - theirs.mean()) < 0.15


def test_with_a_guarantee_examples_that_are_alone_count_as_far() -> None:
    x, y = blobs((8, 1, 1, 1, 1), seed=0)
    for guarantee, infinite in ((False, False), (True, True)):
        model = HypersphereClassifier(**PLAIN, coverage=0.8, guarantee=guarantee).fit(x, y)
        if infinite:
            with pytest.warns(
                UserWarning,
                match="for its guarantee all but a share 0.2 of the examples in such classes; there are 8 of 12",
            ):
                assert np.isinf(model.thresholds_).all()
        else:
            with pytest.warns(UserWarning, match="coverage=0.8 rejects almost nothing here: .* 0% of the examples"):
                assert np.isfinite(model.thresholds_).all()


def test_one_pair_is_too_little_for_anything() -> None:
    """Without one of the two no scatter is left, so nothing can be scored."""
    x, y = blobs((2, 1, 1))
    for options in CHOICES:
        model = HypersphereClassifier(coverage=0.5, **options).fit(x, y)
        with pytest.warns(UserWarning, match="there are 0 of 4"):
            assert np.isinf(model.thresholds_).all()


@pytest.mark.filterwarnings("ignore:coverage=.* rejects almost nothing")  # some draws overlap, some do not
@pytest.mark.parametrize("options", CHOICES)
@pytest.mark.parametrize("shots", [(5,) * 12, (2, 3, 4, 6, 8, 12) * 2, (20,) * 3])
def test_coverage_on_fresh_data(options: dict[str, Any], shots: tuple[int, ...]) -> None:
    """Many draws of examples, each judged by many fresh vectors of its classes, which come as often as the examples."""
    covered: dict[float, list[Any]] = {0.8: [], 0.9: []}
    by_class: list[Any] = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        labels = np.repeat(np.arange(len(shots)), shots)
        centers, width = random.normal(size=(len(shots), 8)), np.exp(0.3 * random.normal(size=len(shots)))
        fresh = np.repeat(labels, 6)
        x, q = (centers[y] + width[y, None] * random.normal(size=(len(y), 8)) for y in (labels, fresh))
        for coverage, found in covered.items():
            model = HypersphereClassifier(feature_transform="none", coverage=coverage, **options).fit(x, labels)
            own = model.predict_set(q)[np.arange(len(q)), fresh]
            found.append(own.mean())
            if coverage == 0.8:
                by_class.append([own[fresh == n].mean() for n in range(len(shots))])
    for coverage, found in covered.items():
        assert np.mean(found) > (coverage - 0.025 if not options.get("guarantee") else 2 * coverage - 1)
        wide = (
            0.12 if options else 0.03
        )  # a guarantee, and a threshold that is one of few numbers, are on the safe side
        assert np.mean(found) < coverage + wide
    if options.get("class_thresholds") and shots[0] == 20:
        assert np.min(np.mean(by_class, axis=0)) > 0.75


def test_strangers_are_none_of_these() -> None:
    random = np.random.default_rng(0)
    centers = 3 * random.normal(size=(6, 10))
    y = np.repeat(list("abcdef"), 8)
    x = centers[np.repeat(np.arange(6), 8)] + random.normal(size=(48, 10))
    strangers = 3 * random.normal(size=(200, 10)) + 6
    model = HypersphereClassifier(coverage=0.9, feature_transform="none").fit(x, y)
    assert (model.predict(strangers) == "none of these").mean() > 0.95
    assert (model.predict(x) == y).mean() > 0.85
    assert model.novelty(strangers).min() > np.median(model.novelty(x))
    sets = model.predict_set(np.vstack([x, strangers]))
    predicted = model.predict(np.vstack([x, strangers]))
    named = predicted != "none of these"
    assert not named[~sets.any(axis=1)].any()
    assert sets[named, np.searchsorted(model.classes_, predicted[named])].all()
    assert model.score(strangers, np.full(200, "none of these")) > 0.95


def test_the_likeliest_class_is_named_or_none() -> None:
    """The narrow mean may be nearer than the wide one, and yet too far: then the wide class is no answer either."""
    random = np.random.default_rng(3)
    x = np.vstack([3 * random.normal(size=(30, 3)), 4 + 0.1 * random.normal(size=(30, 3))])
    y = np.repeat(["wide", "narrow"], 30)
    settings_: dict[str, Any] = {
        "fit_mode": "point",
        "feature_transform": "none",
        "coverage": 0.9,
        "class_thresholds": True,
    }
    model = HypersphereClassifier(**settings_).fit(x, y)
    q = np.linspace(0, 12, 50)[:, None] * np.ones(3)
    sets, measure, chosen = model.predict_set(q), model.measure(q), model.predict(q)
    for label, plausible, m in zip(chosen, sets, measure, strict=True):
        best = m.argmin()
        assert label == (model.classes_[best] if plausible[best] else "none of these")
    assert (sets.any(axis=1) & (chosen == "none of these")).any()


@pytest.mark.parametrize(
    ("labels", "reject", "expected"),
    [
        (["a", "b"], "auto", "none of these"),
        ([1, 2], "auto", -1),
        ([1, "b"], "auto", "none of these"),
        ([1, 2], "unknown", "unknown"),
        (["a", "b"], 0, 0),
    ],
)
def test_what_a_rejection_is_called(labels: Any, reject: Any, expected: Any) -> None:
    x, y = blobs((12, 12), apart=1.0)
    y = [labels[label == "b"] for label in y]
    model = HypersphereClassifier(**PLAIN, coverage=0.8, reject_label=reject).fit(x, y)
    assert model.predict(1e3 + x[:1]).tolist() == [expected]
    assert model.predict(x[:1]).tolist()[0] in labels


def test_a_class_and_a_rejection_need_two_names() -> None:
    model = HypersphereClassifier(coverage=0.8).fit(*blobs((12, 12))).set_params(reject_label="a")
    with pytest.raises(ConfigError, match="reject_label='a' is also a class; choose a label"):
        model.predict(np.ones((1, 5)))


@pytest.mark.parametrize(
    ("settings_", "labels", "message"),
    [
        ({}, ["a", "none of these"], "reject_label='none of these' is also a class; choose a label"),
        ({}, [-1, 1], "reject_label=-1 is also a class"),
        ({"reject_label": "b"}, ["a", "b"], "reject_label='b' is also a class"),
    ],
)
def test_no_class_may_become_the_reject_label(settings_: Any, labels: Any, message: str) -> None:
    """Refused when the class would be added, not by the first `predict`; and nothing changes."""
    x, y = blobs((12, 12))
    y = [labels[label == "b"] for label in y]
    model = HypersphereClassifier(coverage=0.8, **settings_)
    with pytest.raises(ConfigError, match=message):
        model.fit(x, y)
    with pytest.raises(ConfigError, match=message):
        model.partial_fit(x, y)
    assert not model.__sklearn_is_fitted__()
    bad = -1 if -1 in labels else labels[1]
    other = [label if label != bad else 2 if bad == -1 else "c" for label in y]
    model.fit(x, other)
    before = model.predict_proba(x)
    with pytest.raises(ConfigError, match=message):
        model.partial_fit(x[:2], [bad, bad])
    with pytest.raises(ConfigError, match=message):
        model.partial_fit(None, None, names={bad: x[0]})
    with pytest.raises(ConfigError, match=message):
        model.fit(x, other, names={bad: x[0]})
    with pytest.raises(ConfigError, match=message):
        model.merge(HypersphereClassifier().fit(x, [bad if n else other[0] for n in range(len(x))]))
    np.testing.assert_array_equal(model.predict_proba(x), before)
    model.partial_fit(x[:2], [other[0], bad], sample_weight=[1, 0])  # a weight of 0 adds no class
    assert bad not in model.classes_
    HypersphereClassifier(**settings_).fit(x, y).predict(x)  # without a coverage nothing is rejected


def test_too_few_examples_reject_nobody_and_say_so() -> None:
    x, y = blobs((4, 4))
    model = HypersphereClassifier(coverage=0.95).fit(x, y)
    with pytest.warns(
        UserWarning, match="coverage=0.95 needs 19 examples of classes with two or more; there are 8 of 8"
    ):
        assert model.predict_set(-100 * x).all()
    one_shot = HypersphereClassifier(coverage=0.8, fit_mode="point").fit(x[:2], ["a", "b"])
    with pytest.warns(
        UserWarning, match="needs 4 examples .* there are 0 of 2: until then some classes accept everything"
    ):
        assert set(one_shot.predict(x)) <= {"a", "b"}
    np.testing.assert_allclose(one_shot.novelty(x[:2]), 0, atol=1e-7)


def test_without_a_coverage_there_are_no_sets() -> None:
    model = HypersphereClassifier().fit(*blobs())
    with pytest.raises(ConfigError, match="without a coverage nothing is rejected; set coverage, for example to"):
        model.predict_set(np.ones((1, 5)))


def test_updates_move_the_thresholds() -> None:
    x, y = blobs((9, 3, 12, 1), seed=8)
    at_once = HypersphereClassifier(coverage=0.8).fit(x, y)
    in_parts = HypersphereClassifier(coverage=0.8).fit(x[:9], y[:9])
    before = in_parts.thresholds_
    in_parts.partial_fit(x[9:], y[9:])
    np.testing.assert_allclose(in_parts.thresholds_, at_once.thresholds_)
    assert before.shape != at_once.thresholds_.shape or not np.allclose(before, at_once.thresholds_)
    assert_equal_models(in_parts, at_once, x)


@pytest.mark.filterwarnings("ignore:coverage=.* rejects almost nothing")  # true of these, and not the point
def test_weights_are_repetitions_here_too() -> None:
    x, y = blobs((9, 3, 8, 1), seed=8)
    weights = np.random.default_rng(0).integers(1, 4, len(x))
    for options in CHOICES:
        weighted = HypersphereClassifier(coverage=0.8, **options).fit(x, y, weights)
        repeated = HypersphereClassifier(coverage=0.8, **options).fit(
            np.repeat(x, weights, axis=0), np.repeat(y, weights)
        )
        np.testing.assert_allclose(weighted.thresholds_, repeated.thresholds_)
