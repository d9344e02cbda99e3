"""The threshold of "none of these", against every other one."""

import math

import numpy as np
from hypothesis import given, settings

from hyperproto.decisions import choose_threshold
from hyperproto.problems import Verdicts
from tests.helpers.verdicts import accuracy, judged

patient = settings(deadline=None)  # a busy machine is not a mistake


@patient
@given(judged())
def test_no_threshold_is_better_than_the_one_chosen(verdicts: Verdicts) -> None:
    chosen = choose_threshold(verdicts.novelty, verdicts.correct, verdicts.outside)
    tried = [-math.inf, math.inf, *(value + shift for value in range(-5, 6) for shift in (-0.25, 0, 0.25))]
    best = max(accuracy(verdicts, threshold) for threshold in tried)
    assert accuracy(verdicts, chosen) == best
    if chosen < math.inf:  # of equals, the one that rejects least
        kept = verdicts.novelty <= chosen
        larger = [t for t in tried if (verdicts.novelty <= t).sum() > kept.sum()]
        assert all(accuracy(verdicts, threshold) < best for threshold in larger)
    order = np.random.default_rng(0).permutation(len(verdicts.novelty))
    assert choose_threshold(verdicts.novelty[order], verdicts.correct[order], verdicts.outside[order]) == chosen


def test_a_threshold_lies_half_way_or_rejects_nothing_or_everything() -> None:
    novelty = np.array([1.0, 2, 4, 8])
    yes, no = np.ones(4, bool), np.zeros(4, bool)
    late = np.array([False, False, True, True])
    assert choose_threshold(novelty, ~late, late) == 3.0
    assert choose_threshold(novelty, yes, no) == math.inf
    assert choose_threshold(novelty, no, no) == math.inf  # nothing to gain: nothing rejected
    assert choose_threshold(novelty, no, yes) == -math.inf
    near = [1.0]
    for _ in range(2):
        near.append(np.nextafter(near[-1], 2.0))
    for pair in (near[:2], near[1:]):  # no number in between; half-way is rounded down in one and up in the other
        assert choose_threshold(np.array(pair), np.array([True, False]), np.array([False, True])) == pair[0]
