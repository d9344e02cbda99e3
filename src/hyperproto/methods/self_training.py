"""Self-training: logistic regression on the support and on its own labels of unlabelled examples."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hyperproto.errors import ConfigError
from hyperproto.methods.logistic import LogisticRegression, balanced, fit_logistic, log_odds
from hyperproto.methods.task import Task

NOT_TAKEN = -1


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """Fitted weights, and the labels of the unlabelled examples."""

    weights: Tensor  # (B, D + 1, N) of the last fit
    label: Tensor  # (B, U) 0 to N - 1, or NOT_TAKEN
    round: Tensor  # (B, U) in which the label was given, from 1; 0 where none was


class SelfTraining(LogisticRegression):
    """Yarowsky 1995, as scikit-learn's `SelfTrainingClassifier` does it over balanced logistic regression.

    A round labels the unlabelled examples whose largest probability is above `threshold`, permanently, and fits again
    to all that have a label. It ends after `rounds`, or when no new example is labelled. The defaults suit sentence
    vectors of length 1 and 64 classes. Without unlabelled examples this is `logistic` with its C.
    """

    uses_evidence = frozenset({"unlabelled"})

    def __init__(self, *, C: float = 10.0, threshold: float = 0.3, rounds: int = 3, **options: Any) -> None:
        super().__init__(C=C, **options)
        if not 0 <= threshold < 1:
            raise ConfigError(f"threshold {threshold} must be a probability, from 0 to below 1")
        if rounds < 1:
            raise ConfigError(f"rounds {rounds} must be at least 1")
        self.threshold, self.rounds = threshold, rounds

    def scores(self, task: Task) -> Tensor:
        """Return the log odds of the queries, by the last fit."""
        if task.unlabelled is None:
            return super().scores(task)
        return log_odds(task.query, self.labelled(task).weights).to(task.query)

    def labelled(self, task: Task) -> PseudoLabels:
        """Fit to the support, then in rounds to the support and the labelled examples."""
        assert task.unlabelled is not None
        given = task.members()  # (B, S, N)
        rows = torch.cat([task.support, task.unlabelled], 1)
        label = torch.full(task.unlabelled.shape[:2], NOT_TAKEN, device=rows.device)
        number = torch.zeros_like(label)
        going = torch.ones_like(label[:, :1], dtype=torch.bool)  # (B, 1) episodes in which the last round found some
        classes = torch.arange(task.way, device=rows.device)
        weights = fit_logistic(task.support, balanced(given), self.C)
        for round_ in range(1, self.rounds + 1):
            best, guess = log_odds(task.unlabelled, weights).softmax(-1).max(-1)  # (B, U)
            new = (best > self.threshold) & (label == NOT_TAKEN) & going
            going = new.any(-1, keepdim=True)
            if not bool(going.any()):
                break
            label, number = label.where(~new, guess), number.masked_fill(new, round_)
            taken = (label[..., None] == classes).to(given)  # (B, U, N)
            weights = fit_logistic(rows, balanced(torch.cat([given, taken], 1)), self.C)
        return PseudoLabels(weights, label, number)
