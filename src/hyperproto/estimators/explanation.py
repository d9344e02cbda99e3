"""Explanation of a prediction: nearest examples, runner-up, rejection, and the parts of the decision.

With the fit mode "bayes" the centre of class n is a weighted mean of its examples (mean z_n, count K_n), of its prior
mean m + g P_n, and of the cluster b_n of unlabelled rows, which counts as h_n examples:

    c_n = (K_n z_n + h_n b_n + k (m + g P_n)) / (K_n + h_n + k)

The log odds of the likeliest class a against the runner-up b are a linear function of the whitened row,

    T log(p_a / p_b) = 2 (A x - (c_a + c_b) / 2) . (c_a - c_b) + eps_a - eps_b

with T the temperature. So they are the sum of four parts: of the examples, the names, the unlabelled rows and the
radii. Centres are split about the common mean r of all classes, r = m + g P' (P' is the mean of the names with the
weights of the fit): c_n - r is the sum of K_n (z_n - r), h_n (b_n - r) and k g (P_n - P'), divided by K_n + h_n + k.
Fits other than "bayes" have no prior, only examples and radii. The centres of a softmax regression are no such means,
and a measure that is not linear has no such parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import Any

import numpy as np

from hyperproto.estimators.labels import with_reject_label
from hyperproto.estimators.rejection import rule_of
from hyperproto.estimators.snapshot import Snapshot, blocks
from hyperproto.heads import RefinedForm
from hyperproto.regions import Point, Sphere
from hyperproto.regions.arrays import Doubles, Floats, Indices, row_squares
from hyperproto.regions.bayes import weighted_mean

NEAREST = 3  # examples of an explanation
LONGEST = 80  # characters of an example in a text
CLOSE = 1e-6  # relative difference below which centres are those of the closed form
ONE_CLASS = "there is only one class"
NOT_LINEAR = (
    "the measure of this region is not a sum of such parts; region='sphere' or 'point' with squared=True has them"
)
REFINED = "a softmax regression has moved all centres together, so no part belongs to examples, names or rows alone"


@dataclass(frozen=True)
class NearExample:
    """Stored example near a row.

    Attributes
    ----------
    number : number of the example, counted from 0 over all calls of fit and partial_fit.
    item : its text or path; None for vectors.
    distance : Euclidean distance of the two vectors after the feature transform.
    similarity : their cosine; None if the feature transform does not scale vectors to length 1.
    """

    number: int
    item: str | None
    label: Any
    distance: float
    similarity: float | None


@dataclass(frozen=True)
class Contributions:
    """Parts of the log odds of the likeliest class against the runner-up; their sum is the log odds.

    Attributes
    ----------
    examples : of the labelled examples.
    name : of the class names or descriptions.
    unlabelled : of the unlabelled rows.
    radius : of the radii of the two classes, which no row changes.
    """

    examples: float
    name: float
    unlabelled: float
    radius: float

    @property
    def total(self) -> float:
        """Log odds of the likeliest class against the runner-up."""
        return self.examples + self.name + self.unlabelled + self.radius


@dataclass(frozen=True)
class Explanation:
    """Explanation of the answer for one item: `text()` is two or three sentences, `to_dict()` data for JSON.

    Attributes
    ----------
    label : answer of `predict`, the reject label if the item is rejected.
    rejected : whether it is.
    likeliest, probability : likeliest class, and its probability given that the item is of one of the classes.
    runner_up, runner_up_probability : second class; None if there is only one.
    nearest : nearest stored examples, nearest first.
    novelty : as the method `novelty` returns it.
    distance : distance to the mean of the likeliest class, with a coverage; else None.
    threshold : largest distance that is accepted or, by another rule of rejection, largest novelty or least
        probability; None if the classifier does not reject. It may be infinite.
    contributions : parts of the log odds against the runner-up; None if the decision has no such parts.
    reason : reason why there are no contributions, else "".
    compared : "distance", "novelty" or "probability", what is compared with the threshold.
    """

    label: Any
    rejected: bool
    likeliest: Any
    probability: float
    runner_up: Any
    runner_up_probability: float | None
    nearest: tuple[NearExample, ...]
    novelty: float
    distance: float | None
    threshold: float | None
    contributions: Contributions | None
    reason: str = ""
    compared: str = "distance"

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dictionaries; an infinite threshold is None."""
        found = asdict(self)
        found["nearest"] = list(found["nearest"])
        if self.threshold is not None and not np.isfinite(self.threshold):
            found["threshold"] = None
        return found

    def text(self) -> str:
        """Return two or three sentences."""
        return " ".join(part for part in (self._answer(), self._example(), self._parts()) if part)

    def __str__(self) -> str:
        return self.text()

    def _answer(self) -> str:
        likeliest = f"{self.likeliest} has probability {self.probability:.0%}"
        if self.runner_up is not None:
            likeliest += f", {self.runner_up} {self.runner_up_probability:.0%}"
        if not self.rejected:
            return f"{likeliest}."
        if self.compared == "novelty":
            return f"Rejected: {likeliest}, but the novelty {self.novelty:.2f} is above {self.threshold:.2f}."
        if self.compared == "probability":
            return f"Rejected: {likeliest}, and an answer needs {self.threshold:.1%}."
        times = self.distance / self.threshold if self.distance and self.threshold else np.inf
        away = f"{times:.2f} times as far from its mean as the threshold" if np.isfinite(times) else "too far away"
        return f"Rejected: {likeliest}, but the item is {away}."

    def _example(self) -> str:
        if not self.nearest:
            return ""
        near = self.nearest[0]
        item = f"number {near.number}" if near.item is None else f'"{shorten(near.item, LONGEST, placeholder=" ...")}"'
        how = f"distance {near.distance:.2f}" if near.similarity is None else f"similarity {near.similarity:.2f}"
        return f"The nearest example is {item} ({near.label}, {how})."

    def _parts(self) -> str:
        parts = self.contributions
        if parts is None:
            return ""
        named = {"examples": parts.examples, "class names": parts.name, "unlabelled rows": parts.unlabelled}
        named["class radii"] = parts.radius
        listed = ", ".join(f"{name} {value:+.1f}" for name, value in named.items() if abs(value) >= 0.05)
        return f"Log odds of {self.likeliest} against {self.runner_up}: {parts.total:+.1f}" + (
            f" ({listed})." if listed else "."
        )


def explain(model: Snapshot, X: Floats, reject_label: Any, items: Mapping[int, str], nearest: int) -> list[Explanation]:
    """Explain the answers for rows (n, D); `items` are the texts or paths of examples by number."""
    classes = model.classes.tolist()
    rule = rule_of(model)
    labels = classes if rule is None else with_reject_label(classes, reject_label).tolist()
    limit = None if rule in (None, "coverage") else model.rejection
    chosen = model.best(X)
    probability, novelty = model.probabilities(X), model.novelties(X)
    split = _Parts(model)
    found = []
    for part in blocks(len(X), max(len(classes), 0 if model.rows is None else len(model.rows))):
        rows = model.prepare(X[part])
        first, second = first_two(model.scores(rows))
        at = np.arange(len(rows))
        parts, reason = split.of(rows, first, second)
        near = _nearest(model, rows, items, nearest)
        far = model.distance(rows)[at, first] if rule == "coverage" else None
        for row, n in enumerate(range(len(X))[part]):
            best, other = int(first[row]), int(second[row])
            found.append(
                Explanation(
                    label=labels[chosen[n]],
                    rejected=bool(chosen[n] == len(classes)),
                    likeliest=classes[best],
                    probability=float(probability[n, best]),
                    runner_up=None if other < 0 else classes[other],
                    runner_up_probability=None if other < 0 else float(probability[n, other]),
                    nearest=near[row],
                    novelty=float(novelty[n]),
                    distance=None if far is None else float(far[row]),
                    threshold=limit.threshold if limit else None if far is None else float(model.thresholds[best]),
                    contributions=None if parts is None else Contributions(*parts[row].tolist()),
                    reason=reason,
                    compared=limit.score if limit else "distance",
                )
            )
    return found


def first_two(scores: Floats) -> tuple[Indices, Indices]:
    """Return the classes of the largest and second largest score of each row (n,); -1 without a second."""
    first = scores.argmax(axis=1)
    if scores.shape[1] == 1:
        return first, np.full(len(scores), -1)
    others = scores.copy()
    others[np.arange(len(scores)), first] = -np.inf
    return first, others.argmax(axis=1)


def _nearest(model: Snapshot, rows: Floats, items: Mapping[int, str], number: int) -> Sequence[tuple[NearExample, ...]]:
    """Return the nearest stored examples of each prepared row; of equally near ones, that which came first."""
    if model.rows is None or not len(model.rows) or not number:
        return [()] * len(rows)
    assert model.numbers is not None
    stats, classes = model.stats, model.classes.tolist()
    squared = np.maximum(row_squares(rows)[:, None] + row_squares(stats.rows) - 2 * rows @ stats.rows.T, 0.0)
    order = np.argsort(squared, axis=1, kind="stable")[:, :number]
    directions = model.unit or model.centered
    found = []
    for row, examples in enumerate(order.tolist()):
        near = []
        for example in examples:
            away, numbered = float(squared[row, example]), int(model.numbers[example])
            cosine = 1 - away / 2 if directions else None
            label = classes[int(stats.labels[example])]
            near.append(NearExample(numbered, items.get(numbered), label, float(np.sqrt(away)), cosine))
        found.append(tuple(near))
    return found


class _Parts:
    """Parts of the log odds of two classes, for a model whose measure has such parts."""

    def __init__(self, model: Snapshot) -> None:
        self.model = model
        self.reason, self.centers = self._split()

    def of(self, rows: Floats, first: Indices, second: Indices) -> tuple[Doubles | None, str]:
        """Return the parts (n, 4) of the log odds of `first` against `second` (n,), or None and the reason."""
        if self.centers is None:
            return None, self.reason
        region: Any = self.model.region
        whiten = getattr(region, "whiten", None)
        x: Doubles = rows.astype(np.float64)
        x = x if whiten is None else whiten(x)
        x = x - (region.center[first] + region.center[second]) / 2
        parts = [2 * np.vecdot(x, center[first] - center[second]) for center in self.centers]
        found = np.stack([*parts, region.bias_radius[first] - region.bias_radius[second]], axis=1)
        return found / self.model.temperature, ""

    def _split(self) -> tuple[str, tuple[Doubles, Doubles, Doubles] | None]:
        """Return the parts of the centres (N, D) of examples, names and unlabelled rows, about their common mean."""
        model = self.model
        region: Any = model.region
        if len(model.classes) == 1:
            return ONE_CLASS, None
        if not isinstance(region, Point | Sphere) or not region.is_linear:
            return NOT_LINEAR, None
        if isinstance(model.form, RefinedForm):
            return REFINED, None
        found = _parts_of_centers(model, region)
        away, apart = found[0] + found[1] + found[2], region.center - region.center.mean(axis=0)
        away = away - away.mean(axis=0)
        if np.abs(away - apart).max() > CLOSE * max(np.abs(apart).max(), np.finfo(float).tiny):
            return REFINED, None  # a stored head
        return "", found


def _parts_of_centers(model: Snapshot, region: Any) -> tuple[Doubles, Doubles, Doubles]:
    """Return what examples, names and unlabelled rows add to the centres (N, D), minus the common mean."""
    moments = model.moments
    count, mean, none = moments.count, moments.mean, np.zeros_like(moments.mean)
    if not isinstance(region, Sphere) or region.ratio is None:
        return mean - mean.mean(axis=0), none, none
    evidence, k = region.evidence, float(region.ratio)
    clusters = None if evidence is None else evidence.clusters
    extra = np.zeros(len(count)) if clusters is None else clusters.weight
    names = none if evidence is None or evidence.names is None else float(evidence.name_weight) * evidence.names
    cluster = none if clusters is None else clusters.mean
    total = count + extra
    weight = total / (total + k)  # of the prior's least squares
    both = (count[:, None] * mean + extra[:, None] * cluster) / np.where(total > 0, total, 1.0)[:, None]
    names = names - weighted_mean(weight, names)
    common = weighted_mean(weight, both)
    share = 1 / (total + k)[:, None]
    parts = (
        count[:, None] * share * (mean - common),
        k * share * names,
        extra[:, None] * share * (cluster - common),
    )
    whiten = region.whiten
    return parts if whiten is None else (whiten(parts[0]), whiten(parts[1]), whiten(parts[2]))
