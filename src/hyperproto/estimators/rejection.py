"""Rejection rules of `predict`: a share of genuine items, a precision of the answers, or labelled out-of-class items.

Each rule is one threshold, on the novelty of a row or on its largest probability, chosen on leave-one-out scores of
the examples.

- `reject_rate` r: novelty, the conformal quantile at 1 - r of the scores of the examples.
- `precision` p: probability, the lowest threshold above which the answers are right with a probability of at least p.
  It is a certified threshold: were the leave-one-out answers independent, it would fail with a probability of at most
  1 - CERTAINTY over draws of the examples (learn then test, Angelopoulos et al. 2021). Out-of-class items, if any were
  given, count as wrong answers.
- Out-of-class items alone: novelty, the threshold that minimises the rejected share of the examples plus the accepted
  share of the out-of-class items, halfway between two scores; of equal ones the largest.
"""

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from hyperproto.errors import ConfigError
from hyperproto.estimators.conformal import Expected, enough, plausible_sets, quantile
from hyperproto.estimators.novelty import largest_probability, novelty_of, removed_scores
from hyperproto.estimators.temperature import sampled_measures
from hyperproto.regions.arrays import Doubles, Floats, Indices

if TYPE_CHECKING:
    from hyperproto.estimators.snapshot import Snapshot

CERTAINTY = 0.9  # probability over draws of the examples with which a precision holds
NO_RULE = "nothing is rejected by a score; set reject_rate or precision, or give outside items to fit"


@dataclass(frozen=True)
class RejectionRule:
    """Rule by which `predict` rejects: a novelty above the threshold, or a largest probability below it.

    Attributes
    ----------
    rule : "reject_rate", "precision" or "outside".
    score : "novelty" or "probability".
    threshold : an infinite novelty rejects nothing, an infinite probability everything.
    """

    rule: str
    score: str
    threshold: float

    def rejects(self, scores: Floats) -> NDArray[np.bool_]:
        """Return which of these scores (n,) are rejected (n,)."""
        found: NDArray[np.bool_] = scores > self.threshold if self.score == "novelty" else scores < self.threshold
        return found


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Leave-one-out precision against the share answered, for every threshold on the largest probability.

    Attributes
    ----------
    threshold : least probability that is answered (n,), falling.
    answered : share of the examples that are answered (n,), rising to 1.
    precision : share of these answers that are right (n,).
    """

    threshold: Doubles
    answered: Doubles
    precision: Doubles


def rule_of(model: "Snapshot") -> str | None:
    """Return the name of the rule that decides `predict`, "coverage" included; None if nothing is rejected."""
    given = [name for name in ("coverage", "reject_rate", "precision") if model.parameters[name] is not None]
    return given[0] if given else None if model.outside is None else "outside"


def fit_rejection(model: "Snapshot") -> RejectionRule:
    """Choose the threshold of the rule, with a warning where the examples do not support it."""
    rule = rule_of(model)
    if rule is None or rule == "coverage":
        raise ConfigError(NO_RULE if rule is None else f"a coverage rejects by thresholds_; without it, {NO_RULE}")
    left = model.novelty.left_out
    outside = None if model.outside is None else model.prepare(model.outside)
    weights = np.empty(0) if left is None else left.weights
    if rule == "precision":
        confidence, right = (np.empty(0), np.empty(0)) if left is None else (left.confidence, left.right)
        if outside is not None:
            confidence = np.concatenate([confidence, largest_probability(model.scores(outside), model.temperature)])
            weights, right = (
                np.concatenate([part, np.full(len(outside), fill)]) for part, fill in ((weights, 1.0), (right, 0.0))
            )
        wanted = float(model.parameters["precision"])
        threshold = certified_threshold(confidence, right, weights, wanted)
        if math.isinf(threshold):
            warnings.warn(_no_precision(wanted, right, weights), stacklevel=2)
        return RejectionRule(rule, "probability", threshold)
    genuine = np.empty(0) if left is None else left.novelty
    if rule == "reject_rate":
        rate = float(model.parameters["reject_rate"])
        if left is None and model.unlabelled is not None:
            genuine = novelty_of(model, model.unlabelled)
            weights = np.ones(len(genuine))
        threshold = quantile(genuine, weights, 1 - rate)
        if math.isinf(threshold):
            warnings.warn(
                f"reject_rate={rate} needs {enough(1 - rate)} examples of classes with two or more, or as many "
                f"unlabelled rows; there are {weights.sum():g}: until then nothing is rejected",
                stacklevel=2,
            )
        return RejectionRule(rule, "novelty", threshold)
    if left is None:
        warnings.warn(
            "outside items need examples of classes with two or more to be compared with, and every class has one: "
            "until then nothing is rejected",
            stacklevel=2,
        )
        return RejectionRule(rule, "novelty", math.inf)
    assert outside is not None
    return RejectionRule(rule, "novelty", balanced_threshold(genuine, weights, novelty_of(model, outside)))


def scores_of(model: "Snapshot", rule: RejectionRule, rows: Floats) -> Doubles:
    """Return the scores (n,) of prepared rows that a rule compares with its threshold."""
    if rule.score == "novelty":
        return novelty_of(model, rows)
    return largest_probability(model.scores(rows), model.temperature)


def rejected_rows(model: "Snapshot", rows: Floats, likeliest: Indices) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the scores of prepared rows, and which are rejected (n,), given their likeliest classes (n,)."""
    if rule_of(model) == "coverage":
        distance = model.distance(rows)
        return distance, distance[np.arange(len(rows)), likeliest] > model.thresholds[likeliest]
    scores = scores_of(model, model.rejection, rows)
    return scores, model.rejection.rejects(scores)


def expected_performance(model: "Snapshot") -> Expected:
    """Estimate accuracy, and what the rule of rejection does, by leave-one-out."""
    way, rule = len(model.classes), rule_of(model)
    if model.rows is None:
        return Expected(None, None, None, way, 0, "store_support=False keeps no examples to leave out")
    index, measures, weights = sampled_measures(model.left_out, model.region, model.form)
    right = measures.argmin(axis=1) == model.left_out.own(index)
    accuracy = float(np.average(right, weights=weights)) if len(index) else None
    alone = "every class has one example, and none can be left out"
    reason = "" if len(index) else alone if model.has_examples.any() else "there are no examples to leave out"
    if rule == "coverage":
        sets = plausible_sets(model.conformal, model.thresholds)
        return Expected(accuracy, sets.set_size, sets.outside_rejected, way, len(index), reason)
    if rule is None:
        return Expected(accuracy, None, None, way, len(index), reason)
    rejection, left = model.rejection, model.novelty.left_out
    by_novelty = rejection.score == "novelty"
    rejected, precision = None, None
    if left is not None:
        kept = ~rejection.rejects(left.novelty if by_novelty else left.confidence)
        rejected = 1 - float(np.average(kept, weights=left.weights))
        precision = float(np.average(left.right[kept], weights=left.weights[kept])) if kept.any() else None
    outside = None
    if model.outside is not None:
        outside = float(rejection.rejects(scores_of(model, rejection, model.prepare(model.outside))).mean())
    elif way > 2:
        *scores, weights = removed_scores(model)
        outside = float(np.average(rejection.rejects(scores[0 if by_novelty else 1]), weights=weights))
    return Expected(accuracy, None, outside, way, len(index), reason, rejected, precision)


def certified_threshold(confidence: Doubles, right: Doubles, weights: Doubles, precision: float) -> float:
    """Return the lowest threshold on the confidence (n,) whose answers are certified to be right; infinite if none is.

    A threshold passes if so many right answers were improbable at a lower precision (binomial test). Tests begin at
    all answers, half of them, a quarter and so on, each with an equal part of 1 - CERTAINTY, and proceed to lower
    thresholds while they pass; the lowest that passed is returned.
    """
    if not len(confidence):
        return math.inf
    threshold, number, hits = _answers_above(confidence, right, weights)
    starts = [number[-1]]
    while starts[-1] / 2 * math.log(precision) <= math.log(1 - CERTAINTY):  # all right answers could pass
        starts.append(starts[-1] / 2)
    level = (1 - CERTAINTY) / len(starts)
    passes = betainc(hits, number - hits + 1, precision) <= level
    fails = np.append(np.flatnonzero(~passes), len(passes))
    best = -1
    for start in np.searchsorted(number, starts):
        best = max(best, int(fails[np.searchsorted(fails, start)]) - 1 if passes[start] else -1)
    return float(threshold[best]) if best >= 0 else math.inf


def balanced_threshold(genuine: Doubles, weights: Doubles, outside: Doubles) -> float:
    """Return the novelty threshold with the least sum of the two error rates; see the text of this module."""
    scores = np.unique(np.concatenate([genuine, outside]))
    middle = (scores[1:] + scores[:-1]) / 2
    candidates = np.concatenate([[np.nextafter(scores[0], -np.inf)], middle, [scores[-1]]])
    order = np.argsort(genuine, kind="stable")
    reached = np.concatenate([[0.0], np.cumsum(weights[order])])
    rejected = 1 - reached[np.searchsorted(genuine[order], candidates, side="right")] / reached[-1]
    accepted = np.searchsorted(np.sort(outside), candidates, side="right") / len(outside)
    errors = rejected + accepted
    return float(candidates[np.flatnonzero(errors <= errors.min() + 1e-12)[-1]])


def risk_coverage(model: "Snapshot") -> RiskCoverage:
    """Return the leave-one-out curve of a classifier."""
    left = None if model.rows is None else model.novelty.left_out
    if left is None:
        raise ConfigError("no example can be left out; give classes of two or more examples, and keep them")
    threshold, number, hits = _answers_above(left.confidence, left.right, left.weights)
    return RiskCoverage(threshold, number / number[-1], hits / number)


def _answers_above(confidence: Doubles, right: Doubles, weights: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Return each distinct confidence, falling, and the weight of all and of right answers at or above it (n,)."""
    order = np.argsort(-confidence, kind="stable")
    falling = confidence[order]
    last = np.flatnonzero(np.append(falling[1:] < falling[:-1], True))
    number, hits = np.cumsum(weights[order]), np.cumsum((weights * right)[order])
    return falling[last], number[last], hits[last]


def _no_precision(precision: float, right: Doubles, weights: Doubles) -> str:
    needed = math.ceil(math.log(1 - CERTAINTY) / math.log(precision))
    found = f"leave-one-out gives {weights.sum():g} answers, {weights @ right:g} of them right"
    return (
        f"precision={precision} cannot be certified: it needs {needed} or more confident answers that are all right, "
        f"and {found}; everything is rejected until then: add examples, or ask for a lower precision"
    )
