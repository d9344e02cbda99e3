"""A mean of linear heads, each believed as far as examples and unlabelled rows bear it out.

With unlabelled rows there are five ways to a head: the closed form and its refinement, each with the rows and without
them, and self-training. None was best everywhere on the texts that this was developed on: a refined head won where
classes can be told apart and lost where they overlap; self-training won from five examples a class on, and lost where
the rows lack classes; rows harmed where most of them were of no class known. All are linear in the same space, so that
a weighted mean of them is a head again:

    W = t (g (w W_self + (1 - w) W_refined) + (1 - g) W_closed) + (1 - t) (g W'_refined + (1 - g) W'_closed)

with W' those without rows, and

    w = g b K^4 / (K^4 + (4k/3)^4),    t = min(1, rho / 0.92)^6 (1 - (1 - b) K / (K + k))

A quarter of the classes have at most K examples. g = 4 r - 2, between 0 and 1: r is how often a left-out example is
told right. Where answers are more often wrong than right, no answer to a row is learned from, and where three in four
are right, all that is sure. b = 5 q - 3.5, between 0 and 1: q says how evenly rows are of all classes, exp(entropy) of
the clusters' sizes over their number. The more examples there are, the less is believed of rows that lack classes. rho
is the share of the rows that are of a class known. NumPy only.

Why self-training begins from the head without rows: expectation-maximisation errs by whole clusters, and a head that is
taught its labels repeats that, however few they are. The errors of a head that has not seen the rows are scattered, and
a fit to many rows averages them out.
"""

import numpy as np
from numpy.typing import NDArray

from hyperproto.regions.arrays import Doubles
from hyperproto.regions.bayes import BayesFit
from hyperproto.regions.refined import Regression, softmax, solve, with_one

CONFIDENT = 0.9  # a row whose class has a larger probability without the rows is learned from first
LIKELY = 0.3  # and in later rounds: a regression with so weak a ridge is less sure of itself
RIDGE = 0.1  # times the mean squared length of the rows about their middle
ROUNDS = 4  # of labelling rows and learning from them
NAMED = 0.05, 0.1  # strengths g from which names count as examples in self-training: not at all, in full
WHOLE = 0.92  # rho where all rows are of a class known: some look strange
STRICT = 6  # power of rho
FEW = 0.25  # the quantile of the numbers of examples that is K
EVEN = 0.7, 0.9  # q from which self-training counts: not at all, in full
UNTOLD = 0.75  # r where no example can be left out: one of each class


def mix(known: Regression, plain: Regression | None, told: float | None) -> BayesFit:
    """The spheres of `known`, which has rows, with the mean of the heads; `plain` is the same without the rows.

    `told` is how often a left-out example is told right, by the closed form without the rows; None if none can be left
    out. Without any example there is no `plain`, and rows are believed.
    """
    g = min(1.0, max(0.0, 4 * (UNTOLD if told is None else told) - 2))
    likely, size = _clusters(known)
    even, few, k = _ramp(_evenness(size), EVEN), float(np.quantile(known.count, FEW)), float(known.fit.ratio)
    head, other = known.start, None
    if plain is not None:
        other = (plain.of_examples() if g > 0 else plain.start).copy()
        other[-1] += (known.middle - plain.middle) @ other[:-1]  # the bias about the middle of `known`
    if g > 0:
        refined = known.of_rows(known.of_examples())
        w = g * even * few**4 / (few**4 + (4 * k / 3) ** 4)
        if w > 0 and plain is not None and other is not None:
            own = by_self_training(known, other, likely, float(plain.knowledge.strength))
            scale = _spread(known, refined) / max(_spread(known, own), np.finfo(np.float64).tiny)
            refined = w * scale * own + (1 - w) * refined
        head = g * refined + (1 - g) * head
    if plain is not None and other is not None:
        if 0 < g < 1:
            closed = plain.start.copy()
            closed[-1] += (known.middle - plain.middle) @ closed[:-1]
            other = g * other + (1 - g) * closed
        believed = min(1.0, float(likely.mean(dtype=np.float64)) / WHOLE) ** STRICT * (1 - (1 - even) * few / (few + k))
        head = believed * head + (1 - believed) * other
    return known.moved(head)


def by_self_training(known: Regression, head: Doubles, likely: Doubles, strength: float) -> Doubles:
    """Label the rows that `head` is sure of, fit a softmax regression to them and the examples, and again.

    Every class counts alike. Rows are not whitened here, and the ridge is about 0: as many rows need no other prior.
    A name counts as an example as far as names have proved themselves, by their `strength`. `likely` (U,) says how
    likely a row is of a class known.
    """
    assert known.rows is not None
    whiten, way = known.fit.whiten, len(known.count)
    middle = known.rows.mean(axis=0, dtype=np.float64)
    rows = with_one(known.rows, middle)  # (U, D + 1)
    examples = with_one(whiten.undo(known.labelled[:, :-1] + known.middle).astype(rows.dtype), middle)
    names, there = _about_middle(known.knowledge.names)
    fixed = np.concatenate([examples, with_one(names.astype(rows.dtype), np.zeros_like(middle))])
    given = np.concatenate([known.member, _ramp(strength, NAMED) * np.diag(there)]).astype(rows.dtype)
    hold = RIDGE * float(np.einsum("ud,ud->u", rows[:, :-1], rows[:, :-1]).mean(dtype=np.float64))
    answer, least = softmax(known.others @ head.astype(rows.dtype)), CONFIDENT
    zero = found = np.zeros_like(head)
    for _ in range(ROUNDS):
        best = answer.argmax(axis=1)
        sure = np.flatnonzero(answer[np.arange(len(best)), best] * likely > least)
        target = np.concatenate([given, np.eye(way, dtype=rows.dtype)[best[sure]]])
        mass = target.sum(axis=0, dtype=np.float64)
        target *= (mass.mean() / np.where(mass > 0, mass, 1.0)).astype(rows.dtype)
        found = solve(np.concatenate([fixed, rows[sure]]), target, zero, hold, found)
        answer, least = softmax(rows @ found.astype(rows.dtype)), LIKELY
    return np.vstack([whiten.undo(found[:-1].T).T, found[-1:]])


def _clusters(known: Regression) -> tuple[Doubles, Doubles]:
    """How likely each row (U,) is of a class known, and the size of each class's cluster (N,)."""
    likely, size = [], [np.zeros(len(known.count))]
    for _, share in known.shares():
        likely.append(share.sum(axis=1))
        size.append(share.sum(axis=0, dtype=np.float64))
    return np.concatenate(likely), np.sum(size, axis=0)


def _evenness(size: Doubles) -> float:
    """q, from 1 / N where all rows are of one class to 1 where all classes have as many."""
    share = size / max(size.sum(), np.finfo(np.float64).tiny)
    return float(np.exp(-(share * np.log(np.maximum(share, np.finfo(np.float64).tiny))).sum()) / len(size))


def _ramp(value: float, ends: tuple[float, float]) -> float:
    """From 0 at the first end to 1 at the second."""
    return min(1.0, max(0.0, (value - ends[0]) / (ends[1] - ends[0])))


def _about_middle(names: Doubles) -> tuple[Doubles, Doubles]:
    """Names (N, D) about the mean of those there are, and which there are (N,): 1 or 0."""
    there: NDArray[np.bool_] = (names != 0).any(axis=1)
    middle = names[there].mean(axis=0) if there.any() else np.zeros(names.shape[1])
    return names - middle, there.astype(np.float64)


def _spread(known: Regression, head: Doubles) -> float:
    """Standard deviation of the scores of the rows, about the mean over the classes."""
    scores = known.others @ head.astype(known.others.dtype)
    return float((scores - scores.mean(axis=1, keepdims=True)).std(dtype=np.float64))
