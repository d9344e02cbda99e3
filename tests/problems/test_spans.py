"""Span counts against hand-made cases and a plain loop, in both conventions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperproto.errors import ConfigError, DataError
from hyperproto.problems import (
    SpanCounts,
    Tags,
    f1_difference,
    f1_interval,
    mean_interval,
    paired_difference,
    span_counts,
    span_errors,
)

CASES = [
    # gold, predicted, (predicted, gold, correct) by sentence, and concatenated
    ([["A", "O"]], [["A", "O"]], (1, 1, 1), (1, 1, 1)),
    ([["A", "A"]], [["A", "O"]], (1, 1, 0), (1, 1, 0)),
    ([["A", "B"]], [["A", "B"]], (2, 2, 2), (2, 2, 2)),
    ([["A", "B"]], [["B", "A"]], (2, 2, 0), (2, 2, 0)),
    ([["O", "O"]], [["O", "O"]], (0, 0, 0), (0, 0, 0)),
    # an entity ends a sentence and one of its type opens the next: one span for the toolkit, and here both agree
    ([["O", "A"], ["A", "O"]], [["O", "A"], ["A", "O"]], (2, 2, 2), (1, 1, 1)),
    # ... the second one is missed: one of two right, or none of one
    ([["O", "A"], ["A", "O"]], [["O", "A"], ["O", "O"]], (1, 2, 1), (1, 1, 0)),
    # ... a false one before the border joins the true one after it, and spoils it
    ([["O", "O"], ["A", "O"]], [["O", "A"], ["A", "O"]], (2, 1, 1), (1, 1, 0)),
    # ... another type does not join
    ([["O", "B"], ["A", "O"]], [["O", "B"], ["A", "O"]], (2, 2, 2), (2, 2, 2)),
    # ... over a whole sentence, and one without words
    ([["A"], ["A"], [], ["A", "O"]], [["A"], ["A"], [], ["A", "O"]], (3, 3, 3), (1, 1, 1)),
    ([], [], (0, 0, 0), (0, 0, 0)),
]


@pytest.mark.parametrize(("gold", "predicted", "sentence", "toolkit"), CASES)
def test_hand_made_cases(
    gold: list[list[str]], predicted: list[list[str]], sentence: tuple[int, ...], toolkit: tuple[int, ...]
) -> None:
    assert span_counts(gold, predicted, "sentence") == sentence
    assert span_counts(gold, predicted, "toolkit") == toolkit


def loop(labels: list[str]) -> set[tuple[int, int, str]]:
    spans, i = set(), 0
    while i < len(labels):
        j = i + 1
        while j < len(labels) and labels[j] == labels[i]:
            j += 1
        if labels[i] != "O":
            spans.add((i, j, labels[i]))
        i = j
    return spans


label = st.sampled_from(["O", "O", "person-a", "person-b", "place-c"])
pairs_of_labels = st.lists(st.lists(st.tuples(label, label), max_size=8), max_size=6)


@given(pairs_of_labels)
def test_against_a_plain_loop(pairs: list[list[tuple[str, str]]]) -> None:
    gold, predicted = ([[pair[part] for pair in sentence] for sentence in pairs] for part in (0, 1))
    found = [(loop(p), loop(g)) for p, g in zip(predicted, gold, strict=True)]
    expected = tuple(sum(len(part) for part in parts) for parts in zip(*((p, g, p & g) for p, g in found), strict=True))
    assert span_counts(gold, predicted) == (expected or (0, 0, 0))
    p, g = (loop([name for sentence in part for name in sentence]) for part in (predicted, gold))
    assert span_counts(gold, predicted, "toolkit") == (len(p), len(g), len(p & g))


def test_unequal_lists_and_unknown_conventions() -> None:
    with pytest.raises(DataError, match="2 sentences with true labels but 1 with predicted"):
        span_counts([["O"], ["O"]], [["O"]])
    with pytest.raises(DataError, match="sentence 1 has 1 true labels but 2 predicted"):
        span_counts([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(ConfigError, match=r"no convention 'sentences'; did you mean 'sentence'\?"):
        span_counts([["O"]], [["O"]], "sentences")  # type: ignore[arg-type]


NAMES = ("person-a", "person-b", "place-c")


def tags(episodes: list[list[list[tuple[str, str]]]]) -> Tags:
    """Put episodes of sentences of (gold, predicted) labels one after another."""
    number = {"O": -1} | {name: n for n, name in enumerate(NAMES)}
    flat = [pair for episode in episodes for sentence in episode for pair in sentence]
    gold, predicted = (np.array([number[pair[part]] for pair in flat], np.int64) for part in (0, 1))
    sentences = np.cumsum([0, *(len(sentence) for episode in episodes for sentence in episode)])
    return Tags(gold, predicted, sentences, np.cumsum([0, *(sum(map(len, episode)) for episode in episodes)]))


@given(st.lists(pairs_of_labels, max_size=4))
def test_episodes_are_counted_one_by_one(episodes: list[list[list[tuple[str, str]]]]) -> None:
    for convention in ("sentence", "toolkit"):
        counts = tags(episodes).counts(convention)
        for e, episode in enumerate(episodes):
            gold, predicted = ([[pair[part] for pair in sentence] for sentence in episode] for part in (0, 1))
            alone = span_counts(gold, predicted, convention)
            assert (counts.predicted[e], counts.gold[e], counts.correct[e]) == alone


def test_micro_scores_pool_the_counts() -> None:
    counts = SpanCounts(np.array([4, 0]), np.array([1, 5]), np.array([1, 0]))
    assert counts.to_json() == {"precision": 1 / 4, "recall": 1 / 6, "f1": 0.2}
    nothing = SpanCounts(np.zeros(2, int), np.zeros(2, int), np.zeros(2, int))
    assert nothing.to_json() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


@given(pairs_of_labels)
def test_errors_are_taken_apart_as_a_loop_does(pairs: list[list[tuple[str, str]]]) -> None:
    flat = [pair for sentence in pairs for pair in sentence]
    gold, predicted = (loop([pair[part] for pair in flat]) for part in (0, 1))
    by_place = {(i, j): name for i, j, name in predicted}
    hits = [(name, by_place[i, j]) for i, j, name in gold if (i, j) in by_place]
    errors = span_errors(tags([pairs]), NAMES, "toolkit")
    coarse = [(a[:5] == b[:5]) for a, b in hits if a != b]
    assert errors.boundaries == len(hits)
    assert (errors.within, errors.outer) == (sum(coarse), len(coarse) - sum(coarse))
    assert errors.false_positive == sum(a == "O" != b for a, b in flat)
    assert errors.false_negative == sum(b == "O" != a for a, b in flat)
    assert (errors.words, errors.outside) == (len(flat), sum(a == "O" for a, _ in flat))
    assert errors.outside_predicted == sum(b == "O" for _, b in flat)


def test_rates_are_those_of_the_toolkit() -> None:
    sentence = [("person-a", "person-b"), ("O", "place-c"), ("place-c", "person-a"), ("person-b", "O")]
    rates = span_errors(tags([[sentence]]), NAMES).rates
    assert rates == {
        "false_positive": 1 / 4,
        "false_negative": 1 / 4,
        "within": 1 / 2,
        "outer": 1 / 2,
        "outside": 1 / 4,
        "outside_predicted": 1 / 4,
    }
    nothing = span_errors(tags([]), NAMES)
    assert set(nothing.rates.values()) == {0.0}
    assert nothing.to_json()["counts"]["words"] == 0


def random_counts(episodes: int, seed: int) -> SpanCounts:
    random = np.random.default_rng(seed)
    gold = random.integers(4, 20, episodes)
    correct = random.binomial(gold, 0.5)
    return SpanCounts(correct + random.integers(0, 9, episodes), gold, correct)


def test_the_interval_of_a_ratio_holds_it_as_often_as_it_says() -> None:
    everything = random_counts(40_000, 0)
    truth, inside = everything.f1, 0
    for start in range(0, 40_000, 100):
        part = slice(start, start + 100)
        some = SpanCounts(everything.predicted[part], everything.gold[part], everything.correct[part])
        f1, half = f1_interval(some)
        assert f1 == some.f1
        inside += abs(f1 - truth) <= half
    assert 0.92 < inside / 400 < 0.98


def test_where_f1_is_a_mean_the_interval_is_the_means() -> None:
    """With as many spans in every episode, F1 is the mean of the episodes' own; the jackknife must agree."""
    random = np.random.default_rng(0)
    counts = [SpanCounts(np.full(50, 10), np.full(50, 10), random.integers(0, 11, 50)) for _ in range(2)]
    own = [each.correct / 10 for each in counts]
    assert f1_interval(counts[0]) == pytest.approx(mean_interval(own[0]))
    assert f1_difference(*counts) == pytest.approx(paired_difference(*own))


def test_paired_differences_are_narrow_and_need_the_same_episodes() -> None:
    a = random_counts(200, 1)
    b = SpanCounts(a.predicted + 1, a.gold, a.correct)
    difference, half = f1_difference(a, b)
    assert difference > half > 0
    assert half < f1_interval(a)[1] / 5
    assert np.isnan(f1_interval(SpanCounts(*(np.array([1]) for _ in range(3))))[1])
    with pytest.raises(ValueError, match="of the same episodes, not of 200 and 3"):
        f1_difference(a, random_counts(3, 0))
