import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperproto.data import Pool
from hyperproto.episodes import BatchSampler
from hyperproto.errors import EpisodeError


def make_pool(items: int, outside: int = 0) -> Pool:
    labels = np.concatenate([np.arange(items) % 3, np.full(outside, -1)])
    return Pool(np.zeros((items + outside, 1)), labels, ("a", "b", "c"))


@given(st.integers(3, 60), st.integers(1, 20), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_an_epoch_shows_each_item_at_most_once_and_all_but_a_rest(items: int, size: int, seed: int, epoch: int) -> None:
    size = min(size, items)
    sampler = BatchSampler(make_pool(items, outside=4), size=size, seed=seed)
    batches = sampler.draw(sampler.per_epoch, start=epoch * sampler.per_epoch)
    drawn = np.concatenate([batch.query for batch in batches])
    assert len(set(drawn.tolist())) == len(drawn) == items - items % size
    assert drawn.max() < items  # never what has no class
    for batch in batches:
        assert batch.classes.tolist() == [0, 1, 2]
        assert batch.query_y is not None
        assert np.array_equal(batch.query_y, batch.query % 3)
        assert len(batch.support) == len(batch.support_y) == 0


def test_a_batch_is_a_function_of_seed_and_number() -> None:
    pool = make_pool(50)
    order = [17, 3, 0, 12, 3]
    jumping, walking = BatchSampler(pool, size=8, seed=5), BatchSampler(pool, size=8, seed=5)
    walked = walking.draw(18)
    for i in order:
        assert np.array_equal(jumping[i].query, walked[i].query)
    assert not np.array_equal(BatchSampler(pool, size=8, seed=6)[0].query, walked[0].query)
    assert not np.array_equal(walked[0].query, walked[walking.per_epoch].query)
    assert walked[0].query.tolist() == [44, 23, 28, 3, 11, 16, 30, 0]  # golden: the same on every machine, for ever


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(EpisodeError, match="batches of 6 from 5 items; lower the size"):
        BatchSampler(make_pool(5), size=6)
    words = Pool([["a", "b"]], np.array([0, 0]), ("x",), offsets=np.array([0, 2]))
    with pytest.raises(EpisodeError, match=r"sentences with a label for each word cannot be drawn as batches"):
        BatchSampler(words, size=1)
