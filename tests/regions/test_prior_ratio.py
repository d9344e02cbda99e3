import numpy as np
import pytest

from hyperproto.errors import ConfigError
from hyperproto.regions import PRIOR_RATIO, Sphere


@pytest.mark.parametrize("ratio", [0.1, 1.0, PRIOR_RATIO])
def test_one_shot_centres_shrink_by_the_prior_alone(rng: np.random.Generator, ratio: float) -> None:
    x = rng.normal(size=(4, 6))
    sphere = Sphere.fit(x, np.arange(4), 4, prior_ratio=ratio)
    np.testing.assert_allclose(sphere.center, x.mean(0) + (x - x.mean(0)) / (1 + ratio))


def test_the_support_outvotes_the_prior_as_classes_grow(rng: np.random.Generator) -> None:
    """Three classes or sixty with the same scatter: the estimates from two priors come together."""
    gaps = []
    for way in (3, 60):
        labels = np.repeat(np.arange(way), 10)
        x = rng.normal(size=(way, 8))[labels] + rng.normal(size=(len(labels), 8))
        low, high = (float(Sphere.fit(x, labels, way, prior_ratio=ratio).ratio) for ratio in (0.25, 4.0))
        gaps.append(np.log(high / low))
    assert gaps[1] < 0.1 * gaps[0]


@pytest.mark.parametrize(("mode", "ratio"), [("bayes", 0.0), ("bayes", -1.0), ("unbiased", 1.0)])
def test_a_prior_without_meaning_is_refused(rng: np.random.Generator, mode: str, ratio: float) -> None:
    with pytest.raises(ConfigError, match=f"prior_ratio {ratio} must be above 0, and is only for the fit mode 'bayes'"):
        Sphere.fit(rng.normal(size=(4, 6)), np.arange(4), 4, mode=mode, prior_ratio=ratio)
