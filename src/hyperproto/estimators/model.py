"""What follows from a memory and the settings; each part is made when it is first asked for, and then kept."""

import warnings
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from hyperproto.estimators.conformal import Conformal, class_scales, enough
from hyperproto.estimators.head import Head, blocks
from hyperproto.estimators.left_out import LeftOut
from hyperproto.estimators.memory import Memory, centered_unit_rows, label_array, sort_order, unit_rows
from hyperproto.estimators.settings import Settings
from hyperproto.estimators.temperature import support_temperature
from hyperproto.regions import Moments, Region
from hyperproto.regions.arrays import Doubles, Floats, Indices
from hyperproto.regions.statistics import FlatStatistics, moments_of


class Model:
    """A classifier at one moment, its classes in the order of their labels."""

    def __init__(self, memory: Memory, settings: Settings) -> None:
        self.memory = memory
        self.settings = settings

    @classmethod
    def of(cls, memory: Memory, settings: Settings) -> "Model":
        """The model of a memory as it is now; the same one until either changes."""
        if settings not in memory.cache:
            memory.cache[settings] = cls(memory, settings)
        model: Model = memory.cache[settings]
        return model

    @cached_property
    def order(self) -> Indices:
        """The slot of each class (N,)."""
        return sort_order(self.memory.labels)

    @cached_property
    def classes(self) -> NDArray[Any]:
        """The labels (N,)."""
        return label_array(self.memory.labels[slot] for slot in self.order)

    @cached_property
    def mean(self) -> Doubles:
        """What "center-unit" subtracts: the mean of the class means, since counts differ."""
        mean: Doubles = self.memory.moments.mean.mean(axis=0)
        return mean

    @cached_property
    def moments(self) -> Moments:
        """Of the rows as the region sees them."""
        if self.settings.transform == "center-unit":
            stats = self.stats
            return Moments(stats.count, stats.mean, stats.squares)
        all_slots = self.memory.moments
        return Moments(all_slots.count[self.order], all_slots.mean[self.order], all_slots.squares[self.order])

    @cached_property
    def stats(self) -> FlatStatistics:
        """The same with the examples."""
        support = self.memory.support
        if support is None:
            raise ConfigError("this needs the examples themselves; fit again with store_support=True")
        labels, weights = np.argsort(self.order)[support.slots], support.weights
        rows, moments = support.rows, None
        if self.settings.transform == "center-unit":
            rows = centered_unit_rows(rows, self.mean)
            moments = moments_of(rows, labels, weights, len(self.order))
        moments = moments or self.moments
        return FlatStatistics(moments.count, moments.mean, moments.squares, rows, labels, weights)

    @cached_property
    def region(self) -> Region:
        """The fitted region; a cone that needs no examples has no extent here."""
        return self.settings.fit(self.stats if self.settings.needs_examples else self.moments)

    @cached_property
    def whole_region(self) -> Region:
        """The fitted region with its extent."""
        return self.region if self.region.extent_radius is not None else self.settings.fit(self.stats)

    @cached_property
    def head(self) -> Head | None:
        """The fast way to the measure, if there is one."""
        return Head.of(self.region, self.settings)

    @cached_property
    def left_out(self) -> LeftOut:
        """The examples, each left out of its class."""
        return LeftOut(self.stats)

    @cached_property
    def temperature(self) -> float:
        """Of the softmax."""
        if self.settings.temperature != "auto":
            return float(self.settings.temperature)
        if self.memory.support is None:
            raise ConfigError(
                "temperature='auto' is fitted to the examples, and store_support=False keeps none; "
                "give temperature a number, or set store_support=True"
            )
        return support_temperature(self.left_out, self.region, self.settings)

    @cached_property
    def scale(self) -> Doubles:
        """How far from its mean an example of each class usually lies (N,)."""
        return class_scales(self.moments)

    @cached_property
    def distances(self) -> Head:
        """Squared distances to the means."""
        return Head.of_centers(self.moments.mean)

    @cached_property
    def conformal(self) -> Conformal:
        """The scores that "none of these" rests on."""
        return Conformal(self.left_out)

    @cached_property
    def thresholds(self) -> Doubles:
        """The distance to its mean at which each class ends (N,)."""
        coverage = self.settings.coverage
        if coverage is None:
            raise ConfigError("without a coverage nothing is rejected; set coverage, for example to 0.95")
        found = self.conformal.thresholds(coverage, self.settings.class_thresholds, self.settings.guarantee)
        if np.isinf(found).any():
            weights = self.stats.weights
            number = weights[np.isfinite(self.conformal.scores)].sum()
            needs = f"coverage={coverage} needs {enough(coverage)} examples of classes with two or more"
            if self.settings.guarantee:
                needs += f", and for its guarantee all but a share {1 - coverage:.2g} of the examples in such classes"
            told = f"{needs}; there are {number:g} of {weights.sum():g}: until then some classes accept everything"
            warnings.warn(told, stacklevel=2)
        return found

    def prepare(self, X: Floats) -> Floats:
        """Rows as the region sees them."""
        if self.settings.transform == "center-unit":
            return centered_unit_rows(X, self.mean)
        return unit_rows(X) if self.settings.unit else X

    def scores(self, rows: Floats) -> Floats:
        """Larger is more likely (n, N), right up to a number that all classes of a prepared row share."""
        return -self._slow_measure(rows) if self.head is None else self.head.scores(rows)

    def measure(self, rows: Floats) -> Floats:
        """The measure of prepared rows (n, N)."""
        return self._slow_measure(rows) if self.head is None else self.head.measure(rows)

    def distance(self, rows: Floats) -> Floats:
        """Distance of prepared rows to the means (n, N)."""
        return np.sqrt(np.maximum(self.distances.measure(rows), 0.0))

    def novelty(self, rows: Floats) -> Floats:
        """The least distance of prepared rows to a mean, in units of the class's scale (n,)."""
        least: Floats = (self.distance(rows) / self.scale).min(axis=1)
        return least

    def each_block(self, X: Floats) -> Any:
        """Prepared rows, in blocks, with their places."""
        return ((part, self.prepare(X[part])) for part in blocks(len(X), len(self.order)))

    def _slow_measure(self, rows: Floats) -> Floats:
        region: Any = self.region
        measured: Floats = region.measure(rows.astype(np.float64), **self.settings.measure_options)
        return measured
