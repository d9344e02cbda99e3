"""None of the above: AUROC and what is reported, each against plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score

from hyperproto.data import OUTSIDE
from hyperproto.errors import EpisodeError
from hyperproto.problems import Verdicts, auroc
from tests.helpers.verdicts import accuracy, judged

patient = settings(deadline=None)  # a busy machine is not a mistake


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
