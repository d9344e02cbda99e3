"""Softmax regression that starts at the closed form "bayes" and is held to it by the posterior's own precision.

A linear head (W, b) on whitened rows f minimises

    sum_i CE(y_i at i) + sum_u sum_n t_un q_n CE(n at u) + l/2 (||W - W0||^2 + ||b - b0||^2)

over labelled rows i and unlabelled rows u, with CE(n at f) = -log softmax_n(f W + b + log M). M_n is the mass of class
n in the loss, so that all classes count alike. W0 = 2 C / T and b0 = (eps - ||c||^2) / T are the head of the spheres at
the temperature T = 2 v s / 20; l = v s^2 k / 20 is the prior precision k / v of a centre, as one of W.

It is solved twice: on the labelled rows; then from W0 again with the unlabelled rows, whose targets t are a mean of the
first head's probabilities and of the responsibilities of expectation-maximisation.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from hyperproto.regions import ClosedForm, Sphere, Statistics
from hyperproto.regions.arrays import Doubles, Floats, row_squares
from hyperproto.regions.evidence import (
    NO_EVIDENCE,
    FittedEvidence,
    Responsibilities,
    inlier_rows,
    predictive_scale,
    row_blocks,
    scatter_by_spread,
    total_spread,
)
from hyperproto.regions.statistics import ExampleStatistics, with_examples

SOFT = 20.0  # effective dimension of the softmax that is fitted (responsibilities use that of the rows, about 100)
MOST_MASS = 50.0  # labelled examples that the unlabelled rows of a class count as at most
STEPS = 20  # of L-BFGS, in each of the two stages
LEAST_MASS = 1e-6  # of a class without rows


@dataclass(frozen=True, eq=False)
class RefinedForm(ClosedForm):
    """Spheres of the fit mode "bayes" whose head is refined by softmax regression."""

    def __post_init__(self) -> None:
        """Refuse regions and modes that have no such head."""
        super().__post_init__()
        if self.mode != "bayes" or not issubclass(self.region, Sphere):
            raise ConfigError(f"refine is for the fit mode 'bayes' of spheres; {self.mode!r} cannot use it")
        if not self.options.get("squared", True):
            raise ConfigError("unlabelled rows and refine go with the squared measure; use squared=True")

    def fit(self, stats: Statistics) -> Sphere:
        """Fit the closed form, then refine it."""
        sphere, options = super().fit(stats), self.options
        assert isinstance(sphere, Sphere)
        rows = options.get("evidence", NO_EVIDENCE).unlabelled
        return refine(sphere, with_examples(stats), rows, options.get("effective_count"))


def refine(
    sphere: Sphere, stats: ExampleStatistics, unlabelled: Floats | None = None, effective_count: Doubles | None = None
) -> Sphere:
    """Return the sphere with the centres and radii of the refined head.

    `sphere` was fitted in mode "bayes" to `stats`, `unlabelled` rows (U, D) and `effective_count` (N,). Products are in
    the precision of the rows. Where scatter is not determined, the sphere is returned as it is.
    """
    if not isinstance(stats.mean, np.ndarray) or stats.mean.ndim != 2:
        raise ConfigError("refine takes one support set of NumPy arrays; fit episodes one by one, or without refine")
    evidence, whiten = sphere.evidence, sphere.whiten
    assert whiten is not None
    count: Doubles = stats.count if effective_count is None else effective_count
    if evidence is None:
        evidence = FittedEvidence(scatter=scatter_by_spread(sphere.scatter, total_spread(stats), sphere.ratio))
    v, s = float(evidence.scatter), float(predictive_scale(evidence.posterior_count(count), sphere.ratio))
    examples, member = stats.memberships()
    if evidence.clusters is None or not evidence.clusters.spread > 0:
        unlabelled = None
    if unlabelled is not None:
        _, weight = inlier_rows(unlabelled, stats, whiten)
        unlabelled = unlabelled if weight is None else unlabelled[weight > 0]
    dtype = examples.dtype if unlabelled is None else unlabelled.dtype
    whiten = whiten.astype(dtype)
    labelled = whiten(examples.astype(dtype))
    others = labelled[:0] if unlabelled is None else whiten(unlabelled)
    about = others if len(others) else labelled
    if not v > 0 or not len(about):
        return sphere

    scale, ridge = SOFT / (v * s), v * s**2 * float(sphere.ratio) / SOFT  # 2 / T, l
    middle = about.mean(axis=0, dtype=np.float64)  # rows about their mean, so that b is no part of W
    bias = scale / 2 * (sphere.bias_radius - row_squares(sphere.center)) + scale * sphere.center @ middle
    start = np.vstack([scale * sphere.center.T, bias])  # (D + 1, N), W0 and b0
    labelled, others, member = _with_one(labelled, middle), _with_one(others, middle), member.astype(dtype)
    head = solve(labelled, member, start, ridge) if len(labelled) else start
    if unlabelled is not None:
        target = _targets(head, others, unlabelled, sphere, evidence, count)
        head = solve(np.concatenate([labelled, others]), np.concatenate([member, target]), start, ridge)
    center = head[:-1].T / scale  # c = T W / 2, eps = T b + ||c||^2
    radius = 2 / scale * (head[-1] - middle @ head[:-1]) + row_squares(center)
    return replace(sphere, center=center, bias_radius=radius, before=sphere)


def _targets(
    head: Doubles, others: Floats, unlabelled: Floats, sphere: Sphere, evidence: FittedEvidence, count: Doubles
) -> Floats:
    """Return t_un q_n (U, N) of unlabelled rows; `others` (U, D + 1) are the same rows, whitened and centred.

    t is a mean of the probabilities of `head` and of the responsibilities. The head has the weight of the labels in the
    posterior, mean K / mean (K + cluster weight + k). q_n = 50 / (R_n + R' + 50), where R_n is the sum of t over rows
    and R' its mean, bounds the mass of a class.
    """
    from scipy.special import softmax  # only estimators come here: the equations do not wait for it

    assert evidence.clusters is not None
    assert sphere.whiten is not None
    total, dim = evidence.posterior_count(count), evidence.clusters.dim
    label_weight = float(count.mean() / (total + sphere.ratio).mean())
    sharp = (head * (float(dim) / SOFT)).astype(others.dtype)
    given = sphere.center, total, evidence.scatter, dim, evidence.common_ratio, others.dtype
    responsibilities, whiten = Responsibilities.of(sphere, *given), sphere.whiten.astype(others.dtype)
    target = np.empty((len(others), len(count)), others.dtype)
    for part in row_blocks(unlabelled, len(count)):
        share = responsibilities(unlabelled[part], row_squares(whiten(unlabelled[part])))
        own = share.sum(axis=1, keepdims=True) * softmax(others[part] @ sharp, axis=1)
        target[part] = label_weight * own + (1 - label_weight) * share
    size = target.sum(axis=0, dtype=np.float64)
    target *= (MOST_MASS / (size + size.mean() + MOST_MASS)).astype(target.dtype)
    return target


def _with_one(rows: Floats, middle: Doubles) -> Floats:
    """Return rows (n, D + 1) minus `middle`, with a one for the bias."""
    found = np.ones((len(rows), rows.shape[1] + 1), dtype=rows.dtype)
    np.subtract(rows, middle, out=found[:, :-1], casting="same_kind")  # in float64, without an array of that size
    return found


def solve(rows: Floats, target: Floats, start: Doubles, ridge: float) -> Doubles:
    """Fit softmax regression (D + 1, N) to rows (n, D + 1) and soft targets (n, N), with a ridge about `start`."""
    from scipy.optimize import minimize

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
        return ridge / 2 * float((move**2).sum()) - fit, (slope + ridge * move).ravel()

    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    return found.reshape(start.shape)  # type: ignore[no-any-return]
