import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestCentroid
from sklearn.utils.estimator_checks import parametrize_with_checks

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError
from hyperproto.regions import REGIONS

X = np.random.default_rng(0).normal(size=(60, 5)) + np.repeat(np.eye(3, 5) * 3, 20, axis=0)
Y = np.repeat(["a", "b", "c"], 20)


@parametrize_with_checks(
    [
        HypersphereClassifier(),
        HypersphereClassifier(fit_mode="paper", feature_transform="center-unit"),
        HypersphereClassifier(region="point", fit_mode="point", feature_transform=None),
        HypersphereClassifier(region="gaussian", fit_mode="unbiased", feature_transform="none"),
    ]
)
def test_scikit_learns_own_checks(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


@pytest.mark.parametrize(("region", "mode"), [(name, mode) for name, cls in REGIONS.items() for mode in cls.modes])
def test_every_region_and_mode(region: str, mode: str) -> None:
    model = HypersphereClassifier(region=region, fit_mode=mode).fit(X, Y)
    assert model.score(X, Y) > 0.7
    assert model.centers_.shape == (3, 5)
    assert model.extents_.shape == model.radii_.shape == (3,)
    assert model.counts_.tolist() == [20, 20, 20]
    assert (model.decision_function(X).argmax(1) == np.searchsorted(model.classes_, model.predict(X))).all()


def test_a_point_without_transform_is_nearest_centroid() -> None:
    ours = HypersphereClassifier(fit_mode="point", feature_transform=None).fit(X, Y)
    assert (ours.predict(3 * X[::-1]) == NearestCentroid().fit(X, Y).predict(3 * X[::-1])).all()


def test_one_example_unequal_counts_one_class_and_zero_vectors() -> None:
    rows = [0, 20, 21, 40, 41, 42, 43, 44]
    assert HypersphereClassifier().fit(X[rows], Y[rows]).score(X, Y) > 0.6
    assert HypersphereClassifier().fit(X[[0, 20, 40]], Y[[0, 20, 40]]).counts_.tolist() == [1, 1, 1]
    assert set(HypersphereClassifier().fit(X[:5], Y[:5]).predict(X)) == {"a"}
    assert HypersphereClassifier().fit(np.vstack([X, np.zeros(5)]), [*Y, "a"]).predict(np.zeros((1, 5))).shape == (1,)


def test_center_unit_counts_classes_not_examples() -> None:
    rows = [0, *range(20, 40), 40]
    model = HypersphereClassifier(feature_transform="center-unit").fit(X[rows], Y[rows])
    np.testing.assert_allclose(model.mean_, np.mean([X[0], X[20:40].mean(0), X[40]], axis=0))


def test_settings_can_be_searched() -> None:
    search = GridSearchCV(
        HypersphereClassifier(), {"feature_transform": ["none", "unit"], "fit_mode": ["bayes", "paper"]}, cv=3
    )
    assert search.fit(X, Y).best_score_ > 0.7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"region": "spere"}, r"no region 'spere'; did you mean 'sphere'\?"),
        ({"feature_transform": "units"}, r"no transform 'units'; did you mean 'unit'\?"),
        ({"fit_mode": "bays"}, r"no fit mode 'bays'; did you mean 'bayes'\?"),
        ({"region": "cone"}, r"'bayes' has no meaning for the region Cone; use 'unbiased' or 'paper' or 'point'"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HypersphereClassifier(**settings).fit(X, Y)
