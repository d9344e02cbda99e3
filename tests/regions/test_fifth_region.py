"""A new region is one new file: everything that is written for all regions works with it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch

from hyperproto.errors import ConfigError
from hyperproto.estimators import HypersphereClassifier
from hyperproto.regions import REGIONS, Array, Cone, Gaussian, Moments, Point, Region, Sphere
from hyperproto.regions.arrays import Doubles, Indices
from hyperproto.regions.base import ClosedForm, LinearForm
from hyperproto.regions.left_out import LeftOut
from hyperproto.testing import check_region
from tests.regions.ellipsoid import Ellipsoid

ALL: list[type[Region]] = [*REGIONS.values(), Ellipsoid]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in `hyperproto.regions`."""
    monkeypatch.setitem(REGIONS, "ellipsoid", Ellipsoid)


def blobs() -> tuple[Doubles, Any]:
    """Classes that differ along one axis and scatter along another."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4
    x = rng.normal(size=(40, 3)) * [5.0, 0.3, 0.3]
    x[:, 1] += 1.5 * y
    return x, np.array(list("abcd"))[y]


@pytest.mark.parametrize(
    "array", [np.asarray, torch.tensor, array_api_strict.asarray], ids=["numpy", "torch", "strict"]
)
@pytest.mark.parametrize("cls", ALL)
def test_every_region_keeps_the_contract(cls: type[Region], array: Callable[[Any], Array]) -> None:
    check_region(cls, array=array)


@pytest.mark.filterwarnings("ignore:coverage=.* rejects almost nothing")  # true of center-unit
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
def test_the_classifier_takes_it(transform: str) -> None:
    x, y = blobs()
    model = HypersphereClassifier(
        region="ellipsoid", fit_mode="point", feature_transform=transform, coverage=0.8, temperature="auto"
    ).fit(x[:-4], y[:-4])
    model.partial_fit(x[-4:], y[-4:])
    assert model.score(x, y) > 0.5
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1.0)
    assert 0 < model.temperature_ < np.inf
    assert (model.extents_ > 0).all()
    assert model.novelty(x).shape == (40,)
    assert model.predict_set(x)[np.arange(40), np.searchsorted(model.classes_, y)].mean() >= 0.75
    assert {report.label for report in model.diagnose().classes} == set("abcd")
    if transform == "none":
        point = HypersphereClassifier(region="point", fit_mode="point", feature_transform="none").fit(x, y)
        assert model.set_params(coverage=None).score(x, y) > point.score(x, y)
        region = Ellipsoid.fit(x, np.searchsorted(model.classes_, y), 4)
        np.testing.assert_allclose(model.measure(x), region.measure(x))


@pytest.mark.usefixtures("registered")
def test_the_classifier_says_what_it_cannot_do_with_it(tmp_path: Any) -> None:
    x, y = blobs()
    model = HypersphereClassifier(region="ellipsoid", fit_mode="point", feature_transform="none")
    with pytest.raises(ConfigError, match="but the region Ellipsoid is fitted to them; use a region of statistics"):
        model.set_params(store_support=False).fit(x, y)
    with pytest.raises(ConfigError, match=r"the region 'ellipsoid' is not linear in x.*fit with region='sphere'"):
        model.set_params(store_support=True).fit(x, y).export_onnx(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match="the measure of this Ellipsoid is not linear in x; use `measure`"):
        model.region_.linear()
    with pytest.raises(ConfigError, match="'bayes' has no meaning for the region Ellipsoid; use 'point'"):
        HypersphereClassifier(region="ellipsoid").fit(x, y)


class Upside(Point):
    def measure(self, x: Array) -> Array:
        return -super().measure(x)


class Crooked(Sphere):
    def linear(self, middle: Array = None) -> LinearForm:
        form = super().linear(middle)
        return replace(form, bias=form.bias * 1.1 + np.arange(3))


class Forgetful(Gaussian):
    def left_out(self, out: LeftOut, index: Indices, form: ClosedForm, fair: bool = False) -> Doubles:
        return np.asarray(self.measure(out.stats.rows[index]))


class Needy(Cone):
    @classmethod
    def from_statistics(cls, stats: Any, *, mode: str = "point", direction: Array = None) -> Any:
        region = super().from_statistics(stats, mode=mode, direction=direction)
        return replace(region, center=region.center + 1) if isinstance(stats, Moments) else region


class Steep(Ellipsoid):
    def measure(self, x: Array) -> Array:
        return super().measure(x) ** 0.5


class Endless(Ellipsoid):
    modes = ("last",)


class Near(Ellipsoid):
    def novelty(self, x: Array, count: Array) -> Array:
        return -super().novelty(x, count)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Upside, "Upside, mode 'point': most examples are nearest to their own class"),
        (Crooked, "Crooked, mode 'bayes': linear scores are minus the measure"),
        (Forgetful, "leave-one-out measures are those of a fit to the other examples"),
        (Needy, "needs_examples is None, so count, mean and squares are enough"),
        (Endless, r"Endless: modes \('last',\) must be some of"),
        (Near, "novelty is larger far from all classes"),
    ],
)
def test_what_breaks_the_contract_is_named(cls: type[Region], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_region(cls)


def test_gradients_are_asked_for_if_there_are_any() -> None:
    check_region(Steep)
    with pytest.raises(AssertionError, match=r"Steep, mode 'point': .*the gradient in the (support|queries) is finite"):
        check_region(Steep, array=torch.tensor)
