"""Names of classes and unlabelled rows in the classifier: fitted, updated, saved, exported, diagnosed."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy.special import softmax
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.derived import closed_snapshot, temperature_of
from hyperproto.estimators.temperature import UNLABELLED_STEP
from hyperproto.heads import RefinedForm
from hyperproto.regions import ClassStatistics, ClosedForm, Evidence, Sphere
from hyperproto.regions.left_out import Folds, left_out_measures
from tests.estimators.conftest import assert_equal_models
from tests.estimators.test_storage import forge, put

DIM = 12
RANDOM = np.random.default_rng(0)
PLACE = RANDOM.normal(size=(5, DIM))
LABELS = np.array(list("abcde"))


def drawn(shots: Any, seed: int) -> Any:
    """Vectors and labels about the five places."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(5), shots))
    return PLACE[y] + 1.2 * random.normal(size=(len(y), DIM)), LABELS[y]


X, Y = drawn([3, 1, 4, 2, 5], 1)
ROWS = drawn(12, 2)[0]
TEST, TEST_Y = drawn(60, 3)
NAMES = {label: place + 0.5 * RANDOM.normal(size=DIM) for label, place in zip("abcde", PLACE, strict=True)}
Q = TEST[:9]


@pytest.fixture(params=["unit", "center-unit", "none"])
def make(request: pytest.FixtureRequest) -> Callable[..., HypersphereClassifier]:
    return lambda **settings: HypersphereClassifier(feature_transform=request.param, **settings)


@pytest.mark.parametrize("refine", [False, True])
def test_it_is_the_region_on_prepared_rows(make: Any, refine: Any) -> None:
    model = make(refine=refine).fit(X, Y, names=NAMES, unlabelled=ROWS)
    transform = model.feature_transform
    shift = np.mean([X[label == Y].mean(0) for label in LABELS], axis=0) if transform == "center-unit" else 0

    def prepared(rows: Any) -> Any:
        rows = np.asarray(rows) - shift
        return rows if transform == "none" else rows / np.linalg.norm(rows, axis=1, keepdims=True)

    names, codes = prepared([NAMES[label] for label in LABELS]), np.searchsorted(LABELS, Y)
    form = (RefinedForm if refine else ClosedForm)(
        Sphere, "bayes", {"evidence": Evidence(names, unlabelled=prepared(ROWS))}
    )
    region: Any = form.fit(ClassStatistics.of(prepared(X), codes, 5))
    np.testing.assert_allclose(model.measure(Q), region.measure(prepared(Q)), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.centers_, region.center, rtol=1e-6, atol=1e-8)
    assert model.score(TEST, TEST_Y) > make().fit(X, Y).score(TEST, TEST_Y) + 0.01


def test_without_either_nothing_changes(make: Any) -> None:
    plain, same = make().fit(X, Y), make().fit(X, Y, names=None, unlabelled=None)
    assert_equal_models(plain, same, Q, 0)
    assert_equal_models(plain, make().fit(X, Y, names={}), Q, 0)


def test_rows_without_a_label_are_unlabelled_rows(make: Any) -> None:
    expected = make().fit(X, Y, names=NAMES, unlabelled=ROWS)
    rows, labels = np.concatenate([ROWS[:5], X, ROWS[5:]]), [*[None] * 5, *Y, *[None] * (len(ROWS) - 5)]
    assert_equal_models(make().fit(rows, labels, names=NAMES), expected, Q, 1e-9)
    marked = make(unlabelled_label="?").fit(rows, ["?" if label is None else label for label in labels], names=NAMES)
    assert_equal_models(marked, expected, Q, 1e-9)
    weights = np.linspace(0.5, 2, len(rows))
    heavy = make().fit(rows, labels, weights, names=NAMES)
    assert_equal_models(heavy, make().fit(X, Y, weights[5 : 5 + len(X)], names=NAMES, unlabelled=ROWS), Q, 1e-9)
    assert [report.example for report in heavy.diagnose().mislabelled] == [
        report.example + 5
        for report in make().fit(X, Y, weights[5 : 5 + len(X)], names=NAMES, unlabelled=ROWS).diagnose().mislabelled
    ]  # numbers are positions in what was given


def test_numbers_as_labels_with_minus_one_for_none() -> None:
    rows, codes = np.concatenate([X, ROWS]), np.concatenate([np.searchsorted(LABELS, Y), np.full(len(ROWS), -1)])
    model = HypersphereClassifier(unlabelled_label=-1).fit(rows, codes)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    expected = HypersphereClassifier().fit(X, Y, unlabelled=ROWS)
    np.testing.assert_allclose(model.predict_proba(Q), expected.predict_proba(Q), rtol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"refine": True, "temperature": 1.0}])
def test_updates_are_one_fit(make: Any, settings: Any) -> None:
    whole = make(**settings).fit(X, Y, names=NAMES, unlabelled=ROWS)
    first = {label: NAMES[label] for label in "ab"}
    rest = {label: NAMES[label] for label in "cde"}
    parts = make(**settings).partial_fit(X[:6], Y[:6], names=first, unlabelled=ROWS[:20])
    parts.partial_fit(X[6:], Y[6:]).partial_fit(None, None, names=rest, unlabelled=ROWS[20:])
    assert_equal_models(parts, whole, Q, 1e-5)
    merged = make(**settings).fit(X[:6], Y[:6], names=first, unlabelled=ROWS[:20])
    merged.merge(make(**settings).fit(X[6:], Y[6:], names=rest, unlabelled=ROWS[20:]))
    assert_equal_models(merged, whole, Q, 1e-5)
    more = make(**settings).fit(X, Y, names=NAMES, unlabelled=np.concatenate([Q, ROWS]))
    more.partial_fit(TEST[20:22], ["a", None]).forget(TEST[[20, 21]], ["a", None]).forget(Q, [None] * 9)
    assert_equal_models(more, whole, Q, 1e-5)


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_order_of_rows_and_classes_does_not_matter(make: Any, refine: Any, dtype: Any) -> None:
    x, rows = X.astype(dtype), ROWS.astype(dtype)
    expected = make(refine=refine).fit(x, Y, names=NAMES, unlabelled=rows)
    renamed = dict(zip("abcde", "ceabd", strict=True))
    for seed in range(3):
        random = np.random.default_rng(seed)
        order, others = random.permutation(len(x)), random.permutation(len(rows))
        shuffled = make(refine=refine).fit(x[order], Y[order], names=NAMES, unlabelled=rows[others])
        grown = make(refine=refine).fit(x[order[:4]], Y[order[:4]], names=NAMES, unlabelled=rows[others[:9]])
        grown.partial_fit(x[order[4:]], Y[order[4:]]).partial_fit(None, None, unlabelled=rows[others[9:]])
        other = make(refine=refine).fit(
            x,
            [renamed[label] for label in Y],
            names={renamed[key]: name for key, name in NAMES.items()},
            unlabelled=rows,
        )
        proba = other.predict_proba(TEST)[:, [other.classes_.tolist().index(renamed[label]) for label in "abcde"]]
        for model, found in ((shuffled, None), (grown, None), (other, proba)):
            found = model.predict_proba(TEST) if found is None else found
            np.testing.assert_allclose(found, expected.predict_proba(TEST), atol=1e-9 if dtype == np.float64 else 1e-4)
            assert model.expected_.accuracy == expected.expected_.accuracy


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("shots", [1, 3])
def test_one_outlier_among_the_unlabelled_rows_does_no_harm(refine: Any, shots: int) -> None:
    x, y = drawn(shots, 4)
    model = HypersphereClassifier(feature_transform="none", refine=refine)
    usual = clone(model).fit(x, y, unlabelled=ROWS)
    for factor in (1e3, 1e8):
        rows = ROWS.copy()
        rows[7] *= factor
        found = clone(model).fit(x, y, unlabelled=rows)
        assert found.score(TEST, TEST_Y) > usual.score(TEST, TEST_Y) - 0.02
        assert found.temperature_ == pytest.approx(usual.temperature_, rel=0.2)
        if shots > 1:
            assert found.expected_.accuracy == pytest.approx(usual.expected_.accuracy, abs=0.07)


def test_a_class_with_a_name_stays_when_its_last_example_goes() -> None:
    model = HypersphereClassifier().fit(X, Y, names={"b": NAMES["b"]})
    assert model.forget(X[Y == "b"], ["b"]).counts_.tolist() == [3, 0, 4, 2, 5]
    assert model.forget(X[Y == "d"], ["d"] * 2).classes_.tolist() == ["a", "b", "c", "e"]
    model.remove_class("b")
    assert model.classes_.tolist() == ["a", "c", "e"]
    assert_equal_models(
        model, HypersphereClassifier().fit(X[np.isin(Y, ["a", "c", "e"])], Y[np.isin(Y, ["a", "c", "e"])]), Q
    )
    alone = HypersphereClassifier().fit(X[:2], Y[:2], names=NAMES).forget(X[:2], Y[:2])
    assert alone.counts_.tolist() == [0] * 5


@pytest.mark.parametrize("empty", [None, []])
def test_no_examples_at_all(empty: Any) -> None:
    model = HypersphereClassifier().fit(empty, empty, names=NAMES)
    names = np.array([NAMES[label] for label in LABELS])
    cosine = TEST @ (names / np.linalg.norm(names, axis=1, keepdims=True)).T
    assert (model.predict(TEST) == LABELS[cosine.argmax(1)]).all()
    assert model.counts_.tolist() == [0] * 5
    assert model.n_features_in_ == DIM
    assert model.expected_.reason == "there are no examples to leave out"
    np.testing.assert_allclose(model.predict_proba(TEST).sum(1), 1)
    assert np.isfinite(model.novelty(TEST)).all()
    learnt = HypersphereClassifier().fit(empty, empty, names=NAMES, unlabelled=ROWS)
    assert learnt.score(TEST, TEST_Y) > model.score(TEST, TEST_Y)
    assert_equal_models(learnt, HypersphereClassifier().fit(ROWS, [None] * len(ROWS), names=NAMES), Q, 1e-9)
    few = model.partial_fit(X, Y)
    assert_equal_models(few, HypersphereClassifier().fit(X, Y, names=NAMES), Q)


@pytest.mark.filterwarnings("ignore:coverage=0.8 rejects almost nothing")
def test_classes_known_by_name_alone(make: Any, tmp_path: Path) -> None:
    """They have answers, distances, thresholds and a place in the diagnosis; and take no part in what is left out."""
    here = np.isin(Y, ["a", "c", "e"])
    model = make(coverage=0.8).fit(X[here], Y[here], names=NAMES)
    assert model.counts_.tolist() == [3, 0, 4, 0, 5]
    assert set(model.predict(TEST)) >= {"b", "d"}
    assert np.isfinite(model.means_).all()
    assert np.isfinite(model.thresholds_).all()
    assert (model.extents_ > 0).all()
    assert model.predict_set(TEST).shape == (300, 5)
    plain = make(coverage=0.8).fit(X[here], Y[here])
    place = np.searchsorted(LABELS, plain.classes_)
    np.testing.assert_allclose(model.thresholds_[place], plain.thresholds_, rtol=1e-9)  # names change no distance
    np.testing.assert_allclose(model.means_[place], plain.means_, rtol=1e-9)
    reports = {report.label: report for report in model.diagnose().classes}
    assert reports["b"].count == 0
    assert reports["b"].overlap is None
    assert reports["b"].rival in "acde"
    assert reports["a"].overlap is not None
    assert model.diagnose().would_gain_most in "bd"
    assert np.isfinite(model.diagnose().plane.means).all()
    model.save(tmp_path)
    assert_equal_models(HypersphereClassifier.load(tmp_path), model, Q, 0)


def test_a_single_class_and_two_classes_known_by_name() -> None:
    with pytest.warns(UserWarning, match="there is only one class, 'a'"):
        one = HypersphereClassifier().fit(None, None, names={"a": NAMES["a"]})
    assert set(one.predict(TEST)) == {"a"}
    two = HypersphereClassifier(coverage=0.8).fit(X[Y == "a"], Y[Y == "a"], names={"b": NAMES["b"]})
    assert two.decision_function(TEST).shape == (300,)
    assert (two.predict_proba(TEST) > 0).all()
    assert two.diagnose().classes[1].rival == "a"


def test_what_is_expected_does_not_come_from_what_was_seen() -> None:
    """Of a model that knows its own examples by heart: clusters that an example made, or a head that it moved."""
    random = np.random.default_rng(5)
    x, y = random.normal(size=(40, 30)), np.repeat(np.arange(20), 2)  # nothing to learn
    rows = random.normal(size=(200, 30))
    given: tuple[dict[str, Any], ...] = ({"unlabelled": rows}, {})
    for settings in given:
        for refine in (False, True):
            model = HypersphereClassifier(refine=refine).fit(x, y, **settings)
            assert model.expected_.accuracy is not None
            assert model.expected_.accuracy < 0.3
            assert model.score(x, y) > 0.9
            assert model.predict_proba(rows).max(1).mean() < 0.5


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_saved_with_and_without_its_rows(make: Any, tmp_path: Path, refine: Any, stored: bool) -> None:
    model = make(refine=refine, coverage=0.8).fit(X, Y, names=NAMES, unlabelled=ROWS)
    model.save(tmp_path, unlabelled=stored)
    again = HypersphereClassifier.load(tmp_path)
    assert_equal_models(again, model, Q, 1e-9)
    assert again.expected_ == model.expected_
    assert again.diagnose() == model.diagnose()
    kept = again._state.unlabelled.view
    assert len(kept) == (len(ROWS) if stored else 0)
    again.save(tmp_path / "again", unlabelled=stored)
    assert_equal_models(HypersphereClassifier.load(tmp_path / "again"), model, Q, 1e-9)
    for copied in (clone(model).fit(X, Y, names=NAMES, unlabelled=ROWS), pickle.loads(pickle.dumps(model))):
        assert_equal_models(copied, model, Q, 1e-9)
    again.partial_fit(TEST[:5], TEST_Y[:5])
    model.partial_fit(TEST[:5], TEST_Y[:5])
    if stored:
        assert_equal_models(again, model, Q, 1e-6)
    else:  # clusters stay as they were
        for each in (again, model):
            each.set_params(coverage=None)
        assert again.score(TEST, TEST_Y) > make().fit(X, Y).score(TEST, TEST_Y)
        assert (again.predict(TEST) == model.predict(TEST)).mean() > 0.9
        assert again.temperature_ > 0
        again.partial_fit(np.eye(1, DIM) * 9, ["new"])  # which no cluster is of
        assert again.predict(np.eye(1, DIM) * 9).tolist() == ["new"]


def test_the_deprecated_auto_is_the_closed_form(tmp_path: Path) -> None:
    told = 'refine="auto" is deprecated and now means refine=False; set refine=True for a softmax regression'
    with pytest.warns(FutureWarning, match=told):
        model = HypersphereClassifier(refine="auto").fit(X, Y, names=NAMES, unlabelled=ROWS)
    assert_equal_models(model, HypersphereClassifier().fit(X, Y, names=NAMES, unlabelled=ROWS), Q, 0)
    assert model.get_params()["refine"] == "auto"
    model.save(tmp_path, unlabelled=True)
    assert_equal_models(HypersphereClassifier.load(tmp_path), model, Q, 1e-9)
    assert_equal_models(pickle.loads(pickle.dumps(model)), model, Q, 1e-9)


def test_a_saved_auto_keeps_its_head_until_an_example_changes(make: Any, tmp_path: Path) -> None:
    refined = make(refine=True).fit(X, Y, names=NAMES, unlabelled=ROWS)
    refined.save(tmp_path)

    def automatic(head: Any) -> None:
        head["parameters"]["refine"] = "auto"

    forge(tmp_path, automatic)
    loaded = HypersphereClassifier.load(tmp_path)
    assert_equal_models(loaded, refined, Q, 1e-9)
    closed = HypersphereClassifier.load(tmp_path).set_params(refine=False)
    for model in (loaded, closed):
        model.partial_fit(TEST[:5], TEST_Y[:5])
    assert_equal_models(loaded, closed, Q, 0)


ALONE, ALONE_Y = drawn(1, 5)


@pytest.mark.parametrize(
    ("examples", "known"),
    [
        ((ALONE, ALONE_Y), {}),
        ((ALONE, ALONE_Y), {"names": NAMES}),
        ((ALONE[:3], ALONE_Y[:3]), {"names": NAMES}),
        ((None, None), {"names": NAMES}),
    ],
)
def test_where_no_example_can_be_left_out_rows_make_few_surer(make: Any, examples: Any, known: Any) -> None:
    without = make().fit(*examples, **known)
    model = make().fit(*examples, **known, unlabelled=ROWS)
    inside = model._snapshot()
    by_examples = temperature_of(inside, inside.region)
    no_surer = (model.temperature_ / by_examples ** (1 - UNLABELLED_STEP)) ** (1 / UNLABELLED_STEP)
    model.set_params(temperature=no_surer)
    assert model.predict_proba(ROWS).max(1).mean() == pytest.approx(without.predict_proba(ROWS).max(1).mean(), rel=1e-4)


@pytest.mark.parametrize("shots", [1, 4])
def test_a_refined_head_is_as_confident_on_rows_as_the_closed_form(
    make: Any, monkeypatch: pytest.MonkeyPatch, shots: int
) -> None:
    """Leave-one-out measures of the closed form are scaled by the ratio of the two temperatures."""
    rows, (x, y) = drawn(30, 8)[0], drawn(shots, 5)
    model, closed = (make(refine=refine).fit(x, y, names=NAMES, unlabelled=rows) for refine in (True, False))
    assert model.predict_proba(rows).max(1).mean() == pytest.approx(closed.predict_proba(rows).max(1).mean(), abs=1e-4)
    inside, index = model._snapshot(), np.arange(len(y))
    if shots > 1:
        found, before = (
            left_out_measures(each.left_out, each.region, each.form, index) / each.temperature
            for each in (inside, closed._snapshot())
        )
        np.testing.assert_allclose(found, before, rtol=1e-6)
        assert inside.region.sharpness != 1


def test_with_few_rows_examples_out_of_their_fold_take_their_place(make: Any) -> None:
    for rows in ({}, {"unlabelled": ROWS[:3]}):
        model = make(refine=True).fit(*drawn(4, 5), names=NAMES, **rows)
        inside = model._snapshot()
        index, stats = np.arange(20), inside.stats
        heads = [Folds.fit(stats, form) for form in (inside.form, closed_snapshot(inside, inside.region).form)]
        now, before = (
            softmax(-fold.measures(stats.rows, index) / t, axis=1).max(1).mean()
            for fold, t in zip(heads, (model.temperature_, model.temperature_ / inside.region.sharpness), strict=True)
        )
        assert now == pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize("refine", [False, True])
def test_what_takes_long_is_computed_by_each_change(make: Any, refine: bool) -> None:
    """And neither by the first prediction nor, without rows and refinement, by the fit."""
    reports: list[Any] = []
    model = make(refine=refine).fit(X, Y, unlabelled=ROWS, progress=lambda *report: reports.append(report))
    assert [done for done, _, _ in reports] == [0, 1, 2, 3]
    assert reports[2] == (2, 3, "leave-one-out")
    changes: list[Callable[[], Any]] = [
        lambda: model.partial_fit(TEST[:2], TEST_Y[:2]),
        lambda: model.forget(TEST[:2], TEST_Y[:2]),
        lambda: model.merge(make(refine=refine).fit(TEST, TEST_Y)),
        lambda: model.remove_class("a"),
    ]
    for change in changes:
        change()
        before = vars(model._snapshot()).copy()
        assert {"region", "linear", "temperature"} <= before.keys()
        model.predict_proba(Q)
        assert vars(model._snapshot()).keys() == before.keys()
    later = make().fit(X, Y, names=NAMES)
    assert "region" not in vars(later._snapshot())


def test_a_number_as_temperature_needs_no_leave_one_out(make: Any) -> None:
    model = make(temperature=2.0).fit(X, Y, unlabelled=ROWS)
    assert "left_out" not in vars(model._snapshot())
    assert model.temperature_ == 2


def test_a_temperature_of_rows_is_saved_without_them(make: Any, tmp_path: Path) -> None:
    model = make().fit(ALONE, ALONE_Y, names=NAMES, unlabelled=ROWS)
    model.save(tmp_path)
    again = HypersphereClassifier.load(tmp_path)
    assert again.temperature_ == model.temperature_
    assert_equal_models(again, model, Q, 1e-9)
    assert_equal_models(pickle.loads(pickle.dumps(again)), model, Q, 1e-9)
    again.save(tmp_path / "again")
    assert HypersphereClassifier.load(tmp_path / "again").temperature_ == model.temperature_
    again.partial_fit(TEST[:5], TEST_Y[:5])  # now examples can be left out
    assert again.temperature_ != model.temperature_
    forge(tmp_path, tensors=put("row_temperature", 0, 0.0))
    with pytest.raises(DataError, match="a cluster has a negative weight, or a temperature is not above 0"):
        HypersphereClassifier.load(tmp_path)


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("shots", [1, 3])
def test_models_of_float32_give_the_same_answers_after_loading(
    make: Any, tmp_path: Path, refine: Any, shots: int
) -> None:
    x, y = drawn(shots, 5)
    first, later, test = (rows.astype(np.float32) for rows in (ROWS[:40], ROWS[40:], TEST))
    model = make(refine=refine).fit(x.astype(np.float32), y, unlabelled=first)
    model.save(tmp_path / "without")
    model.save(tmp_path / "with", unlabelled=True)
    for folder in ("without", "with"):
        loaded = HypersphereClassifier.load(tmp_path / folder)
        np.testing.assert_allclose(loaded.predict_proba(test), model.predict_proba(test), rtol=0, atol=1e-6)
        assert loaded.temperature_ == pytest.approx(model.temperature_, rel=1e-6)
    plain = make(refine=refine).fit(x.astype(np.float32), y)
    plain.save(tmp_path / "plain")
    for each in (loaded, HypersphereClassifier.load(tmp_path / "plain")):
        expected = model if each is loaded else plain
        for one in (each, expected):
            one.partial_fit(None, None, unlabelled=later)
        np.testing.assert_allclose(each.predict_proba(test), expected.predict_proba(test), rtol=0, atol=1e-6)


def test_without_the_rows_no_more_can_be_added_or_merged(tmp_path: Path) -> None:
    model = HypersphereClassifier().fit(X, Y, unlabelled=ROWS)
    model.save(tmp_path)
    again = HypersphereClassifier.load(tmp_path)
    message = "were not saved with it, so no rows can be added or removed; fit again, or save with unlabelled=True"
    calls: tuple[Callable[[], Any], ...] = (
        lambda: again.partial_fit(None, None, unlabelled=ROWS),
        lambda: again.partial_fit(X[:2], ["a", None]),
        lambda: again.forget(ROWS[:1], [None]),
    )
    for call in calls:
        with pytest.raises(DataError, match=message):
            call()
    for one, other in ((model, again), (again, model)):
        with pytest.raises(
            DataError, match="their clusters cannot be merged; fit it again, or save it with unlabelled="
        ):
            one.merge(other)
    assert_equal_models(again, model, Q, 1e-9)
    again.merge(HypersphereClassifier().fit(TEST[:5], TEST_Y[:5]))
    assert again.counts_.sum() == len(X) + 5


SIDE = {
    "holds named, names without declared": lambda parts: parts.pop("declared"),
    "holds clusters beside unlabelled rows": lambda parts: parts.update(unlabelled=parts["names"].copy()),
    "'cluster_mean' is of type float64 and shape \\(4, 12\\)": lambda parts: parts.update(
        cluster_mean=parts["cluster_mean"][:4].copy()
    ),
    "'left_out_fold' is of type float64": lambda parts: parts.update(
        left_out_fold=parts["left_out_fold"].astype(float)
    ),
    "holds head_sharpness, left_out_fold without left_out_center": lambda parts: parts.pop("left_out_center"),
    "'head_center' holds numbers that are not finite": put("head_center", (0, 0), np.nan),
    "'names' are not of length 1": put("names", (0, 0), 7.0),
    "names classes that do not exist": put("named", 0, 9),
    "a cluster has a negative weight": put("cluster_worth", 0, -1.0),
    "an example is in a fold that does not exist": put("left_out_fold", 0, 77),
    "a class has no examples": lambda parts: parts["declared"].fill(0),
}


@pytest.mark.parametrize("message", SIDE)
def test_forged_side_information_is_refused(tmp_path: Path, message: str) -> None:
    here = Y != "b"
    HypersphereClassifier(refine=True).fit(X[here], Y[here], names=NAMES, unlabelled=ROWS).save(tmp_path)
    forge(tmp_path, tensors=SIDE[message])
    with pytest.raises(DataError, match=f"{message}.*; no saved classifier is like that: take it from a copy"):
        HypersphereClassifier.load(tmp_path)


def test_models_without_side_information_are_of_the_old_format(tmp_path: Path) -> None:
    HypersphereClassifier().fit(X, Y).save(tmp_path)
    assert '"format": "hyperproto-estimator/1"' in (tmp_path / "model.json").read_text()


@pytest.mark.parametrize("refine", [False, True])
def test_the_onnx_graph_says_the_same(make: Any, tmp_path: Path, refine: Any) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.estimators.test_onnx import run

    here = Y != "b"
    model = make(refine=refine, coverage=0.8).fit(X[here], Y[here], names=NAMES, unlabelled=ROWS)
    model.export_onnx(tmp_path / "model.onnx")
    found, _ = run(tmp_path / "model.onnx", TEST.astype(np.float32))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(TEST), atol=1e-4)
    assert (found["plausible"] == model.predict_set(TEST)).mean() > 0.99


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_metadata_are_routed_through_pipelines(routing: None) -> None:
    """Unlabelled rows go through the steps before, if the pipeline is told so."""
    head = HypersphereClassifier().set_fit_request(names=True, unlabelled=True)
    scaler = StandardScaler().fit(X)
    names = dict(zip(LABELS, scaler.transform([NAMES[label] for label in LABELS]), strict=True))
    pipeline = Pipeline([("scale", StandardScaler()), ("head", head)], transform_input=["unlabelled"])
    pipeline.fit(X, Y, names=names, unlabelled=ROWS)
    expected = HypersphereClassifier().fit(scaler.transform(X), Y, names=names, unlabelled=scaler.transform(ROWS))
    np.testing.assert_allclose(pipeline.predict_proba(Q), expected.predict_proba(scaler.transform(Q)), rtol=1e-6)


def test_pipelines_without_routing_take_them_by_the_name_of_the_step() -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("head", HypersphereClassifier())])
    pipeline.fit(X, Y, head__names=NAMES)
    assert pipeline["head"].region_.evidence


@pytest.mark.parametrize(
    ("settings", "given", "error", "message"),
    [
        ({}, {"names": [1, 2]}, DataError, "names is a list; give a mapping from labels to vectors"),
        ({}, {"names": {None: [1.0]}}, DataError, r"names has a label None \(NoneType\); a label is a string"),
        ({}, {"names": {"a": "card"}}, DataError, "the name of 'a' is 'card'; here a name is a vector of numbers"),
        ({}, {"names": {"a": [10**400]}}, DataError, "the name of 'a' is .1000.*; here a name is a vector of numbers"),
        ({}, {"unlabelled": [[10**400, 0]]}, DataError, "unlabelled holds a number that is too large for float64"),
        ({}, {"names": {"a": [np.nan] * DIM}}, DataError, "the name of 'a' holds a number that is not finite"),
        ({}, {"names": {"a": [1.0] * 3}}, DataError, r"is an array of shape \(3,\); a name is a vector of 12 numbers"),
        ({}, {"unlabelled": ROWS[:, :3]}, DataError, "unlabelled rows have 3 numbers, and the examples 12; use"),
        ({}, {"unlabelled": np.full((2, DIM), np.inf)}, ValueError, "unlabelled contains infinity"),
        ({"fit_mode": "paper"}, {"names": NAMES}, ConfigError, "are for region='sphere' with fit_mode='bayes'; fit_mo"),
        (
            {"region": "cone", "fit_mode": "unbiased"},
            {"unlabelled": ROWS},
            ConfigError,
            "fit_mode='unbiased' cannot use",
        ),
        ({"squared": False}, {"unlabelled": ROWS}, ConfigError, "unlabelled rows go with the squared measure; use squ"),
        ({"squared": False, "refine": True}, {}, ConfigError, "refine=True is for region='sphere' with fit_mode='bay"),
        ({"fit_mode": "point", "refine": True}, {}, ConfigError, "refine=True is for region='sphere' with fit_mode='b"),
        ({"refine": 1}, {}, ConfigError, "refine=1: give True or False"),
    ],
)
def test_what_cannot_be_used_is_refused(settings: Any, given: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        HypersphereClassifier(**settings).fit(X, Y, **given)


def test_nothing_to_tell_classes_by() -> None:
    with pytest.raises(DataError, match="every row is unlabelled, and no class has a name; give a label, or names"):
        HypersphereClassifier().fit(X, [None] * len(X))
    with pytest.raises(DataError, match="there are no rows for 2 labels; give one row a label"):
        HypersphereClassifier().fit(None, ["a", "b"], names=NAMES)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        HypersphereClassifier().fit(np.full((2, 3), np.nan), ["a", None])


def test_settings_changed_after_the_fit() -> None:
    model = HypersphereClassifier().fit(X, Y, names=NAMES).set_params(fit_mode="point")
    with pytest.raises(
        ConfigError, match="names of classes and unlabelled rows are for region='sphere' with fit_mode="
    ):
        model.predict(Q)
    refined = HypersphereClassifier().fit(X, Y, unlabelled=ROWS).set_params(refine=True)
    assert_equal_models(refined, HypersphereClassifier(refine=True).fit(X, Y, unlabelled=ROWS), Q, 1e-9)


def test_names_of_float32_rows_and_names_by_numpy_labels() -> None:
    names = {np.str_(label): NAMES[label].astype(np.float32) for label in LABELS}
    single = HypersphereClassifier().fit(X.astype(np.float32), Y, names=names, unlabelled=ROWS.astype(np.float32))
    double = HypersphereClassifier().fit(X, Y, names=NAMES, unlabelled=ROWS)
    np.testing.assert_allclose(single.predict_proba(Q), double.predict_proba(Q), atol=1e-3)
    assert single.predict_proba(Q.astype(np.float32)).dtype == np.float32


def test_a_loaded_refined_head_becomes_the_closed_form_of_its_clusters(make: Any, tmp_path: Path) -> None:
    make(refine=True).fit(X, Y, names=NAMES, unlabelled=ROWS).save(tmp_path)
    changed, closed = HypersphereClassifier.load(tmp_path), HypersphereClassifier.load(tmp_path)
    closed.set_params(refine=False)
    for model in (changed, closed):
        model.partial_fit(TEST[:5], TEST_Y[:5])
    assert_equal_models(changed, closed, Q, 0)
