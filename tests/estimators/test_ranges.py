"""No silent overflow: rows of any size are scaled, an offset changes nothing, and what no float can hold is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hyperproto import DataError, HypersphereClassifier
from hyperproto.estimators.inputs import unit_rows
from hyperproto.regions.statistics import Moments, far_middle

WAY, DIM = 5, 16
ANSWERS = ("predict", "predict_proba", "predict_set", "measure", "decision_function", "novelty")
MODES = ("bayes", "unbiased", "paper", "point")


def data(dtype: Any = np.float64, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Examples of unequal numbers, their labels, and queries."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(WAY), [1, 2, 4, 6, 9])
    centers = random.normal(size=(WAY, DIM))
    rows = centers[y] + random.normal(size=(len(y), DIM))
    return rows.astype(dtype), y, (np.repeat(centers, 20, axis=0) + random.normal(size=(100, DIM))).astype(dtype)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(np.float32, 60), (np.float32, 115), (np.float64, 500), (np.float64, 1000)]),
    st.sampled_from([1, -1]),
    st.sampled_from(["sphere", "cone"]),
)
def test_a_power_of_two_changes_no_answer_with_unit(kind: tuple[Any, int], sign: int, region: str) -> None:
    dtype, power = kind
    X, y, queries = data(dtype)
    scale = dtype(2.0) ** (sign * power)
    model = HypersphereClassifier(region=region, fit_mode="unbiased", coverage=0.9)
    plain = [getattr(model.fit(X, y), name)(queries) for name in ANSWERS]
    scaled = [getattr(model.fit(X * scale, y), name)(queries * scale) for name in ANSWERS]
    for name, one, other in zip(ANSWERS, plain, scaled, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MODES), st.booleans(), st.floats(-1e8, 1e8), st.integers(0, 3), st.sampled_from(["all", "one"]))
def test_an_offset_changes_no_answer_with_none(mode: str, squared: bool, offset: float, seed: int, where: str) -> None:
    X, y, queries = data(seed=seed)
    by = np.full(DIM, offset) if where == "all" else offset * np.eye(DIM)[0]
    model = HypersphereClassifier(fit_mode=mode, feature_transform="none", squared=squared, coverage=0.9)
    plain = [getattr(model.fit(X, y), name)(queries) for name in ANSWERS] + [model.temperature_, model.thresholds_]
    moved = [getattr(model.fit(X + by, y), name)(queries + by) for name in ANSWERS]
    moved += [model.temperature_, model.thresholds_]
    for name, one, other in zip((*ANSWERS, "temperature", "thresholds"), plain, moved, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(plain[0], moved[0])


@pytest.mark.parametrize(("region", "mode"), [("sphere", "bayes"), ("gaussian", "unbiased"), ("point", "point")])
def test_float32_with_an_offset_answers_as_what_it_kept_does(region: str, mode: str) -> None:
    X, y, queries = data()
    kept, asked = (X + 1e6).astype(np.float32), (queries + 1e6).astype(np.float32)
    model = HypersphereClassifier(region=region, fit_mode=mode, feature_transform="none")
    single = model.fit(kept, y).predict(asked), model.predict_proba(asked)
    double = model.fit(kept.astype(np.float64), y).predict(asked.astype(np.float64)), model.predict_proba(asked)
    np.testing.assert_array_equal(single[0], double[0])
    np.testing.assert_allclose(single[1], double[1], atol=1e-4)


def test_attributes_stay_where_the_examples_are() -> None:
    X, y, queries = data()
    for mode in MODES:
        near = HypersphereClassifier(fit_mode=mode, feature_transform="none").fit(X, y)
        far = HypersphereClassifier(fit_mode=mode, feature_transform="none").fit(X + 1e5, y)
        np.testing.assert_allclose(far.means_, near.means_ + 1e5)
        np.testing.assert_allclose(far.centers_, far.region_.center)
        measured = far.region_.measure(queries + 1e5)
        np.testing.assert_allclose(measured, near.measure(queries), atol=1e-2)  # this form squares what lies far away


def test_ordinary_examples_are_not_moved() -> None:
    X, y, _ = data()
    model = HypersphereClassifier(feature_transform="none").fit(X + 3, y)
    assert model._snapshot().origin is None
    assert far_middle(Moments(np.ones(2), np.full((2, 3), 1e9), np.zeros(2))) is not None


@pytest.mark.parametrize(("dtype", "value"), [(np.float64, 3e200), (np.float32, 3e20)])
def test_what_cannot_be_represented_is_named_by_row_and_value(dtype: Any, value: float) -> None:
    X, y, queries = data(dtype)
    wrong, asked = X.copy(), queries.copy()
    wrong[7, 3], asked[77, 3] = -value, value
    told = rf"X\[7\] holds -{value:.0e}; its squared distance cannot be represented in {dtype.__name__}".replace(
        "+", r"\+"
    )
    for transform in ("none", "center-unit"):
        with pytest.raises(DataError, match=told + ": scale the vectors, or use feature_transform='unit'"):
            HypersphereClassifier(feature_transform=transform).fit(wrong, y)
    model = HypersphereClassifier(feature_transform="none", coverage=0.9).fit(X, y)
    with pytest.raises(DataError, match=told):
        model.partial_fit(wrong, y)
    assert model.counts_.sum() == len(y)
    for name in ANSWERS:
        with pytest.raises(DataError, match=rf"X\[77\] holds {value:.0e}".replace("+", r"\+")):
            getattr(model, name)(asked)
    assert (HypersphereClassifier().fit(wrong, y).predict(asked)[:7] >= 0).all()


def test_rows_without_weight_are_not_looked_at_and_others_keep_their_number() -> None:
    X, y, _ = data()
    X[2, 0] = 1e200
    weights = np.ones(len(y))
    weights[[0, 2]] = 0
    HypersphereClassifier(feature_transform="none").fit(X, y, sample_weight=weights)
    X[9, 0] = 1e200
    with pytest.raises(DataError, match=r"X\[9\] holds 1e\+200"):
        HypersphereClassifier(feature_transform="none").fit(X, y, sample_weight=weights)


def test_numbers_whose_squares_vanish_are_refused() -> None:
    X, y, queries = data()
    with pytest.raises(DataError, match=r"holds -?\d.*e-200, and no number in X is larger; squares .* vanish"):
        HypersphereClassifier(feature_transform="none").fit(X * 1e-200, y)
    model = HypersphereClassifier(feature_transform="none").fit(X, y)
    model.partial_fit(X[:2] * 1e-200, y[:2])  # near 0 beside the others
    assert HypersphereClassifier(feature_transform="none").fit(X * 0, y).predict(queries).shape == (len(queries),)


@pytest.mark.parametrize("huge", [10**400, -(10**5000)], ids=["400 digits", "5000 digits"])
def test_whole_numbers_beyond_every_float_are_named_by_row(huge: int) -> None:
    x: list[list[Any]] = [[1.0, 0.0], [0.0, 1.0]]
    told = r"X\[1\] holds a whole number of \d{3,4} digits; no float is that large"
    for rows in ([x[0], [0, huge]], np.array([x[0], [0, huge]], dtype=object)):
        with pytest.raises(DataError, match=told):
            HypersphereClassifier().fit(rows, ["a", "b"])
        model = HypersphereClassifier().fit(x, ["a", "b"])
        with pytest.raises(DataError, match=told):
            model.predict(rows)
        with pytest.raises(DataError, match=told):
            model.partial_fit(rows, ["a", "b"])
        assert model.counts_.tolist() == [1, 1]


def test_answers_that_overflow_are_refused() -> None:
    X, y, queries = data()
    model = HypersphereClassifier(feature_transform="none").fit(X * 1e30, y)
    with pytest.raises(DataError, match=r"X\[0\] holds .* represented in float32"):
        model.predict(queries.astype(np.float32))
    sharp = HypersphereClassifier(region="gaussian", fit_mode="unbiased", feature_transform="none")
    sharp.fit((X * 1e-3).astype(np.float32), y)
    rows = np.stack([queries[0], np.full(DIM, 1e17)]).astype(np.float32)
    for name in ("predict", "predict_proba", "measure"):
        with pytest.raises(DataError, match=r"X\[1\] holds 1e\+17; its squared distance"):
            getattr(sharp, name)(rows)


def test_zero_rows_and_rounding_have_no_direction() -> None:
    rows = np.array([[0.0, 0.0], [3e-300, 4e-300], [3e200, -4e200], [3.0, 4.0]])
    np.testing.assert_array_equal(unit_rows(rows)[0], 0)
    np.testing.assert_allclose(unit_rows(rows)[1:], [[0.6, 0.8], [0.6, -0.8], [0.6, 0.8]])
    X = np.array([[1.0, 0.1], [1.0, -0.1]])
    model = HypersphereClassifier(feature_transform="center-unit").fit(X, [0, 1])
    assert np.abs(model._snapshot().prepare(np.array([[1.0, 1e-17]]))).max() < 1e-12  # 0 but for rounding
