"""Region, linear form, temperature and thresholds of a fitted classifier: derived when first asked for, then kept."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from hyperproto.estimators.conformal import (
    Conformal,
    Expected,
    class_scales,
    enough,
    leave_one_out_accuracy,
    plausible_sets,
)
from hyperproto.estimators.inputs import check_answers
from hyperproto.estimators.memory import Examples, Snapshot, centered_unit_rows, unit_rows
from hyperproto.estimators.side import Learned
from hyperproto.estimators.temperature import (
    UNLABELLED_STEP,
    evenly_spaced,
    matched_temperature,
    mean_confidence,
    support_temperature,
)
from hyperproto.heads import RefinedForm
from hyperproto.regions import ClosedForm, LinearForm, Moments, Region, Whitening
from hyperproto.regions.arrays import Doubles, Floats, Indices
from hyperproto.regions.evidence import NO_EVIDENCE, Evidence, inlier_rows
from hyperproto.regions.left_out import LeftOut, projection
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
        self.parameters = parameters
        self._plain_form = form
        self.centered = parameters["feature_transform"] == "center-unit"
        self._casts: dict[tuple[str, np.dtype[Any]], LinearForm] = {}

    @property
    def classes(self) -> NDArray[Any]:
        """The labels (N,)."""
        return self.memory.labels

    @cached_property
    def has_examples(self) -> NDArray[np.bool_]:
        """Which classes do (N,); the others are known by their names alone."""
        found: NDArray[np.bool_] = self.memory.moments.count > 0
        return found

    @cached_property
    def mean(self) -> Doubles:
        """What "center-unit" subtracts: the mean of the class means, since counts differ; without any, of the names."""
        means, names = self.memory.moments.mean[self.has_examples], self.memory.side.names
        mean: Doubles = means.mean(axis=0) if len(means) or names is None else names.mean(axis=0)
        return mean

    @cached_property
    def form(self) -> ClosedForm:
        """How the region is fitted: with names and unlabelled rows, where there are any and the form can use them."""
        form, side = self._plain_form, self.memory.side
        if form.mode != "bayes":
            return form
        names = None if side.names is None else self.prepare(side.names)
        rows = None if side.unlabelled is None else self.prepare(side.unlabelled)
        clusters = None if rows is not None else side.clusters(self.classes.tolist(), self.memory.moments.mean.shape[1])
        if clusters is not None and self.origin is not None:
            clusters = replace(clusters, mean=clusters.mean - self.origin)
        if rows is None and side.learned is not None and side.learned.head is not None:
            form = ClosedForm(form.region, form.mode, form.options)  # the refined head is stored
        evidence = Evidence(names, side.named, rows, clusters)
        return replace(form, options={**form.options, "evidence": evidence}) if evidence else form

    @property
    def examples(self) -> Examples:
        """The examples, as they are remembered; refused where they are not."""
        if self.memory.examples is None:
            raise ConfigError("this needs the examples themselves; fit again with store_support=True")
        return self.memory.examples

    @cached_property
    def origin(self) -> Doubles | None:
        """Where prepared rows are measured from, if the examples lie far from 0: squares then keep their digits."""
        if self.centered or self.memory.unit or not self.has_examples.any():
            return None
        moments = self.memory.moments
        return far_middle(Moments(*(part[self.has_examples] for part in vars(moments).values())))

    @cached_property
    def moments(self) -> Moments:
        """Of the rows as the region sees them."""
        if self.centered:
            stats = self.stats
            return Moments(stats.count, stats.mean, stats.squares)
        moments = self.memory.moments
        if self.origin is None:
            return moments
        return replace(moments, mean=np.where(self.has_examples[:, None], moments.mean - self.origin, 0.0))

    @property
    def means(self) -> Doubles:
        """The mean of each class (N, D), after the feature transform; without examples, where its name puts it."""
        mean: Doubles = np.asarray(self.placed.mean)
        return mean if self.origin is None else mean + self.origin

    @cached_property
    def placed(self) -> Moments:
        """The same, where a class known by its name alone has one example: the place that the name gives."""
        moments = self.moments
        if self.has_examples.all():
            return moments
        return Moments(self._counted_once(moments.count), self._with_prior_means(moments.mean), moments.squares)

    def _counted_once(self, count: Doubles) -> Doubles:
        found: Doubles = np.where(self.has_examples, count, 1.0)
        return found

    def _with_prior_means(self, mean: Doubles) -> Doubles:
        """Means (N, D), with the centres of classes that have no examples, which is what their names come to."""
        center = self.posterior_centers
        if center is None:
            raise ConfigError(
                "some classes are known by their names alone, and only region='sphere' with fit_mode='bayes' can place "
                "them; give examples of them, or fit so"
            )
        found: Doubles = np.where(self.has_examples[:, None], mean, center)
        return found

    @cached_property
    def posterior_centers(self) -> Doubles | None:
        """Where names and unlabelled rows put the classes (N, D), before any whitening; None if there are none."""
        region: Any = self.region
        evidence = getattr(region, "evidence", None)
        if not evidence:
            return None
        center: Doubles = evidence.center(self.moments.mean, self.moments.count, region.ratio)
        return center

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
    def placed_stats(self) -> FlatStatistics:
        """The same with the examples."""
        if self.has_examples.all():
            return self.stats
        return replace(self.stats, count=self.placed.count, mean=self.placed.mean)

    @cached_property
    def region(self) -> Region:
        """The fitted region; a cone that needs no examples has no extent here."""
        region: Any = self.form.fit(self.stats if self.centered or self.form.needs_examples else self.moments)
        learned = self._learned
        if learned is not None:
            if learned.head is not None:
                region = replace(region, center=learned.head[0], bias_radius=learned.head[1])
            region = replace(region, folds=learned.folds)
        return region  # type: ignore[no-any-return]

    @property
    def _learned(self) -> Learned | None:
        """What unlabelled rows had come to when the model was stored without them, where the form can use it."""
        return self.memory.side.learned if self.form.mode == "bayes" else None

    def learned(self) -> Learned | None:
        """What unlabelled rows came to, for a model that is stored without them; None if there are none."""
        region: Any = self.region
        if self.memory.side.unlabelled is None or region.evidence is None or region.evidence.clusters is None:
            return self.memory.side.learned
        clusters = region.evidence.clusters
        mean = clusters.mean if self.origin is None else clusters.mean + self.origin
        each = zip(self.classes.tolist(), zip(mean, clusters.weight.tolist(), strict=True), strict=True)
        folds = region.heads_left_out(self.left_out, self.form) if self.left_out.has_siblings.any() else None
        head = (region.center, region.bias_radius) if isinstance(self.form, RefinedForm) else None
        sure = self._temperature if self._rows_decide else None
        return Learned(dict(each), float(clusters.spread), float(clusters.dim), head, folds, sure)

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
        return LinearForm.of_distances(self.placed.mean, middle=self.placed.mean.mean(axis=0))

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
        if self._learned is not None and self._learned.temperature is not None:
            return self._learned.temperature
        return self._temperature

    @cached_property
    def _temperature(self) -> float:
        """Fitted to the examples, and to the unlabelled rows where no example can be left out."""
        directions = self.centered or self.memory.unit
        prior = self.parameters["prior_ratio"], directions, self.posterior_centers
        found = support_temperature(self.left_out, self.region, self.form, *prior)
        return found ** (1 - UNLABELLED_STEP) * self._no_surer() ** UNLABELLED_STEP if self._rows_decide else found

    @property
    def _rows_decide(self) -> bool:
        """Whether there are unlabelled rows to be sure of, and no example can be left out to tell how far."""
        return self._unlabelled is not None and not self.left_out.has_siblings.any() and len(self.classes) > 1

    @property
    def _unlabelled(self) -> Floats | None:
        """Unlabelled rows as the region sees them."""
        rows: Floats | None = self.form.options.get("evidence", NO_EVIDENCE).unlabelled
        return rows

    def _no_surer(self) -> float:
        """The temperature that leaves the model as sure of the unlabelled rows as one that does not have them."""
        side = replace(self.memory.side, unlabelled=None)
        form = ClosedForm(self._plain_form.region, self._plain_form.mode, self._plain_form.options)
        without = Model(replace(self.memory, side=side), form, self.parameters)
        rows, region = cast(Floats, self._unlabelled), cast(Any, self.region)
        _, weight = inlier_rows(rows, self.stats, region.whiten)
        rows = rows if weight is None else rows[weight > 0]
        every = np.arange(len(rows))
        rows = rows[evenly_spaced(every, len(self.classes), lambda: np.argsort(projection(rows), kind="stable"))]
        before, now = (model.measure(rows).astype(np.float64) for model in (without, self))
        return matched_temperature(now, mean_confidence(before, without._temperature))

    @cached_property
    def scale(self) -> Doubles:
        """How far from its mean an example of each class usually lies (N,)."""
        return class_scales(self.placed)

    @cached_property
    def conformal(self) -> Conformal:
        """The scores that "none of these" rests on: distances to means of examples, whatever else is known."""
        return Conformal(self.left_out if self.has_examples.all() else LeftOut(self.placed_stats))

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
        accuracy, number = leave_one_out_accuracy(self.left_out, self.region, self.form)
        alone = "every class has one example, and none can be left out"
        reason = "" if number else alone if self.has_examples.any() else "there are no examples to leave out"
        return Expected(
            accuracy,
            None if sets is None else sets.set_size,
            None if sets is None else sets.outside_rejected,
            way,
            number,
            reason,
        )

    def best(self, X: Floats, reject: bool = False) -> Indices:
        """Return the likeliest class of each row (n,); with `reject`, N where that class is not plausible."""
        best = np.empty(len(X), dtype=np.intp)
        for part in blocks(len(X), len(self.classes)):
            rows = self.prepare(X[part])
            scores = self.scores(rows)
            likeliest, at = scores.argmax(axis=1), np.arange(len(rows))
            check_answers(scores[at, likeliest], X, part.start)
            if reject:
                distance = self.distance(rows)
                check_answers(distance, X, part.start)
                plausible = distance[at, likeliest] <= self.thresholds[likeliest]
                likeliest = np.where(plausible, likeliest, len(self.classes))
            best[part] = likeliest
        return best

    def probabilities(self, X: Floats) -> Floats:
        """Return the softmax of the scores over the classes (n, N)."""
        found = np.empty((len(X), len(self.classes)), X.dtype)
        for part in blocks(len(X), len(self.classes)):
            power = self.scores(self.prepare(X[part])) / self.temperature
            most = power.max(axis=1, keepdims=True)
            check_answers(most, X, part.start)
            power -= most
            np.exp(power, out=power)
            found[part] = power / power.sum(axis=1, keepdims=True)
        return found

    def measures(self, X: Floats) -> Floats:
        """Return the measure of each row for each class (n, N)."""
        parts = [self.measure(self.prepare(X[part])) for part in blocks(len(X), len(self.classes))]
        found: Floats = np.concatenate(parts)
        check_answers(found, X)
        return found

    def plausible(self, X: Floats) -> NDArray[np.bool_]:
        """Return which classes are plausible for each row (n, N)."""
        thresholds = self.thresholds
        found = np.empty((len(X), len(self.classes)), dtype=bool)
        for part in blocks(len(X), len(self.classes)):
            distance = self.distance(self.prepare(X[part]))
            check_answers(distance, X, part.start)
            found[part] = distance <= thresholds
        return found

    def novelties(self, X: Floats) -> Floats:
        """Return the least distance of each row to a class mean, in units of the class's scale (n,)."""
        parts = [
            (self.distance(self.prepare(X[part])) / self.scale).min(axis=1)
            for part in blocks(len(X), len(self.classes))
        ]
        found: Floats = np.concatenate(parts)
        check_answers(found, X)
        return found

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
