from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperproto.data import Pool
from hyperproto.episodes import EpisodeSampler, episodes_hash
from hyperproto.errors import EpisodeError
from tests.helpers.labelled import labelled, same

GOLDEN = "2fe5ce126039d921"


@given(
    counts=st.lists(st.integers(8, 30), min_size=3, max_size=9),
    shots=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    query=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    i=st.integers(0, 2**40),
)
def test_an_episode_is_what_it_says(counts: list[int], shots: list[int], query: int, seed: int, i: int) -> None:
    pool = labelled(counts)
    episode = EpisodeSampler(pool, way=3, shot=shots, query=query, seed=seed)[i]
    assert len(set(episode.classes.tolist())) == 3
    assert np.array_equal(pool.labels[episode.support], episode.classes[episode.support_y])
    assert episode.query_y is not None
    assert np.array_equal(pool.labels[episode.query], episode.classes[episode.query_y])
    assert np.bincount(episode.support_y, minlength=3).tolist() == shots
    assert np.bincount(episode.query_y).tolist() == [query] * 3
    everything = [*episode.support.tolist(), *episode.query.tolist()]
    assert len(set(everything)) == len(everything)


def test_an_episode_is_a_pure_function_of_pool_seed_and_index() -> None:
    pool = labelled([20] * 6)
    sampler = EpisodeSampler(pool, way=4, shot=2, query=3, seed=5)
    together = sampler.draw(50)
    alone = [EpisodeSampler(pool, way=4, shot=2, query=3, seed=5)[i] for i in reversed(range(50))][::-1]
    assert all(same(a, b) for a, b in zip(together, alone, strict=True))
    assert same(sampler.draw(3, start=40)[2], together[42])
    assert not same(EpisodeSampler(pool, way=4, shot=2, query=3, seed=6)[0], together[0])


def test_classes_and_items_are_drawn_evenly() -> None:
    pool = labelled([10] * 10)
    episodes = EpisodeSampler(pool, way=5, shot=1, query=2, seed=1).draw(4000)
    classes = np.bincount(np.concatenate([e.classes for e in episodes]), minlength=10)
    assert np.abs(classes / 2000 - 1).max() < 0.08
    support = np.bincount(np.concatenate([e.support for e in episodes]), minlength=100)
    assert np.abs(support / 200 - 1).max() < 0.35  # five standard deviations


def test_unequal_shots_go_to_random_classes() -> None:
    pool = labelled([30] * 6)
    episodes = EpisodeSampler(pool, way=3, shot=(1, 2, 20), query=2, seed=0).draw(600)
    largest = np.bincount([e.classes[2] for e in episodes], minlength=6)
    assert largest.min() > 60


def test_golden_hash() -> None:
    """The draws must never change: published numbers carry this hash."""
    pool = labelled([12, 9, 40, 25, 33])
    episodes = EpisodeSampler(pool, way=3, shot=(1, 2, 5), query=3, seed=11).draw(20, start=1000)
    assert episodes_hash(pool, episodes) == GOLDEN


def test_the_hash_sees_pool_order_and_content() -> None:
    pool, other = labelled([12] * 4), labelled([12] * 4 + [13])
    episodes = EpisodeSampler(pool, way=3, shot=1, query=3).draw(4)
    hashes = {
        episodes_hash(pool, episodes),
        episodes_hash(other, episodes),
        episodes_hash(pool, episodes[::-1]),
        episodes_hash(pool, episodes[:3]),
        episodes_hash(pool, [*episodes[:3], replace(episodes[3], query_y=None)]),
    }
    assert len(hashes) == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"way": 6}, r"some \(all\): 6-way episodes from 5 classes; lower the way"),
        (
            {"shot": 10},
            r"class 'class 1' has 9 instances, but 10 shots and 3 queries need 13 \(1 more classes are short",
        ),
        ({"shot": (1, 2)}, r"2 shots \(\[1, 2\]\) for 3 classes; give one number, or 3"),
        ({"shot": -1}, r"shot at least 0, seed from 0 to 2\^63 - 1"),
        ({"query": 0}, r"way and query must be at least 1"),
        ({"way": 0}, r"way and query must be at least 1"),
        ({"seed": -1}, r"seed -1: way and query"),
        ({"seed": 10**20}, r"seed from 0 to 2\^63 - 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(settings: dict[str, object], message: str) -> None:
    asked = {"way": 3, "shot": 1, "query": 3, "seed": 0, **settings}
    with pytest.raises(EpisodeError, match=message):
        EpisodeSampler(labelled([12, 9, 40, 25, 33]), **asked)  # type: ignore[arg-type]


def test_the_way_out_that_the_message_names_works() -> None:
    pool = labelled([12, 9, 40, 25, 33])
    EpisodeSampler(pool.with_at_least(13), way=3, shot=10, query=3)


def test_sentences_need_another_sampler(make_blobs: Callable[..., Pool]) -> None:
    words = Pool(["a b", "c"], np.array([0, 1, 0]), ("x", "y"), offsets=np.array([0, 2, 3]))
    with pytest.raises(EpisodeError, match="sentences with tagged words need"):
        EpisodeSampler(words, way=1, shot=1, query=1)


@pytest.mark.parametrize("value", [2**31, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("setting", ["way", "shot", "query", "na_rate"])
def test_what_is_beyond_counting_is_refused_before_memory_is_taken(setting: str, value: int) -> None:
    pool = Pool(np.zeros((60, 2)), np.repeat(np.arange(6), 10), tuple("abcdef"))
    with pytest.raises(EpisodeError, match=r"lower the way|lower shot or query|ask for 100,000 at most"):
        EpisodeSampler(pool, **{"way": 3, "shot": 1, "query": 2, setting: value})  # type: ignore[arg-type]


def test_every_class_may_have_a_number_of_shots_of_its_own() -> None:
    pool = Pool(np.zeros((600, 1)), np.repeat(np.arange(6), 100), tuple("abcdef"))
    sampler = EpisodeSampler(pool, way=4, shot=2, query=3, seed=1, most_shots=20)
    episodes = sampler.draw(500)
    shots = np.array([np.bincount(e.support_y, minlength=4) for e in episodes])
    assert (shots.min(), shots.max()) == (2, 20)
    chance = 1 / np.arange(2, 21)
    found = np.bincount(shots.ravel(), minlength=21)[2:] / shots.size
    assert abs(found - chance / chance.sum()).max() < 0.03
    for episode in episodes[:50]:
        assert pool.labels[episode.support].tolist() == episode.classes[episode.support_y].tolist()
        assert episode.query_y is not None
        assert pool.labels[episode.query].tolist() == episode.classes[episode.query_y].tolist()
        assert len({*episode.support, *episode.query}) == len(episode.support) + 12
    again = sampler.draw(1, start=37)[0]
    assert np.array_equal(again.support, episodes[37].support)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shot": 3, "most_shots": 2}, "drawn from one number, at least 1, to another that is not below it"),
        ({"shot": [1, 2], "most_shots": 4}, "drawn from one number"),
        ({"shot": 0, "most_shots": 4}, "at least 1"),
        ({"shot": 1, "most_shots": 9}, "9 shots and 3 queries need 12"),
        ({"shot": 1, "most_shots": 4, "noise_rate": 0.1}, "goes with neither noise_rate nor queries of none"),
        ({"shot": 1, "most_shots": 4, "na_rate": 1}, "goes with neither noise_rate nor queries of none"),
    ],
)
def test_random_shots_that_cannot_be_drawn_are_refused(settings: dict[str, Any], message: str) -> None:
    pool = Pool(np.zeros((30, 1)), np.repeat(np.arange(3), 10), tuple("abc"))
    with pytest.raises(EpisodeError, match=message):
        EpisodeSampler(pool, way=2, query=3, **settings)
