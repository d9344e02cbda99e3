"""Verdicts of whole evaluations: blocks, ragged episodes, and where the threshold comes from."""

from collections.abc import Callable

import numpy as np
import pytest

from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import Pool
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import EpisodeSampler, episodes_hash
from hyperproto.errors import EpisodeError
from hyperproto.evaluation import EncodedPool, Rejection, compare, judge_episodes, scoring
from hyperproto.methods import make_method
from hyperproto.problems import paired_difference
from tests.helpers.predicting import predictor, source


@pytest.mark.parametrize("name", ["protonet", "hyperproto", "cosine"])
def test_blocks_judge_as_single_episodes_do(
    name: str, make_blobs: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_blobs(noise=2.0)
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    episodes = EpisodeSampler(pool, way=3, shot=(1, 4, 2), query=4, nota_share=0.3).draw(20)
    parts = predictor(make_method(name, feature_shape=(6,)), encoded, "unit"), encoded, episodes
    together = judge_episodes(*parts)
    monkeypatch.setattr(scoring, "BLOCK_BYTES", 1)
    alone = judge_episodes(*parts)
    assert np.array_equal(together.episode, np.repeat(np.arange(20), 12 + 5))
    assert np.array_equal(together.label, np.concatenate([e.query_y for e in episodes if e.query_y is not None]))
    for part in ("episode", "label", "predicted"):
        assert np.array_equal(getattr(together, part), getattr(alone, part))
    np.testing.assert_allclose(together.novelty, alone.novelty, rtol=1e-3, atol=1e-4)


def test_a_ragged_list_of_episodes_has_no_padding_in_it(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs()
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    episodes = [EpisodeSampler(pool, way=3, shot=2, query=query, na_rate=1)[0] for query in (2, 5, 3)]
    method = make_method("protonet", feature_shape=(6,), learn_temperature=True)
    assert np.bincount(judge_episodes(predictor(method, encoded), encoded, episodes).episode).tolist() == [8, 20, 12]


def test_results_with_rejection_say_where_the_threshold_comes_from(make_blobs: Callable[..., Pool]) -> None:
    pool, other = make_blobs(noise=1.5), make_blobs(noise=1.5, seed=1)
    shape = {"way": 3, "shot": [1, 5, 9], "query": 4, "seed": 3, "nota_share": 0.5}
    episodes, chosen_on = (EpisodeSampler(each, **shape).draw(60) for each in (pool, other))  # type: ignore[arg-type]
    candidates = select([source()], ["hyperproto", "protonet"], ["bayes", "paper"], ["none"], {})
    results = evaluate_candidates(candidates, pool, episodes, shape, rejection=Rejection(other, chosen_on))
    content = results[0].to_json()
    assert (content["threshold_data"], content["threshold_split"]) == ("blobs", "all")
    assert content["threshold_hash"] == episodes_hash(other, chosen_on)
    nota = content["metrics"]["nota"]
    assert set(nota) == {
        "threshold", "auroc", "auroc_ci95", "pooled_auroc", "coverage", "outside_rejected", "accuracy_of_accepted",
        "share",
    }  # fmt: skip
    assert nota["share"] == 0.5
    assert 0.6 < nota["auroc"] < 1
    assert content["accuracy"] == pytest.approx(
        (nota["outside_rejected"] + np.mean(list(content["metrics"]["accuracy_by_shot"].values()))) / 2
    )
    encoded = EncodedPool.encode(candidates[0].encoder, pool)
    verdicts = judge_episodes(candidates[0].predictor, encoded, episodes)
    np.testing.assert_array_equal(results[0].values, verdicts.accuracies(nota["threshold"]))
    assert (results[0].values.mean(), results[0].others["auroc"].mean()) == (content["accuracy"], nota["auroc"])
    rows = compare(results)
    assert len(rows) == 3
    for row, (a, b) in zip(rows, [(0, 1), (0, 2), (1, 2)], strict=True):
        first, second = results[a].others["auroc"], results[b].others["auroc"]
        assert first is not None
        assert second is not None
        assert (row["auroc_difference"], row["auroc_ci95"]) == paired_difference(first, second)
    assert set(compare(evaluate_candidates(candidates, pool, episodes, shape))[0]) == {"a", "b", "difference", "ci95"}


def test_without_rejection_only_the_classes_own_queries_count(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(noise=1.5)
    candidates = select([source()], ["protonet"], [], ["none"], {})
    accuracies = []
    for share in (0.0, 0.5):
        episodes = EpisodeSampler(pool, way=3, shot=5, query=4, nota_share=share).draw(20)
        [result] = evaluate_candidates(candidates, pool, episodes, {"shot": 5})
        assert result.metrics == {}
        assert not result.others
        accuracies.append(result.values)
    plain, with_others = accuracies
    np.testing.assert_array_equal(plain, with_others)


def test_hidden_labels_cannot_be_judged(make_blobs: Callable[..., Pool]) -> None:
    from dataclasses import replace

    pool = make_blobs()
    episode = replace(EpisodeSampler(pool, way=3, shot=2, query=2, na_rate=1)[0], query_y=None)
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    with pytest.raises(EpisodeError, match="hide the labels"):
        judge_episodes(predictor(make_method("protonet", feature_shape=(6,)), encoded), encoded, [episode])
