"""A discriminative fit that starts at the closed form of `known` and is held to it by the posterior's own precision.

Softmax regression over a linear head (W, b) on whitened rows f, which minimises

    sum_i CE(y_i at i) + sum_u sum_n t_un q_n CE(n at u) + l/2 (||W - W0||^2 + ||b - b0||^2)

with CE(n at f) = -log softmax_n(f W + b + log M), M_n being the mass of class n in the loss, so that classes count
alike. W0 = 2 C / T and b0 = (eps - ||c||^2) / T are the head of the spheres at the temperature T = 2 v s / 20, and
l = v s^2 k / 20 is the prior precision of a centre, v / k, as one of W. It is solved twice: on the labelled rows; then
from W0 again with the unlabelled ones, whose targets t are a mean of the first head's answers and of the shares that
expectation-maximisation gave them. NumPy only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from hyperproto.regions.arrays import Doubles, Floats, row_squares
from hyperproto.regions.bayes import BayesFit
from hyperproto.regions.known import Knowledge, Shares, near, near_rows, row_blocks
from hyperproto.regions.statistics import ExampleStatistics

SOFT = 20.0  # effective dimension of the softmax that is fitted (the shares of the rows use their own, about 100)
MASS = 50.0  # how many examples the unlabelled rows of a class count for at most
STEPS = 20  # of L-BFGS, in each of the two stages
LEAST_MASS = 1e-6  # of a class that has no row


def refine(
    fit: BayesFit, knowledge: Knowledge, stats: ExampleStatistics, count: Doubles, unlabelled: Floats | None = None
) -> BayesFit:
    """Move centres and radii to those of the refined head.

    `fit` and `knowledge` are what `fit_known` gave for `stats` and `unlabelled` (U, D); `count` (N,) is how many
    examples each class counts for. Products are in the precision of the rows. Where nothing is known of scatter, the
    closed form stands.
    """
    regression = Regression.of(fit, knowledge, stats, count, unlabelled)
    if regression is None:
        return fit
    head = regression.of_examples()
    return regression.moved(head if regression.rows is None else regression.of_rows(head))


@dataclass(frozen=True, eq=False)
class Regression:
    """The softmax regression that starts at a closed form. A head is (D + 1, N); its last row is the bias."""

    fit: BayesFit
    knowledge: Knowledge
    count: Doubles  # (N,)
    rows: Floats | None  # (U, D) without a label, as they came
    labelled: Floats  # (S, D + 1) whitened, about the middle, with a one for the bias
    member: Floats  # (S, N) how often each counts in each class
    others: Floats  # (U, D + 1) the rows, in the same way
    middle: Doubles  # (D,)
    scale: float  # 2 / T
    hold: float  # l
    start: Doubles  # W0 and b0

    @classmethod
    def of(
        cls,
        fit: BayesFit,
        knowledge: Knowledge,
        stats: ExampleStatistics,
        count: Doubles,
        unlabelled: Floats | None = None,
    ) -> "Regression | None":
        """That of what `fit_known` gave; None where nothing is known of scatter."""
        if not isinstance(stats.mean, np.ndarray) or stats.mean.ndim != 2:
            raise ConfigError(
                "refine takes one support set of NumPy arrays; fit episodes one by one, or without refine"
            )
        v, wider = float(knowledge.scatter), float(near(knowledge.believed(count), fit.ratio))  # v, s
        examples, member = stats.memberships()
        if knowledge.clusters is None or not knowledge.clusters.spread > 0:
            unlabelled = None
        if unlabelled is not None:
            _, weight = near_rows(unlabelled, stats, fit.whiten)
            unlabelled = unlabelled if weight is None else unlabelled[weight > 0]
        dtype = examples.dtype if unlabelled is None else unlabelled.dtype
        whiten = fit.whiten.astype(dtype)
        labelled = whiten(examples.astype(dtype))
        others = labelled[:0] if unlabelled is None else whiten(unlabelled)
        about = others if len(others) else labelled
        if not v > 0 or not len(about):
            return None
        scale, hold = SOFT / (v * wider), v * wider**2 * float(fit.ratio) / SOFT
        middle = about.mean(axis=0, dtype=np.float64)  # rows about their mean, so that b is no part of W
        bias = scale / 2 * (fit.bias_radius - row_squares(fit.center)) + scale * fit.center @ middle
        start = np.vstack([scale * fit.center.T, bias])
        labelled, others, member = with_one(labelled, middle), with_one(others, middle), member.astype(dtype)
        return cls(fit, knowledge, count, unlabelled, labelled, member, others, middle, scale, hold, start)

    def of_examples(self) -> Doubles:
        """The head that the labelled rows give."""
        return solve(self.labelled, self.member, self.start, self.hold) if len(self.labelled) else self.start

    def of_rows(self, head: Doubles) -> Doubles:
        """The head that all rows give; targets of those without a label are in part what another `head` says."""
        soft = self._targets(head)
        return solve(
            np.concatenate([self.labelled, self.others]), np.concatenate([self.member, soft]), self.start, self.hold
        )

    def moved(self, head: Doubles) -> BayesFit:
        """Spheres with that head: c = T W / 2, eps = T b + ||c||^2."""
        center = head[:-1].T / self.scale
        radius = 2 / self.scale * (head[-1] - self.middle @ head[:-1]) + row_squares(center)
        return replace(self.fit, center=center, bias_radius=radius)

    def shares(self) -> Iterator[tuple[slice, Floats]]:
        """What expectation-maximisation gave the classes of each row (B, N), block by block."""
        assert self.rows is not None
        assert self.knowledge.clusters is not None
        rows, believed = self.rows, self.knowledge.believed(self.count)
        v, dim, loose = self.knowledge.scatter, self.knowledge.clusters.dim, self.knowledge.loose
        shares = Shares.of(self.fit, self.fit.center, believed, v, dim, loose, rows.dtype)
        whiten = self.fit.whiten.astype(rows.dtype)
        for part in row_blocks(rows, len(self.count)):
            yield part, shares(rows[part], row_squares(whiten(rows[part])))

    def _targets(self, head: Doubles) -> Floats:
        """t_un q_n (U, N): a mean of what `head` says and of the shares, less for large clusters.

        Labels make up a part K / (K + worth + k) of the posterior: so far is the head believed.
        """
        assert self.knowledge.clusters is not None
        trust = float(self.count.mean() / (self.knowledge.believed(self.count) + self.fit.ratio).mean())
        sharp = (head * (float(self.knowledge.clusters.dim) / SOFT)).astype(self.others.dtype)
        target = np.empty((len(self.others), len(self.count)), self.others.dtype)
        for part, share in self.shares():
            own = share.sum(axis=1, keepdims=True) * softmax(self.others[part] @ sharp)
            target[part] = trust * own + (1 - trust) * share
        return weighed(target, MASS)


def weighed(target: Floats, mass: float) -> Floats:
    """Targets (U, N), in place, times q_n = mass / (R_n + R' + mass): the rows of a class count for `mass` at most."""
    size = target.sum(axis=0, dtype=np.float64)
    target *= (mass / (size + size.mean() + mass)).astype(target.dtype)
    return target


def with_one(rows: Floats, middle: Doubles) -> Floats:
    """Rows (n, D + 1) about their middle, with a one for the bias."""
    return np.concatenate([rows - middle, np.ones((len(rows), 1))], axis=1).astype(rows.dtype)


def softmax(scores: Floats) -> Floats:
    """Over the classes (U, N)."""
    power = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = power / power.sum(axis=1, keepdims=True)
    return found


def solve(rows: Floats, target: Floats, start: Doubles, hold: float) -> Doubles:
    """Softmax regression (D + 1, N) with weighted soft targets and a ridge `hold` about `start`."""
    from scipy.optimize import minimize  # only estimators come here: the equations do not wait for it

    mass = target.sum(axis=0, dtype=np.float64)
    weight = target.sum(axis=1)
    offset = np.log(np.maximum(mass, LEAST_MASS) / mass.mean()).astype(rows.dtype)  # log M, no part of the head
    parts = list(row_blocks(rows, len(mass)))

    def loss(flat: Doubles) -> tuple[float, NDArray[Any]]:
        head = flat.reshape(start.shape)
        cast, slope, fit = head.astype(rows.dtype), np.zeros(start.shape), 0.0
        for part in parts:
            scores = rows[part] @ cast
            scores += offset
            scores -= scores.max(axis=1, keepdims=True)
            fit += float(np.einsum("un,un->", target[part], scores, dtype=np.float64))
            np.exp(scores, out=scores)
            total = scores.sum(axis=1)
            fit -= float(weight[part] @ np.log(total).astype(np.float64))
            scores *= (weight[part] / total)[:, None]
            scores -= target[part]
            slope += rows[part].T @ scores
        move = head - start
        return hold / 2 * float((move**2).sum()) - fit, (slope + hold * move).ravel()

    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    return found.reshape(start.shape)  # type: ignore[no-any-return]
