"""Merge and split suggestions of the class doctor: planted ones are found, and nothing else."""

import json
from typing import Any

import numpy as np
import pytest

from hyperproto.estimators import HypersphereClassifier
from hyperproto.estimators.doctor import Diagnosis
from hyperproto.estimators.doctor import changes as module
from hyperproto.estimators.doctor.changes import null_of, two_means, z_scores

CENTERS = 4 * np.eye(12, 16)


def diagnosed(x: Any, y: Any, **settings: Any) -> Diagnosis:
    return HypersphereClassifier(feature_transform="none", **settings).fit(x, y).diagnose()


def rows(classes: Any, seed: int = 0) -> Any:
    return CENTERS[classes] + np.random.default_rng(seed).normal(size=(len(classes), 16))


def test_two_labels_of_one_class_are_merged() -> None:
    truth = np.repeat(np.arange(6), 20)
    y = truth.copy()
    y[100::2] = 9  # every other example of class 5
    found = diagnosed(rows(truth), y)
    [merge] = found.merges
    assert {*merge.labels} == {5, 9}
    assert 0.5 <= merge.overlap_low <= merge.overlap <= 1
    assert min(merge.confused) >= 0.25
    assert found.splits == ()
    assert f"  {merge.labels[0]} and {merge.labels[1]}: overlap {merge.overlap:.0%}, at least" in found.table()
    assert "Classes to split" not in found.table()


def test_classes_that_are_confused_one_way_are_not_merged() -> None:
    """Some examples of class 1 lie on class 0, but none the other way."""
    truth = np.repeat(np.arange(4), 16)
    y = truth.copy()
    y[:6] = 1
    assert diagnosed(rows(truth), y).merges == ()


@pytest.mark.parametrize("way", [3, 12])
def test_a_class_of_two_clusters_is_split(way: int) -> None:
    truth = np.repeat(np.arange(way), 8)
    y = truth.copy()
    y[y == 1] = 0
    found = diagnosed(rows(truth), y)
    [split] = found.splits
    assert (split.label, split.sizes) == (0, (8, 8))
    assert split.p_value < 0.05
    groups = [{truth[n] for n in part} for part in split.examples]
    assert groups in ([{0}, {1}], [{1}, {0}])
    assert "  0: 8 and 8 examples, such as " in found.table()
    assert found.merges == ()
    content = found.to_dict()
    assert content == json.loads(json.dumps(content))
    assert content["splits"][0]["sizes"] == [8, 8]


def test_gaussian_classes_are_split_at_the_stated_rate() -> None:
    """At 5 % corrected for three classes, with unequal variances along the axes."""
    variances = np.exp(-np.arange(10) / 3)
    reported = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        y = np.repeat(np.arange(3), (10, 14, 25))
        x = 9 * np.eye(3, 10)[y] + random.normal(size=(49, 10)) * np.sqrt(variances)
        reported += bool(diagnosed(x, y).splits)
    assert reported <= 5


def test_two_means_are_those_of_a_loop() -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(9, 4)) + 6 * (np.arange(9) % 3 == 0)[:, None]
    x -= x.mean(axis=0)
    [ratio], [half] = two_means((x @ x.T)[None])
    assert sorted([half.sum(), (~half).sum()]) == [3, 6]
    within = sum(((x[side] - x[side].mean(axis=0)) ** 2).sum() for side in (half, ~half))
    assert ratio == pytest.approx(np.log(within / (x**2).sum()))
    [_], [moved] = two_means((7 * x @ x.T)[None])
    assert (moved == half).all()


def test_z_scores_interpolate_between_sizes_and_allow_for_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    variances = np.ones(6)
    mean, spread = null_of(20, variances, np.random.default_rng(1))
    found = z_scores(np.array([mean, mean - 2 * spread]), np.array([20, 20]), variances)
    np.testing.assert_allclose(found, [0, -2], atol=0.6)  # of two simulations
    near = z_scores(np.full(3, mean), np.array([12, 20, 40]), variances)
    assert near[0] > near[1] > near[2]  # small samples divide better by chance
    peers = np.concatenate([np.linspace(-0.1, 0.1, 9) + mean - 3 * spread, [mean - 9 * spread]])
    plain = z_scores(peers[-1:], np.array([20]), variances)
    assert z_scores(peers, np.full(10, 20), variances)[-1] > plain[0] + 2  # all classes are less than Gaussian
    monkeypatch.setattr(module, "PEERS", 99)
    np.testing.assert_allclose(z_scores(peers, np.full(10, 20), variances)[-1], plain[0])


@pytest.mark.filterwarnings("ignore:there is only one class")
def test_small_equal_and_lone_classes_have_no_suggestions() -> None:
    x = rows(np.repeat([0, 1], 8))
    one = diagnosed(rows(np.repeat([0, 1], 40)), ["a"] * 80)
    assert [split.label for split in one.splits] == ["a"]
    assert one.merges == ()
    assert diagnosed(x[5:11], ["a"] * 3 + ["b"] * 3).splits == ()
    same = diagnosed(np.repeat(np.eye(2), 8, axis=0), ["a"] * 8 + ["b"] * 8)
    assert (same.merges, same.splits) == ((), ())
    outlier = np.concatenate([rows(np.zeros(10, int)), [np.full(16, 50.0)], rows(np.ones(10, int))])
    assert diagnosed(outlier, ["a"] * 11 + ["b"] * 10).splits == ()  # one example is no cluster


def test_of_many_classes_the_widest_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.repeat(np.arange(12), 8)
    y = np.where(truth == 1, 0, truth)
    for limit in ("MOST_CLASSES", "MOST_MEMBERS"):
        monkeypatch.setattr(module, limit, 10)
        assert [split.label for split in diagnosed(rows(truth), y).splits] == [0]
    weights = np.ones(len(y))
    weights[:8] = 0
    found = HypersphereClassifier(feature_transform="none").fit(rows(truth), y, weights).diagnose()
    assert found.splits == ()  # what has no weight forms no cluster
