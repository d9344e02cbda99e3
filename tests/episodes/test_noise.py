"""Training noise: support examples of other classes under a class's label, and nothing else that changes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.data import Pool
from hyperproto.episodes import EpisodeSampler, episodes_hash
from hyperproto.errors import EpisodeError
from hyperproto.problems import make_sampler
from tests.helpers.labelled import labelled, same
from tests.helpers.tagged import random_sentences

GOLDEN = "ecc19f62326ab35e"


def noisy(pool: Pool, rate: float, **shape: Any) -> EpisodeSampler:
    return EpisodeSampler(pool, **{"way": 3, "shot": 4, "query": 2, "noise_rate": rate, **shape})


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(8, 30), min_size=4, max_size=9),
    rate=st.floats(0.01, 1),
    seed=st.integers(0, 2**32),
    i=st.integers(0, 2**40),
)
def test_only_support_changes_and_only_to_other_classes(counts: list[int], rate: float, seed: int, i: int) -> None:
    pool = labelled(counts)
    shape: dict[str, Any] = {"way": 3, "shot": (1, 2, 4), "query": 3, "seed": seed}
    plain, episode = EpisodeSampler(pool, **shape)[i], noisy(pool, rate, **shape)[i]
    for name in ("classes", "support_y", "query", "query_y"):
        assert np.array_equal(getattr(episode, name), getattr(plain, name))
    changed = episode.support[episode.support != plain.support]
    assert not set(pool.labels[changed].tolist()) & set(plain.classes.tolist())


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_the_rate_is_that_of_each_example(rate: float) -> None:
    pool = labelled([20] * 8)
    plain, episodes = noisy(pool, 0.0).draw(1000), noisy(pool, rate).draw(1000)
    changed = np.stack([a.support != b.support for a, b in zip(plain, episodes, strict=True)])  # (E, S)
    assert changed.mean() == pytest.approx(rate, abs=0.02)
    assert changed.mean(0) == pytest.approx(np.full(12, rate), abs=0.06)
    classes = np.concatenate([pool.labels[e.support[c]] for e, c in zip(episodes, changed, strict=True)])
    assert np.bincount(classes, minlength=8) / len(classes) == pytest.approx(np.full(8, 1 / 8), abs=0.03)


def test_noise_is_a_function_of_seed_and_number_and_none_is_none() -> None:
    pool = labelled([20] * 8)
    together = noisy(pool, 0.4, seed=7).draw(40)
    for i in (0, 17, 39):
        assert same(noisy(pool, 0.4, seed=7)[i], together[i])
        assert same(noisy(pool, 0.4, seed=7).draw(1, start=i)[0], together[i])
        assert same(noisy(pool, 0.0, seed=7)[i], EpisodeSampler(pool, way=3, shot=4, query=2, seed=7)[i])
    assert not same(noisy(pool, 0.4, seed=8)[0], together[0])
    assert episodes_hash(pool, together) == GOLDEN


def test_what_cannot_be_noisy_is_refused() -> None:
    pool = labelled([20] * 3)
    with pytest.raises(EpisodeError, match=r"noise_rate 1\.5: a probability is from 0 to 1"):
        noisy(pool, 1.5)
    with pytest.raises(EpisodeError, match=r"but 3-way episodes leave none of its 3; lower the way"):
        noisy(pool, 0.1)
    with pytest.raises(EpisodeError, match="replaces support, but shot is 0"):
        noisy(pool, 0.1, way=2, shot=0)
    with pytest.raises(EpisodeError, match="an example could be both; leave out one of them"):
        noisy(pool, 0.1, way=2, na_rate=1)
    with pytest.raises(EpisodeError, match=r"noise_rate: not for K~2K episodes of sentences"):
        make_sampler(random_sentences(40, 3), way=2, shot=1, noise_rate=0.1)
