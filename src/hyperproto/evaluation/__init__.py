"""Evaluation: encode once, score thousands of episodes, compare in pairs."""

from hyperproto.evaluation.predictor import EvidenceChoice, Predictor
from hyperproto.evaluation.results import Result, compare
from hyperproto.evaluation.scoring import (
    EncodedPool,
    Rejection,
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
    "compare",
    "judge_episodes",
    "measure_episodes",
    "predict_episodes",
    "score_episodes",
    "tag_alike",
    "training_center",
    "training_units",
]
