"""Many classes: time and memory grow with their number and no faster, and thresholds are those of the plain formula."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hyperproto import HypersphereClassifier
from hyperproto.estimators import conformal, temperature
from hyperproto.estimators.conformal import Conformal, _PooledReach, quantile, scale
from hyperproto.estimators.doctor import confusion, examples
from hyperproto.estimators.temperature import pseudo_examples
from hyperproto.regions import left_out
from hyperproto.regions.bayes import moment_ratio
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import FlatStatistics, Moments, class_scatter, moments_of

DIM = 16


def classes(way: int, shot: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """`shot` examples of each class, in float32."""
    random = np.random.default_rng(seed)
    y = np.tile(np.arange(way), shot)
    return random.standard_normal((way, DIM), np.float32)[y] + random.standard_normal((len(y), DIM), np.float32), y


@pytest.mark.parametrize("shot", [1, 2])
def test_memory_and_pairs_grow_with_the_classes(shot: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constants are made small, so that few classes are many: all pairs of them would be 8 bytes times way^2."""
    monkeypatch.setattr(temperature, "MOST_SCORES", 50_000)
    monkeypatch.setattr(temperature, "LEAST_SAMPLE", 10)
    monkeypatch.setattr(conformal, "BLOCK", 10_000)
    monkeypatch.setattr(temperature, "BLOCK", 10_000)
    monkeypatch.setattr(left_out, "BLOCK", 10_000)
    monkeypatch.setattr(confusion, "MOST_PAIRS", 1_000_000)
    monkeypatch.setattr(confusion, "BLOCK", 10_000)
    monkeypatch.setattr(examples, "MOST_COMPARED", 50_000)
    pairs = []
    measured = left_out.left_out_measures

    def counting(out: Any, region: Any, form: Any, index: Any, fair: bool = False) -> Any:
        pairs.append(len(index) * len(out.stats.count))
        return measured(out, region, form, index, fair)

    monkeypatch.setattr(temperature, "left_out_measures", counting)
    monkeypatch.setattr(examples, "left_out_measures", counting)
    way = 4000
    x, y = classes(way, shot)
    model = HypersphereClassifier(coverage=0.9, guarantee=shot > 1)
    tracemalloc.start()
    model.fit(x, y)
    if shot > 1:
        with pytest.warns(UserWarning, match="coverage=0.9 rejects almost nothing here"):
            assert np.isfinite(model.thresholds_).all()
        assert model.predict_set(x[:5]).shape == (5, way)
    else:
        with pytest.warns(UserWarning, match="coverage=0.9 needs 9 examples"):
            model.predict(x[:5])
    assert model.predict_proba(x[:5]).shape == (5, way)
    assert model.novelty(x[:5]).shape == (5,)
    assert len(model.diagnose().classes) == way
    assert model.expected_.examples <= 50_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * x.astype(np.float64).nbytes + 8e6  # 24 or 39 MB; all pairs of classes in float64 are 128 MB
    assert sum(pairs) <= 3.2 * 50_000 + way  # the temperature, the doctor, and what is to be expected


def test_pseudo_examples_of_very_many_classes_are_of_evenly_spaced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = classes(50, 2)
    stats = moments_of(x, y, None, 50)
    assert len(pseudo_examples(stats, 4.0, True).labels) == 50 * 49
    monkeypatch.setattr(temperature, "MOST_SCORES", 500)
    monkeypatch.setattr(temperature, "MOST_PSEUDO_SCORES", 500)
    monkeypatch.setattr(temperature, "LEAST_SAMPLE", 5)
    found = pseudo_examples(stats, 4.0, True)
    assert found.labels.tolist() == [0, 5, 10, 16, 21, 27, 32, 38, 43, 49]
    assert (found.borrowed == (found.labels + 1) % 50).all()


def test_the_temperature_of_many_classes_is_near_that_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    for shot in (1, 3):
        x, y = classes(400, shot)
        exact = HypersphereClassifier().fit(x, y).temperature_
        with monkeypatch.context() as patch:
            patch.setattr(temperature, "MOST_SCORES", 40_000)
            patch.setattr(temperature, "MOST_PSEUDO_SCORES", 40_000)
            some = HypersphereClassifier().fit(x, y).temperature_  # of 100 examples: it varies by some 15 %
            assert some == pytest.approx(exact, rel=0.2)


def test_the_variance_ratio_of_more_classes_than_dimensions_needs_no_products() -> None:
    random = np.random.default_rng(0)
    mean, count = random.normal(size=(30, 8)), random.integers(1, 5, 30).astype(float)
    given = np.asarray(2.0), np.asarray(30.0), np.asarray(4.0)
    flat = moment_ratio(mean, count, *given, least=0.01, most=100.0)
    wide = np.hstack([mean, np.zeros((30, 40))])  # the same means in more dimensions than classes
    assert flat == pytest.approx(float(moment_ratio(wide, count, *given, least=0.01, most=100.0)))


@pytest.mark.parametrize("seed", range(6))
def test_pooled_reaches_are_those_of_a_sort_for_each_class(seed: int) -> None:
    random = np.random.default_rng(seed)
    way = int(random.integers(2, 12))
    y = np.repeat(np.arange(way), random.integers(1, 8, way))
    x = random.normal(size=(way, 4))[y] + random.normal(size=(len(y), 4))
    weights = np.ones(len(y)) if seed % 2 else random.choice([0.5, 1.0, 2.5], len(y))
    stats = FlatStatistics.of(x, y, weights, moments_of(x, y, weights, way))
    conformal = Conformal(LeftOut(stats))
    for coverage in (0.3, 0.6, 0.9):
        reach = _PooledReach(conformal, weights, coverage)
        for n in range(way):
            assert reach.quantile(n) == plain_reach(conformal, weights, coverage, n)


def plain_reach(conformal: Conformal, weights: Any, coverage: float, n: int) -> float:
    stats = conformal.left_out.stats
    known = np.isfinite(conformal.scores)
    own = class_scatter(stats.squares, stats.count)[n]
    reach = np.where(known, conformal.scores, 0.0) * scale(own, conformal.pooled, stats.count[n])
    values = np.where(known, np.where(stats.labels == n, conformal.jackknife_reach, reach), np.inf)
    return quantile(values, weights, coverage)


def test_neighbours_of_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    centers = 3 * random.normal(size=(30, DIM))
    means = centers[random.integers(0, 30, 900)] + random.normal(size=(900, DIM))
    noise = random.random(900)
    apart = ((means[:, None] - means) ** 2).sum(-1) - noise
    np.fill_diagonal(apart, np.inf)
    exact = confusion.nearest_others(means, noise)
    np.testing.assert_array_equal(exact, apart.argmin(axis=1))
    monkeypatch.setattr(confusion, "BLOCK", 1000)
    np.testing.assert_array_equal(confusion.nearest_others(means, noise), exact)
    monkeypatch.setattr(confusion, "MOST_PAIRS", 900 * 300)
    found = confusion.nearest_others(means, noise)
    assert (found != np.arange(900)).all()
    assert (found == exact).mean() > 0.9
    same = confusion.nearest_others(np.ones((900, 3)), np.zeros(900))  # one cell: still one other class each
    assert (same != np.arange(900)).all()


def test_moments_are_not_moved_by_the_blocks_of_mapped_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = classes(20, 3)
    stats = FlatStatistics.of(x, y, np.ones(len(y)), Moments(*vars(moments_of(x, y, None, 20)).values()))
    whole = stats.mapped_lengths(lambda rows: 2 * rows)
    monkeypatch.setattr("hyperproto.regions.statistics.MANY", 7)
    np.testing.assert_array_equal(stats.mapped_lengths(lambda rows: 2 * rows), whole)
