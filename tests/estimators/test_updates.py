"""Adding, forgetting, removing and merging: the same as one fit to what is left."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import HypersphereClassifier
from tests.estimators.conftest import LATE, SETTINGS, assert_equal_models, blobs

Q = np.random.default_rng(9).normal(size=(6, 4))


@st.composite
def batches(draw: st.DrawFn) -> Any:
    """Two lots of examples whose classes need not be the same, with or without weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lots = []
    for _ in range(2):
        size = draw(st.integers(1, 8))
        y = rng.integers(0, draw(st.integers(1, 4)), size) + draw(st.integers(0, 2))
        x = (y[:, None] + rng.normal(size=(size, 4))) * draw(st.sampled_from([1.0, 30.0]))
        weight = draw(st.sampled_from([np.ones(size), rng.integers(1, 3, size) * 1.0, rng.uniform(0.5, 2, size)]))
        lots.append((x, y, weight))
    return lots


choices = st.sampled_from([*SETTINGS, *LATE])


@pytest.mark.filterwarnings("ignore:there is only one class")
@settings(deadline=None, max_examples=80)
@given(batches(), choices)
def test_partial_fit_and_merge_are_one_fit(lots: Any, choice: dict[str, Any]) -> None:
    (xa, ya, wa), (xb, yb, wb) = lots
    x, y, w = (np.concatenate(part) for part in zip(*lots, strict=True))
    at_once = HypersphereClassifier(**choice).fit(x, y, w)
    in_parts = (
        HypersphereClassifier(**choice).partial_fit(xa, ya, sample_weight=wa).partial_fit(xb, yb, sample_weight=wb)
    )
    assert_equal_models(in_parts, at_once, Q)
    one_by_one = HypersphereClassifier(**choice)
    for row, label, weight in zip(x, y, w, strict=True):
        one_by_one.partial_fit(row[None], [label], sample_weight=[weight])
    assert_equal_models(one_by_one, at_once, Q)
    merged = HypersphereClassifier(**choice).fit(xa, ya, wa)
    merged.merge(HypersphereClassifier(**choice).fit(xb, yb, wb))
    assert_equal_models(merged, at_once, Q)


@pytest.mark.filterwarnings("ignore:there is only one class")
@settings(deadline=None, max_examples=80)
@given(batches(), choices)
def test_forgetting_undoes_adding(lots: Any, choice: dict[str, Any]) -> None:
    (xa, ya, wa), (xb, yb, wb) = lots
    before = HypersphereClassifier(**choice).fit(xa, ya, wa)
    model = HypersphereClassifier(**choice).fit(xa, ya, wa).partial_fit(xb, yb, sample_weight=wb)
    order = np.random.default_rng(0).permutation(len(xb))
    assert_equal_models(model.forget(xb[order], yb[order], wb[order]), before, Q)


@pytest.mark.filterwarnings("ignore:there is only one class")
@settings(deadline=None, max_examples=40)
@given(batches(), st.sampled_from([s for s in SETTINGS if s.get("fit_mode") in ("point", "unbiased")]))
def test_statistics_alone_do_the_same(lots: Any, choice: dict[str, Any]) -> None:
    (xa, ya, wa), (xb, yb, wb) = lots
    choice = {**choice, "temperature": 1.0}
    kept = HypersphereClassifier(**choice).fit(xa, ya, wa)
    lean = HypersphereClassifier(**choice, store_support=False).fit(xa, ya, wa)
    for model in (kept, lean):
        model.partial_fit(xb, yb, sample_weight=wb)
    np.testing.assert_allclose(lean.measure(Q), kept.measure(Q), rtol=1e-9, atol=1e-9)
    assert np.isfinite(lean.novelty(Q)).all()
    np.testing.assert_allclose(lean.predict_proba(Q), kept.predict_proba(Q), rtol=1e-9, atol=1e-9)
    lean.forget(xb, yb, wb)
    before = HypersphereClassifier(**choice).fit(xa, ya, wa)
    assert lean.classes_.tolist() == before.classes_.tolist()
    np.testing.assert_allclose(lean.means_, before.means_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_removing_a_class_is_never_having_seen_it(make: Callable[..., HypersphereClassifier], dtype: Any) -> None:
    x, y = blobs(dim=4)
    x = x.astype(dtype)
    for label in "abcd":
        model = make().fit(x, y).remove_class(np.str_(label))
        assert_equal_models(model, make().fit(x[y != label], y[y != label]), Q)
        back = model.partial_fit(x[y == label], y[y == label])
        order = np.argsort(y == label, kind="stable")
        assert_equal_models(back, make().fit(x[order], y[order]), Q)


def test_precisions_may_be_mixed() -> None:
    x, y = blobs(dim=4)
    mixed = HypersphereClassifier().fit(x[:6].astype(np.float32), y[:6]).partial_fit(x[6:], y[6:])
    rows = np.concatenate([x[:6].astype(np.float32), x[6:]])
    assert_equal_models(mixed, HypersphereClassifier().fit(rows, y), Q, 1e-6)
    plain = HypersphereClassifier(feature_transform="none").fit(rows[:6], y[:6]).partial_fit(x[6:], y[6:])
    expected = HypersphereClassifier(feature_transform="none").fit(rows, y).means_
    np.testing.assert_allclose(plain.means_, expected, rtol=1e-12)
    assert mixed._snapshot().stats.rows.dtype == np.float64
    assert mixed.forget(x[:1].astype(np.float32), y[:1]).counts_.sum() == len(x) - 1
    assert mixed.forget(x[1:2], y[1:2]).counts_.sum() == len(x) - 2  # as near as float32 could keep it


def test_new_labels_may_be_of_another_kind() -> None:
    model = HypersphereClassifier().fit([[1.0, 0], [0, 1]], [1, 2]).partial_fit([[-1.0, 0]], ["left"])
    assert model.classes_.tolist() == [1, 2, "left"]
    assert model.predict([[-2.0, 0], [0, 3]]).tolist() == ["left", 2]
    longer = HypersphereClassifier().partial_fit([[1.0, 0]], ["a"]).partial_fit([[0, 1.0]], ["a longer name"])
    assert longer.predict([[0, 1.0]]).tolist() == ["a longer name"]


def test_equal_examples_are_forgotten_one_at_a_time() -> None:
    x, y = np.array([[1.0, 0], [1.0, 0], [0, 1.0], [0, 1.0]]), ["a", "a", "a", "b"]
    model = HypersphereClassifier(feature_transform=None).fit(x, y)
    assert model.forget([[1.0, 0]], ["a"]).counts_.tolist() == [2, 1]
    assert model.forget([[1.0, 0]], ["a"]).counts_.tolist() == [1, 1]
    with pytest.raises(DataError, match=r"row 0 of X \(class 'a'\) is not among the examples.*nothing was forgotten"):
        model.forget([[1.0, 0]], ["a"])
    assert model.forget([[0, 1.0]], ["a"]).classes_.tolist() == ["b"]


def test_half_an_example_can_be_forgotten() -> None:
    x, y = blobs(dim=4)
    weights = np.ones(len(x))
    weights[3] = 0.5
    model = HypersphereClassifier().fit(x, y).forget(x[3:4], y[3:4], sample_weight=[0.5])
    assert_equal_models(model, HypersphereClassifier().fit(x, y, weights), Q)


def failing_calls(x: Any, y: Any) -> Any:
    other = HypersphereClassifier().fit(np.ones((2, 3)), ["a", "b"])
    return [
        (lambda m: m.forget(x[:2] + np.array([[0], [1]]), y[:2]), DataError, "row 1 of X .* is not among the examples"),
        (lambda m: m.forget(x[:1], ["z"]), DataError, "no class 'z' to take from; known: 'a', 'b', 'c', 'd'"),
        (lambda m: m.forget(x, y), DataError, "forget every example of every class; fit again instead"),
        (lambda m: m.forget(x[:1], y[:1], [3.0]), DataError, "is not among the examples, or not that often"),
        (lambda m: m.remove_class("z"), DataError, "no class 'z'"),
        (lambda m: m.merge(m), DataError, "cannot be merged with itself"),
        (lambda m: m.merge(other), DataError, "fitted to vectors of 4 numbers, the other to 3"),
        (
            lambda m: m.merge(HypersphereClassifier(feature_transform="none").fit(x, y)),
            ConfigError,
            r"differ in feature_transform \('unit' and 'none'\).*fit both alike",
        ),
        (
            lambda m: m.merge(HypersphereClassifier(fit_mode="point", store_support=False).fit(x, y)),
            ConfigError,
            r"differ in store_support \(True and False\)",
        ),
        (lambda m: m.partial_fit(x[:, :3], y), ValueError, "X has 3 features, but .* is expecting 4"),
        (lambda m: m.partial_fit(x, y[:3]), ValueError, "inconsistent numbers of samples"),
        (
            lambda m: m.partial_fit(x[:1], y[:1], sample_weight=[-1.0]),
            ValueError,
            r"sample_weight\[0\] is -1.0; .* from 0 to 1e\+09",
        ),
        (lambda m: m.partial_fit(x[:1], y[:1], sample_weight=[0.0]), ValueError, "every sample_weight is zero"),
        (lambda m: m.partial_fit(x, y, sample_weight=[1.0]), ValueError, r"shape \(1,\), and there are 12 rows"),
        (lambda m: m.partial_fit(x[:2], np.array([None, b"a"], dtype=object)), DataError, r"y\[0\] is b'a' \(bytes\)"),
        (
            lambda m: m.partial_fit(x[:1], y[:1], unlabelled=x[:, :3]),
            DataError,
            "unlabelled rows have 3 numbers, and the",
        ),
        (
            lambda m: m.partial_fit(x[:1], y[:1], names={"a": [1.0, 2.0]}),
            DataError,
            r"the name of 'a' is .* \(2,\); a name",
        ),
        (lambda m: m.forget(x[:2], [None, y[1]]), DataError, "unlabelled row 0 is not among the unlabelled rows; noth"),
        (lambda m: m.forget(x[:2], [y[1], None]), DataError, "unlabelled row 0 is not among the unlabelled rows; noth"),
        (lambda m: m.partial_fit(x[:1], [0.5]), ValueError, "Unknown label type"),
    ]


@pytest.mark.parametrize("number", range(20))
def test_a_call_that_fails_changes_nothing(number: Any) -> None:
    x, y = blobs(dim=4)
    calls = failing_calls(x, y)
    assert len(calls) == 20
    call, error, message = calls[number]
    model = HypersphereClassifier().fit(x, y)
    with pytest.raises(error, match=message):
        call(model)
    assert_equal_models(model, HypersphereClassifier().fit(x, y), Q, 0)


def test_the_last_class_stays() -> None:
    model = HypersphereClassifier().partial_fit([[1.0, 0]], ["a"])
    with pytest.raises(
        DataError, match="'a' is the only class; a classifier needs one: add another first, or fit again"
    ):
        model.remove_class("a")


def test_without_examples_what_needs_them_says_so() -> None:
    x, y = blobs()
    model = HypersphereClassifier(fit_mode="unbiased", store_support=False).fit(x, y)
    assert model.predict(x).shape == (12,)
    with pytest.raises(ConfigError, match=r"temperature='auto' is fitted to the examples.*give temperature a number"):
        model.predict_proba(x)
    with pytest.raises(ConfigError, match="needs the examples themselves; fit again with store_support=True"):
        model.diagnose()
    with pytest.raises(DataError, match="more examples of a class would be removed than it has"):
        model.forget(np.repeat(x[y == "b"], 2, axis=0), ["b", "b"])
    cone = HypersphereClassifier(region="cone", fit_mode="unbiased", store_support=False).fit(x, y)
    with pytest.raises(ConfigError, match="needs the examples themselves"):
        _ = cone.extents_


@pytest.mark.parametrize("then", ["predict", "add", "forget", "remove", "merge", "merge into", "save", "nothing"])
def test_squares_that_are_added_up_late_are_the_same(then: Any, tmp_path: Path) -> None:
    """A fit to many rows leaves the squares for later; whatever comes first, they are right in the end."""
    x, y = blobs((20, 30, 10), dim=4)
    settings_: dict[str, Any] = {"fit_mode": "unbiased", "feature_transform": "none", "temperature": 1.0}
    late, early = HypersphereClassifier(**settings_).fit(x, y), HypersphereClassifier(**settings_).fit(x, y)
    assert late._state.pending is not None
    early.measure(x)
    assert early._state.pending is None
    other = HypersphereClassifier(**settings_).fit(x[:5] + 1, y[:5])
    for model in (late, early):
        if then == "predict":
            model.predict(x)
        elif then == "add":
            model.partial_fit(x[:7] + 3, np.where(np.arange(7) < 4, y[:7], "new"))
            for row in range(3):
                model.partial_fit(x[row : row + 1] - 1, y[row : row + 1])
        elif then == "forget":
            model.forget(x[:3], y[:3])
        elif then == "remove":
            model.partial_fit(x[:1], ["z"]).remove_class("a")
        elif then == "merge":
            model.merge(other)
        elif then == "merge into":
            HypersphereClassifier(**settings_).fit(x[:5] + 1, y[:5]).merge(model)
        elif then == "save":
            model.save(tmp_path)
            np.testing.assert_array_equal(HypersphereClassifier.load(tmp_path).measure(Q), model.measure(Q))
    np.testing.assert_allclose(late.measure(Q), early.measure(Q), rtol=1e-12)
    np.testing.assert_allclose(late.extents_, early.extents_, rtol=1e-12)


def test_classes_are_accepted_and_not_needed() -> None:
    x, y = blobs()
    model = HypersphereClassifier().partial_fit(x, y, classes=["a", "b", "c", "d", "e"])
    assert model.classes_.tolist() == ["a", "b", "c", "d"]


def test_an_update_touches_one_class_only() -> None:
    """What makes it fast, whatever the machine: a later part of the model is not even looked at."""
    x, y = blobs((50, 50, 50), dim=4)
    model = HypersphereClassifier(fit_mode="unbiased").fit(x, y)
    model.partial_fit(x[:1], y[:1]).forget(x[:1], y[:1])
    before = model._state.frozen()["class_moments"].mean.copy()
    model.predict(x)
    model.partial_fit(x[:1], y[:1])
    assert model._state.snapshot is None
    assert (model._state.frozen()["class_moments"].mean != before).any(axis=1).sum() == 1


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("label", [None, "a"])
def test_forgetting_many_rows_does_not_look_at_all_rows_for_each(
    monkeypatch: pytest.MonkeyPatch, alike: bool, label: Any
) -> None:
    rows = np.random.default_rng(0).normal(size=(600, 8))
    rows = np.repeat(rows[:2], 300, axis=0) if alike else rows
    examples, labels = np.eye(2, 8), ["a", "b"]
    others: dict[str, Any] = {"unlabelled": rows} if label is None else {}
    if label is not None:
        examples, labels = np.vstack([examples, rows]), [*labels, *[label] * len(rows)]
    model = HypersphereClassifier(refine=False).fit(examples, labels, **others)
    looked, vecdot = [], np.vecdot

    def counted(first: Any, *rest: Any) -> Any:
        looked.append(len(first))
        return vecdot(first, *rest)

    monkeypatch.setattr(np, "vecdot", counted)
    model.forget(rows[100:500], [label] * 400)
    monkeypatch.undo()
    assert sum(looked) < 40 * len(rows)
    kept = np.concatenate([rows[:100], rows[500:]])
    others = {"unlabelled": kept} if label is None else {}
    if label is not None:
        examples, labels = np.vstack([np.eye(2, 8), kept]), ["a", "b", *[label] * len(kept)]
    expected = HypersphereClassifier(refine=False).fit(examples, labels, **others)
    assert_equal_models(model, expected, rows[:9], 1e-9)


def test_rows_that_differ_by_rounding_are_found() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 8))
    model = HypersphereClassifier(feature_transform="none").fit(rows.astype(np.float32), ["a", "b"] * 25)
    model.forget(rows[:10] * (1 + 1e-6), ["a", "b"] * 5)
    assert model.counts_.tolist() == [20, 20]
    with pytest.raises(DataError, match=r"row 0 of X .* is not among the examples"):
        model.forget(rows[10:11] * (1 + 1e-4), ["a"])
