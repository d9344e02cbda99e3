"""Queries of none of the classes: what they are, how many, and that nothing else changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.data import OUTSIDE, Pool
from hyperproto.episodes import Episode, EpisodeSampler, episodes_hash
from hyperproto.errors import EpisodeError
from tests.helpers.labelled import labelled, same

patient = settings(deadline=None)  # a busy machine is not a mistake
GOLDEN = "f0890ffa3db5f947"


def outside_of(episode: Episode) -> list[int]:
    assert episode.query_y is not None
    items: list[int] = episode.query[episode.query_y == OUTSIDE].tolist()
    return items


@patient
@given(
    counts=st.lists(st.integers(8, 30), min_size=4, max_size=9),
    query=st.integers(1, 4),
    share=st.floats(0.01, 0.9),
    seed=st.integers(0, 2**32),
    i=st.integers(0, 2**40),
)
def test_the_rest_of_the_episode_stays_and_the_others_are_of_no_class(
    counts: list[int], query: int, share: float, seed: int, i: int
) -> None:
    pool = labelled(counts)
    plain = EpisodeSampler(pool, way=3, shot=(1, 2, 4), query=query, seed=seed)[i]
    sampler = EpisodeSampler(pool, way=3, shot=(1, 2, 4), query=query, seed=seed, nota_share=share)
    episode = sampler[i]
    assert episode.query_y is not None
    known = 3 * query
    assert np.array_equal(episode.classes, plain.classes)
    assert np.array_equal(episode.support, plain.support)
    assert np.array_equal(episode.query[:known], plain.query)
    assert episode.query_y.tolist() == np.repeat(np.arange(3), query).tolist() + [OUTSIDE] * sampler.nota
    assert not set(pool.labels[episode.query[known:]].tolist()) & {OUTSIDE, *episode.classes.tolist()}


@pytest.mark.parametrize(
    ("way", "query", "asked", "count"),
    [
        (5, 15, {"nota_share": 0.15}, 13),  # 13 / 88 = 0.148; 14 / 89 = 0.157
        (5, 15, {"nota_share": 0.5}, 75),
        (5, 1, {"nota_share": 0.01}, 1),  # at least one
        (5, 5, {"na_rate": 1}, 5),  # a share of 1/6
        (5, 5, {"na_rate": 5}, 25),  # a share of 1/2
        (5, 5, {}, 0),
    ],
)
def test_how_many(way: int, query: int, asked: dict[str, float], count: int) -> None:
    sampler = EpisodeSampler(labelled([20] * 6), way=way, shot=1, query=query, **asked)  # type: ignore[arg-type]
    assert sampler.nota == len(outside_of(sampler[3])) == count


@patient
@given(known=st.integers(1, 100), share=st.floats(0.001, 0.95))
def test_no_other_count_comes_nearer_to_the_share(known: int, share: float) -> None:
    pool = Pool(np.zeros((300, 1)), np.repeat([0, 1], 150), ("a", "b"))
    found = EpisodeSampler(pool, way=1, shot=0, query=known, nota_share=share).nota
    best = min(abs(count / (known + count) - share) for count in range(1, 20 * known + 2))
    assert abs(found / (known + found) - share) == best


def test_each_episode_is_a_pure_function_of_its_number() -> None:
    settings = {"way": 3, "shot": 2, "query": 3, "seed": 5, "nota_share": 0.4}
    together = EpisodeSampler(labelled([20] * 6), **settings).draw(50)  # type: ignore[arg-type]
    alone = [EpisodeSampler(labelled([20] * 6), **settings)[i] for i in (49, 0, 33)]  # type: ignore[arg-type]
    assert all(same(a, together[i]) for a, i in zip(alone, (49, 0, 33), strict=True))
    drawn = {tuple(outside_of(episode)) for episode in together}
    assert len(drawn) == 50


def test_other_classes_come_evenly_whatever_their_size_and_so_do_their_items() -> None:
    pool = labelled([10, 40, 10, 20, 10])
    episodes = EpisodeSampler(pool, way=2, shot=1, query=1, seed=2, na_rate=2).draw(15_000)
    of_class = np.zeros(5)
    of_item = np.zeros(len(pool))
    for episode in episodes:
        items = outside_of(episode)
        of_class += np.bincount(pool.labels[items], minlength=5)
        of_item += np.bincount(items, minlength=len(pool))
    np.testing.assert_allclose(of_class / of_class.sum(), 1 / 5, rtol=0.03)
    for members in pool.members:
        np.testing.assert_allclose(of_item[members] / of_item[members].mean(), 1, atol=0.25)  # five deviations


def test_no_item_comes_twice_unless_there_are_too_few() -> None:
    sampler = EpisodeSampler(labelled([20] * 5), way=3, shot=1, query=3, nota_share=0.5)
    for episode in sampler.draw(300):  # 9 of 40: plain draws would repeat one in every other episode
        assert len(set(outside_of(episode))) == 9
    few = EpisodeSampler(labelled([4] * 3), way=2, shot=1, query=3, nota_share=0.6)[0]
    assert len(outside_of(few)) == 9
    assert len(set(outside_of(few))) == 4  # all there are, though the rest must repeat


def test_golden_hash() -> None:
    """The draws must never change: published numbers carry this hash."""
    pool = labelled([12, 9, 40, 25, 33])
    sampler = EpisodeSampler(pool, way=3, shot=(1, 2, 5), query=3, seed=11, nota_share=0.5)
    assert episodes_hash(pool, sampler.draw(20, start=1000)) == GOLDEN


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nota_share": 1.0}, r"nota_share 1\.0, na_rate 0: the share must be at least 0 and below 1"),
        ({"nota_share": -0.1}, "the share must be at least 0"),
        ({"nota_share": float("nan")}, "the share must be at least 0"),
        ({"na_rate": -1}, "na_rate at least 0"),
        ({"nota_share": 0.5, "na_rate": 1}, r"nota_share 0\.5 and na_rate 1 both say how many queries; give one"),
        ({"way": 5, "na_rate": 1}, r"some \(all\): 5-way episodes leave none of its 5 classes for .* lower the way"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(settings: dict[str, float], message: str) -> None:
    asked = {"way": 3, "shot": 1, "query": 3, **settings}
    with pytest.raises(EpisodeError, match=message):
        EpisodeSampler(labelled([12, 9, 40, 25, 33]), **asked)  # type: ignore[arg-type]
