import numpy as np
import pytest

from hyperproto.errors import ConfigError
from hyperproto.regions import PRIOR_RATIO, ClassStatistics, Sphere
from hyperproto.regions.bayes import measured_ratio


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


@pytest.mark.parametrize("true", [0.1, 1.0, 30.0])
def test_the_measured_ratio_is_that_of_the_classes(rng: np.random.Generator, true: float) -> None:
    """Classes of variance 1 about centres of variance 1 / true: no clip at 1/4 or 16, no prior."""
    labels = np.repeat(np.arange(150), 40)
    x = rng.normal(size=(150, 12))[labels] / np.sqrt(true) + rng.normal(size=(len(labels), 12))
    found = float(measured_ratio(ClassStatistics.of(x, labels, 150)))
    assert found == pytest.approx(true, rel=0.15)


def test_the_measured_ratio_by_loops(rng: np.random.Generator) -> None:
    counts = [3, 9, 5, 1]
    labels = np.repeat(np.arange(4), counts)
    x = 2 * rng.normal(size=(4, 5))[labels] + rng.normal(size=(len(labels), 5)) * [3, 1, 1, 1, 1]
    mean = [x[labels == n].mean(0) for n in range(4)]
    v = sum(((x[i] - mean[n]) ** 2).sum() for i, n in enumerate(labels)) / (len(labels) - 4)
    k = 4.0
    for _ in range(5):
        w = [c / (c + k) for c in counts]
        middle = sum(w[n] * mean[n] for n in range(4)) / sum(w)
        spread = sum(w[n] * ((mean[n] - middle) ** 2).sum() for n in range(4))
        noise = v * sum(w[n] / counts[n] * (1 - w[n] / sum(w)) for n in range(4))
        k = v / ((spread - noise) / (sum(w) - sum(a * a for a in w) / sum(w)))
    found = measured_ratio(ClassStatistics.of(x, labels, 4))
    assert float(found) == pytest.approx(k)
