"""The scikit-learn contract, labels, weights, and what is the same as elsewhere."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError, DataError
from hyperproto.regions import REGIONS
from tests.estimators.conftest import MODES, assert_equal_models, blobs

X = np.random.default_rng(0).normal(size=(60, 5)) + np.repeat(np.eye(3, 5) * 3, 20, axis=0)
Y = np.repeat(["a", "b", "c"], 20)


ONE_CLASS = "ignore:there is only one class"


@pytest.mark.filterwarnings(ONE_CLASS)
@parametrize_with_checks(  # type: ignore[untyped-decorator] # scikit-learn has no types
    [
        HypersphereClassifier(),
        HypersphereClassifier(fit_mode="unbiased", feature_transform="none", store_support=False, temperature=1.0),
        HypersphereClassifier(fit_mode="paper", feature_transform="center-unit"),
        HypersphereClassifier(fit_mode="paper", squared=False),
        HypersphereClassifier(region="point", fit_mode="point", feature_transform=None),
        HypersphereClassifier(region="cone", fit_mode="unbiased", feature_transform="center-unit"),
        HypersphereClassifier(region="gaussian", fit_mode="unbiased", feature_transform="none"),
        HypersphereClassifier(refine=True, temperature=1.0),
    ]
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(("region", "mode"), MODES)
@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
def test_every_region_and_mode(region: Any, mode: str, transform: str) -> None:
    model = HypersphereClassifier(region=region, fit_mode=mode, feature_transform=transform).fit(X, Y)
    assert model.score(X, Y) > 0.7
    assert model.centers_.shape == model.means_.shape == (3, 5)
    assert model.extents_.shape == model.radii_.shape == (3,)
    assert model.counts_.tolist() == [20, 20, 20]
    predicted = np.searchsorted(model.classes_, model.predict(X))
    assert (model.decision_function(X).argmax(1) == predicted).all()
    probability = model.predict_proba(X)
    assert (probability.argmax(1) == predicted).all()
    np.testing.assert_allclose(probability.sum(1), 1)


@pytest.mark.parametrize(("region", "mode"), MODES)
@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
def test_the_measure_is_the_regions(region: Any, mode: str, transform: str) -> None:
    """By hand: transform, fit the region, measure."""
    x, y = blobs((5, 1, 4), seed=3)
    q = np.random.default_rng(4).normal(size=(7, 5))
    model = HypersphereClassifier(region=region, fit_mode=mode, feature_transform=transform).fit(x, y)
    shift = np.mean([x[y == label].mean(0) for label in "abc"], axis=0) if transform == "center-unit" else 0
    np.testing.assert_allclose(model.mean_, shift * np.ones(5))
    if transform != "none":
        x, q = ((rows - shift) / np.linalg.norm(rows - shift, axis=1, keepdims=True) for rows in (x, q))
    fitted: Any = REGIONS[region].fit(x, np.searchsorted(list("abc"), y), 3, mode=mode)
    expected = fitted.measure(q, break_ties=True) if region == "cone" else fitted.measure(q)
    tolerance: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-9}
    original = np.random.default_rng(4).normal(size=(7, 5))
    np.testing.assert_allclose(model.measure(original), expected, **tolerance)
    np.testing.assert_allclose(model.decision_function(original), -expected, **tolerance)
    np.testing.assert_allclose(model.radii_, fitted.bias_radius, **tolerance)
    np.testing.assert_allclose(model.extents_, fitted.extent_radius, **tolerance)
    np.testing.assert_allclose(model.centers_, fitted.center, **tolerance)
    power = np.exp(-expected / model.temperature_)
    np.testing.assert_allclose(model.predict_proba(original), power / power.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_point_without_transform_is_nearest_centroid(dtype: Any) -> None:
    random = np.random.default_rng(2)
    x, q = random.normal(size=(300, 8)).astype(dtype), 3 * random.normal(size=(5000, 8)).astype(dtype)
    y = random.integers(0, 17, 300)
    theirs = NearestCentroid().fit(x, y)
    for transform in (None, "none"):
        ours = HypersphereClassifier(fit_mode="point", feature_transform=transform).fit(x, y)
        assert (ours.predict(q) == theirs.predict(q)).all()
        np.testing.assert_allclose(ours.centers_, theirs.centroids_, rtol=1e-5, atol=1e-6)


def test_one_example_unequal_counts_one_class_and_zero_vectors() -> None:
    rows = [0, 20, 21, 40, 41, 42, 43, 44]
    assert HypersphereClassifier().fit(X[rows], Y[rows]).score(X, Y) > 0.6
    assert HypersphereClassifier().fit(X[[0, 20, 40]], Y[[0, 20, 40]]).counts_.tolist() == [1, 1, 1]
    assert HypersphereClassifier().fit(np.vstack([X, np.zeros(5)]), [*Y, "a"]).predict(np.zeros((1, 5))).shape == (1,)


def test_a_single_class(make: Callable[..., HypersphereClassifier]) -> None:
    with pytest.warns(UserWarning, match="there is only one class, 'a', and `predict` always returns it; add examples"):
        model = make().fit(X[:5], Y[:5])
    assert set(model.predict(X)) == {"a"}
    assert (model.predict_proba(X) == 1).all()
    assert model.measure(X).shape == model.decision_function(X).shape == (60, 1)
    assert model.temperature_ == 1


def test_two_classes_decide_by_one_number(make: Callable[..., HypersphereClassifier]) -> None:
    model = make().fit(X[:40], Y[:40])
    assert model.decision_function(X).shape == (60,)
    assert ((model.decision_function(X) > 0) == (model.predict(X) == "b")).all()


@pytest.mark.parametrize(
    ("labels", "sort"),
    [
        (["x", "long name", "y"], ["long name", "x", "y"]),
        ([3, -1, 2], [-1, 2, 3]),
        ([2.0, 1.0, 7.0], [1.0, 2.0, 7.0]),
        ([True, False, False], [False, True]),
        (["x", 1, 10], [1, 10, "x"]),  # 10 after 1, and strings after numbers
        ([np.str_("b"), "a", "b"], ["a", "b"]),
    ],
)
@pytest.mark.parametrize("kind", [list, np.array, lambda labels: np.array(labels, dtype=object)])
def test_labels_of_any_kind(labels: Any, sort: Any, kind: Any) -> None:
    y = [labels[n] for n in np.repeat([0, 1, 2], 20)]
    if kind is np.array and len({type(label) is str for label in labels}) > 1 and not isinstance(labels[0], np.str_):
        pytest.skip("NumPy makes strings of numbers here, before we see them")
    model = HypersphereClassifier(region="point", fit_mode="point", feature_transform=None).fit(X, kind(y))
    assert model.classes_.tolist() == sort
    predicted = model.predict(X).tolist()
    assert all(type(label) in (str, int, float, bool) for label in predicted)
    assert np.mean([a == b for a, b in zip(predicted, y, strict=True)]) > 0.9
    assert model.score(X, kind(y)) > 0.9


def test_scores_need_a_label_a_row() -> None:
    model = HypersphereClassifier().fit(X, Y)
    assert model.score(X, Y, sample_weight=(Y == "a") * 1.0) == (model.predict(X[:20]) == "a").mean()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.score(X, Y[:1])


def test_a_label_that_is_neither_string_nor_number_is_refused() -> None:
    with pytest.raises(DataError, match=r"y\[1\] is b'a' \(bytes\); a label is a string or a number"):
        HypersphereClassifier().fit(X[:3], np.array(["a", b"a", "b"], dtype=object))


@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
def test_weights_are_repetitions(make: Callable[..., HypersphereClassifier], transform: str) -> None:
    x, y = blobs(seed=5)
    weights = np.random.default_rng(6).integers(0, 4, len(x))
    weights[y == "b"] = 2
    q = np.random.default_rng(7).normal(size=(9, 5))
    weighted = make(feature_transform=transform).fit(x, y, sample_weight=weights)
    repeated = make(feature_transform=transform).fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    assert_equal_models(weighted, repeated, q, 1e-6)
    assert weighted.counts_.dtype == np.int64


def test_broken_weights_count_as_they_are() -> None:
    x, y = blobs()
    weights = np.random.default_rng(1).uniform(0.2, 2, len(x))
    model = HypersphereClassifier(fit_mode="unbiased", feature_transform=None).fit(x, y, weights)
    for n, label in enumerate("abcd"):
        own = y == label
        np.testing.assert_allclose(model.counts_[n], weights[own].sum())
        np.testing.assert_allclose(model.means_[n], np.average(x[own], axis=0, weights=weights[own]))
    spare = np.maximum(model.counts_ - 1, 0).sum()
    squares = sum(
        w * sum((row - model.means_[ord(label) - 97]) ** 2) for row, label, w in zip(x, y, weights, strict=True)
    )
    np.testing.assert_allclose(model.radii_, squares / spare / model.counts_)


def test_the_whole_chain_of_scikit_learn() -> None:
    search = GridSearchCV(
        make_pipeline(StandardScaler(), HypersphereClassifier()),
        {
            "hypersphereclassifier__feature_transform": ["none", "unit"],
            "hypersphereclassifier__fit_mode": ["bayes", "paper"],
        },
        cv=3,
        scoring="neg_log_loss",
    ).fit(X, Y)
    assert search.best_estimator_.score(X, Y) > 0.7
    copy = clone(HypersphereClassifier(coverage=0.9, reject_label="?"))
    assert (copy.coverage, copy.reject_label) == (0.9, "?")


def test_pickling_keeps_everything_and_no_more(make: Callable[..., HypersphereClassifier]) -> None:
    model = make().fit(X, Y)
    q = X[::7] + 0.1
    again = pickle.loads(pickle.dumps(model))
    assert_equal_models(model, again, q, 0)
    model.predict_proba(q)  # fills the cache
    assert len(pickle.dumps(model)) < len(pickle.dumps(make().fit(X, Y))) + 200
    assert_equal_models(model.partial_fit(q[:1], ["a"]), again.partial_fit(q[:1], ["a"]), q, 0)


def test_a_model_in_a_file_that_can_only_be_read_may_change(tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    joblib.dump(HypersphereClassifier().fit(X, Y), tmp_path / "model.joblib")
    model = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    model.partial_fit(X[:1] + 1, ["a"]).forget(X[:1], ["a"])
    expected = HypersphereClassifier().fit(np.vstack([X[1:], X[:1] + 1]), [*Y[1:], "a"])
    assert_equal_models(model, expected, X[::9])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1e90] * 4, r"sample_weight\[0\] is 1e\+90; .* from 0 to 1e\+09"),
        ([1e-90] * 4, r"the largest sample_weight is 1e-90; .*: multiply all weights by one number"),
        ([1, 1e90, 1, 1e-90], r"sample_weight\[1\] is 1e\+90; "),
        (
            [1, 1, 3, 1e-90],
            r"sample_weight\[2\] is 3 and sample_weight\[3\] is 1e-90; beyond a ratio of 1e\+12 .* to 0",
        ),
    ],
)
def test_weights_that_float64_cannot_carry_are_refused(weights: list[float], message: str) -> None:
    rows, labels = np.eye(4), ["a", "b", "a", "b"]
    for unlabelled in (None, np.eye(4)):
        with pytest.raises(ValueError, match=message):
            HypersphereClassifier().fit(rows, labels, weights, unlabelled=unlabelled)
    model = HypersphereClassifier().fit(rows, labels)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(rows, labels, sample_weight=weights)


@pytest.mark.parametrize("weight", [1e-5, 1e9])
@pytest.mark.parametrize("refine", [False, True])
def test_weights_at_the_ends_of_their_range_work(weight: float, refine: Any) -> None:
    rows = np.repeat(np.eye(3, 5), 4, axis=0) + np.random.default_rng(0).normal(scale=0.1, size=(12, 5))
    labels = np.repeat([*"abc"], 4)
    model = HypersphereClassifier(refine=refine).fit(rows, labels, np.full(12, weight), unlabelled=rows[::2] + 0.05)
    assert model.score(rows, labels) == 1
    assert np.isfinite(model.predict_proba(rows)).all()


def test_settings_may_change_after_the_fit_if_nothing_kept_depends_on_them() -> None:
    model = HypersphereClassifier().fit(X, Y)
    bayes = model.predict_proba(X)
    point = HypersphereClassifier(fit_mode="point").fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(model.set_params(fit_mode="point").predict_proba(X), point)
    np.testing.assert_allclose(model.set_params(fit_mode="bayes").predict_proba(X), bayes)
    with pytest.raises(ConfigError, match="feature_transform was changed after the fit, which kept other vectors"):
        model.set_params(feature_transform="none").predict(X)


def test_float32_stays_float32_and_lists_are_rows() -> None:
    model = HypersphereClassifier().fit(X.astype(np.float32), Y)
    assert model.measure(X.astype(np.float32)).dtype == model.predict_proba(X.astype(np.float32)).dtype == np.float32
    assert model.measure(X).dtype == np.float64
    np.testing.assert_allclose(model.measure(X.astype(np.float32)), model.measure(X), atol=1e-4)
    assert model.predict([[0.0, 1, 2, 3, 4]]).shape == (1,)


def test_rows_without_the_names_of_the_fit_are_told_of() -> None:
    model = HypersphereClassifier().fit(X, Y)
    model.feature_names_in_ = np.array(list("vwxyz"), dtype=object)  # as a data frame would have left them
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X)


def test_before_the_fit_there_is_nothing() -> None:
    model = HypersphereClassifier()
    assert not hasattr(model, "classes_")
    for call in (model.predict, model.predict_proba, model.measure, model.novelty, model.predict_set):
        with pytest.raises(NotFittedError):
            call(X)
    for other in (lambda: model.forget(X, Y), lambda: model.remove_class("a"), model.diagnose):
        with pytest.raises(NotFittedError):
            other()


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        ({}, {"thresholds_": "set coverage, for example to 0.95", "rejection_": "set reject_rate or precision"}),
        (
            {"fit_mode": "point", "store_support": False},
            {
                "thresholds_": "without a coverage nothing is rejected",
                "temperature_": "give temperature a number",
                "rejection_": "nothing is rejected by a score",
                "risk_coverage_": "no example can be left out",
                "left_out_proba_": "this needs the examples themselves",
            },
        ),
        ({"coverage": 0.9}, {"rejection_": "a coverage rejects by thresholds_"}),
        ({"reject_rate": 0.5}, {"thresholds_": "set coverage, for example to 0.95"}),
    ],
)
def test_attributes_without_a_value_are_not_there(settings: dict[str, Any], lacking: dict[str, str]) -> None:
    """Otherwise tab completion and the display of a notebook end in an error."""
    model = HypersphereClassifier(**settings).fit(X, Y)
    names = [name for name in dir(HypersphereClassifier) if name.endswith("_") and not name.startswith("_")]
    assert {name for name in names if not hasattr(model, name)} == lacking.keys()
    assert {name for name in names if name not in dir(model)} == lacking.keys()
    assert "HypersphereClassifier" in model._repr_html_()
    for name, message in lacking.items():
        with pytest.raises(AttributeError, match=message):
            getattr(model, name)
        with pytest.raises(ConfigError, match=message):
            getattr(model, name)


def test_settings_that_do_not_fit_the_model_leave_it_displayable() -> None:
    model = HypersphereClassifier().fit(X, Y).set_params(feature_transform="none")
    assert "classes_" not in dir(model)
    assert "HypersphereClassifier" in model._repr_html_()
    with pytest.raises(AttributeError, match="feature_transform was changed after the fit"):
        _ = model.classes_


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
@pytest.mark.parametrize("weights", [None, np.r_[np.ones(59), 0]])
def test_a_fit_to_what_is_not_finite_is_refused_and_changes_nothing(value: Any, transform: str, weights: Any) -> None:
    model = HypersphereClassifier(feature_transform=transform).fit(X, Y)
    before = model.predict_proba(X)
    wrong = X.copy()
    wrong[-1, 2] = value
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        model.fit(wrong, Y, weights)
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("rows", [np.full((1, 5), np.nan), np.full((3000, 5), np.inf, dtype=np.float32)])
def test_what_is_not_finite_is_refused(rows: Any) -> None:
    model = HypersphereClassifier().fit(X, Y)
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        model.predict(rows)
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        model.partial_fit(rows, np.full(len(rows), "a"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"region": "spere"}, r"no region 'spere'; did you mean 'sphere'\?"),
        ({"feature_transform": "units"}, r"no transform 'units'; did you mean 'unit'\?"),
        ({"fit_mode": "bays"}, r"no fit mode 'bays'; did you mean 'bayes'\?"),
        ({"region": "cone"}, r"'bayes' has no meaning for the region Cone; use 'unbiased' or 'paper' or 'point'"),
        ({"coverage": 95}, "coverage=95: give a share between 0 and 1, such as 0.95, or None"),
        ({"coverage": True}, "coverage=True: give a share"),
        ({"temperature": 0}, "temperature=0: give 'auto' or a number above 0"),
        ({"temperature": "hot"}, "temperature='hot': give 'auto' or a number above 0"),
        ({"radius_distance": "plain"}, "only spheres of fit_mode='paper' have such a radius"),
        ({"radius_distance": "plan", "fit_mode": "paper"}, "no radius_distance 'plan'; did you mean 'plain'"),
        (
            {"radius_distance": "plain", "fit_mode": "paper", "store_support": False},
            "the mean distance of fit_mode='paper' is no statistic",
        ),
        ({"prior_ratio": -1.0}, "prior_ratio=-1.0: give a number above 0"),
        ({"prior_ratio": True}, "prior_ratio=True: give a number above 0"),
        ({"temperature": np.inf}, "temperature=inf: give 'auto' or a number above 0"),
        ({"squared": 1}, "squared=1: give True or False"),
        ({"store_support": None}, "store_support=None: give True or False"),
        ({"region": 3}, r"there is no region '3'\. Known: cone, gaussian, point, sphere"),
        ({"store_support": False}, "keeps no examples, but fit_mode='bayes' whitens by them; use 'unbiased', or set"),
        (
            {"store_support": False, "fit_mode": "paper", "squared": False},
            "the mean distance of fit_mode='paper' is no statistic; use 'unbiased', or mean squared distances",
        ),
        (
            {"store_support": False, "fit_mode": "point", "feature_transform": "center-unit"},
            "'center-unit' transforms them again after each change; use 'unit' or 'none', or set store_support=True",
        ),
        ({"store_support": False, "fit_mode": "point", "coverage": 0.9}, "coverage scores each of them"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HypersphereClassifier(**settings).fit(X, Y).predict(X)


def test_parameters_are_given_by_name_and_shown_where_they_differ() -> None:
    with pytest.raises(TypeError, match="positional"):
        HypersphereClassifier("cone")  # type: ignore[call-arg]
    assert repr(HypersphereClassifier()) == "HypersphereClassifier()"
    shown = repr(HypersphereClassifier(fit_mode="paper", coverage=0.9, squared=True))
    assert shown == "HypersphereClassifier(coverage=0.9, fit_mode='paper')"


def test_every_parameter_has_a_constraint_and_a_description() -> None:
    names = set(HypersphereClassifier().get_params())
    assert set(HypersphereClassifier._parameter_constraints) == names
    told = HypersphereClassifier.__doc__ or ""
    assert all(f"    {name} : " in told for name in names)


def test_score_takes_one_label_and_one_weight_a_row() -> None:
    model = HypersphereClassifier().fit(np.eye(2), ["a", "b"])
    assert model.score(np.eye(2), ["a", "a"], [3, 1]) == 0.75
    assert model.score(np.eye(2), ["a", "a"], [3e-30, 1e-30]) == pytest.approx(0.75)
    with pytest.raises(ValueError, match="should be a 1d array"):
        model.score(np.eye(2), [["a", "b"], ["a", "b"]])
    with pytest.raises(ValueError, match="every sample_weight is zero"):
        model.score(np.eye(2), ["a", "b"], [0, 0])
    with pytest.raises(ValueError, match=r"sample_weight\[1\] is 1e\+200; .* from 0 to 1e\+09"):
        model.partial_fit(np.eye(2), ["a", "b"], sample_weight=[1, 1e200])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"region": {}}, "there is no region '{}'"),
        ({"temperature": 10**400}, "temperature=1000.*: give 'auto' or a number above 0"),
        ({"prior_ratio": 10**400}, "prior_ratio=1000.*: give a number above 0"),
    ],
)
def test_parameters_that_no_float_can_hold(parameters: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        HypersphereClassifier(**parameters).fit(np.eye(2), ["a", "b"])


@pytest.mark.parametrize("label", [float("nan"), ["x"], None])
@pytest.mark.filterwarnings("ignore:coverage")
def test_a_reject_label_is_a_label(label: Any) -> None:
    with pytest.raises(ConfigError, match=r"reject_label=.*: give a string or a number"):
        HypersphereClassifier(coverage=0.5, reject_label=label).fit(np.eye(2), ["a", "b"])
    model = HypersphereClassifier(coverage=0.5).fit(np.eye(2), ["a", "b"]).set_params(reject_label=label)
    with pytest.raises(ConfigError, match=r"reject_label=.*: give a string or a number"):
        model.predict(np.eye(2))
