"""A mean of linear heads, each believed as far as examples and unlabelled rows bear it out.

With unlabelled rows there are five ways to a head: the closed form and its refinement, each with the rows and without
them, and one more, by confident rows alone. None was best everywhere on the texts that this was developed on: a refined
head won where classes can be told apart and lost where they overlap; confident rows won from five examples a class on;
rows harmed where most of them were of no class known. All are linear in the same space, so that a weighted mean of them
is a head again:

    W = t (g (w W_confident + (1 - w) W_refined) + (1 - g) W_closed) + (1 - t) (g W'_refined + (1 - g) W'_closed)

with W' those without rows, t = rho^4, w = g K / (K + 2 k), and g = 4 r - 2 between 0 and 1. rho is the share of the
rows that are of a class known, K the harmonic mean of the numbers of examples, and r is how often a left-out example
is told right: where answers are more often wrong than right, no answer to a row is learned from, and where three in
four are right, all that is sure. NumPy only.
"""

import numpy as np

from hyperproto.regions.arrays import Doubles
from hyperproto.regions.bayes import BayesFit
from hyperproto.regions.refined import Regression, softmax, solve, weighed

CONFIDENT = 0.9  # a row whose class has a larger probability is learned from as if it had a label
WEAKER = 0.02  # times the ridge of the refinement: as many rows need less of it
MASS = 1000.0  # how many examples the confident rows of a class count for at most
ROUNDS = 3  # of taking the confident rows and learning from them
STRICT = 4  # power of rho
UNTOLD = 0.75  # r where no example can be left out: one of each class


def mix(known: Regression, plain: Regression | None, told: float | None) -> BayesFit:
    """The spheres of `known`, which has rows, with the mean of the heads; `plain` is the same without the rows.

    `told` is how often a left-out example is told right, by the closed form without the rows; None if none can be left
    out. Without any example there is no `plain`, and rows are believed.
    """
    g = min(1.0, max(0.0, 4 * (UNTOLD if told is None else told) - 2))
    fewest = _harmonic_mean(known.count)
    w = g * fewest / (fewest + 2 * float(known.fit.ratio))
    likely = np.concatenate([share.sum(axis=1) for _, share in known.shares()])  # (U,) that a row is of a class known
    head = known.start
    if g > 0:
        first = known.of_examples()
        refined = known.of_rows(first)
        if w > 0:
            refined = w * by_confident_rows(known, first, likely) + (1 - w) * refined
        head = g * refined + (1 - g) * head
    if plain is not None:
        other = plain.start.copy() if g == 0 else g * plain.of_examples() + (1 - g) * plain.start
        other[-1] += (known.middle - plain.middle) @ other[:-1]  # the bias about the middle of `known`
        believed = float(likely.mean(dtype=np.float64)) ** STRICT
        head = believed * head + (1 - believed) * other
    return known.moved(head)


def by_confident_rows(known: Regression, head: Doubles, likely: Doubles) -> Doubles:
    """Label the rows that `head` is sure of, learn from these, and again; the others take no part.

    Soft targets of unsure rows only teach a head what it says already.
    """
    for _ in range(ROUNDS):
        answer = softmax(known.others @ head.astype(known.others.dtype))
        best = answer.argmax(axis=1)
        sure = np.flatnonzero(answer[np.arange(len(best)), best] * likely > CONFIDENT)
        target = np.zeros((len(sure), len(known.count)), known.others.dtype)
        target[np.arange(len(sure)), best[sure]] = 1.0
        rows = np.concatenate([known.labelled, known.others[sure]])
        targets = np.concatenate([known.member, weighed(target, MASS)])
        head = solve(rows, targets, known.start, WEAKER * known.hold, head)
    return head


def _harmonic_mean(count: Doubles) -> float:
    """0 if a class has no examples."""
    return float(len(count) / (1 / count).sum()) if (count > 0).all() else 0.0
