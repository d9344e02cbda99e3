"""The plain ways that entities are measured against compute what ours do."""

from collections import Counter

import numpy as np

from benchmarks.entities import PlainSampler, made_up, repeated
from hyperproto.episodes import GreedySampler
from tests.helpers.tagged import total


def test_the_plain_sampler_keeps_the_rule() -> None:
    pool = made_up(400, types=6)
    for types, support, query in PlainSampler(pool).many(5, 3, 2, 2):
        for part in (support, query):
            found = total(pool, part)
            assert set(found) == set(types)
            assert all(2 <= found[kind] <= 4 for kind in types)
        assert not set(support) & set(query)
    assert len(PlainSampler(pool, least_spans=10**6).types) == 0


def test_both_ways_draw_alike() -> None:
    """As many sentences an episode, on average: the rule is the same, and so is the distribution."""
    pool = made_up(400, types=6)
    plain = [len(support) for _, support, _ in PlainSampler(pool).many(300, 3, 2, 2)]
    ours = [len(episode.support) for episode in GreedySampler(pool, way=3, shot=2, query=2).draw(300)]
    error = np.sqrt((np.var(plain) + np.var(ours)) / 300)
    assert abs(np.mean(plain) - np.mean(ours)) < 4 * error + 1e-9


def test_sentences_are_repeated_whole() -> None:
    pool = made_up(50, types=3)
    large = repeated(pool, 120)
    assert len(large) == 120
    assert large.items[:50] == pool.items == large.items[50:100]
    assert Counter(large.labels[: len(pool.labels)].tolist()) == Counter(pool.labels.tolist())
