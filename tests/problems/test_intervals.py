import numpy as np
import pytest

from hyperproto.problems import mean_interval, paired_difference
from hyperproto.problems.base import best_marks, best_of_draws


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        mean, half = mean_interval(random.exponential(size=30) if _ % 2 else random.normal(1, 2, size=5))
        covered += abs(mean - 1) <= half
    assert 0.92 < covered / 2000 < 0.97


def test_a_known_interval() -> None:
    mean, half = mean_interval(np.array([0.2, 0.4, 0.6, 0.8]))
    assert mean == pytest.approx(0.5)
    assert half == pytest.approx(3.1824463 * np.sqrt(0.2 / 3 / 4))  # t with 3 degrees of freedom
    assert np.isnan(mean_interval(np.array([1.0]))[1])


def test_pairs_are_narrower_than_two_intervals() -> None:
    random = np.random.default_rng(0)
    difficulty = random.normal(size=500)
    a, b = difficulty + 0.1 + 0.01 * random.normal(size=500), difficulty
    difference, half = paired_difference(a, b)
    assert difference == pytest.approx(0.1, abs=0.01)
    assert half < mean_interval(a)[1] / 10
    with pytest.raises(ValueError, match="paired values must have one shape"):
        paired_difference(a, b[:10])


def test_the_best_is_marked_only_where_pairs_support_it() -> None:
    low, high = [0.50, 0.60, 0.70], [0.52, 0.62, 0.72]  # always 0.02 apart, though both spread over 0.2
    assert best_of_draws([low, high]) == ["", "best"]
    assert best_of_draws([low, high, [0.90, 0.30, 0.60]]) == ["", "tied", "tied"]  # 0.62 and 0.60, but far apart
    assert best_of_draws([high, high]) == ["tied", "tied"]
    assert best_of_draws([[0.5], [0.9]]) == ["tied", "tied"]  # one draw supports nothing
    assert best_of_draws([[*high, 0.0], low]) == ["best", ""]  # the common draws count
    assert best_of_draws([high]) == [""]


def test_nothing_is_marked_where_the_largest_was_not_paired() -> None:
    known = {(1, 0): (0.1, 0.05), (1, 2): (0.01, 0.02)}
    assert best_marks([0.5, 0.6, 0.59], lambda i, j: known.get((i, j))) == ["", "tied", "tied"]
    assert best_marks([0.5, 0.6, 0.55, 0.1], lambda i, j: known.get((i, j))) == ["", "", "", ""]
