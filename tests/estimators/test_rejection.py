"""reject_rate, precision and outside items: thresholds against loops, what they promise, and what they refuse."""

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import FewShotTextClassifier, HypersphereClassifier
from hyperproto.estimators.rejection import CERTAINTY, balanced_threshold, certified_threshold
from tests.estimators.conftest import blobs

X, Y = blobs((8, 8, 8, 8), dim=6, seed=0)
OUTSIDE = np.random.default_rng(9).normal(size=(12, 6)) * 4
ONE = np.unique(Y, return_index=True)[1]  # an example a class
FRESH = np.random.default_rng(8).normal(size=(40, 6)) * 4


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_the_balanced_threshold_has_the_least_sum_of_errors(genuine: Any, outside: Any) -> None:
    a, b = np.array(genuine, float), np.array(outside, float)

    def errors(threshold: float) -> float:
        return float((a > threshold).mean() + (b <= threshold).mean())

    found = balanced_threshold(a, np.ones(len(a)), b)
    tried = np.arange(-1, 11, 0.25)
    least = min(map(errors, tried))
    assert errors(found) == pytest.approx(least)
    assert all((a > found).sum() <= (a > t).sum() for t in tried if errors(t) < least + 1e-9)


def test_weights_count_in_the_balanced_threshold() -> None:
    scores, outside = np.array([0.0, 1.0, 2.0]), np.array([1.5, 3.0])
    assert balanced_threshold(scores, np.array([9.0, 1.0, 1.0]), outside) == 1.25
    assert balanced_threshold(scores, np.array([1.0, 1.0, 20.0]), outside) == 2.5


def test_a_certified_threshold_is_one_that_binomial_tests_pass() -> None:
    random = np.random.default_rng(1)
    confidence = random.permutation(300) / 300
    right = (random.random(300) < confidence**0.2).astype(float)
    threshold = certified_threshold(confidence, right, np.ones(300), 0.8)
    kept = confidence >= threshold
    assert kept.sum() > 100
    starts = sum(binom.cdf(0, n, 0.2) <= 1 - CERTAINTY for n in 300 / 2.0 ** np.arange(12))
    assert binom.sf(right[kept].sum() - 1, kept.sum(), 0.8) <= (1 - CERTAINTY) / starts + 1e-12
    assert certified_threshold(confidence, np.zeros(300), np.ones(300), 0.8) == np.inf
    assert certified_threshold(confidence, np.ones(300), np.ones(300), 0.8) == confidence.min()
    assert certified_threshold(np.empty(0), np.empty(0), np.empty(0), 0.8) == np.inf


def test_a_certified_precision_holds_as_often_as_it_says() -> None:
    """Draw examples 600 times whose answers of confidence c are right with probability c."""
    random, failed = np.random.default_rng(2), 0
    for _ in range(600):
        confidence = random.random(150)
        right = (random.random(150) < 0.5 + confidence / 2).astype(float)
        threshold = certified_threshold(confidence, right, np.ones(150), 0.85)
        failed += threshold <= 1 and 0.5 + (1 + threshold) / 4 < 0.85
    assert failed / 600 <= 1 - CERTAINTY + 0.03


def test_tied_confidences_are_answered_together() -> None:
    right = np.repeat([1.0, 0.0], [60, 20])
    assert certified_threshold(np.full(80, 0.5), right, np.ones(80), 0.9) == np.inf
    assert certified_threshold(np.repeat([0.9, 0.5], [60, 20]), right, np.ones(80), 0.9) == 0.9


@pytest.mark.parametrize("fit_settings", [{}, {"fit_mode": "point"}, {"region": "gaussian", "fit_mode": "unbiased"}])
def test_a_reject_rate_is_the_share_of_fresh_rows_that_is_rejected(fit_settings: dict[str, Any]) -> None:
    random = np.random.default_rng(3)
    centers = random.normal(size=(10, 12))
    rejected = []
    for _ in range(12):
        y = np.repeat(np.arange(10), 6)
        fresh = np.repeat(np.arange(10), 20)
        model = HypersphereClassifier(reject_rate=0.1, **fit_settings).fit(centers[y] + random.normal(size=(60, 12)), y)
        answers = model.predict(centers[fresh] + random.normal(size=(200, 12)))
        rejected.append((answers == -1).mean())
    assert 0.06 < np.mean(rejected) < 0.15


def test_rejection_is_by_novelty_or_by_probability() -> None:
    rate = HypersphereClassifier(reject_rate=0.2).fit(X, Y)
    assert ((rate.predict(FRESH) == "none of these") == (rate.novelty(FRESH) > rate.rejection_.threshold)).all()
    assert rate.rejection_.rule == "reject_rate"
    sure = HypersphereClassifier(precision=0.7, reject_label="?").fit(X, Y)
    assert sure.rejection_.score == "probability"
    assert ((sure.predict(FRESH) == "?") == (sure.predict_proba(FRESH).max(axis=1) < sure.rejection_.threshold)).all()
    assert rate.expected_.rejected == pytest.approx(5 / 32)
    assert "; rejects 16% of items of the classes and about" in str(rate.expected_)
    curve = sure.risk_coverage_
    assert curve.answered[-1] == 1
    assert curve.precision[-1] == pytest.approx(sure.expected_.accuracy)
    assert (np.diff(curve.threshold) < 0).all()


def test_a_given_temperature_moves_the_threshold_with_the_probabilities() -> None:
    sure = HypersphereClassifier(precision=0.7).fit(X, Y)
    before = sure.rejection_.threshold
    sure.set_params(temperature=5 * sure.temperature_)
    assert 0.25 < sure.rejection_.threshold < before
    assert (
        (sure.predict(X) == "none of these") == (sure.predict_proba(X).max(axis=1) < sure.rejection_.threshold)
    ).all()


def test_outside_rows_tune_the_threshold() -> None:
    model = HypersphereClassifier().fit(X, Y, outside=OUTSIDE)
    assert model.rejection_.rule == "outside"
    left = model._snapshot().novelty.left_out
    assert left is not None
    expected = balanced_threshold(left.novelty, left.weights, model.novelty(OUTSIDE).astype(np.float64))
    assert model.rejection_.threshold == pytest.approx(expected)
    assert model.expected_.outside_rejected == (model.predict(OUTSIDE) == "none of these").mean()
    later = (
        HypersphereClassifier().fit(X, Y).partial_fit(None, outside=OUTSIDE[:5]).partial_fit(None, outside=OUTSIDE[5:])
    )
    assert later.rejection_ == model.rejection_
    assert (
        later.forget(None, outside=OUTSIDE).predict(FRESH).tolist()
        == HypersphereClassifier().fit(X, Y).predict(FRESH).tolist()
    )
    with pytest.raises(AttributeError, match="or give outside items to fit"):
        _ = later.rejection_
    with pytest.raises(DataError, match="outside row 0 is not among the outside rows; nothing was forgotten"):
        later.forget(None, outside=OUTSIDE)
    half = HypersphereClassifier().fit(X[::2], Y[::2], outside=OUTSIDE[:4])
    half.merge(HypersphereClassifier().fit(X[1::2], Y[1::2], outside=OUTSIDE[4:]))
    assert half.rejection_.threshold == pytest.approx(model.rejection_.threshold)


def test_outside_rows_count_as_wrong_answers_of_a_precision() -> None:
    sure = HypersphereClassifier(precision=0.6).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        careful = HypersphereClassifier(precision=0.6).fit(X, Y, outside=np.concatenate([X, X]))
        assert careful.rejection_.threshold > sure.rejection_.threshold
    rate = HypersphereClassifier(reject_rate=0.2).fit(X, Y, outside=OUTSIDE)
    assert rate.rejection_ == HypersphereClassifier(reject_rate=0.2).fit(X, Y).rejection_


@pytest.mark.parametrize("form", ["saved", "pickled", "copied"])
def test_models_with_outside_rows_are_kept_whole(form: str, tmp_path: Path) -> None:
    model = HypersphereClassifier(unlabelled_label="?").fit(X, Y, outside=OUTSIDE.astype(np.float32))
    if form == "saved":
        model.save(tmp_path / "model")
        assert '"hyperproto-estimator/3"' in (tmp_path / "model" / "model.json").read_text()
        again = HypersphereClassifier.load(tmp_path / "model")
    else:
        again = pickle.loads(pickle.dumps(model)) if form == "pickled" else copy.copy(model)
    assert again.rejection_ == model.rejection_
    assert (again.predict(FRESH) == model.predict(FRESH)).all()
    again.partial_fit(None, outside=FRESH)
    assert len(again._state.outside.view) == len(OUTSIDE) + len(FRESH)
    assert len(model._state.outside.view) == len(OUTSIDE)


def test_explanations_name_the_score_that_rejects() -> None:
    rate = HypersphereClassifier(reject_rate=0.2).fit(X, Y)
    row = FRESH[rate.novelty(FRESH).argmax()][None]
    assert f"but the novelty {rate.novelty(row)[0]:.2f} is above {rate.rejection_.threshold:.2f}." in str(
        rate.explain(row)[0]
    )
    sure = HypersphereClassifier(precision=0.7).fit(X, Y)
    row = FRESH[sure.predict_proba(FRESH).max(axis=1).argmin()][None]
    assert f"and an answer needs {sure.rejection_.threshold:.1%}." in str(sure.explain(row)[0])
    assert sure.explain(row)[0].label == "none of these"


def test_texts_take_outside_items() -> None:
    def letters(texts: Any) -> Any:
        return [[text.count(letter) + 0.1 for letter in "abcdef"] for text in texts]

    texts, labels = ["aab", "aaab", "aabb", "ccd", "cccd", "ccdd"], ["a"] * 3 + ["c"] * 3
    model = FewShotTextClassifier(encoder=letters, names=None).fit(texts, labels, outside=["ef", "eef", "eff"])
    assert model.predict(["aaabb", "eeff"]).tolist() == ["a", "none of these"]
    model.partial_fit(None, outside=["f"]).forget(None, outside=["ef", "eef", "eff", "f"])
    assert model.predict(["eeff"])[0] in ("a", "c")
    model.set_params(reject_rate=0.3)
    assert model.rejection_.rule == "reject_rate"


def test_too_few_examples_are_said() -> None:
    one = HypersphereClassifier(reject_rate=0.05).fit(X[ONE], Y[ONE])
    with pytest.warns(
        UserWarning, match=r"reject_rate=0.05 needs 19 examples of classes .* there are 0: until then noth"
    ):
        assert "none of these" not in one.predict(FRESH)
    with pytest.warns(
        UserWarning, match=r"precision=0.95 cannot be certified: it needs 45 .* gives 0 answers, 0 of them"
    ):
        assert set(one.set_params(reject_rate=None, precision=0.95).predict(FRESH)) == {"none of these"}
    assert one.expected_.precision is None
    alone = HypersphereClassifier().fit(X[ONE], Y[ONE], outside=OUTSIDE)
    with pytest.warns(UserWarning, match="outside items need examples of classes with two or more"):
        assert "none of these" not in alone.predict(FRESH)


def test_unlabelled_rows_stand_for_examples_that_cannot_be_left_out() -> None:
    rows = np.delete(X, ONE, axis=0)
    model = HypersphereClassifier(reject_rate=0.1).fit(X[ONE], Y[ONE], unlabelled=rows)
    assert (model.novelty(rows) > model.rejection_.threshold).sum() == 1  # rank ceil(0.9 (28 + 1)) of 28
    assert model.expected_.rejected is None


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"coverage=0.9 and reject_rate=0.1: each is a rule of rejection of its own"):
        HypersphereClassifier(coverage=0.9, reject_rate=0.1).fit(X, Y)
    with pytest.raises(ConfigError, match=r"reject_rate=5: give a share between 0 and 1, such as 0.05, or None"):
        HypersphereClassifier(reject_rate=5).fit(X, Y)
    with pytest.raises(ConfigError, match=r"precision='high': give a share between 0 and 1, such as 0.95, or None"):
        HypersphereClassifier().set_params(precision="high").fit(X, Y)
    lean: dict[str, Any] = {"fit_mode": "unbiased", "store_support": False, "temperature": 1.0}
    with pytest.raises(ConfigError, match="keeps no examples, but precision scores each of them; use precision=None"):
        HypersphereClassifier(**lean, precision=0.9).fit(X, Y)
    with pytest.raises(ConfigError, match="outside items are compared with each of them; set store_support=True"):
        HypersphereClassifier(**lean).fit(X, Y, outside=OUTSIDE)
    with pytest.raises(DataError, match="outside rows have 3 numbers, and the examples 6; use vectors of one encoder"):
        HypersphereClassifier().fit(X, Y, outside=OUTSIDE[:, :3])
    with pytest.raises(ConfigError, match="reject_label='a' is also a class"):
        HypersphereClassifier(reject_label="a").fit(X, Y, outside=OUTSIDE)


def test_an_onnx_graph_without_the_rule_says_so(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    with pytest.warns(UserWarning, match="the ONNX graph never answers none of these: rejection_ is not exported"):
        HypersphereClassifier(reject_rate=0.2).fit(X, Y).export_onnx(tmp_path / "head.onnx")
