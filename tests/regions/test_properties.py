"""What must hold whatever the numbers: linear form, one shot, floors, and names."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import hyperproto.regions as regions
from hyperproto.errors import ConfigError, DataError
from hyperproto.regions import FIT_MODES, REGIONS, Cone, Gaussian, Point, Sphere, check_mode

Y = np.array([0, 0, 0, 1, 2, 2, 2, 2, 0])


@pytest.mark.parametrize("mode", Sphere.modes)
@pytest.mark.parametrize("dim", [4, 40])
def test_the_sphere_is_a_linear_classifier(rng: np.random.Generator, mode: str, dim: int) -> None:
    x = rng.normal(size=(3, len(Y), dim)) * np.exp(rng.normal(size=dim))
    q = rng.normal(size=(3, 50, dim))
    sphere = Sphere.fit(x, np.stack([Y] * 3), 3, mode=mode)
    form = sphere.linear()
    weights, bias = form.weights, form.bias
    assert weights.shape == (3, dim, 3)
    assert bias.shape == (3, 3)
    scores = q @ weights + bias[:, None, :]
    moved = q if sphere.whiten is None else sphere.whiten(q)
    np.testing.assert_allclose(scores, (moved**2).sum(-1, keepdims=True) - sphere.measure(q), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(scores.argmax(-1), sphere.measure(q).argmin(-1))


def test_the_unsquared_sphere_is_not_linear(rng: np.random.Generator) -> None:
    sphere = Sphere.fit(rng.normal(size=(9, 4)), Y, 3, squared=False)
    with pytest.raises(ConfigError, match=r"only the squared measure is linear in x.*fit with squared=True"):
        sphere.linear()


def test_low_rank_never_builds_a_square_matrix(rng: np.random.Generator) -> None:
    whiten = Sphere.fit(rng.normal(size=(9, 500)), Y, 3).whiten
    assert whiten is not None
    assert whiten.left.shape == (500, 9)
    assert whiten.right.shape == (9, 500)


def test_one_shot_paper_is_protonet(rng: np.random.Generator) -> None:
    x, y, q = rng.normal(size=(5, 8)), np.arange(5), rng.normal(size=(40, 8))
    for squared in (True, False):
        sphere = Sphere.fit(x, y, 5, mode="paper", squared=squared)
        assert np.all(sphere.bias_radius == 0)
        np.testing.assert_array_equal(sphere.measure(q).argmin(-1), Point.fit(x, y, 5).measure(q).argmin(-1))


def test_one_shot_cone_is_cosine(rng: np.random.Generator) -> None:
    x, y, q = rng.normal(size=(5, 8)), np.arange(5), rng.normal(size=(40, 8))
    cosine = Cone.fit(x, y, 5, mode="point").measure(q)
    for mode in ("paper", "unbiased"):
        np.testing.assert_allclose(Cone.fit(x, y, 5, mode=mode).measure(q), cosine, atol=1e-9)


def test_scatter_of_one_shot_is_exactly_zero(rng: np.random.Generator) -> None:
    x = rng.normal(size=(5, 8)).astype(np.float32) * 1e3
    assert np.all(Point.fit(x, np.arange(5), 5).extent_radius == 0)


def test_a_new_example_reaches_the_extent_on_average(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(400, 5, 6)), np.zeros((400, 5), dtype=int)
    fresh = rng.normal(size=(400, 50, 6))
    for mode in Sphere.modes:
        sphere = Sphere.fit(x, y, 1, mode=mode)
        assert 0.4 < sphere.inside(fresh).mean() < 0.75
        reach = (sphere.extent_radius**2).mean() / (sphere.distance(fresh) ** 2).mean()
        assert reach == pytest.approx(1, abs=0.1)  # extent^2 is the mean squared distance of a new example


def test_an_empty_class_disturbs_no_other(rng: np.random.Generator) -> None:
    x, q = rng.normal(size=(9, 4)), rng.normal(size=(5, 4))
    for region in REGIONS.values():
        for mode in region.modes:
            wide = region.fit(x, Y, 4, mode=mode).measure(q)
            np.testing.assert_allclose(wide[:, :3], region.fit(x, Y, 3, mode=mode).measure(q), rtol=1e-9)


def test_gaussian_floors(rng: np.random.Generator) -> None:
    x = rng.normal(size=(9, 4))
    x[Y == 2] = 1.0  # identical examples
    for mode in Gaussian.modes:
        sigma = Gaussian.fit(x, Y, 3, mode=mode).sigma
        assert sigma[2] == pytest.approx(0.1 * sigma[1])  # class 1 has one example: the pooled sigma
        alone = Gaussian.fit(x[:3], np.arange(3), 3, mode=mode)
        np.testing.assert_array_equal(alone.sigma, np.ones(3))
        np.testing.assert_array_equal(alone.bias_radius, np.zeros(3))
        np.testing.assert_array_equal(alone.shrink, np.ones(3))
    line = Gaussian.fit(x[:, :1], np.array([0, 0, 1, 1, 1, 2, 2, 2, 2]), 3)  # nu = 1, 2, 3
    np.testing.assert_allclose(line.shrink, [1 / 3, 1 / 3, 1 / 3])
    assert np.isfinite(Gaussian(x[:2], np.zeros(2)).measure(x)).all()


def test_cone_floor() -> None:
    x = np.array([[1.0, 0.0], [-1.0, 1e-3], [0.0, 1.0], [0.0, 1.0]])
    cone = Cone.fit(x, np.array([0, 0, 1, 1]), 2)
    assert cone.gain[0] == pytest.approx(5e-4 / 0.1, rel=1e-3)  # ||zbar|| over the least rho
    assert cone.gain[1] == pytest.approx(1)


def test_modes() -> None:
    assert {name: region.modes[0] for name, region in REGIONS.items()} == {
        "point": "point",
        "sphere": "bayes",
        "cone": "unbiased",
        "gaussian": "unbiased",
    }
    for region in REGIONS.values():
        assert (region.fit.__kwdefaults__ or {})["mode"] == region.modes[0]
        for mode in FIT_MODES:
            if mode in region.modes:
                check_mode(region, mode)
            else:
                with pytest.raises(ConfigError, match=f"{mode!r} has no meaning for the region {region.__name__}; use"):
                    region.fit(np.ones((2, 2)), np.arange(2), 2, mode=mode)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: Cone.fit(x, Y, 3, mode="bayes"), ConfigError, "Cone; use 'unbiased' or 'paper' or 'point'"),
        (lambda x: Sphere.fit(x, Y, 3, mode="baies"), ConfigError, "no fit mode 'baies'; did you mean 'bayes'"),
        (
            lambda x: Sphere.fit(x, Y, 3, radius_weight=0.5),
            ConfigError,
            "radius_weight .* 'bayes' has none: use 'paper'",
        ),
        (
            lambda x: Gaussian.fit(x, Y, 3, sigma="eq3"),
            ConfigError,
            "sigma='eq3' is a reading of the paper.*'unbiased'",
        ),
        (
            lambda x: Gaussian.fit(x, Y, 3, mode="paper", sigma="m1"),
            ConfigError,
            "no reading of sigma 'm1'; did you mean",
        ),
        (lambda x: Sphere(x).inside(x), ConfigError, "Sphere was built without an extent_radius"),
        (lambda x: Sphere.fit(x, Y[:4], 3), DataError, r"shape \(9, 4\) but labels \(4,\)"),
        (lambda x: Sphere.fit(x.astype(int), Y, 3), DataError, "support has dtype int64"),
        (lambda x: Sphere.fit(x, Y * 1.0, 3), DataError, "labels have dtype float64; give integers"),
        (lambda x: Sphere.fit(x, Y, 0), DataError, "way is 0"),
    ],
)
def test_errors_say_what_to_do(rng: np.random.Generator, call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(rng.normal(size=(9, 4)))


def test_public_names() -> None:
    assert all(hasattr(regions, name) for name in regions.__all__)
    public = {
        name for name, value in vars(regions).items() if getattr(value, "__module__", "").startswith("hyperproto")
    }
    assert public <= set(regions.__all__)


def test_no_torch_is_imported() -> None:
    code = "import sys, numpy as np; from hyperproto.regions import Sphere; Sphere.fit(np.eye(4), np.arange(4) % 2, 2)"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)
