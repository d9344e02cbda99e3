"""Regions of labels of which a row may carry several, with calibrated probabilities and a threshold. NumPy only.

Each label has a sphere of mode "bayes", fitted to all examples that carry it; they share one whitening A. Examples that
carry no label form one more region, the background. With c_l the centres, m their mean and eps_l the bias radii, a
label scores the measure of the middle minus that of its region, by the distance of the two:

    s_l(x) = (||A x - m||^2 - (||A x - c_l||^2 - eps_l)) / ||c_l - m||

The score is linear in x, with weights of one length for all labels. In units of its spread over examples without the
label, a logistic model gives

    logit p_l(x) = a s_l(x) + b max_{i != l} s_i(x) + d_l

Parameters a, b and d_l are fitted to leave-one-out scores of the examples, all labels together. b is below 0 where
labels exclude each other. The d_l have a normal prior about a common value, so that a label of few examples takes the
common one. The threshold is the probability above which leave-one-out predicts as many labels as the examples carry.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hyperproto.regions.arrays import Doubles, Floats, Indices, row_squares
from hyperproto.regions.bayes import LEAST_LEVERAGE, PRIOR_RATIO, BayesFit
from hyperproto.regions.evidence import NO_EVIDENCE, Evidence, FittedEvidence, fit_with_evidence
from hyperproto.regions.names import posterior_centers
from hyperproto.regions.statistics import FlatStatistics, moments_of, scatter_weight

Members = NDArray[np.bool_]

# Chosen on Few-NERD's validation sentences (results/multilabel/fewnerd-choices.json).
PRIOR_SLOPE, SLOPE_PRECISION = 1.5, 10.0  # of a: mean and precision of its normal prior
PRIOR_RIVAL, RIVAL_PRECISION = -0.4, 30.0  # of b / a: mean; precision of b about that share of a
OFFSET_PRECISION = 1 / 16  # of d_l about the common value
COMMON_PRECISION = 1e-3  # of the common value about 0: keeps it finite where every example carries every label
MOST_LEFT_OUT = 2000  # examples that are left out at most, evenly spaced
FOLDS = 5  # with unlabelled rows, whose clusters depend on every example
EMPTY = 1e-12


@dataclass(frozen=True)
class ExpectedLabels:
    """Leave-one-out F1 of labels; `n_examples` is the number of examples that were left out."""

    micro_f1: float
    macro_f1: float
    n_examples: int

    def __str__(self) -> str:
        """Return one line for people."""
        if not self.n_examples:
            return "nothing can be left out: there is one example"
        return f"leave-one-out F1 {self.micro_f1:.0%} over all labels, {self.macro_f1:.0%} on average over labels"


@dataclass(frozen=True, eq=False)
class LabelRegions:
    """Fitted regions of L labels: linear scores, and the logistic model of the probabilities."""

    weights: Doubles  # (D, L), scores in units of their spread
    bias: Doubles  # (L,)
    middle: Doubles  # (D,) point from which rows are measured
    slope: float  # a
    rival_slope: float  # b
    offset: Doubles  # (L,) d_l
    threshold: float  # logit above which a label is predicted
    expected: ExpectedLabels

    @classmethod
    def fit(
        cls,
        rows: Floats,
        member: Members,
        names: Floats | None = None,
        named: NDArray[np.bool_] | None = None,
        unlabelled: Floats | None = None,
        prior_ratio: float = PRIOR_RATIO,
    ) -> Self:
        """Fit to rows (n, D) and their labels (n, L).

        `names` (L, D) are vectors of the names of labels, `named` (L,) marks those that have one (None: all).
        `unlabelled` (U, D) are rows whose labels are not known.
        """
        middle: Doubles = rows.mean(axis=0, dtype=np.float64)
        rows = rows - middle
        unlabelled = None if unlabelled is None else unlabelled - middle
        evidence = Evidence(names, named, unlabelled)
        fit = _Spheres.of(rows, member, evidence, prior_ratio)
        index = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_LEFT_OUT)).astype(np.intp))
        if unlabelled is None or len(rows) == 1:
            left_out = fit.left_out(index)
        else:
            left_out = _by_folds(rows, member, evidence, prior_ratio)[index]
        carried = member[index]
        unit = _spread(left_out, carried)
        left_out /= unit
        filled: NDArray[np.bool_] = np.any(member, axis=0)  # (L,)
        slope, rival, offset = calibrated(left_out, carried, filled)
        logits = logits_of(left_out, slope, rival, offset)
        threshold = count_threshold(logits[:, filled], carried[:, filled])
        expected = ExpectedLabels(*f1_scores(logits[:, filled] > threshold, carried[:, filled]), len(index))
        if len(rows) == 1:
            expected = ExpectedLabels(0.0, 0.0, 0)
        weights, bias = fit.linear
        return cls(weights / unit, bias / unit, middle, slope, rival, offset, threshold, expected)

    def logits(self, rows: Floats) -> Doubles:
        """Return the logits of the probabilities (n, L) of rows (n, D)."""
        scores = (rows - self.middle) @ self.weights + self.bias
        return logits_of(scores, self.slope, self.rival_slope, self.offset)


@dataclass(frozen=True, eq=False)
class _Spheres:
    """Spheres of L labels and, if some rows carry none, of the background, which stands last."""

    rows: Floats  # (n, D)
    member: Members  # (n, L or L + 1)
    way: int  # L
    stats: FlatStatistics
    fit: BayesFit
    evidence: FittedEvidence

    @classmethod
    def of(cls, rows: Floats, member: Members, evidence: Evidence, prior_ratio: float) -> Self:
        """Fit to rows and labels: a row that carries several labels is an example of each."""
        way, none = member.shape[1], ~member.any(axis=1)
        if none.any():
            member = np.column_stack([member, none])
        row, label = np.nonzero(member)
        moments = moments_of(rows[row], label, None, member.shape[1])
        stats = FlatStatistics.of(rows[row], label, np.ones(len(row)), moments)
        names, named = evidence.names, evidence.named
        if names is not None and none.any():  # the background has no name
            names = np.vstack([names, np.zeros((1, names.shape[1]))])
            named = np.append(np.ones(way, dtype=bool) if named is None else named, False)
        if names is None and evidence.unlabelled is None:
            evidence = NO_EVIDENCE
        else:
            evidence = Evidence(names, named, evidence.unlabelled)
        return cls(rows, member, way, stats, *fit_with_evidence(stats, prior_ratio, None, evidence))

    @property
    def linear(self) -> tuple[Doubles, Doubles]:
        """Weights (D, L) and bias (L,) of the scores."""
        center = self.fit.center
        middle = center.mean(axis=0)
        bias = self.fit.bias_radius - row_squares(center) + middle @ middle
        weights: Doubles = 2 * self.fit.whiten(center - middle).T
        return weights[:, : self.way] / self.distance, bias[: self.way] / self.distance

    @property
    def distance(self) -> Doubles:
        """Distances ||c_l - m|| (L,); 1 where a centre lies in the middle."""
        center = self.fit.center
        distance = np.sqrt(row_squares(center - center.mean(axis=0)))[: self.way]
        return np.where(distance > EMPTY * max(float(distance.max()), EMPTY), distance, 1.0)

    def left_out(self, index: Indices) -> Doubles:
        """Return the scores (B, L) of the rows `index`, each left out of the fit.

        Estimates of all rows together stay as they are: the variance ratio k, the strengths of the whitening and of
        the names, clusters, and the distances ||c_l - m||. Means, centres and whitening are those without the row. The
        whitening changes by one direction for each label of the row, so its inverse follows by Woodbury's formula.
        """
        fit, count = self.fit, self.stats.count
        ratio, gain = float(fit.ratio), float(fit.gain)
        mapped, mean = fit.whiten(self.rows[index]), fit.whiten(self.stats.mean)
        names = None if self.evidence.names is None else fit.whiten(self.evidence.names)
        along = np.zeros_like(mean) if names is None else names
        clusters = self.evidence.clusters
        extra = np.zeros_like(count) if clusters is None else clusters.weight
        cluster_mean = np.zeros_like(mean) if clusters is None else fit.whiten(clusters.mean)
        weight = scatter_weight(count)
        excess = fit.bias_radius * count / np.where(weight > 0, weight, 1.0)
        found = np.empty((len(index), self.way))
        for place, x in enumerate(mapped):
            own = np.flatnonzero(self.member[index[place]])
            rest, z, residual = count.copy(), mean.copy(), x - mean[own]
            rest[own] -= 1
            z[own] -= residual / np.maximum(rest[own], 1.0)[:, None]
            total = rest + extra
            both = (rest[:, None] * z + extra[:, None] * cluster_mean) / np.maximum(total, EMPTY)[:, None]
            center, _ = posterior_centers(both, total, along, np.asarray(ratio), self.evidence.name_weight)
            away = x - np.vstack([center, center.mean(axis=0)])  # (N + 1, D)
            distance2 = row_squares(away)
            several = count[own] > 1
            if gain > 0 and several.any():
                taken = count[own][several] / (count[own][several] - 1)
                distance2 += _unwhitened(away, residual[several], taken * gain)
            radius = scatter_weight(np.maximum(rest, 1.0)) * excess / np.maximum(rest, 1.0)
            found[place] = (distance2[-1] - distance2[:-1] + radius)[: self.way]
        found /= self.distance
        return found


def _unwhitened(away: Doubles, residual: Doubles, gain: Doubles) -> Doubles:
    """Return how much squared lengths of `away` (M, D) grow when `residual` (r, D) leave the whitening.

    With A^-2 minus sum_l g_l r_l r_l^T in place of A^-2, where r are whitened residuals R, the growth is
    u^T (G^-1 - R R^T)^-1 u, u = R away. Eigenvalues keep a least share, as one example must not decide the space.
    """
    value, vector = np.linalg.eigh(np.diag(1 / gain) - residual @ residual.T)
    value = np.maximum(value, LEAST_LEVERAGE / gain.max())
    turned = (away @ residual.T) @ vector
    growth: Doubles = (turned * turned / value).sum(axis=1)
    return growth


def _by_folds(rows: Floats, member: Members, evidence: Evidence, prior_ratio: float) -> Doubles:
    """Return scores (n, L), each row's from a fit without its fold; rows are dealt out in turn."""
    fold = np.arange(len(rows)) % min(FOLDS, len(rows))
    found = np.empty(member.shape)
    for number in range(int(fold.max()) + 1):
        here = fold == number
        weights, bias = _Spheres.of(rows[~here], member[~here], evidence, prior_ratio).linear
        found[here] = rows[here] @ weights + bias
    return found


def _spread(scores: Doubles, member: Members) -> float:
    """Return the standard deviation of the scores of labels that rows do not carry; 1 if it is 0."""
    others = scores[~member]
    spread = float((others if len(others) > 1 else scores).std())
    return spread if spread > 0 and np.isfinite(spread) else 1.0


def rival_scores(scores: Doubles) -> Doubles:
    """Return the largest score of the other labels (n, L); 0 if there is one label."""
    if scores.shape[1] == 1:
        return np.zeros_like(scores)
    second, first = np.partition(scores, -2, axis=1)[:, -2:].T
    rivals: Doubles = np.where(scores == first[:, None], second[:, None], first[:, None])
    return rivals


def logits_of(scores: Doubles, slope: float, rival: float, offset: Doubles) -> Doubles:
    """Return a s_l + b max_{i != l} s_i + d_l (n, L)."""
    logits: Doubles = slope * scores + rival * rival_scores(scores) + offset
    return logits


def calibrated(scores: Doubles, member: Members, filled: NDArray[np.bool_]) -> tuple[float, float, Doubles]:
    """Return a, b and d (L,) of the logistic model, fitted to leave-one-out scores (n, L).

    Labels that are not `filled` (L,), with a name and no example, are left out of the fit and take the common offset.
    """
    from scipy.optimize import minimize  # only estimators come here: the equations do not wait for it

    own, rival, truth = scores[:, filled], rival_scores(scores)[:, filled], member[:, filled].astype(np.float64)
    own = own + PRIOR_RIVAL * rival  # b = PRIOR_RIVAL a + rest

    def loss(point: Doubles) -> tuple[float, Doubles]:
        slope, rest, common, offset = point[0], point[1], point[2], point[3:]
        logits = slope * own + rest * rival + common + offset
        error = 1 / (1 + np.exp(-np.clip(logits, -500, 500))) - truth
        gap = slope - PRIOR_SLOPE
        penalty = SLOPE_PRECISION * gap**2 + RIVAL_PRECISION * rest**2 + COMMON_PRECISION * common**2
        value = (np.logaddexp(0, logits) - truth * logits).sum() + penalty / 2 + OFFSET_PRECISION / 2 * offset @ offset
        by_label = error.sum(axis=0)
        first = [(error * own).sum() + SLOPE_PRECISION * gap, (error * rival).sum() + RIVAL_PRECISION * rest]
        slopes = [*first, by_label.sum() + COMMON_PRECISION * common, *(by_label + OFFSET_PRECISION * offset)]
        return float(value), np.array(slopes)

    start = np.zeros(3 + own.shape[1])
    start[0] = PRIOR_SLOPE
    found = minimize(loss, start, jac=True, method="L-BFGS-B").x
    offset = np.full(len(filled), found[2])
    offset[filled] += found[3:]
    slope = max(float(found[0]), 0.0)
    return slope, PRIOR_RIVAL * slope + float(found[1]), offset


def count_threshold(logits: Doubles, member: Members) -> float:
    """Return the threshold that as many logits (n, L) exceed as the rows carry labels."""
    ordered, number = np.sort(logits, axis=None)[::-1], int(member.sum())
    if not number or not len(ordered):
        return 0.0
    if number == len(ordered):
        return float(ordered[-1]) - 1.0
    return float(ordered[number - 1] + ordered[number]) / 2


def f1_scores(predicted: Members, member: Members) -> tuple[float, float]:
    """Return micro and macro F1; 0 for a label that is neither carried nor predicted."""
    both, either = (predicted & member).sum(axis=0), predicted.sum(axis=0) + member.sum(axis=0)
    each = 2 * both / np.maximum(either, 1)
    return float(2 * both.sum() / max(int(either.sum()), 1)), float(each.mean()) if len(each) else 0.0
