"""Evaluation: encode once, score thousands of episodes, compare in pairs."""

from hyperproto.evaluation.auroc import auroc
from hyperproto.evaluation.contenders import Contender, evaluate_contenders
from hyperproto.evaluation.f1_intervals import f1_difference, f1_interval, f1_values
from hyperproto.evaluation.intervals import mean_interval, paired_difference
from hyperproto.evaluation.rejection import Rejection, Verdicts, choose_threshold, judge_episodes
from hyperproto.evaluation.results import Result, compare
from hyperproto.evaluation.scoring import (
    EncodedPool,
    episode_accuracies,
    predict_episodes,
    score_episodes,
    training_center,
    training_units,
)
from hyperproto.evaluation.span_errors import SpanErrors, span_errors
from hyperproto.evaluation.spans import SpanCounts, Tags, span_counts
from hyperproto.evaluation.tagged_metrics import tagged_metrics
from hyperproto.evaluation.tagging import tag_alike, tag_episodes

__all__ = [
    "Contender",
    "EncodedPool",
    "Rejection",
    "Result",
    "SpanCounts",
    "SpanErrors",
    "Tags",
    "Verdicts",
    "auroc",
    "choose_threshold",
    "compare",
    "episode_accuracies",
    "evaluate_contenders",
    "f1_difference",
    "f1_interval",
    "f1_values",
    "judge_episodes",
    "mean_interval",
    "paired_difference",
    "predict_episodes",
    "score_episodes",
    "span_counts",
    "span_errors",
    "tag_alike",
    "tag_episodes",
    "tagged_metrics",
    "training_center",
    "training_units",
]
