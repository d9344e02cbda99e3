from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hyperproto.episodes.random import EPISODES, SPARE_ITEMS, distinct, raw_words, shuffled


def test_rows_do_not_depend_on_how_many_are_asked_for() -> None:
    table = raw_words(3, EPISODES, 0, 20, 7)
    assert np.array_equal(table[5:9], raw_words(3, EPISODES, 5, 4, 7))
    assert len(np.unique(table)) == table.size


def test_streams_differ_by_seed_purpose_and_table() -> None:
    streams = [
        raw_words(0, 1, 0, 1, 4),
        raw_words(1, 1, 0, 1, 4),
        raw_words(0, 2, 0, 1, 4),
        raw_words(0, 1, 0, 1, 4, 1),
    ]
    assert len(np.unique(streams)) == 16


@given(size=st.integers(0, 50), seed=st.integers(0, 2**63))
def test_shuffled_is_a_permutation(size: int, seed: int) -> None:
    assert sorted(shuffled(seed, EPISODES, 0, size)) == list(range(size))


@given(size=st.integers(1, 40), share=st.floats(0, 1), rows=st.integers(1, 5), seed=st.integers(0, 2**63))
def test_draws_are_distinct_and_in_range(size: int, share: float, rows: int, seed: int) -> None:
    count = max(1, round(share * size))
    words = raw_words(seed, EPISODES, 0, rows, 2 * count)
    drawn = distinct(words, np.full(rows, size), count, seed=seed, spare=SPARE_ITEMS, first_row=0)
    for row in drawn.tolist():
        assert len(set(row)) == count
        assert set(row) <= set(range(size))


def test_every_ordered_draw_has_the_same_chance() -> None:
    """Chi-square over the 24 ordered pairs and the 24 full orders of 4 things: the second needs the spare shuffle."""
    for count in (2, 4):
        rows = 24_000
        words = raw_words(7, EPISODES, 0, rows, 2 * count)
        drawn = distinct(words, np.full(rows, 4), count, seed=7, spare=SPARE_ITEMS, first_row=0)
        seen = Counter(map(tuple, drawn.tolist()))
        kinds = 12 if count == 2 else 24
        assert len(seen) == kinds
        expected = rows / kinds
        chi_square = sum((n - expected) ** 2 / expected for n in seen.values())
        assert chi_square < 60  # 99.99 % quantile of chi-square with 23 degrees of freedom is 58
