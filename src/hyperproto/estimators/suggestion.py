"""Suggestion of items to label next: uncertain ones that stand for many others of the pool.

The doubt about an item u of the pool is w_u = 1 - (p_1 - p_2), of its two largest probabilities. Labelling x resolves
a share r(u, x) = exp(-SHARPNESS ||A u - A x||^2 / 2 v) of it, all of it for an equal item; A is the whitening of the
classifier and v the scatter within classes. Of several labelled items the nearest counts. The gain of a set S of items
is the doubt about the pool that it resolves and that the examples E do not resolve already:

    gain(S) = sum_u w_u (max_{x in E or S} r(u, x) - max_{x in E} r(u, x))

It is a facility location problem: gain is submodular, so taking the item of the largest gain again and again is within
1 - 1/e of the best set (Nemhauser et al. 1978). Early on, w is alike for all items, and items typical of large groups
come first; later, uncertain ones. An item of an unseen class is uncertain and far from all examples.

Of a large pool, MOST items are candidates, half of them the most uncertain, and as many others stand for the pool.
"""

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hyperproto.errors import ConfigError
from hyperproto.estimators.explanation import first_two
from hyperproto.estimators.snapshot import Snapshot, blocks
from hyperproto.regions.arrays import Doubles, Floats, Indices, row_squares
from hyperproto.regions.statistics import pooled_scatter

SHARPNESS = 2.0  # of the similarity of items, chosen on HWU64
MOST = 4000  # items of a pool that are candidates, and that gains are summed over
LEAST_DOUBT = 1e-3  # w of an item, so that a classifier with one class has suggestions, too
NEW_CLASS = 1.25  # squared distance to the nearest class, in units of the expected one, beyond which a class may be new
SIMILAR = 0.5  # r from which an item counts as similar
ENOUGH = 1e-4  # mean gain of an item over the pool, below which more labels hardly help: about 0.03 % of accuracy each
PER_BLOCK = 1 << 22  # similarities in memory at once


@dataclass(frozen=True)
class Suggestion:
    """Item to label next.

    Attributes
    ----------
    index : its position in the pool.
    item : its text or path; None for vectors.
    score : doubt that labelling it resolves after those before it in the list, on average over the pool.
    reason : reason as a text.
    new_class : whether it is far from every class, and may be of a new one.
    enough : whether the score is below `ENOUGH`: labelling it and those after it hardly changes the accuracy.
    """

    index: int
    item: str | None
    score: float
    reason: str
    new_class: bool
    enough: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and truth values."""
        return asdict(self)


def suggest(model: Snapshot, X: Floats, items: Sequence[str | None], n: int) -> list[Suggestion]:
    """Suggest `n` rows of a pool (U, D), the most useful first; `items` are their texts or paths, or None."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"n={n!r}: suggest at least 1 item")
    n = min(n, len(X))
    first, second, top, next_top, away = _answers(model, X)
    doubt = np.maximum(1 - (top - next_top), LEAST_DOUBT)
    candidates, crowd = _sampled(doubt, max(MOST, 2 * n))
    space = _Space(model, X[crowd])
    resolved = space.nearest_example(space.rows)
    similarity = space.similarity(space.place(X[candidates]))
    chosen, gains = greedy(similarity, doubt[crowd], resolved, n)
    classes = model.classes.tolist()
    found = []
    for place, gain in zip(chosen, gains, strict=True):
        row = int(candidates[place])
        near = round(float((similarity[place] >= SIMILAR).mean()) * len(X))
        new = bool(away[row] > NEW_CLASS * space.scatter)
        if new:
            reason = "far from every class: perhaps a new one"
        elif second[row] >= 0 and top[row] < 2 * next_top[row]:
            names = f"{classes[first[row]]} ({top[row]:.0%}) or {classes[second[row]]} ({next_top[row]:.0%})"
            reason = f"uncertain: {names}"
        else:
            reason = f"probably {classes[first[row]]} ({top[row]:.0%}), with no example like it"
        if near > 1:
            reason += f"; about {near} similar items"
        share = gain / len(crowd)
        found.append(Suggestion(row, items[row], share, reason, new, share < ENOUGH))
    return found


def greedy(similarity: Floats, doubt: Doubles, resolved: Floats, n: int) -> tuple[list[int], list[float]]:
    """Return `n` candidates and their gains, that of the largest gain first.

    `similarity` (C, U) is r, `doubt` (U,) is w, and `resolved` (U,) the similarity to the nearest example. Gains only
    fall as items are taken, so a candidate whose new gain is above the old ones of all others is the best.
    """
    resolved, weight = resolved.copy(), doubt.astype(similarity.dtype)
    step = max(1, PER_BLOCK // max(1, len(resolved)))
    parts = [slice(start, start + step) for start in range(0, len(similarity), step)]
    gains = np.concatenate([np.maximum(similarity[part] - resolved, 0) @ weight for part in parts])
    heap = [(-float(gain), place) for place, gain in enumerate(gains)]
    heapq.heapify(heap)
    chosen: list[int] = []
    found: list[float] = []
    while heap and len(chosen) < n:
        _, place = heapq.heappop(heap)
        gain = float(np.maximum(similarity[place] - resolved, 0) @ weight)
        if heap and (-gain, place) > heap[0]:
            heapq.heappush(heap, (-gain, place))
            continue
        chosen.append(place)
        found.append(gain)
        np.maximum(resolved, similarity[place], out=resolved)
    return chosen, found


def _answers(model: Snapshot, X: Floats) -> tuple[Indices, Indices, Doubles, Doubles, Doubles]:
    """Return for each row (U,) the two likeliest classes, their probabilities, and the relative distance.

    That is the least squared distance to a class centre, divided by its expectation 1 + 1 / (K + k) in units of v. The
    second class is -1, of probability 0, if there is only one.
    """
    first, second = np.empty(len(X), np.intp), np.empty(len(X), np.intp)
    top, next_top, away = np.empty(len(X)), np.empty(len(X)), np.empty(len(X))
    region: Any = model.region
    evidence, count = getattr(region, "evidence", None), model.moments.count
    count = count if evidence is None else evidence.posterior_count(count)
    whiten, center = _whitening(model), np.asarray(region.center)
    grow = 1 + 1 / (count + _ratio(model))
    for part in blocks(len(X), len(model.classes)):
        probability = model.probabilities(X[part])
        at = np.arange(len(probability))
        first[part], second[part] = best, other = first_two(probability)
        top[part] = probability[at, best]
        next_top[part] = np.where(other < 0, 0.0, probability[at, other])
        rows = whiten(model.prepare(X[part]).astype(np.float64))
        squared = row_squares(rows)[:, None] + row_squares(center) - 2 * rows @ center.T
        away[part] = (squared / grow).min(axis=1)
    return first, second, top, next_top, away


def _ratio(model: Snapshot) -> float:
    """Return k, measured or its prior."""
    ratio = getattr(model.region, "ratio", None)
    return float(model.parameters["prior_ratio"] if ratio is None else ratio)


def _whitening(model: Snapshot) -> Any:
    """Return A of the region as a function; the identity if it has none."""
    whiten = getattr(model.region, "whiten", None)
    return (lambda rows: rows) if whiten is None else whiten


def _sampled(doubt: Doubles, most: int) -> tuple[Indices, Indices]:
    """Return at most `most` candidates, and at most MOST items that stand for the pool (all of a small pool)."""
    every = np.arange(len(doubt))
    order = np.random.default_rng(0).permutation(len(doubt))  # pools are often sorted
    crowd = np.sort(order[:MOST])
    if len(doubt) <= most:
        return every, crowd
    uncertain = np.argsort(-doubt, kind="stable")[: most // 2]
    others = order[~np.isin(order, uncertain)][: most - len(uncertain)]
    return np.sort(np.concatenate([uncertain, others])), crowd


class _Space:
    """Whitened rows that stand for the pool, and the similarity of other rows to them."""

    def __init__(self, model: Snapshot, X: Floats) -> None:
        self.model = model
        self.whiten = _whitening(model)
        self.rows = self.place(X)
        region: Any = model.region
        scatter = getattr(region, "scatter", None)
        scatter = pooled_scatter(model.moments.squares, model.moments.count) if scatter is None else scatter
        if not float(scatter) > 0:  # one example a class: the part of the spread of the pool
            spread = float(row_squares(self.rows - self.rows.mean(axis=0)).mean())
            scatter = spread / (1 + 1 / _ratio(model)) or 1.0
        self.scatter = float(scatter)

    def place(self, X: Floats) -> Floats:
        """Return whitened rows (n, D) in float32."""
        rows: Floats = self.whiten(self.model.prepare(X).astype(np.float64)).astype(np.float32)
        return rows

    def similarity(self, rows: Floats) -> Floats:
        """Return r of whitened rows (n, D) and those of the pool (n, U)."""
        found = np.empty((len(rows), len(self.rows)), np.float32)
        length, scale = row_squares(self.rows), np.float32(SHARPNESS / (2 * self.scatter))
        step = max(1, PER_BLOCK // len(self.rows))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            squared = row_squares(part)[:, None] + length - 2 * part @ self.rows.T
            np.exp(-scale * np.maximum(squared, 0), out=found[start : start + step])
        return found

    def nearest_example(self, rows: Floats) -> Floats:
        """Return the largest similarity of each row of the pool to a stored example (U,); 0 without examples."""
        best = np.zeros(len(rows), np.float32)
        examples = self.model.rows
        if examples is None:
            return best
        step = max(1, PER_BLOCK // len(rows))
        for start in range(0, len(examples), step):
            np.maximum(best, self.similarity(self.place(examples[start : start + step])).max(axis=0), out=best)
        return best
