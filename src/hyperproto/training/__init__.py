"""Training: Algorithm 1, optimisers, checkpoints, runs."""

from hyperproto.training.learner import Learner
from hyperproto.training.resolve import load_recipe
from hyperproto.training.run import Run
from hyperproto.training.train import Report, train

__all__ = ["Learner", "Report", "Run", "load_recipe", "train"]
