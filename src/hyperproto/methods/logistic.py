"""Balanced logistic regression on the support: the strong linear baseline, all episodes of a batch at once."""

from typing import Any

import torch
from torch import Tensor

from hyperproto.methods.base import Method
from hyperproto.methods.task import Task

STEPS = 300


class LogisticRegression(Method):
    """Multinomial logistic regression with an L2 penalty, each class weighted by 1 / its count.

    The same objective as scikit-learn's `LogisticRegression(C=C, class_weight="balanced")`; a test compares the two. It
    is solved in the span of the support (weights are combinations of support vectors, so the size of the problem does
    not grow with D), by Nesterov's accelerated gradient with a step that is safe for every episode.
    """

    def __init__(self, *, C: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.C = C

    def scores(self, task: Task) -> Tensor:
        """Fit on the support, then log odds of the queries."""
        one_hot = (task.support_y[..., None] == torch.arange(task.way, device=task.support.device)).to(task.support)
        count = one_hot.sum(-2, keepdim=True).clamp(min=1)  # (B, 1, N)
        n_examples = one_hot.sum((-2, -1), keepdim=True)
        weight = (
            n_examples / (task.way * (one_hot @ count.mT).clamp(min=1)) * one_hot.sum(-1, keepdim=True)
        )  # (B, S, 1)
        # Whatever the scale and position of the features, the descent sees them centred, at no cost: the bias moves.
        middle = (task.support * one_hot.sum(-1, keepdim=True)).sum(-2, keepdim=True) / n_examples
        support, query = task.support - middle, task.query - middle
        gram = support @ support.mT  # (B, S, S)
        # alpha are the weights' coordinates: W = support^T alpha, so support @ W = gram @ alpha.
        top = torch.linalg.matrix_norm(gram, ord="fro")[:, None, None] + n_examples
        step = 1 / (0.5 * weight.amax(-2, keepdim=True) * top + 1 / self.C)
        alpha = momentum = torch.zeros_like(one_hot)
        bias = bias_momentum = torch.zeros_like(count)
        for t in range(STEPS):
            error = weight * ((gram @ momentum + bias_momentum).softmax(-1) - one_hot)
            new_alpha = momentum - step * (error + momentum / self.C)
            new_bias = bias_momentum - step * error.sum(-2, keepdim=True)
            speed = t / (t + 3)
            momentum = new_alpha + speed * (new_alpha - alpha)
            bias_momentum = new_bias + speed * (new_bias - bias)
            alpha, bias = new_alpha, new_bias
        return query @ support.mT @ alpha + bias
