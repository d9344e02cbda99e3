"""Leave-one-out in closed form: each example measured by a fit without it. NumPy only.

Leaving out one of K examples, with residual r = x - z, moves only the mean of its own class: to z - r / (K - 1). The
distance of x to it becomes K / (K - 1) ||r||, and the squares lose K / (K - 1) ||r||^2. Each region derives the rest in
its method `left_out`.

An example of weight w counts as w examples, of which one is left out (all of it, if w < 1).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.regions.arrays import Doubles, Floats, Indices, row_squares
from hyperproto.regions.statistics import FlatStatistics, Moments, moments_of, pooled_scatter

if TYPE_CHECKING:
    from hyperproto.regions.base import ClosedForm, Region

LEAST = 1e-9  # number of examples below which a class is empty
BLOCK = 1 << 20  # numbers of one array, or pairs of examples, in memory at once
LEAST_ROWS = 32  # examples of a block at least, whatever the number of classes
FOLDS = 5  # of unlabelled rows and refined heads, which have no closed form of leave-one-out


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Statistics of each example (S,) and of the rest of its class."""

    stats: FlatStatistics

    @cached_property
    def taken(self) -> Doubles:
        """Weight removed with each example, min(w, 1)."""
        return np.minimum(self.stats.weights, 1.0)

    @cached_property
    def rest(self) -> Doubles:
        """Weight of the rest of its class."""
        return self.stats.count[self.stats.labels] - self.taken

    @cached_property
    def has_siblings(self) -> NDArray[np.bool_]:
        """True if its class has other examples; without them there is no leave-one-out."""
        return self.rest > LEAST

    @cached_property
    def step(self) -> Doubles:
        """Step of the class mean, in units of -r."""
        return np.divide(self.taken, self.rest, where=self.has_siblings, out=np.zeros_like(self.rest))

    @cached_property
    def distance2(self) -> Doubles:
        """Squared distance to the mean of the others."""
        return (1 + self.step) ** 2 * self.stats.lengths

    @cached_property
    def squares(self) -> Doubles:
        """Sum of squares of the others about their mean; exactly 0 of one other."""
        loss = self.taken * (1 + self.step) * self.stats.lengths
        left = np.maximum(self.stats.squares[self.stats.labels] - loss, 0.0)
        return np.where(self.rest > 1 + LEAST, left, 0.0)

    @cached_property
    def content_order(self) -> Indices:
        """Order of all examples (S,) by class, then by content."""
        return content_order(self.stats.rows, self.stats.labels, self.stats.weights)

    @cached_property
    def _means_from_middle(self) -> tuple[Doubles, Doubles, Doubles]:
        """Mean of the class means (D,), class means minus it (N, D), and their squares (N,)."""
        middle = self.stats.mean.mean(axis=0)
        away = self.stats.mean - middle
        return middle, away, row_squares(away)

    def kept(self, name: str, source: object, make: Callable[[], Any]) -> Any:
        """Return `make()`, cached under `name` as long as `source` is the same object."""
        found = self._kept.get(name)
        if found is None or found[0] is not source:
            found = self._kept[name] = source, make()
        return found[1]

    @cached_property
    def _kept(self) -> dict[str, tuple[object, Any]]:
        return {}

    def own(self, index: Indices) -> Indices:
        """Return the class of each of `index` (B,)."""
        return self.stats.labels[index]

    def means(self, index: Indices) -> Doubles:
        """Return the mean of the others in the class of each of `index` (B, D)."""
        return self.stats.mean[self.own(index)] - self.step[index, None] * self.stats.residual[index]

    def with_own(self, values: Doubles, index: Indices, own: Doubles) -> Doubles:
        """Return the values of the classes (N,) for each of `index`, with `own` (B,) in its own class: (B, N)."""
        each: Doubles = np.tile(values, (len(index), 1))
        each[np.arange(len(index)), self.own(index)] = own
        return each

    def squared_distances(self, index: Indices, fair: bool) -> Doubles:
        """Return ||x - mean||^2 of each of `index` and each class, its own without it (B, N).

        The expected distance to a mean of K - 1 examples is larger by v / (K - 1) - v / K; if `fair`, minus that.
        """
        stats, at, own = self.stats, np.arange(len(index)), self.own(index)
        middle, away, squares = self._means_from_middle
        rows = stats.rows[index] - middle
        place: Doubles = np.maximum(row_squares(rows)[:, None] + squares - 2 * (rows @ away.T), 0.0)
        place[at, own] = self.distance2[index]
        if fair:
            excess = pooled_scatter(stats.squares, stats.count) * (1 / self.rest[index] - 1 / stats.count[own])
            place[at, own] = np.maximum(place[at, own] - excess, 0.0)
        return place

    def statistics(self, index: Indices) -> Moments:
        """Return count and squares (B, N) without each of `index`, beside the means of all examples."""
        stats = self.stats
        return _Without(
            self.with_own(stats.count, index, self.rest[index]),
            stats.mean,
            self.with_own(stats.squares, index, self.squares[index]),
            self.with_own(stats.length, index, np.linalg.norm(self.means(index), axis=1)),
        )

    def mean_of_others(self, index: Indices, away: Callable[["LeftOut", Indices, Indices], Doubles]) -> Doubles:
        """Return for each of `index` the mean distance of the others of its class to their centre (B,).

        `away(self, index, members)` returns the distances (B, K) of the members of one class to their centre without
        each of `index`. No statistic determines this mean.
        """
        stats = self.stats
        labels = stats.labels[index]
        means = np.zeros(len(index))
        for label in np.unique(labels):
            members = np.flatnonzero(stats.labels == label)
            wanted = np.flatnonzero(labels == label)
            size = max(1, BLOCK // len(members))
            for start in range(0, len(wanted), size):
                part = wanted[start : start + size]
                distances = away(self, index[part], members)  # (B, K)
                weights = np.where(index[part][:, None] == members, -self.taken[index[part]][:, None], 0.0)
                weights += stats.weights[members]
                rest = np.where(self.has_siblings[index[part]], self.rest[index[part]], 1.0)
                means[part] = (weights * distances).sum(axis=1) / rest
        return means


def left_out_measures(
    out: LeftOut, region: "Region", form: "ClosedForm", index: Indices, fair: bool = False
) -> Doubles:
    """Return the measure of the examples `index` to every class (len(index), N), each left out of its own.

    `region` was fitted to all of them, by `form`. Without the example its class has K - 1 others, and in the modes
    "point" and "paper" the expected measure is larger for fewer examples. If `fair`, that difference is subtracted, and
    the radius of eq. 3 is that of the whole class.
    """
    if not len(index):
        return np.empty((0, len(out.stats.count)))
    size = max(LEAST_ROWS, BLOCK // len(out.stats.count))
    blocks = [index[start : start + size] for start in range(0, len(index), size)]
    return np.concatenate([region.left_out(out, block, form, fair) for block in blocks])


def measures_by_refitting(out: LeftOut, index: Indices, form: "ClosedForm") -> Doubles:
    """Return the measure of the examples `index` to every class (B, N), by a new fit for each. Exact, and slow."""
    stats, found = out.stats, []
    for example in index:
        weights = stats.weights.copy()
        weights[example] -= out.taken[example]
        kept = weights > LEAST
        others = stats.rows[kept], stats.labels[kept], weights[kept]
        region: Any = form.fit(FlatStatistics.of(*others, moments_of(*others, len(stats.count))))
        row = stats.rows[example : example + 1].astype(np.float64)
        found.append(np.asarray(region.measure(row, **form.region.measure_options)))
    return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class Folds:
    """Linear heads, each fitted without the examples of one fold, where leave-one-out has no closed form."""

    fold: Indices  # (S,) of each example
    weights: Doubles  # (FOLDS, D, N)
    bias: Doubles  # (FOLDS, N)

    @classmethod
    def fit(cls, stats: FlatStatistics, form: "ClosedForm") -> "Folds":
        """Fit `form`, whose region must be linear, to all examples but those of each fold.

        The examples of a class go to the folds in turn, ordered by content, so that a class loses about one in FOLDS of
        them, and a class of two never loses both.
        """
        fold, forms = folds_of(stats), []
        for each in range(FOLDS):
            kept = fold != each
            others = stats.rows[kept], stats.labels[kept], stats.weights[kept]
            forms.append(form.fit(FlatStatistics.of(*others, moments_of(*others, len(stats.count)))).linear())
        return cls(fold, np.stack([form.weights for form in forms]), np.stack([form.bias for form in forms]))

    def measures(self, rows: Floats, index: Indices) -> Doubles:
        """Return the measure of the examples `index` to every class (B, N), up to a number that all classes share."""
        measures = np.empty((len(index), self.bias.shape[1]))
        for each in np.unique(self.fold[index]):
            here = self.fold[index] == each
            measures[here] = -(rows[index[here]].astype(np.float64) @ self.weights[each] + self.bias[each])
        return measures


def folds_of(stats: FlatStatistics) -> Indices:
    """Return the fold of each example (S,), which depends on the content of the examples, not on their order.

    Classes start at different folds, in the order of their first examples, so that small classes are spread over folds.
    """
    order = content_order(stats.rows, stats.labels, stats.weights)
    labels = stats.labels[order]
    first = np.flatnonzero(np.diff(labels, prepend=-1))  # of each class that has examples
    turn = np.argsort(np.argsort(projection(stats.rows[order[first]]), kind="stable"))
    size = np.diff(first, append=len(order))
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order)) - np.repeat(first, size) + np.repeat(turn, size)
    return place % FOLDS


def content_order(rows: Floats, labels: Indices, weights: Doubles) -> Indices:
    """Order examples (S,) by class, then by content: along a fixed direction, then by weight."""
    return np.lexsort((weights, projection(rows), labels))


def projection(rows: Floats) -> Doubles:
    """Return the product of each row (S,) with a fixed direction, in which different rows hardly ever coincide.

    Unlike a hash of the bytes, it changes by rounding only if the row does, so that an order by it is stable.
    """
    found: Doubles = np.vecdot(rows, np.sin(np.arange(1.0, rows.shape[1] + 1) ** 2))
    return found


@dataclass(frozen=True, eq=False)
class _Without(Moments):
    """Statistics without each of B examples: count, squares and lengths (B, N), beside the means of all examples."""

    lengths: Doubles

    @property
    def length(self) -> Doubles:
        """Length of the mean of each class (B, N)."""
        return self.lengths
