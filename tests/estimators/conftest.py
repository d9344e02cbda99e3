"""Small classes, unequal and far from round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hyperproto.estimators import HypersphereClassifier
from hyperproto.regions import REGIONS
from tests.helpers.items import bert, files, nothing_loaded

__all__ = ["bert", "files", "nothing_loaded"]

MODES = [(name, mode) for name, region in REGIONS.items() for mode in region.modes]
SETTINGS: list[dict[str, Any]] = [
    *({"region": region, "fit_mode": mode, "feature_transform": "none"} for region, mode in MODES),
    {"fit_mode": "bayes", "feature_transform": "unit"},
    {"fit_mode": "unbiased", "feature_transform": "unit"},
    {"fit_mode": "bayes", "squared": False},
    {"fit_mode": "unbiased", "squared": False, "feature_transform": "none"},
    {"fit_mode": "paper", "squared": False, "feature_transform": "none"},
    {"fit_mode": "paper", "radius_distance": "plain", "feature_transform": "none"},
    {"region": "point", "fit_mode": "point", "squared": False},
]
IDS = ["-".join(str(value) for value in settings.values()) for settings in SETTINGS]
LATE: list[dict[str, Any]] = [{"fit_mode": mode, "feature_transform": "center-unit"} for mode in ("bayes", "unbiased")]


def blobs(
    shots: Sequence[int] = (6, 1, 3, 2), dim: int = 5, seed: int = 0, noise: float = 1.0, apart: float = 2.0
) -> Any:
    """Vectors and labels "a", "b", ... of classes of these sizes, mixed."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(len(shots)), shots))
    scale = np.exp(0.5 * random.normal(size=dim))
    x = apart * random.normal(size=(len(shots), dim))[labels] + noise * scale * random.normal(size=(len(labels), dim))
    return x, np.array([chr(ord("a") + n) for n in labels])


def everything(model: HypersphereClassifier, q: Any) -> Any:
    """What a user can see of a fitted classifier, as arrays by name."""
    seen = {
        "measure": model.measure(q),
        "probability": model.predict_proba(q),
        "novelty": model.novelty(q),
        "centers": model.centers_,
        "radii": model.radii_,
        "extents": model.extents_,
        "means": model.means_,
        "counts": model.counts_,
        "temperature": model.temperature_,
    }
    assert list(model.classes_) == sorted(model.classes_)
    return seen


def assert_equal_models(
    one: HypersphereClassifier, other: HypersphereClassifier, q: Any, tolerance: float = 1e-6
) -> None:
    assert one.classes_.tolist() == other.classes_.tolist()
    a, b = everything(one, q), everything(other, q)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.fixture(params=SETTINGS, ids=IDS)
def choice(request: pytest.FixtureRequest) -> Any:
    """The settings of a classifier, in every region and mode."""
    return request.param


@pytest.fixture
def make(choice: dict[str, Any]) -> Any:
    return lambda **more: HypersphereClassifier(**{**choice, **more})
