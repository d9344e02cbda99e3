"""Balanced logistic regression on the support: the strong linear baseline, all episodes of a batch at once."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Method
from hyperproto.methods.task import Task

MOST_STEPS = 2000
TOLERANCE = 1e-4  # of the gradient, in units of one example
BIAS = 1000.0


class LogisticRegression(Method):
    """Multinomial logistic regression with an L2 penalty, each class weighted by 1 / its count.

    The same objective as scikit-learn's `LogisticRegression(C=C, class_weight="balanced")`; a test compares the two. It
    is solved in the span of the support (weights are combinations of support vectors, W = support^T alpha), so the
    problem does not grow with D. The Hessian of the softmax is nowhere more than half the Gram matrix (Böhning 1992):
    that bound, inverted once an episode, gives steps that never overshoot, and Nesterov's momentum speeds them up.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})

    def __init__(self, *, C: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        if C <= 0:
            raise ConfigError(f"C {C} must be above 0")
        self.C = C

    def scores(self, task: Task) -> Tensor:
        """Fit on the support, then log odds of the queries."""
        one_hot = (task.support_y[..., None] == torch.arange(task.way, device=task.support.device)).double()
        real = one_hot.sum(-1, keepdim=True)  # (B, S, 1): 0 for padding
        count = one_hot @ one_hot.sum(-2).unsqueeze(-1)  # (B, S, 1): examples of the same class
        weight = real * real.sum(-2, keepdim=True) / (task.way * count.clamp(min=1))
        support = real * _with_constant(task.support)
        gram = support @ support.mT  # (B, S, S)
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        bound = 0.5 * weight.amax(-2, keepdim=True) * gram + eye / self.C
        step = torch.linalg.inv(bound)
        alpha = ahead = torch.zeros_like(one_hot)
        for t in range(MOST_STEPS):
            slope = weight * ((gram @ ahead).softmax(-1) - one_hot) + ahead / self.C  # (B, S, N)
            if t % 50 == 49 and slope.abs().max() < TOLERANCE:
                break
            new = ahead - step @ slope
            ahead = new + t / (t + 3) * (new - alpha)
            alpha = new
        return (_with_constant(task.query) @ support.mT @ alpha).to(task.query)


def _with_constant(x: Tensor) -> Tensor:
    """Add a constant coordinate, so large that its weight, the bias, is all but free; it asks for double precision."""
    return F.pad(x.double(), (0, 1), value=BIAS**0.5)
