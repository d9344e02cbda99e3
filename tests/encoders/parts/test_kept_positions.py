"""What a window keeps, against the definition written out with loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperproto.encoders.parts.word_pieces import kept_positions

Spans = list[tuple[int, int]]


@st.composite
def texts(draw: st.DrawFn) -> tuple[int, Spans, int]:
    """A length, one to four spans in it that may overlap, be nested or (rarely) empty, and a limit."""
    length = draw(st.integers(1, 60))
    spans = []
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, length - 1))
        spans.append((start, draw(st.integers(start, length))))
    return length, spans, draw(st.integers(4, 40))


def naive(length: int, spans: Spans, limit: int) -> list[int]:
    """Add one position after another: the nearest to a span first, and of two equally near the first."""
    if length <= limit:
        return list(range(length))
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    if last - first <= limit:
        spans = [(first, last)]
    within = {p for start, end in spans for p in range(start, end)}
    if len(within) > limit:
        ranked = sorted((min(p - start for start, end in spans if start <= p < end), p) for p in within)
    else:
        away = {}
        for p in range(length):
            away[p] = min(0 if start <= p < end else max(start - p, p - end + 1) for start, end in spans)
        ranked = sorted((distance, p) for p, distance in away.items())
    return sorted(p for _, p in ranked[:limit])


@given(texts())
def test_is_the_definition(text: tuple[int, Spans, int]) -> None:
    length, spans, limit = text
    kept = kept_positions(length, spans, limit)
    assert kept.dtype == np.int64
    assert kept.tolist() == naive(length, spans, limit)


@given(texts())
def test_promises(text: tuple[int, Spans, int]) -> None:
    length, spans, limit = text
    kept = kept_positions(length, spans, limit).tolist()
    assert len(kept) == min(length, limit)
    assert kept == sorted(set(kept))
    assert set(kept) <= set(range(length))
    assert all(start in kept for start, end in spans if end > start)
    within = {p for start, end in spans for p in range(start, end)}
    if len(within) <= limit:
        assert within <= set(kept)
    if max(end for _, end in spans) - min(start for start, _ in spans) <= limit:
        assert kept == list(range(kept[0], kept[-1] + 1))


@given(texts(), st.randoms())
def test_the_order_of_spans_does_not_matter(text: tuple[int, Spans, int], random: object) -> None:
    length, spans, limit = text
    shuffled = list(spans)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert kept_positions(length, shuffled, limit).tolist() == kept_positions(length, spans, limit).tolist()


@pytest.mark.parametrize(
    ("spans", "limit", "kept"),
    [
        ([(4, 5), (7, 8)], 100, range(20)),  # all fits
        ([(8, 10), (11, 12)], 10, range(5, 15)),  # as much before as after
        ([(8, 10), (11, 12)], 9, range(5, 14)),  # an odd one goes before
        ([(1, 2), (4, 5)], 10, range(10)),  # nothing more before: the rest after
        ([(19, 20), (16, 17)], 10, range(10, 20)),
        ([(2, 3), (17, 18)], 6, [1, 2, 3, 16, 17, 18]),  # the middle is cut out
        ([(0, 2), (18, 20)], 6, [0, 1, 2, 17, 18, 19]),
        ([(0, 9), (10, 20)], 6, [0, 1, 2, 10, 11, 12]),  # the beginnings
        ([(0, 20), (15, 16)], 4, [0, 1, 2, 15]),  # one within the other
        ([(0, 20), (0, 20)], 4, range(4)),
        ([(5, 5), (9, 9)], 6, range(4, 10)),  # words without pieces
        ([], 5, range(5)),  # nothing matters more than the rest
    ],
)
def test_examples(spans: Spans, limit: int, kept: list[int]) -> None:
    assert kept_positions(20, spans, limit).tolist() == list(kept)


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="3 spans need 3 positions, and 2 are too few"):
        kept_positions(20, [(0, 1), (5, 6), (8, 9)], 2)
    for spans in ([(3, 21)], [(-1, 2)], [(4, 3)]):
        with pytest.raises(ValueError, match="are not within the 20 positions"):
            kept_positions(20, spans, 10)
