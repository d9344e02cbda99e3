"""Drift: the size of its tests, what it finds, and every form of the report."""

import json
from typing import Any

import numpy as np
import pytest

from hyperproto import FewShotTextClassifier, HypersphereClassifier
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.drift import DriftTest, clusters, holm, rank_test, shares_test, tail_ranks, typical_words

CENTERS = 4 * np.eye(6, 8)


def drawn(classes: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    return CENTERS[classes] + random.normal(size=(len(classes), 8))


def fitted(shots: int = 12, **settings: Any) -> HypersphereClassifier:
    y = np.repeat(np.arange(4), shots)
    return HypersphereClassifier(feature_transform="none", **settings).fit(drawn(y, 0), y)


def test_items_of_a_new_class_are_found_as_a_group() -> None:
    classes = np.repeat([0, 1, 2, 3, 5], [30, 20, 10, 30, 20])
    found = fitted(40).drift(drawn(classes, 1))
    assert found.drifted
    assert [test.quantity for test in found.tests] == ["novelty", "confidence"]
    assert found.tests[0].p_value < 0.01
    assert 0.08 < found.novel_share < 0.25
    assert np.mean([item.index >= 90 for item in found.items[:8]]) > 0.8
    assert max(np.mean(np.array(group.indices) >= 90) * group.size for group in found.groups) >= 5
    assert found.shares == {}
    assert "shares of classes were not tested" in found.notes[0]


def test_the_size_of_the_tests_against_each_kind_of_reference() -> None:
    """Count p-values below 20 %: 40 draws without drift tell 0.2 from 0.5."""
    below = {"examples": 0, "rows": 0, "given": 0}
    for seed in range(40):
        random = np.random.default_rng(seed)
        y = np.repeat(np.arange(4), 6)
        x = CENTERS[y] + random.normal(size=(24, 8))
        classes = random.choice(4, 140, p=[0.4, 0.3, 0.2, 0.1])
        rows = CENTERS[classes] + random.normal(size=(140, 8))
        model = HypersphereClassifier(feature_transform="none").fit(x, y)
        below["examples"] += model.drift(rows[:70]).tests[0].raw_p_value < 0.2
        below["given"] += model.drift(rows[:70], rows[70:]).tests[0].raw_p_value < 0.2
        both = HypersphereClassifier(feature_transform="none").fit(x, y, unlabelled=rows[70:])
        below["rows"] += both.drift(rows[:70]).tests[0].raw_p_value < 0.2
    assert max(below.values()) <= 16


def test_a_shift_of_shares_is_found_against_natural_items_only() -> None:
    before, now = np.repeat(np.arange(4), 40), np.repeat(np.arange(4), [90, 30, 20, 20])
    rows = drawn(before, 2)
    given = fitted().drift(drawn(now, 3), rows)
    tests = {test.quantity: test for test in given.tests}
    assert given.against == "given reference"
    assert tests["class shares"].p_value < 0.01
    assert tests["class shares"].new == pytest.approx(50 / 160, abs=0.05)
    assert tests["novelty"].p_value > 0.05
    assert given.shares[0] == pytest.approx((0.25, 90 / 160), abs=0.05)
    x = np.repeat(np.arange(4), 6)
    model = HypersphereClassifier(feature_transform="none").fit(drawn(x, 0), x, unlabelled=rows)
    fit = model.drift(drawn(now, 3))
    assert fit.against == "unlabelled rows of the fit"
    assert {test.quantity for test in fit.tests} == {"novelty", "class shares"}
    assert "confidence was not tested: the model was fitted to the unlabelled rows" in fit.notes[0]


def test_the_rank_statistic_is_that_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    before, now = random.normal(size=40), random.normal(size=30) + 0.3
    a, b = random.integers(0, 3, 40), random.integers(0, 3, 30)
    exact = rank_test("novelty", before, now, a, b)
    values, strata = [*before, *now], [*a, *b]
    score = [-np.log(1 - (sum(v < w for v in values) + 0.5) / 70) for w in values]
    found = variance = inflated = 0.0
    for stratum in range(3):
        own = [s for s, k in zip(score, strata, strict=True) if k == stratum]
        new = [s for s, k in zip(score[40:], strata[40:], strict=True) if k == stratum]
        n, m = len(own), len(new)
        found += sum(new) - m * np.mean(own)
        variance += m * (n - m) / n * np.var(own, ddof=1)
        between = m * (n - m) / n  # the statistic is the difference of means times this
        inflated += between**2 * (1 / m + 4 / (n - m)) * np.var(own, ddof=1)
    monkeypatch.setattr("hyperproto.estimators.drift.MOST_PERMUTED", 0)
    normal = rank_test("novelty", before, now, a, b)
    from scipy.stats import norm

    assert normal.p_value == pytest.approx(2 * norm.sf(abs(found) / np.sqrt(variance)))
    assert normal.p_value == pytest.approx(exact.p_value, abs=0.05)
    assert rank_test("novelty", before, now, a, b, 4.0).p_value == pytest.approx(
        2 * norm.sf(abs(found) / np.sqrt(inflated))
    )


def test_ranks_holm_and_shares() -> None:
    np.testing.assert_allclose(tail_ranks(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 9.0])), [1.0, 0.75, 0.25])
    tests = [DriftTest(name, 0, 0, p, p) for name, p in (("a", 0.04), ("b", 0.01), ("c", 0.03))]
    np.testing.assert_allclose([test.p_value for test in holm(tests)], [0.06, 0.03, 0.06])
    assert shares_test(np.array([50, 50, 0]), np.array([25, 25, 0])).p_value > 0.5
    assert shares_test(np.array([50, 50, 0]), np.array([45, 5, 0])).p_value < 0.01


def test_words_and_clusters() -> None:
    pets = ["the dog barks", "a dog runs", "the dog and a cat"]
    others = ["the card is lost", "a new card", "the rate is a number", "a card and the bank"]
    assert (typical_words(pets, others) or "").split()[0] == "dog"
    assert typical_words(pets, []) is not None
    assert typical_words(["the"], ["the"] * 9) is None
    found = clusters(np.array([[0.0], [0.1], [5.0], [5.1], [5.2]]), 1.0)
    assert sorted(map(len, found)) == [2, 3]


def test_texts_name_the_groups() -> None:
    def letters(texts: Any) -> Any:
        return [[text.count(letter) + 0.01 * len(text) for letter in "abcz"] for text in texts]

    known = ["aaa b", "aa b", "aaab", "a aa", "aab a", "bbb a", "bb a", "bbba", "b bb", "bba b"]
    model = FewShotTextClassifier(encoder=letters, feature_transform="none").fit(known, ["a"] * 5 + ["b"] * 5)
    new = ["aaa b", "aab", "bbb a", "bba"] * 4 + ["zebra zzzz zz", "zebra zzzzz z", "zebra zzz zzz"]
    found = model.drift(new)
    assert found.items[0].item in new[-3:]
    [group] = found.groups
    assert "zebra" in str(group.name)
    assert set(group.indices) == {16, 17, 18}
    text = found.table()
    assert "Groups of novel items, possibly new classes:" in text
    assert "zebra" in text
    assert max(map(len, found.table(60).splitlines())) <= 60
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["groups"][0]["name"] == group.name
    assert content["drifted"] is found.drifted


@pytest.mark.filterwarnings("ignore:there is only one class")
def test_few_items_one_class_and_no_support() -> None:
    model = fitted()
    with pytest.raises(DataError, match=r"drift needs 10 new items or more, and there are 9"):
        model.drift(drawn(np.zeros(9, int), 1))
    rows = drawn(np.zeros(20, int), 1)
    with pytest.raises(DataError, match=r"drift needs 10 items to compare with, and there are 5 \(given reference"):
        model.drift(rows, rows[:5])
    alone = HypersphereClassifier().fit(drawn(np.arange(4), 0), np.arange(4))
    with pytest.raises(DataError, match=r"there are 0 \(examples, by leave-one-out; an example that is alone"):
        alone.drift(rows)
    assert alone.drift(rows, rows).tests[0].p_value == 1
    without = HypersphereClassifier(store_support=False, fit_mode="unbiased", temperature=1.0).fit(rows, ["a"] * 20)
    with pytest.raises(ConfigError, match=r"store_support=False keeps none; give `reference`"):
        without.drift(rows)
    assert [test.quantity for test in without.drift(rows, rows).tests] == ["novelty"]
    one = HypersphereClassifier().fit(rows, ["a"] * 20).drift(drawn(np.zeros(30, int), 2))
    assert [test.quantity for test in one.tests] == ["novelty"]
    few = fitted(4).drift(drawn(np.repeat(np.arange(4), 5), 3))
    assert "confidence was not tested" in few.notes[0]
    assert "Note: confidence was not tested" in few.table()
