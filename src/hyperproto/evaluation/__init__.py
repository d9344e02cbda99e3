"""Evaluation: encode once, score thousands of episodes, compare in pairs."""

from hyperproto.evaluation.results import Result, compare
from hyperproto.evaluation.scoring import (
    EncodedPool,
    EvidenceChoice,
    Predictor,
    Rejection,
    check_names,
    check_shape,
    encoded_for,
    judge_episodes,
    measure_episodes,
    predict_episodes,
    score_episodes,
    tag_alike,
    training_center,
    training_units,
)

__all__ = [
    "EncodedPool",
    "EvidenceChoice",
    "Predictor",
    "Rejection",
    "Result",
    "check_names",
    "check_shape",
    "compare",
    "encoded_for",
    "judge_episodes",
    "measure_episodes",
    "predict_episodes",
    "score_episodes",
    "tag_alike",
    "training_center",
    "training_units",
]
