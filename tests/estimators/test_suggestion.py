"""Suggestions: the greedy choice, what comes first, and pools of every kind."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto import FewShotTextClassifier, HypersphereClassifier
from hyperproto.errors import ConfigError
from hyperproto.estimators import suggestion
from hyperproto.estimators.suggestion import ENOUGH, SHARPNESS, greedy
from tests.estimators.conftest import IDS, SETTINGS, blobs
from tests.estimators.test_side import NAMES, ROWS, X, Y


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), most=st.integers(1, 12), ties=st.booleans())
def test_the_lazy_choice_is_the_greedy_one(seed: int, most: int, ties: bool) -> None:
    random = np.random.default_rng(seed)
    similarity, doubt, resolved = random.random((12, 9)), random.random(9), random.random(9) / 2
    if ties:
        similarity = similarity.round(0)
    chosen, gains = greedy(similarity, doubt, resolved, most)
    best = resolved.copy()
    taken: list[int] = []
    for place, gain in zip(chosen, gains, strict=True):
        by_hand = [sum(doubt * (np.maximum(best, row) - best)) for row in similarity]
        assert gain == pytest.approx(max(by_hand[n] for n in range(12) if n not in taken))
        assert by_hand[place] == pytest.approx(gain)
        taken.append(place)
        best = np.maximum(best, similarity[place])
    assert len(set(chosen)) == most
    assert all(one >= other - 1e-9 for one, other in pairwise(gains))


def test_the_score_is_the_mean_doubt_that_is_resolved() -> None:
    model = HypersphereClassifier().fit(X, Y, names=NAMES)
    region: Any = model.region_

    def place(rows: Any) -> Any:
        return region.whiten(rows / np.linalg.norm(rows, axis=1, keepdims=True))

    top = np.sort(model.predict_proba(ROWS), axis=1)
    doubt = 1 - top[:, -1] + top[:, -2]
    pool, examples = place(ROWS), place(X)

    def similarity(x: Any) -> Any:
        return np.exp(-SHARPNESS * ((pool[:, None] - x) ** 2).sum(axis=2) / (2 * float(region.scatter)))

    before = similarity(examples).max(axis=1)
    gains = (doubt[:, None] * np.maximum(similarity(pool) - before[:, None], 0)).mean(axis=0)
    found = model.suggest(ROWS, 3)
    assert found[0].index == gains.argmax()
    assert found[0].score == pytest.approx(gains.max(), rel=1e-3)
    after = np.maximum(before, similarity(pool)[:, found[0].index])
    again = (doubt[:, None] * np.maximum(similarity(pool) - after[:, None], 0)).mean(axis=0)
    assert found[1].index == again.argmax()
    assert found[1].score == pytest.approx(again.max(), rel=1e-3)


def drawn_groups(number: int = 4, each: int = 30, seed: int = 0) -> tuple[Any, Any]:
    """Rows of groups that lie far apart, and the group of each."""
    random = np.random.default_rng(seed)
    group = random.permutation(np.repeat(np.arange(number), each))
    return np.eye(number, 20)[group] * 3 + 0.3 * random.normal(size=(len(group), 20)), group


def test_the_groups_without_an_example_come_first_and_are_marked_as_new() -> None:
    rows, group = drawn_groups()
    known = np.concatenate([np.flatnonzero(group == n)[:5] for n in (0, 1)])
    pool = np.setdiff1d(np.arange(len(rows)), known)
    model = HypersphereClassifier(feature_transform="none").fit(rows[known], group[known])
    found = model.suggest(rows[pool], 4)
    assert {int(group[pool[each.index]]) for each in found[:2]} == {2, 3}
    assert [each.new_class for each in found[:2]] == [True, True]
    assert found[0].reason.startswith("far from every class: perhaps a new one; about ")
    scores = [each.score for each in model.suggest(rows[pool], len(pool))]
    assert scores == sorted(scores, reverse=True)


def test_an_uncertain_item_names_both_classes() -> None:
    random = np.random.default_rng(0)
    x = np.repeat([[1.0, 0.0], [0.0, 1.0]], 6, axis=0) + 0.4 * random.normal(size=(12, 2))
    model = HypersphereClassifier(feature_transform="none").fit(x, ["card"] * 6 + ["pin"] * 6)
    [found] = model.suggest([[0.5, 0.5]], 1)
    assert found.reason.startswith("uncertain: ")
    assert "card (" in found.reason
    assert "pin (" in found.reason
    [sure] = model.suggest([[1.0, 0.0]], 1)
    assert sure.reason.startswith("probably card (")
    assert sure.score < found.score


def test_there_is_enough_where_every_item_of_the_pool_has_a_label() -> None:
    rows, group = drawn_groups()
    model = HypersphereClassifier().fit(rows, group)
    found = model.suggest(rows, 3)
    assert all(each.enough and each.score < ENOUGH for each in found)
    fresh = HypersphereClassifier().fit(rows[:3], ["a", "b", "c"])
    assert not fresh.suggest(rows, 1)[0].enough


@pytest.mark.parametrize("setting", SETTINGS, ids=IDS)
def test_every_setting_suggests(setting: dict[str, Any]) -> None:
    x, y = blobs()
    found = HypersphereClassifier(**setting).fit(x, y).suggest(2 * x + 1, 5)
    assert len({each.index for each in found}) == 5
    assert all(np.isfinite(each.score) and each.score >= 0 for each in found)


def test_names_alone_one_class_one_example_each_and_no_stored_examples() -> None:
    models = [
        HypersphereClassifier().fit(None, None, names=NAMES),
        HypersphereClassifier().fit(X[:2], Y[:2], names=NAMES, unlabelled=ROWS),
        HypersphereClassifier().partial_fit(X[Y == "a"], Y[Y == "a"]),
        HypersphereClassifier().partial_fit(X[:1], Y[:1]),
        HypersphereClassifier(fit_mode="unbiased", store_support=False, temperature=1.0).fit(X, Y),
        HypersphereClassifier(refine=True).fit(X, Y),
    ]
    for model in models:
        found = model.suggest(ROWS, 10)
        assert len({each.index for each in found}) == 10
        assert found[0].score > 0


def test_a_pool_of_equal_rows_and_a_small_one() -> None:
    model = HypersphereClassifier().fit(X, Y)
    found = model.suggest(np.repeat(ROWS[:1], 4, axis=0), 10)
    assert sorted(each.index for each in found) == [0, 1, 2, 3]
    assert [each.score for each in found[1:]] == pytest.approx([0, 0, 0], abs=1e-6)


def test_a_sampled_pool_suggests_nearly_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, group = drawn_groups(6, 60)
    model = HypersphereClassifier().fit(rows[group < 2][:8], group[group < 2][:8])
    whole = model.suggest(rows, 4)
    monkeypatch.setattr(suggestion, "MOST", 80)
    sampled = model.suggest(rows, 4)
    assert {group[each.index] for each in sampled} == {group[each.index] for each in whole} == {2, 3, 4, 5}
    assert sampled == model.suggest(rows, 4)
    assert len({each.index for each in model.suggest(rows, 100)}) == 100


def test_texts_come_with_their_suggestion() -> None:
    places = {"where is my card": [1.0, 0.1], "my pin": [0.1, 1.0], "my card?": [0.8, 0.5], "new pin": [0.2, 1.0]}
    encoder = lambda items: np.array([places[item] for item in items])  # noqa: E731
    model = FewShotTextClassifier(encoder=encoder, names=None).fit(["where is my card", "my pin"], ["card", "pin"])
    found = model.suggest(["new pin", "my card?"], 2)
    assert [each.item for each in found] == [["new pin", "my card?"][each.index] for each in found]
    assert found[0].to_dict()["item"] == found[0].item
    assert HypersphereClassifier().fit(X, Y).suggest(ROWS, 1)[0].item is None


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_a_number_of_items_is_checked(n: Any) -> None:
    with pytest.raises(ConfigError, match="suggest at least 1 item"):
        HypersphereClassifier().fit(X, Y).suggest(ROWS, n)
