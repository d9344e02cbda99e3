"""Evaluation: encode once, score thousands of episodes, compare in pairs."""

from hyperproto.evaluation.contenders import Contender, evaluate_contenders
from hyperproto.evaluation.intervals import mean_interval, paired_difference
from hyperproto.evaluation.results import Result, compare
from hyperproto.evaluation.scoring import EncodedPool, episode_accuracies, predict_episodes, training_center

__all__ = [
    "Contender",
    "EncodedPool",
    "Result",
    "compare",
    "episode_accuracies",
    "evaluate_contenders",
    "mean_interval",
    "paired_difference",
    "predict_episodes",
    "training_center",
]
