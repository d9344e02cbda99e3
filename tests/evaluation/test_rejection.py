"""None of the above: AUROC, thresholds and what is reported, each against plain loops."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score

from hyperproto.data import OUTSIDE, Pool
from hyperproto.decisions import choose_threshold
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import EpisodeSampler, episodes_hash
from hyperproto.errors import EpisodeError
from hyperproto.evaluation import EncodedPool, Rejection, compare, evaluate_contenders, judge_episodes, scoring
from hyperproto.methods import make_method
from hyperproto.problems import Verdicts, auroc, paired_difference
from hyperproto.training.selection import select
from tests.evaluation.test_contenders import source
from tests.helpers.predicting import predictor

patient = settings(deadline=None)  # a busy machine is not a mistake
COARSE = st.integers(-4, 4).map(float)  # so that ties are common


@st.composite
def judged(draw: st.DrawFn, episodes: int = 4) -> Verdicts:
    """Verdicts on episodes of unequal size, each with queries of both kinds, in any order."""
    sizes = draw(st.lists(st.integers(2, 9), min_size=1, max_size=episodes))
    parts = []
    for number, size in enumerate(sizes):
        outside = draw(st.integers(1, size - 1))
        label = [OUTSIDE] * outside + draw(
            st.lists(st.integers(0, 2), min_size=size - outside, max_size=size - outside)
        )
        predicted = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
        novelty = draw(st.lists(COARSE, min_size=size, max_size=size))
        parts += zip([number] * size, label, predicted, novelty, strict=True)
    columns = list(zip(*draw(st.permutations(parts)), strict=True))
    return Verdicts(*(np.array(column) for column in columns))


@patient
@given(judged())
def test_auroc_counts_pairs_within_each_episode(verdicts: Verdicts) -> None:
    for number, found in enumerate(verdicts.aurocs()):
        here = verdicts.episode == number
        novelty, outside = verdicts.novelty[here], verdicts.outside[here]
        pairs = [(b > a) + (b == a) / 2 for a in novelty[~outside] for b in novelty[outside]]
        assert found == sum(pairs) / len(pairs)
        assert found == pytest.approx(roc_auc_score(outside, novelty), abs=1e-12)


def test_auroc_knows_its_ends_and_takes_infinity() -> None:
    outside = np.array([False, False, True, True])
    group = np.zeros(4, int)
    assert auroc(np.array([1.0, 2, 3, 4]), outside, group) == 1
    assert auroc(np.array([4.0, 3, 2, 1]), outside, group) == 0
    assert auroc(np.full(4, -math.inf), outside, group) == 0.5
    for wrong in (np.zeros(4, bool), np.ones(4, bool)):
        with pytest.raises(EpisodeError, match=r"episode 0: \d of 4 queries are of none of its classes; AUROC needs"):
            auroc(np.zeros(4), wrong, group)


def accuracy(verdicts: Verdicts, threshold: float) -> float:
    right = 0
    for novelty, label, predicted in zip(verdicts.novelty, verdicts.label, verdicts.predicted, strict=True):
        answer = OUTSIDE if novelty > threshold else predicted
        right += answer == label
    return right / len(verdicts.novelty)


@patient
@given(judged())
def test_no_threshold_is_better_than_the_one_chosen(verdicts: Verdicts) -> None:
    chosen = choose_threshold(verdicts.novelty, verdicts.correct, verdicts.outside)
    tried = [-math.inf, math.inf, *(value + shift for value in range(-5, 6) for shift in (-0.25, 0, 0.25))]
    best = max(accuracy(verdicts, threshold) for threshold in tried)
    assert accuracy(verdicts, chosen) == best
    if chosen < math.inf:  # of equals, the one that rejects least
        kept = verdicts.novelty <= chosen
        larger = [t for t in tried if (verdicts.novelty <= t).sum() > kept.sum()]
        assert all(accuracy(verdicts, threshold) < best for threshold in larger)
    order = np.random.default_rng(0).permutation(len(verdicts.novelty))
    assert choose_threshold(verdicts.novelty[order], verdicts.correct[order], verdicts.outside[order]) == chosen


def test_a_threshold_lies_half_way_or_rejects_nothing_or_everything() -> None:
    novelty = np.array([1.0, 2, 4, 8])
    yes, no = np.ones(4, bool), np.zeros(4, bool)
    late = np.array([False, False, True, True])
    assert choose_threshold(novelty, ~late, late) == 3.0
    assert choose_threshold(novelty, yes, no) == math.inf
    assert choose_threshold(novelty, no, no) == math.inf  # nothing to gain: nothing rejected
    assert choose_threshold(novelty, no, yes) == -math.inf
    near = [1.0]
    for _ in range(2):
        near.append(np.nextafter(near[-1], 2.0))
    for pair in (near[:2], near[1:]):  # no number in between; half-way is rounded down in one and up in the other
        assert choose_threshold(np.array(pair), np.array([True, False]), np.array([False, True])) == pair[0]


@patient
@given(judged(), st.sampled_from([-math.inf, -1.5, 0.5, 2.0, math.inf]))
def test_what_is_reported(verdicts: Verdicts, threshold: float) -> None:
    for number, found in enumerate(verdicts.accuracies(threshold)):
        here = verdicts.episode == number
        part = Verdicts(*(getattr(verdicts, name)[here] for name in ("episode", "label", "predicted", "novelty")))
        assert found == accuracy(part, threshold)
    metrics = verdicts.metrics(threshold)
    rows = list(zip(verdicts.novelty <= threshold, verdicts.label, verdicts.predicted, strict=True))
    known = [accepted for accepted, label, _ in rows if label != OUTSIDE]
    others = [accepted for accepted, label, _ in rows if label == OUTSIDE]
    right = [label == predicted for accepted, label, predicted in rows if accepted]
    assert metrics["coverage"] == pytest.approx(sum(known) / len(known))
    assert metrics["outside_rejected"] == pytest.approx(1 - sum(others) / len(others))
    assert metrics["accuracy_of_accepted"] == (pytest.approx(sum(right) / len(right)) if right else None)
    assert metrics["share"] == len(others) / len(rows)
    assert metrics["threshold"] == (threshold if math.isfinite(threshold) else None)
    assert metrics["auroc"] == pytest.approx(verdicts.aurocs().mean())
    assert metrics["pooled_auroc"] == pytest.approx(roc_auc_score(verdicts.outside, verdicts.novelty))
    correct, total = verdicts.counts(threshold, 3)
    assert total.sum() == len(known)
    assert correct.sum() == sum(accepted and label == predicted for accepted, label, predicted in rows)
    for number, label in zip(verdicts.episode, verdicts.label, strict=True):
        assert (
            label == OUTSIDE or total[number, label] == ((verdicts.episode == number) & (verdicts.label == label)).sum()
        )


@patient
@given(arrays(np.float64, 30, elements=st.floats(-1e3, 1e3)), st.integers(1, 29))
def test_auroc_does_not_care_for_scale(novelty: np.ndarray, count: int) -> None:
    outside = np.arange(30) < count
    group = np.zeros(30, int)
    assert auroc(novelty, outside, group) == auroc(2 * novelty, outside, group)
    np.testing.assert_allclose(auroc(-novelty, outside, group), 1 - auroc(novelty, outside, group), atol=1e-12)


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
    contenders = select([source()], ["hyperproto", "protonet"], ["bayes", "paper"], ["none"], {})
    results = evaluate_contenders(contenders, pool, episodes, shape, rejection=Rejection(other, chosen_on))
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
    encoded = EncodedPool.encode(contenders[0].encoder, pool)
    verdicts = judge_episodes(contenders[0].predictor, encoded, episodes)
    np.testing.assert_array_equal(results[0].values, verdicts.accuracies(nota["threshold"]))
    assert (results[0].values.mean(), results[0].others["auroc"].mean()) == (content["accuracy"], nota["auroc"])
    rows = compare(results)
    assert len(rows) == 3
    for row, (a, b) in zip(rows, [(0, 1), (0, 2), (1, 2)], strict=True):
        first, second = results[a].others["auroc"], results[b].others["auroc"]
        assert first is not None
        assert second is not None
        assert (row["auroc_difference"], row["auroc_ci95"]) == paired_difference(first, second)
    assert set(compare(evaluate_contenders(contenders, pool, episodes, shape))[0]) == {"a", "b", "difference", "ci95"}


def test_without_rejection_only_the_classes_own_queries_count(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(noise=1.5)
    contenders = select([source()], ["protonet"], [], ["none"], {})
    accuracies = []
    for share in (0.0, 0.5):
        episodes = EpisodeSampler(pool, way=3, shot=5, query=4, nota_share=share).draw(20)
        [result] = evaluate_contenders(contenders, pool, episodes, {"shot": 5})
        assert result.metrics == {}
        assert not result.others
        accuracies.append(result.values)
    np.testing.assert_array_equal(*accuracies)


def test_hidden_labels_cannot_be_judged(make_blobs: Callable[..., Pool]) -> None:
    from dataclasses import replace

    pool = make_blobs()
    episode = replace(EpisodeSampler(pool, way=3, shot=2, query=2, na_rate=1)[0], query_y=None)
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    with pytest.raises(EpisodeError, match="hide the labels"):
        judge_episodes(predictor(make_method("protonet", feature_shape=(6,)), encoded), encoded, [episode])
