"""Which sampler a pool gets."""

import numpy as np
import pytest

from hyperproto.episodes import EpisodeSampler, GreedySampler, episodes_hash
from hyperproto.errors import EpisodeError
from hyperproto.problems import make_sampler
from tests.conftest import blobs
from tests.helpers.tagged import random_sentences

IMAGES, SENTENCES = blobs(), random_sentences(200, 5, most_runs=3)


def test_images_get_n_way_k_shot() -> None:
    sampler = make_sampler(IMAGES, way=3, shot=[1, 2, 2], seed=4, na_rate=2)
    plain = EpisodeSampler(IMAGES, way=3, shot=[1, 2, 2], query=15, seed=4, na_rate=2)
    assert episodes_hash(IMAGES, sampler.draw(5)) == episodes_hash(IMAGES, plain.draw(5))
    assert make_sampler(IMAGES, way=3, shot=1, query=2, nota_share=0.5).draw(1)[0].query.shape == (12,)


def test_sentences_get_k_to_2k() -> None:
    sampler = make_sampler(SENTENCES, way=3, shot=2, seed=4, rule="appendix", least_spans=20)
    plain = GreedySampler(SENTENCES, way=3, shot=2, query=2, seed=4, rule="appendix", least_spans=20)
    assert episodes_hash(SENTENCES, sampler.draw(5)) == episodes_hash(SENTENCES, plain.draw(5))
    assert sampler.query == 2
    by_default, toolkit = make_sampler(SENTENCES, way=3, shot=2), GreedySampler(SENTENCES, way=3, shot=2, query=2)
    assert np.array_equal(by_default.draw(1)[0].query, toolkit[0].query)
    assert make_sampler(SENTENCES, way=3, shot=0).query == 1
    assert make_sampler(SENTENCES, way=3, shot=1, query=3).query == 3


def test_what_a_sampler_has_no_meaning_for() -> None:
    for more in ({"rule": "toolkit"}, {"least_spans": 3}):
        with pytest.raises(EpisodeError, match=r"blobs \(all\): (rule|least_spans): not for N-way K-shot episodes"):
            make_sampler(IMAGES, way=3, shot=1, **more)
    for nota in ({"nota_share": 0.5}, {"na_rate": 1}):
        with pytest.raises(EpisodeError, match=r"random \(all\): (nota_share|na_rate): not for K~2K episodes.*leave"):
            make_sampler(SENTENCES, way=3, shot=1, **nota)
    with pytest.raises(EpisodeError, match=r"K~2K episodes have one K for all types, not shots \[1, 2, 2\]"):
        make_sampler(SENTENCES, way=3, shot=[1, 2, 2])
