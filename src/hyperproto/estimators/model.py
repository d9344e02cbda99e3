"""Region, linear form, temperature and thresholds of a fitted classifier: derived when first asked for, then kept."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from hyperproto.estimators.confidence import (
    Conformal,
    Expected,
    class_scales,
    enough,
    left_out_accuracy,
    plausible_sets,
    support_temperature,
)
from hyperproto.estimators.memory import Examples, Snapshot, centered_unit_rows, unit_rows
from hyperproto.regions import ClosedForm, LinearForm, Moments, Region, Whitening
from hyperproto.regions.arrays import Doubles, Floats
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import FlatStatistics, far_middle, moments_of

BLOCK = 1 << 21  # scores in memory at once
ROWS = 4096  # and rows at most: more would leave the cache


class Model:
    """A classifier at one moment, its classes in the order of their labels.

    `memory` is what was remembered then, `form` how the region is fitted; `parameters` are those of the classifier, by
    name. Nothing here changes: two threads that derive the same part at once find the same.
    """

    def __init__(self, memory: Snapshot, form: ClosedForm, parameters: Mapping[str, Any]) -> None:
        self.memory = memory
        self.form = form
        self.parameters = parameters
        self.centered = parameters["feature_transform"] == "center-unit"
        self._casts: dict[tuple[str, np.dtype[Any]], LinearForm] = {}

    @property
    def classes(self) -> NDArray[Any]:
        """The labels (N,)."""
        return self.memory.labels

    @cached_property
    def mean(self) -> Doubles:
        """What "center-unit" subtracts: the mean of the class means, since counts differ."""
        mean: Doubles = self.memory.moments.mean.mean(axis=0)
        return mean

    @property
    def examples(self) -> Examples:
        """The examples, as they are remembered; refused where they are not."""
        if self.memory.examples is None:
            raise ConfigError("this needs the examples themselves; fit again with store_support=True")
        return self.memory.examples

    @cached_property
    def origin(self) -> Doubles | None:
        """Where prepared rows are measured from, if the examples lie far from 0: squares then keep their digits."""
        return None if self.centered or self.memory.unit else far_middle(self.memory.moments)

    @cached_property
    def moments(self) -> Moments:
        """Of the rows as the region sees them."""
        if self.centered:
            stats = self.stats
            return Moments(stats.count, stats.mean, stats.squares)
        moments = self.memory.moments
        return moments if self.origin is None else replace(moments, mean=moments.mean - self.origin)

    @property
    def means(self) -> Doubles:
        """The mean of each class (N, D), after the feature transform."""
        mean: Doubles = np.asarray(self.moments.mean)
        return mean if self.origin is None else mean + self.origin

    @cached_property
    def stats(self) -> FlatStatistics:
        """The same with the examples."""
        examples = self.examples
        labels, rows = np.argsort(self.memory.order)[examples.slots], examples.rows
        if not self.centered:
            return FlatStatistics.of(self._from_origin(rows), labels, examples.weights, self.moments)
        rows = centered_unit_rows(rows, self.mean)
        moments = moments_of(rows, labels, examples.weights, len(self.classes))
        return FlatStatistics.of(rows, labels, examples.weights, moments)

    @cached_property
    def region(self) -> Region:
        """The fitted region; a cone that needs no examples has no extent here."""
        return self.form.fit(self.stats if self.centered or self.form.needs_examples else self.moments)

    @property
    def region_in_place(self) -> Region:
        """The fitted region, for rows after the feature transform: that of prepared rows, moved to where they were."""
        return self.region if self.origin is None else self.region.moved(self.origin)

    @cached_property
    def region_with_extent(self) -> Region:
        """The fitted region with its extent."""
        return self.region if self.region.extent_radius is not None else self.form.fit(self.stats)

    @cached_property
    def linear(self) -> LinearForm | None:
        """The fast way to the measure, if there is one: one matrix product, in the precision of the rows."""
        return self.region.linear(self.region.center.mean(axis=0)) if self.region.is_linear else None

    @cached_property
    def squared_distances(self) -> LinearForm:
        """Squared distances to the means."""
        return LinearForm.of_distances(self.moments.mean, middle=self.moments.mean.mean(axis=0))

    @cached_property
    def left_out(self) -> LeftOut:
        """The examples, each left out of its class."""
        return LeftOut(self.stats)

    @cached_property
    def temperature(self) -> float:
        """Of the softmax."""
        if self.parameters["temperature"] != "auto":
            return float(self.parameters["temperature"])
        if self.memory.examples is None:
            raise ConfigError(
                "temperature='auto' is fitted to the examples, and store_support=False keeps none; "
                "give temperature a number, or set store_support=True"
            )
        directions = self.centered or self.memory.unit
        return support_temperature(self.left_out, self.region, self.form, self.parameters["prior_ratio"], directions)

    @cached_property
    def scale(self) -> Doubles:
        """How far from its mean an example of each class usually lies (N,)."""
        return class_scales(self.moments)

    @cached_property
    def conformal(self) -> Conformal:
        """The scores that "none of these" rests on."""
        return Conformal(self.left_out)

    @cached_property
    def thresholds(self) -> Doubles:
        """The distance to its mean at which each class ends (N,)."""
        coverage, guarantee = self.parameters["coverage"], self.parameters["guarantee"]
        if coverage is None:
            raise ConfigError("without a coverage nothing is rejected; set coverage, for example to 0.95")
        found = self.conformal.thresholds(coverage, self.parameters["class_thresholds"], guarantee)
        if np.isinf(found).any():
            weights = self.stats.weights
            number = weights[np.isfinite(self.conformal.scores)].sum()
            needs = f"coverage={coverage} needs {enough(coverage)} examples of classes with two or more"
            if guarantee:
                needs += f", and for its guarantee all but a share {1 - coverage:.2g} of the examples in such classes"
            told = f"{needs}; there are {number:g} of {weights.sum():g}: until then some classes accept everything"
            warnings.warn(told, stacklevel=2)
        elif vacuous := plausible_sets(self.conformal, found).warning(coverage):
            warnings.warn(vacuous, stacklevel=2)
        return found

    @cached_property
    def expected(self) -> Expected:
        """How it will do, as far as the examples tell."""
        way, coverage = len(self.classes), self.parameters["coverage"]
        if self.memory.examples is None:
            return Expected(None, None, None, way, 0, "store_support=False keeps no examples to leave out")
        sets = None if coverage is None else plausible_sets(self.conformal, self.thresholds)
        accuracy, number = left_out_accuracy(self.left_out, self.region, self.form)
        reason = "" if number else "every class has one example, and none can be left out"
        return Expected(
            accuracy,
            None if sets is None else sets.set_size,
            None if sets is None else sets.strangers_rejected,
            way,
            number,
            reason,
        )

    def each_block(self, X: Floats) -> Iterator[tuple[slice, Floats]]:
        """Rows as the region sees them, in blocks, with their places."""
        return ((part, self.prepare(X[part])) for part in blocks(len(X), len(self.classes)))

    def prepare(self, X: Floats) -> Floats:
        """Rows as the region sees them."""
        if self.centered:
            return centered_unit_rows(X, self.mean)
        return unit_rows(X) if self.memory.unit else self._from_origin(X)

    def _from_origin(self, X: Floats) -> Floats:
        return X if self.origin is None else X - self.origin.astype(X.dtype)

    def scores(self, rows: Floats) -> Floats:
        """Larger is more likely (n, N), right up to a number that all classes of a prepared row share."""
        if self.linear is None:
            return -self._measure(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            scores: Floats = self._cast("linear", rows.dtype).scores(rows)
        return scores

    def measure(self, rows: Floats) -> Floats:
        """The measure of prepared rows (n, N)."""
        if self.linear is None:
            return self._measure(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            measured: Floats = self._cast("linear", rows.dtype).measure(rows)
        return measured

    def distance(self, rows: Floats) -> Floats:
        """Distance of prepared rows to the means (n, N)."""
        with np.errstate(over="ignore", invalid="ignore"):
            squared = self._cast("squared_distances", rows.dtype).measure(rows)
            distance: Floats = np.sqrt(np.maximum(squared, 0.0))
        return distance

    def novelty(self, rows: Floats) -> Floats:
        """The least distance of prepared rows to a mean, in units of the class's scale (n,)."""
        least: Floats = (self.distance(rows) / self.scale).min(axis=1)
        return least

    def _measure(self, rows: Floats) -> Floats:
        region: Any = self.region
        measured: Floats = region.measure(rows.astype(np.float64), **region.measure_options)
        return measured

    def _cast(self, name: str, dtype: np.dtype[Any]) -> LinearForm:
        """A linear form in the precision of the rows, made once."""
        found = self._casts.get((name, dtype))
        if found is None:
            form: LinearForm = getattr(self, name)
            parts = {field: _cast(part, dtype) for field, part in vars(form).items()}
            found = self._casts[name, dtype] = LinearForm(**parts)
        return found


def blocks(n_rows: int, way: int) -> Iterator[slice]:
    """Cut rows so that their scores fit into memory many times."""
    size = max(1, min(ROWS, BLOCK // way))
    return (slice(start, start + size) for start in range(0, n_rows, size))


def _cast(part: Any, dtype: np.dtype[Any]) -> Any:
    if part is None or isinstance(part, bool):
        return part
    if isinstance(part, Whitening):
        return part.astype(dtype)
    return np.ascontiguousarray(part, dtype=dtype)
