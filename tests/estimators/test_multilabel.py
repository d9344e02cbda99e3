"""MultiLabelClassifier: regions of labels, of which a row carries any number."""

import pickle
from copy import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.metrics import f1_score, jaccard_score, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from hyperproto import (
    ConfigError,
    DataError,
    FewShotTextClassifier,
    HypersphereClassifier,
    MultiLabelClassifier,
    TextEncoder,
    load_classifier,
)
from hyperproto.heads import label_regions
from hyperproto.heads.label_regions import LabelRegions, calibrated, count_threshold, f1_scores, rival_scores
from hyperproto.regions.evidence import NO_EVIDENCE, Evidence

NAMES = ["sun", "rain", "wind"]


def weather(number: int = 24, dim: int = 6, seed: int = 0) -> tuple[Any, Any]:
    """Rows that are sums of directions of the labels they carry, and an indicator matrix."""
    random = np.random.default_rng(seed)
    member = random.random((number, len(NAMES))) < 0.4
    member[:3] = np.eye(3, dtype=bool)
    x = member @ (3 * np.eye(3, dim)) + 0.5 * random.normal(size=(number, dim))
    return x + np.eye(1, dim, dim - 1), member.astype(int)


def lists(member: Any) -> list[list[str]]:
    return [[NAMES[place] for place in np.flatnonzero(row)] for row in member]


X, Y = weather()
Q, TRUTH = weather(60, seed=1)


EXPECTED = {
    "check_estimators_dtypes": "gives one column of 1 and 2, which is no indicator matrix",
    "check_fit2d_1feature": "the same",
    "check_classifier_data_not_an_array": "the same",
    "check_complex_data": "gives complex labels",
    "check_classifiers_one_label": "gives a single label for each row",
    "check_classifiers_classes": "the same",
    "check_classifiers_train": "the same",
    "check_decision_proba_consistency": "the same",
    "check_classifiers_regression_target": "wants the words of a single-label classifier",
    "check_classifier_not_supporting_multiclass": "the same",
}


@parametrize_with_checks(  # type: ignore[untyped-decorator] # scikit-learn has no types
    [MultiLabelClassifier(threshold=0.5), MultiLabelClassifier(threshold=0.5, feature_transform="none")],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# Equations --------------------------------------------------------------------------------------------------------


def test_scores_are_differences_of_measures() -> None:
    """By hand: the measure of the middle of all regions minus that of the label's region, by their distance."""
    x = X - X.mean(0)
    fitted = label_regions._Spheres.of(x, Y.astype(bool), NO_EVIDENCE, 4.0)
    q = Q - X.mean(0)
    weights, bias = fitted.linear
    center, whiten = fitted.fit.center, fitted.fit.whiten
    assert len(center) == 4  # three labels and the background
    middle = center.mean(0)
    for row in range(5):
        for label in range(3):
            near = ((whiten(q[row][None])[0] - center[label]) ** 2).sum() - fitted.fit.bias_radius[label]
            apart = np.linalg.norm(center[label] - middle)
            far = ((whiten(q[row][None])[0] - middle) ** 2).sum()
            assert q[row] @ weights[:, label] + bias[label] == pytest.approx((far - near) / apart)


@pytest.mark.parametrize("named", [False, True])
def test_leave_one_out_is_close_to_new_fits(named: bool) -> None:
    """Statistics of all rows are not refitted, so the two differ a little."""
    x, member = weather(40, seed=3)
    x, member = x - x.mean(0), member.astype(bool)
    evidence = Evidence(names=np.eye(3, 6)) if named else NO_EVIDENCE
    fitted = label_regions._Spheres.of(x, member, evidence, 4.0)
    found = fitted.left_out(np.arange(40))
    refit = np.empty_like(found)
    for row in range(40):
        rest = np.arange(40) != row
        other = label_regions._Spheres.of(x[rest], member[rest], evidence, 4.0)
        weights, bias = other.linear
        refit[row] = (x[row] @ weights + bias) * other.distance / fitted.distance
    inside = x @ fitted.linear[0] + fitted.linear[1]
    assert np.abs(found - refit).mean() < 0.3 * np.abs(inside - refit).mean()
    assert np.corrcoef(found.ravel(), refit.ravel())[0, 1] > 0.999


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_rivals_and_thresholds_equal_a_naive_loop(seed: int, way: int) -> None:
    random = np.random.default_rng(seed)
    scores, member = random.normal(size=(7, way)), random.random((7, way)) < 0.4
    rivals = rival_scores(scores)
    for row, label in np.ndindex(scores.shape):
        others = [scores[row, other] for other in range(way) if other != label]
        assert rivals[row, label] == max(others)
    assert (rival_scores(scores[:, :1]) == 0).all()
    predicted = scores > count_threshold(scores, member)
    assert predicted.sum() == member.sum() or not member.any()
    micro, macro = f1_scores(predicted, member)
    assert micro == pytest.approx(f1_score(member, predicted, average="micro", zero_division=0))
    assert macro == pytest.approx(f1_score(member, predicted, average="macro", zero_division=0))


def test_calibration_is_at_the_minimum_of_its_loss() -> None:
    random = np.random.default_rng(0)
    scores, member = random.normal(size=(50, 3)), random.random((50, 3)) < 0.3
    scores += 1.5 * member
    filled = np.array([True, True, True])

    def loss(slope: float, rival: float, common: float, offset: Any) -> float:
        logits = slope * scores + rival * rival_scores(scores) + common + offset
        value = np.logaddexp(0, logits).sum() - logits[member].sum()
        value += 5 * (slope - 1.5) ** 2 + 15 * (rival + 0.4 * slope) ** 2 + 5e-4 * common**2
        return float(value + (offset @ offset) / 32)

    slope, rival, offset = calibrated(scores, member, filled)
    common = offset.sum() / (3 + 16e-3)  # where the gradients in the common value and in the offsets vanish
    best = loss(slope, rival, common, offset - common)
    for step in (-0.05, 0.05):
        assert loss(slope + step, rival, common, offset - common) > best
        assert loss(slope, rival + step, common, offset - common) > best
        assert loss(slope, rival, common, offset - common + step * np.eye(3)[1]) > best


# Answers ----------------------------------------------------------------------------------------------------------


def test_a_matrix_gives_a_matrix_and_lists_give_lists() -> None:
    matrix = MultiLabelClassifier().fit(X, Y)
    named = MultiLabelClassifier().fit(X, lists(Y))
    assert matrix.classes_.tolist() == [0, 1, 2]
    assert named.classes_.tolist() == sorted(NAMES)
    found = matrix.predict(Q)
    assert found.shape == TRUTH.shape
    assert [sorted(row) for row in lists(found)] == named.predict(Q)
    assert f1_score(TRUTH, found, average="macro") > 0.85
    assert jaccard_score(TRUTH, found, average="samples", zero_division=1) > 0.7
    probability = matrix.predict_proba(Q)
    assert ((probability > matrix.threshold_) == found).all()
    assert ((matrix.decision_function(Q) > 0) == found).all()
    assert matrix.score(Q, TRUTH) == named.score(Q, lists(TRUTH)) == (found == TRUTH).all(1).mean()
    assert named.score(Q, [["snow"]] * len(Q)) == 0
    assert [] in named.predict(Q)  # none of these
    assert cross_val_score(MultiLabelClassifier(), X, Y, cv=3).mean() > 0.5


@pytest.mark.parametrize("as_given", ["sparse", "frame", "lists of numbers", "bool", "sets", "series", "objects"])
def test_every_form_of_labels_is_the_same(as_given: str) -> None:
    pd = pytest.importorskip("pandas")
    given: Any = {
        "sparse": csr_matrix(Y),
        "frame": pd.DataFrame(Y, columns=NAMES),
        "lists of numbers": Y.tolist(),
        "bool": Y.astype(bool),
        "sets": [frozenset(row) for row in lists(Y)],
        "series": pd.Series([tuple(row) for row in lists(Y)]),
        "objects": Y.astype(object),
    }[as_given]
    model = MultiLabelClassifier().fit(X, given)
    labels = model.classes_.tolist()
    assert labels == (NAMES if as_given == "frame" else [0, 1, 2] if labels[0] == 0 else sorted(NAMES))
    expected = MultiLabelClassifier().fit(X, Y).predict_proba(Q)
    order = [NAMES.index(label) if isinstance(label, str) else label for label in labels]
    np.testing.assert_allclose(model.predict_proba(Q), expected[:, order], rtol=1e-4)


def test_probabilities_are_calibrated_and_thresholds_can_be_set() -> None:
    x, member = weather(150, seed=5)
    q, truth = weather(600, seed=6)
    model = MultiLabelClassifier().fit(x, member)
    assert abs(model.predict_proba(q).mean() - truth.mean()) < 0.04
    assert (
        model.set_params(threshold=0.9).predict(q).sum()
        < truth.sum()
        < model.set_params(threshold=0.1).predict(q).sum()
    )
    assert model.threshold_ == 0.1
    assert model.expected_.micro_f1 > 0.85
    assert str(model.expected_).startswith("leave-one-out F1 9")


def test_one_label_one_row_and_a_label_of_all_rows() -> None:
    one = MultiLabelClassifier().fit(X, Y[:, :1])
    assert f1_score(TRUTH[:, 0], one.predict(Q)[:, 0]) > 0.8
    every = MultiLabelClassifier().fit(X, np.ones((len(X), 2), dtype=int))
    assert every.predict(X).all()
    alone = MultiLabelClassifier().fit(X[:1], [["a", "b"]])
    assert np.isfinite(alone.predict_proba(Q)).all()
    assert str(alone.expected_) == "nothing can be left out: there is one example"
    single = MultiLabelClassifier().fit(np.eye(3), [["a"], ["b"], ["c"]])
    assert (single.predict_proba(np.eye(3)).argmax(1) == np.arange(3)).all()


def test_names_and_unlabelled_rows_help() -> None:
    few, labels = X[:3], Y[:3]
    plain = MultiLabelClassifier().fit(few, labels)
    names = {0: np.eye(3, 6)[0] + np.eye(1, 6, 5)[0], 1: np.eye(3, 6)[1], 2: np.eye(3, 6)[2]}
    noisy = few + np.random.default_rng(0).normal(size=few.shape)
    scores = []
    for known, rows in ((None, None), (names, None), (None, Q), (names, Q)):
        model = MultiLabelClassifier().fit(noisy, labels, names=known, unlabelled=rows)
        scores.append(roc_auc_score(TRUTH, model.predict_proba(Q)))
    assert scores[1] > scores[0] + 0.02
    assert scores[2] > scores[0]
    assert scores[3] > scores[0] + 0.02
    zero = MultiLabelClassifier().fit(few, lists(labels), names={"snow": -np.eye(3, 6)[0]})
    assert zero.classes_.tolist() == ["rain", "snow", "sun", "wind"]
    assert zero.counts_.tolist() == [1, 0, 1, 1]
    unlabelled = MultiLabelClassifier().fit([*few, *Q], [*lists(labels), *[None] * len(Q)])
    expected = MultiLabelClassifier().fit(few, lists(labels), unlabelled=Q)
    np.testing.assert_allclose(unlabelled.predict_proba(Q), expected.predict_proba(Q))
    assert (plain.counts_ == 1).all()


# Changes ----------------------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 20))
def test_updates_equal_a_new_fit(seed: int, cut: int) -> None:
    x, member = weather(24, seed=seed)
    labels = lists(member)
    whole = MultiLabelClassifier().fit(x, labels)
    grown = MultiLabelClassifier().partial_fit(x[:cut], labels[:cut]).partial_fit(x[cut:], labels[cut:])
    np.testing.assert_allclose(grown.predict_proba(Q), whole.predict_proba(Q), rtol=1e-6, atol=1e-9)
    extra = [*labels, ["snow"], []]
    shrunk = MultiLabelClassifier().fit([*x, Q[0], Q[1]], extra).forget(Q[:2], [["snow"], []])
    assert shrunk.classes_.tolist() == whole.classes_.tolist()
    np.testing.assert_allclose(shrunk.predict_proba(Q), whole.predict_proba(Q), rtol=1e-6, atol=1e-9)


def test_a_removed_label_leaves_its_examples() -> None:
    model = MultiLabelClassifier().fit(X, lists(Y)).remove_class("sun")
    expected = MultiLabelClassifier().fit(X, [[each for each in row if each != "sun"] for row in lists(Y)])
    np.testing.assert_allclose(model.predict_proba(Q), expected.predict_proba(Q))
    before = model.predict_proba(Q)
    calls: Any = (
        (lambda: model.remove_class("sun"), "there is no label 'sun'"),
        (lambda: model.forget(X[:1], [["sun"]]), "there is no label 'sun'"),
        (lambda: model.forget(Q[:1], [["rain"]]), "row 0 of X is not among the examples with these labels"),
        (lambda: model.forget(Q[:1], [None]), "row 0 of the unlabelled rows is not among"),
        (lambda: model.partial_fit(np.full((1, 6), np.nan), [["rain"]]), "NaN"),
        (lambda: model.remove_class("wind").remove_class("rain"), "the only label"),
    )
    for call, words in calls:
        with pytest.raises((DataError, ValueError), match=words):
            call()
    model = MultiLabelClassifier().fit(X, lists(Y)).remove_class("sun")
    np.testing.assert_array_equal(model.predict_proba(Q), before)


def test_unlabelled_rows_are_forgotten_and_names_are_kept() -> None:
    names = {"rain": np.ones(6)}
    model = MultiLabelClassifier().fit(X, lists(Y), names=names, unlabelled=Q[:4])
    model.forget(Q[:4], [None] * 4)
    expected = MultiLabelClassifier().fit(X, lists(Y), names=names)
    np.testing.assert_allclose(model.predict_proba(Q), expected.predict_proba(Q))
    rainy = [row for row in range(len(X)) if "rain" in lists(Y)[row]]
    assert "rain" in model.forget(X[rainy], [lists(Y)[row] for row in rainy]).classes_
    model.partial_fit(None, names={"snow": -np.ones(6)}, unlabelled=Q[:2])
    assert "snow" in model.classes_


# Saving -----------------------------------------------------------------------------------------------------------


def test_saved_and_copied_classifiers_answer_alike(tmp_path: Any) -> None:
    for y, names, rows in ((Y, None, None), (lists(Y), {"sun": np.ones(6), "snow": np.eye(1, 6)[0]}, Q[:20])):
        model = MultiLabelClassifier(threshold=0.4).fit(X, y, names=names, unlabelled=rows)
        model.save(tmp_path / "model")
        for again in (load_classifier(tmp_path / "model"), pickle.loads(pickle.dumps(model)), copy(model)):
            assert isinstance(again, MultiLabelClassifier)
            np.testing.assert_array_equal(again.predict_proba(Q), model.predict_proba(Q))
            assert again.threshold_ == 0.4
            again.partial_fit(Q[:1], y[:1])
            assert again.counts_.sum() == model.counts_.sum() + 1
    path = tmp_path / "model" / "model.json"
    path.write_text(path.read_text().replace('"sun"', '"sum"'))
    with pytest.raises(DataError, match="was changed after it was saved"):
        load_classifier(tmp_path / "model")
    HypersphereClassifier().fit(X, Y[:, 0]).save(tmp_path / "other")
    with pytest.raises(DataError, match="this version of hyperproto reads 'hyperproto-multilabel/1'"):
        MultiLabelClassifier.load(tmp_path / "other")


def test_texts_are_encoded_and_labels_are_names(tmp_path: Any) -> None:
    def letters(texts: list[str]) -> Any:
        return [[text.count(letter) + 0.01 for letter in "aeiou"] for text in texts]

    texts = ["aaa", "eee", "aaeea", "iii", "ooo u"]
    y = [["a"], ["e"], ["a", "e"], [], []]
    model = MultiLabelClassifier(encoder=letters).fit(texts, y)
    assert model.predict(["banana", "eeee"]) == [["a"], ["e"]]
    assert model.item_kind == "text"
    model.save(tmp_path / "model")
    with pytest.raises(DataError, match="give it again"):
        load_classifier(tmp_path / "model")
    again = MultiLabelClassifier.load(tmp_path / "model", encoder=letters)
    np.testing.assert_array_equal(again.predict_proba(texts), model.predict_proba(texts))
    with pytest.raises(DataError, match="this classifier was fitted to vectors of"):
        MultiLabelClassifier.load(tmp_path / "model", encoder=lambda texts: letters(texts))
    own = MultiLabelClassifier(encoder=TextEncoder(letters, prompt="")).fit(texts, y, names={"a": "aaaa", "i": "iii"})
    assert own.classes_.tolist() == ["a", "e", "i"]
    own.save(tmp_path / "own")
    assert MultiLabelClassifier.load(tmp_path / "own", encoder=letters).encoder.get_params() == own.encoder.get_params()


# Errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["sun"] * 24, r"y\[0\] is 'sun' \(str\); give the labels of each row as a list or a set, such as \['sun'\]"),
        (3, "y is 3 .int.; give the labels of each row"),
        (None, "requires y to be passed"),
        ({"sun": [1]}, "y is a dict"),
        ([[None]] * 24, r"y\[0\] holds None"),
        ([[float("nan")]] * 24, r"y\[0\] holds nan"),
        (2 * Y, "an indicator matrix holds 0 and 1"),
        (np.full((24, 2), np.nan), "y contains NaN"),
        (Y[:5], "inconsistent numbers of samples"),
        ([[]] * 24, "no row has a label, and no label has a name"),
        ([None] * 24, "there are no examples"),
    ],
)
def test_labels_that_cannot_be_read_are_refused(y: Any, words: str) -> None:
    with pytest.raises((DataError, ValueError), match=words):
        MultiLabelClassifier().fit(X, y)


def test_parameters_and_names_are_checked() -> None:
    for options, words in (
        ({"threshold": 1.5}, "give a probability between 0 and 1"),
        ({"feature_transform": "center-unit"}, "give 'unit', 'none' or 'auto'"),
        ({"separator": " "}, "give a text between two labels"),
    ):
        with pytest.raises(ConfigError, match=words):
            MultiLabelClassifier(**options).fit(X, Y)
    for names, words in (
        ({0: [1.0]}, r"the name of 0 is an array of shape \(1,\)"),
        ({0: "sun"}, "here a name is a vector"),
        ("all", "names is a str"),
        ({"0": np.ones(6)}, "names has the label '0'"),
    ):
        with pytest.raises(DataError, match=words):
            MultiLabelClassifier().fit(X, Y, names=names)
    model = MultiLabelClassifier().fit(X, Y)
    with pytest.raises(DataError, match="y has 2 columns, and there are 3 labels"):
        model.partial_fit(X, Y[:, :2])
    with pytest.raises(ConfigError, match="a multi-label classifier has no `diagnose`"):
        model.diagnose()
    assert not hasattr(model, "novelty")
    assert not hasattr(MultiLabelClassifier(), "classes_")


def test_large_supports_leave_out_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_regions, "MOST_LEFT_OUT", 10)
    fitted = LabelRegions.fit(X, Y.astype(bool))
    assert fitted.expected.n_examples == 10
    assert FewShotTextClassifier().names == "auto"
