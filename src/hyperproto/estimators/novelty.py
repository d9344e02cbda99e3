"""Novelty score of rows: how unlikely a row is to belong to any of the classes.

Let M_n(x) be the measures of a row for N classes and T the softmax temperature. The *preference* of the row is the log
of its largest probability at the raised temperature R = 3 T, relative to chance:

    p(x) = log N + log max_n softmax(-M(x) / R)_n                      0 if no class fits better than another

At R = T this is the ambiguity between classes; for large R it tends to (mean M - min M) / R, the relative measure,
in which all that the classes share cancels (as in the relative Mahalanobis distance, Ren et al. 2021). Raising the
temperature before taking the maximum is due to ODIN (Liang et al. 2018).

Classes differ in how large p is for their own examples. P_n, the mean leave-one-out preference of the examples of class
n, shrunk towards the mean P of the classes by its number of examples, makes them comparable. With few classes, p says
little about the distance to all of them; the squared distance r(x) to the nearest class mean, in units of the class's
scatter (`hyperproto.estimators.conformal`), makes up for it:

    novelty(x) = 1 + (sum_n q_n(x) P_n - p(x)) / P + min(1, 4 / N) (r(x) - 1),      q the softmax at T

It is 1 for a typical example and about 2 where no class fits better than another. With one class it is r(x).
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hyperproto.estimators.temperature import evenly_spaced, pseudo_examples, sampled_measures, spread_ratio
from hyperproto.regions.arrays import Doubles, Floats, Indices, sum_by_label
from hyperproto.regions.left_out import LEAST, left_out_measures
from hyperproto.regions.statistics import PRIOR_EXAMPLES

if TYPE_CHECKING:
    from hyperproto.estimators.snapshot import Snapshot

RAISED = 3  # factor on the temperature; chosen on training texts of HWU64 and CLINC150
DISTANCE_CLASSES = 4.0  # number of classes up to which the squared distance has weight 1; chosen as RAISED was
BLOCK = 1 << 18  # scores in memory at once


@dataclass(frozen=True, eq=False)
class LeftOutScores:
    """Scores of examples (n,) that have another in their class, each left out of the fit."""

    weights: Doubles
    right: Doubles  # 1 where the likeliest class is the label, else 0
    confidence: Doubles  # largest probability
    novelty: Doubles


@dataclass(frozen=True, eq=False)
class Novelty:
    """Novelty score of a fitted classifier; see the text of this module."""

    temperature: float  # T; infinite: the relative measure
    mean: float  # P; 0: rows are scored by their distance alone
    count: Doubles  # (N,) examples of each class that were left out
    total: Doubles  # (N,) sum of their preferences
    left_out: LeftOutScores | None = None  # None: no example can be left out

    def typical(self, count: Doubles, total: Doubles) -> Doubles:
        """Return the typical preference P_n of classes with so many examples and such sums of preferences."""
        own = np.divide(total, count, where=count > LEAST, out=np.full(len(count), self.mean))
        found: Doubles = self.mean + count / (count + PRIOR_EXAMPLES) * (own - self.mean)
        return found

    def score(self, scores: Floats, distance: Floats) -> Doubles:
        """Return the novelty (n,) of rows with these scores -M (n, N) and scaled distances sqrt(r) (n,)."""
        preference, share = preferences(scores, self.temperature)
        return self.combined(preference, share @ self.typical(self.count, self.total), distance)

    def combined(self, preference: Doubles, typical: Doubles, distance: Floats) -> Doubles:
        """Return the novelty (n,) of preferences p, typical ones and scaled distances, each (n,)."""
        weight = min(1.0, DISTANCE_CLASSES / len(self.count))
        relative = (typical - preference) / self.mean if self.mean > 0 else 0.0
        found: Doubles = 1 + relative + weight * (distance.astype(np.float64) ** 2 - 1)
        return found


def preferences(scores: Floats, temperature: float, without: Indices | None = None) -> tuple[Doubles, Doubles]:
    """Return p (n,) and q (n, N) of rows with these scores -M (n, N).

    `without` (n,) names a class to leave out for each row, -1 for none. At an infinite temperature p is the mean
    measure minus the least one.
    """
    away = scores.astype(np.float64)
    way = np.full(len(away), float(away.shape[1]))
    rows = np.empty(0, np.intp) if without is None else np.flatnonzero(without >= 0)
    columns = rows if without is None else without[rows]
    away[rows, columns] = -np.inf
    way[rows] -= 1
    away -= away.max(axis=1, keepdims=True)
    if math.isinf(temperature):
        best = (away == 0).astype(np.float64)
        away[rows, columns] = 0.0
        return -away.sum(axis=1) / way, best / best.sum(axis=1, keepdims=True)
    power = np.exp(away / (RAISED * temperature), out=away)
    preference = np.log(way) - np.log(power.sum(axis=1))
    power = power**RAISED  # at the temperature itself
    return preference, power / power.sum(axis=1, keepdims=True)


def fit_novelty(model: "Snapshot") -> Novelty:
    """Estimate how large the preference of an example of each class is, by leave-one-out.

    Where no example can be left out, pseudo-examples (`hyperproto.estimators.temperature`) stand for them, and all
    classes are alike. Without stored examples the temperature is infinite.
    """
    way = len(model.classes)
    none = np.zeros(way)
    temperature = math.inf if model.rows is None or way == 1 else _temperature(model)
    if model.rows is not None and model.left_out.has_siblings.any():
        return _from_examples(model, temperature)
    if way == 1:
        return Novelty(temperature, 0.0, none, none)
    stats: Any = model.moments
    ratio = float(spread_ratio(stats, model.parameters["prior_ratio"]))
    pseudo = pseudo_examples(stats, ratio, model.centered or model.unit, model.posterior_centers)
    mean = float(preferences(model.scores(pseudo.rows), temperature, pseudo.borrowed)[0].mean())
    return Novelty(temperature, mean, none, none)


def _temperature(model: "Snapshot") -> float:
    """Return the temperature fitted to the examples, or that of a summary, whatever the parameter is."""
    if model.form.mode == "bayes" and model.summary is not None and model.summary.temperature is not None:
        return model.summary.temperature
    return model.fitted_temperature


def _from_examples(model: "Snapshot", temperature: float) -> Novelty:
    """Return the score with typical preferences, and the scores of the examples that were left out.

    In its own leave-one-out score an example is left out of what is typical of its class, too.
    """
    index, measures, weights = sampled_measures(model.left_out, model.region, model.form)
    labels, way = model.left_out.own(index), measures.shape[1]
    preference, share = preferences(-measures, temperature)
    count = sum_by_label(labels, weights, way)
    total = sum_by_label(labels, weights * preference, way)
    mean = float((total[count > 0] / count[count > 0]).mean())
    fitted = Novelty(temperature, mean, count, total)
    taken = np.minimum(weights, 1.0)
    typical, others = (
        fitted.typical(count, total),
        fitted.typical(count[labels] - taken, total[labels] - taken * preference),
    )
    expected = share @ typical + share[np.arange(len(index)), labels] * (others - typical[labels])
    novelty = fitted.combined(preference, expected, _distances(model, index, own=True))
    right = (measures.argmin(axis=1) == labels).astype(np.float64)
    confidence = largest_probability(-measures, model.temperature)
    return replace(fitted, left_out=LeftOutScores(weights, right, confidence, novelty))


def novelty_of(model: "Snapshot", rows: Floats) -> Doubles:
    """Return the novelty of prepared rows (n,)."""
    return model.novelty.score(model.scores(rows), (model.distance(rows) / model.scale).min(axis=1))


def largest_probability(scores: Floats, temperature: float) -> Doubles:
    """Return the largest softmax probability (n,) of rows with these scores (n, N)."""
    away = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    found: Doubles = 1 / np.exp(away / temperature).sum(axis=1)
    return found


def removed_scores(model: "Snapshot") -> tuple[Doubles, Doubles, Doubles]:
    """Return novelty, largest probability and weight (n,) of examples whose own class is removed.

    Needs three classes or more: with one class left no other one can be preferred to it.
    """
    every = np.arange(len(model.left_out.rest))
    index = evenly_spaced(every, len(model.classes), lambda: model.left_out.content_order)
    labels, fitted = model.left_out.own(index), model.novelty
    scores = -left_out_measures(model.left_out, model.region, model.form, index, fair=True)
    preference, share = preferences(scores, fitted.temperature, labels)
    expected = share @ fitted.typical(fitted.count, fitted.total)
    novelty = fitted.combined(preference, expected, _distances(model, index, own=False))
    scores[np.arange(len(index)), labels] = -np.inf
    return novelty, largest_probability(scores, model.temperature), model.stats.weights[index]


def _distances(model: "Snapshot", index: Indices, own: bool) -> Doubles:
    """Return the least scaled distance of examples (B,) to a class mean; `own` includes their class, without them."""
    out, scale, nearest = model.conformal.left_out, model.scale, np.empty(len(index))
    size = max(1, BLOCK // len(scale))
    for start in range(0, len(index), size):
        rows = index[start : start + size]
        at, labels = np.arange(len(rows)), out.own(rows)
        distance = np.sqrt(out.squared_distances(rows, fair=False)) / scale
        scored = np.isfinite(model.conformal.scores[rows])
        distance[at[scored], labels[scored]] = model.conformal.scores[rows[scored]]
        if not own:
            distance[at, labels] = np.inf
        nearest[start : start + size] = distance.min(axis=1)
    return nearest
