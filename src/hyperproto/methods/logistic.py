"""Balanced logistic regression on the support, for all episodes of a batch at once."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Method
from hyperproto.methods.task import Task

TOLERANCE = 1e-5  # of the gradient, in units of one example
MOST_STEPS = 500
KEPT = 10  # number of stored steps in L-BFGS
HALVINGS = 30  # largest number of halvings in the line search
DOWN = 1e-4  # share of the expected decrease that a step must reach
DIFFERENTIATED = 50  # number of steps at the solution through which gradients flow
BIAS = 1000.0


class LogisticRegression(Method):
    """Multinomial logistic regression with an L2 penalty, each class weighted by 1 / its count.

    The objective is that of scikit-learn's `LogisticRegression(C=C, class_weight="balanced")`; a test compares both.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})

    def __init__(self, *, C: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        if C <= 0:
            raise ConfigError(f"C {C} must be above 0")
        self.C = C

    def scores(self, task: Task) -> Tensor:
        """Fit on the support, and return the log odds of the queries, (B, Q, N)."""
        weights = fit_logistic(task.support, balanced(task.members()), self.C)
        return log_odds(task.query, weights).to(task.query)


def balanced(mass: Tensor) -> Tensor:
    """Rescale masses so that all classes have equal mass and the total is unchanged.

    `mass` (B, R, N) is the weight of each row as an example of each class: 1 at its label, or soft labels.
    """
    total = mass.sum((-1, -2), keepdim=True)  # (B, 1, 1)
    each = mass.sum(-2, keepdim=True)  # (B, 1, N)
    return mass * total / (mass.shape[-1] * each.where(each > 0, 1.0))


def fit_logistic(rows: Tensor, mass: Tensor, C: float) -> Tensor:
    """Minimise `sum_rn mass_rn (-log p_rn) + ||W||^2 / (2 C)`, where `p_r = softmax([x_r, 1] W)`: W (B, D + 1, N).

    `rows` are (B, R, D), `mass` (B, R, N) as in `balanced`; a row without mass has no effect. Gradients reach the rows
    through further steps at the solution, which do not change it: the derivative of a fixed point.
    """
    used = (mass > 0).any(-1).any(0)  # (R,) rows with mass in any episode
    if not bool(used.any()):  # no example of any class: equal probabilities
        return rows.new_zeros(len(rows), rows.shape[-1] + 1, mass.shape[-1], dtype=torch.float64)
    rows, mass = rows[:, used], mass[:, used]
    problem = _Problem.of(rows, mass.double(), C)
    with torch.no_grad():
        found = problem.solved()
    if torch.is_grad_enabled() and rows.requires_grad:
        found = problem.repeated(found)
    return problem.rows.mT @ found if problem.in_span else found


def log_odds(x: Tensor, weights: Tensor) -> Tensor:
    """Return logits (B, Q, N) of rows (B, Q, D) in double precision; their softmax is the probability."""
    return _with_constant(x) @ weights


@dataclass(frozen=True, eq=False)
class _Pair:
    """A step of L-BFGS and the change of the gradient."""

    step: Tensor  # (B, P, N)
    change: Tensor  # (B, P, N) of the gradient
    step_image: Tensor
    change_image: Tensor
    inverse: Tensor  # (B, 1, 1) 1 / <step, change>; 0 for solved episodes
    scale: Tensor  # (B, 1, 1) factor on steps of the bound


@dataclass(frozen=True, eq=False)
class _Problem:
    """Regressions of B episodes, each with P x N parameters.

    With few rows, parameters are coefficients in their span (W = rows^T parameters), so that P does not depend on D;
    with many, they are the weights (W = parameters), so that P does not depend on R. The inner product of the weights
    of two parameter arrays is `_sum(a * image(b))`.
    """

    rows: Tensor  # (B, R, D + 1)
    mass: Tensor  # (B, R, N)
    weight: Tensor  # (B, R, 1) mass of a row
    features: Tensor  # (B, R, P) logits = features @ parameters
    newton: Tensor  # (B, P, P) inverse of a bound of the Hessian
    C: float
    in_span: bool

    @classmethod
    def of(cls, rows: Tensor, mass: Tensor, C: float) -> "_Problem":
        """Build the problem; half the weighted Gram matrix bounds the Hessian of a softmax (Böhning 1992)."""
        weight = mass.sum(-1, keepdim=True)
        rows = _with_constant(rows).masked_fill(weight == 0, 0.0)
        in_span = rows.shape[-2] <= rows.shape[-1]
        features = rows @ rows.mT if in_span else rows
        bound = weight.amax(-2, keepdim=True) * features if in_span else (weight * rows).mT @ rows
        eye = torch.eye(bound.shape[-1], dtype=bound.dtype, device=bound.device)
        return cls(rows, mass, weight, features, torch.linalg.inv(0.5 * bound + eye / C), C, in_span)

    def image(self, x: Tensor) -> Tensor:
        """Return the array whose elementwise product with parameters sums to the inner product of weights."""
        return self.features @ x if self.in_span else x

    def objective(self, x: Tensor, logits: Tensor) -> Tensor:
        """Return the objective, (B, 1, 1)."""
        square = _sum(x * (logits if self.in_span else x))
        return square / (2 * self.C) - _sum(self.mass * logits.log_softmax(-1))

    def gradient(self, x: Tensor, logits: Tensor) -> Tensor:
        """Return the gradient of the objective, (B, P, N)."""
        error = self.weight * logits.softmax(-1) - self.mass  # (B, R, N)
        return (error if self.in_span else self.rows.mT @ error) + x / self.C

    def solved(self) -> Tensor:
        """Minimise from 0 by L-BFGS (Liu and Nocedal 1989) with the bound as first metric; episodes stop separately."""
        x = self.mass.new_zeros(len(self.mass), self.features.shape[-1], self.mass.shape[-1])
        logits = torch.zeros_like(self.mass)
        gradient = self.gradient(x, logits)
        pairs: deque[_Pair] = deque(maxlen=KEPT)
        going = torch.ones(len(x), 1, 1, dtype=torch.bool, device=x.device)
        least = TOLERANCE * (1.0 if self.in_span else self.rows.norm(dim=-1).amax(-1)[:, None, None])
        for _ in range(MOST_STEPS):
            going = going & (gradient.abs().amax((-1, -2), keepdim=True) >= least)
            if not bool(going.any()):
                break
            way = -self._direction(gradient, pairs)
            way_logits = self.features @ way
            length = self._length(x, logits, way, way_logits, gradient, going)
            going = length > 0
            x, logits = x + length * way, logits + length * way_logits
            before, gradient = gradient, self.gradient(x, logits)
            pairs.append(self._pair(length * way, gradient - before))
        return x

    def _direction(self, gradient: Tensor, pairs: deque[_Pair]) -> Tensor:
        """Return the approximate inverse Hessian times the gradient (two-loop recursion of L-BFGS)."""
        shares = []
        for pair in reversed(pairs):
            shares.append(pair.inverse * _sum(pair.step_image * gradient))
            gradient = gradient - shares[-1] * pair.change
        x = self.newton @ gradient
        if pairs:
            x = pairs[-1].scale * x
        for pair, share in zip(pairs, reversed(shares), strict=True):
            x = x + (share - pair.inverse * _sum(pair.change_image * x)) * pair.step
        return x

    def _length(
        self, x: Tensor, logits: Tensor, way: Tensor, way_logits: Tensor, gradient: Tensor, going: Tensor
    ) -> Tensor:
        """Return step lengths, (B, 1, 1): 1, halved until the objective falls; 0 if it does not or is not `going`."""
        now, slope = self.objective(x, logits), _sum(gradient * self.image(way))
        length = going.to(x)
        for _ in range(HALVINGS):
            low = self.objective(x + length * way, logits + length * way_logits) <= now + DOWN * length * slope
            if bool(low.all()):
                return length
            length = length.where(low, length / 2)
        return length.where(low, 0.0)

    def _pair(self, step: Tensor, change: Tensor) -> _Pair:
        image, change_image = self.image(step), self.image(change)
        product = _sum(image * change)
        curved = product > 0
        inverse = torch.where(curved, 1 / product.where(curved, 1.0), 0.0)
        scale = torch.where(curved, product / _sum(change_image * (self.newton @ change)).where(curved, 1.0), 1.0)
        return _Pair(step, change, image, change_image, inverse, scale)

    def repeated(self, x: Tensor) -> Tensor:
        """Apply steps of the bound with Nesterov's momentum, which at the solution only propagate gradients."""
        ahead = x
        for t in range(DIFFERENTIATED):
            new = ahead - self.newton @ self.gradient(ahead, self.features @ ahead)
            ahead = new + t / (t + 3) * (new - x)
            x = new
        return x


def _sum(x: Tensor) -> Tensor:
    """Return the sum over an episode, (B, 1, 1)."""
    return x.sum((-1, -2), keepdim=True)


def _with_constant(x: Tensor) -> Tensor:
    """Append a large constant coordinate, so that its weight, the bias, is almost unpenalised (double precision)."""
    return F.pad(x.double(), (0, 1), value=BIAS**0.5)
