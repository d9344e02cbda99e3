"""Snapshot of a fitted classifier: its state at one moment with everything derived from it.

Region, linear form, temperature, thresholds and expected performance are derived when first needed, then kept. With
unlabelled rows or a refined head, `derive` computes the first three after each change.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from hyperproto.estimators.conformal import (
    Conformal,
    Expected,
    class_scales,
    enough,
    plausible_sets,
)
from hyperproto.estimators.derived import closed_snapshot, head_sharpness, temperature_of, temperature_with_rows
from hyperproto.estimators.inputs import centered_unit_rows, check_answers, unit_rows
from hyperproto.estimators.novelty import Novelty, fit_novelty, novelty_of
from hyperproto.estimators.rejection import (
    RejectionRule,
    expected_performance,
    fit_rejection,
    rejected_rows,
    rule_of,
)
from hyperproto.regions import ClosedForm, LinearForm, Moments, Region, Whitening
from hyperproto.regions.arrays import Doubles, Floats, Indices
from hyperproto.regions.evidence import NO_EVIDENCE, Clusters, Evidence
from hyperproto.regions.evidence_left_out import FoldCenters
from hyperproto.regions.left_out import Folds, LeftOut
from hyperproto.regions.statistics import FlatStatistics, far_middle, moments_of

BLOCK = 1 << 21  # scores in memory at once
ROWS = 4096  # rows at once: more would not fit the processor's cache


@dataclass(frozen=True, eq=False)
class UnlabelledSummary:
    """Summary of unlabelled rows that are no longer stored.

    The clusters stay. The rest depends on the examples, too, and holds until one of these changes.
    """

    clusters: dict[Any, tuple[Doubles, float]]  # by label: mean (D,) and weight
    spread: float
    dim: float
    head: tuple[Doubles, Doubles] | None = None  # center (N, D) and bias_radius (N,), in the order of the labels
    folds: Folds | None = None  # in models of version 0.2
    temperature: float | None = None
    fold_centers: FoldCenters | None = None  # of the closed form
    sharpness: float = 1.0  # of the head, see `head_sharpness`

    @property
    def of_clusters(self) -> "UnlabelledSummary":
        """Summary without all that depends on the examples."""
        return UnlabelledSummary(self.clusters, self.spread, self.dim)

    def clusters_of(self, labels: Sequence[Any], n_features: int) -> Clusters:
        """Return the clusters of classes in this order; a class that came later has weight 0."""
        none = np.zeros(n_features), 0.0
        mean, weight = zip(*(self.clusters.get(label, none) for label in labels), strict=True)
        return Clusters(np.stack(mean), np.array(weight), np.array(self.spread), np.array(self.dim))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Immutable view of a `State`, with its classes sorted by label.

    Threads that derive the same part at the same time get the same result. *Prepared* rows are rows after the feature
    transform, measured from `origin`.
    """

    classes: NDArray[Any]  # (N,) labels
    class_moments: Moments  # of the rows as they are kept
    unit: bool  # whether rows are kept at length 1
    rows: Floats | None  # (n, D) stored examples, in order of arrival; None: not stored
    labels: Indices | None  # (n,) class of each
    weights: Doubles | None  # (n,)
    numbers: NDArray[np.int64] | None  # (n,) number of each, counted over everything ever given
    outside: Floats | None  # (O, D) labelled out-of-class rows, as they are kept
    evidence: Evidence  # of rows as they are kept
    summary: UnlabelledSummary | None
    plain_form: ClosedForm  # without evidence
    parameters: Mapping[str, Any]
    _casts: dict[tuple[str, np.dtype[Any]], LinearForm] = field(default_factory=dict, repr=False)

    @property
    def centered(self) -> bool:
        """True if the transform is "center-unit"."""
        return bool(self.parameters["feature_transform"] == "center-unit")

    @cached_property
    def has_examples(self) -> NDArray[np.bool_]:
        """Mask of the classes with examples (N,); the others have only a name."""
        found: NDArray[np.bool_] = self.class_moments.count > 0
        return found

    @cached_property
    def mean(self) -> Doubles:
        """Vector that "center-unit" subtracts (D,): mean of the class means or, without examples, of the names."""
        means, names = self.class_moments.mean[self.has_examples], self.evidence.names
        mean: Doubles = means.mean(axis=0) if len(means) or names is None else names.mean(axis=0)
        return mean

    @cached_property
    def form(self) -> ClosedForm:
        """Closed form with the evidence, if there is any and the form can use it."""
        form, evidence = self.plain_form, self.evidence
        if form.mode != "bayes" or evidence is NO_EVIDENCE:
            return form
        names = None if evidence.names is None else self.prepare(evidence.names)
        rows = None if evidence.unlabelled is None else self.prepare(evidence.unlabelled)
        clusters = evidence.clusters
        if clusters is not None and self.origin is not None:
            clusters = replace(clusters, mean=clusters.mean - self.origin)
        if rows is None and self.summary is not None:  # the head is stored, or its rows are gone
            form = ClosedForm(form.region, form.mode, form.options)
        evidence = Evidence(names, evidence.named, rows, clusters)
        return replace(form, options={**form.options, "evidence": evidence})

    @cached_property
    def origin(self) -> Doubles | None:
        """Point that is subtracted if the examples lie far from 0, so that squares keep their digits; else None."""
        if self.centered or self.unit or not self.has_examples.any():
            return None
        return far_middle(Moments(*(part[self.has_examples] for part in vars(self.class_moments).values())))

    @cached_property
    def moments(self) -> Moments:
        """Count, mean and squares of the prepared rows of each class."""
        if self.centered:
            return Moments(self.stats.count, self.stats.mean, self.stats.squares)
        moments = self.class_moments
        if self.origin is None:
            return moments
        return replace(moments, mean=np.where(self.has_examples[:, None], moments.mean - self.origin, 0.0))

    @property
    def means(self) -> Doubles:
        """Class means after the feature transform (N, D); of a class without examples, the prior mean of its name."""
        mean: Doubles = np.asarray(self.placed.mean)
        return mean if self.origin is None else mean + self.origin

    @cached_property
    def placed(self) -> Moments:
        """Class moments, where a class without examples counts as one example at the prior mean of its name."""
        moments = self.moments
        if self.has_examples.all():
            return moments
        center = self.posterior_centers
        if center is None:
            raise ConfigError(
                "some classes have a name and no examples, and only region='sphere' with fit_mode='bayes' can place "
                "them; give examples of them, or change the parameters"
            )
        count = np.where(self.has_examples, moments.count, 1.0)
        return Moments(count, np.where(self.has_examples[:, None], moments.mean, center), moments.squares)

    @cached_property
    def posterior_centers(self) -> Doubles | None:
        """Class centres given names and unlabelled rows, before whitening (N, D); None without evidence."""
        region: Any = self.region
        evidence = getattr(region, "evidence", None)
        if evidence is None:
            return None
        center: Doubles = evidence.center(self.moments.mean, self.moments.count, region.ratio)
        return center

    @cached_property
    def stats(self) -> FlatStatistics:
        """Class moments together with the prepared examples that they summarise."""
        rows, labels, weights = self.rows, self.labels, self.weights
        if rows is None or labels is None or weights is None:
            raise ConfigError("this needs the examples themselves; fit again with store_support=True")
        if not self.centered:
            return FlatStatistics.of(self.prepare(rows, scaled=True), labels, weights, self.moments)
        rows = centered_unit_rows(rows, self.mean)
        return FlatStatistics.of(rows, labels, weights, moments_of(rows, labels, weights, len(self.classes)))

    @cached_property
    def placed_stats(self) -> FlatStatistics:
        """`placed` together with the prepared examples."""
        if self.has_examples.all():
            return self.stats
        return replace(self.stats, count=self.placed.count, mean=self.placed.mean)

    @cached_property
    def region(self) -> Region:
        """Fitted region for prepared rows; a cone that needs no examples has no extent here."""
        bayes = self.form.mode == "bayes"
        with_examples = self.centered or (bayes and self.rows is not None) or self.form.needs_examples
        region: Any = self.form.fit(self.stats if with_examples else self.moments)
        summary = self.summary
        if bayes and summary is not None:
            region = replace(region, fold_centers=summary.fold_centers)
            if summary.head is not None:
                center, radius = summary.head
                before = None if summary.fold_centers is None else region
                region = replace(region, center=center, bias_radius=radius, before=before, sharpness=summary.sharpness)
            return replace(region, folds=summary.folds)  # type: ignore[no-any-return]
        if getattr(region, "before", None) is None or self.rows is None:
            return region  # type: ignore[no-any-return]
        return replace(region, sharpness=head_sharpness(self, region))  # type: ignore[no-any-return]

    def summarised(self) -> UnlabelledSummary | None:
        """Return a summary of the unlabelled rows, by which a model is saved without them; None if there are none."""
        region: Any = self.region
        if (
            self.evidence.unlabelled is None
            or region.evidence is None
            or (clusters := region.evidence.clusters) is None
        ):
            return self.summary
        mean = clusters.mean if self.origin is None else clusters.mean + self.origin
        each = zip(self.classes.tolist(), zip(mean, clusters.weight.tolist(), strict=True), strict=True)
        head = (region.center, region.bias_radius) if region.before is not None else None
        paired = self.left_out.has_siblings.any()
        folds = (region.before or region).centers_left_out(self.left_out, self.form) if paired else None
        rest = float(clusters.spread), float(clusters.dim), head, None, self.fitted_temperature
        return UnlabelledSummary(dict(each), *rest, folds, region.sharpness)

    @property
    def region_in_place(self) -> Region:
        """Fitted region for rows after the feature transform."""
        return self.region if self.origin is None else self.region.moved(self.origin)

    @cached_property
    def region_with_extent(self) -> Region:
        """Fitted region with its extent."""
        return self.region if self.region.extent_radius is not None else self.form.fit(self.stats)

    @cached_property
    def linear(self) -> LinearForm | None:
        """Measure as one matrix product, if it is linear."""
        return self.region.linear(self.region.center.mean(axis=0)) if self.region.is_linear else None

    @cached_property
    def squared_distances(self) -> LinearForm:
        """Squared distances to the class means as one matrix product."""
        return LinearForm.of_distances(self.placed.mean, middle=self.placed.mean.mean(axis=0))

    @cached_property
    def left_out(self) -> LeftOut:
        """Leave-one-out statistics of the examples."""
        return LeftOut(self.stats)

    @cached_property
    def temperature(self) -> float:
        """Softmax temperature."""
        if self.parameters["temperature"] != "auto":
            return float(self.parameters["temperature"])
        if self.rows is None:
            raise ConfigError(
                "temperature='auto' is fitted to the examples, and store_support=False keeps none; "
                "give temperature a number, or set store_support=True"
            )
        if self.form.mode == "bayes" and self.summary is not None and self.summary.temperature is not None:
            return self.summary.temperature
        return self.fitted_temperature

    @cached_property
    def fitted_temperature(self) -> float:
        """Temperature fitted to the examples and, if none can be left out, to unlabelled rows."""
        region: Any = self.region
        if getattr(region, "before", None) is not None:
            return closed_snapshot(self, region).fitted_temperature * float(region.sharpness)
        return temperature_with_rows(self, temperature_of(self, region))

    @property
    def unlabelled(self) -> Floats | None:
        """Prepared unlabelled rows."""
        rows: Floats | None = self.form.options.get("evidence", NO_EVIDENCE).unlabelled
        return rows

    @cached_property
    def scale(self) -> Doubles:
        """Typical distance of an example to its class mean (N,)."""
        return class_scales(self.placed)

    @cached_property
    def conformal(self) -> Conformal:
        """Conformal scores: distances to means of examples, whatever evidence there is."""
        return Conformal(self.left_out if self.has_examples.all() else LeftOut(self.placed_stats))

    @cached_property
    def novelty(self) -> Novelty:
        """Novelty score; see `hyperproto.estimators.novelty`."""
        return fit_novelty(self)

    @cached_property
    def rejection(self) -> RejectionRule:
        """Rule by which `predict` rejects rows, if it is no coverage."""
        return fit_rejection(self)

    @cached_property
    def thresholds(self) -> Doubles:
        """Largest distance to its mean at which each class is plausible (N,)."""
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
            message = f"{needs}; there are {number:g} of {weights.sum():g}: until then some classes accept everything"
            warnings.warn(message, stacklevel=2)
        elif vacuous := plausible_sets(self.conformal, found).warning(coverage):
            warnings.warn(vacuous, stacklevel=2)
        return found

    @cached_property
    def expected(self) -> Expected:
        """Expected performance, by leave-one-out."""
        return expected_performance(self)

    def best(self, X: Floats) -> Indices:
        """Return the likeliest class of each row (n,), or N where the rule of rejection rejects it."""
        best = np.empty(len(X), dtype=np.intp)
        for part in blocks(len(X), len(self.classes)):
            rows = self.prepare(X[part])
            scores = self.scores(rows)
            likeliest, at = scores.argmax(axis=1), np.arange(len(rows))
            check_answers(scores[at, likeliest], X, part.start)
            if rule_of(self) is not None:
                scored, rejected = rejected_rows(self, rows, likeliest)
                check_answers(scored, X, part.start)
                likeliest[rejected] = len(self.classes)
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

    def novelties(self, X: Floats) -> Doubles:
        """Return the novelty of each row (n,)."""
        found = np.empty(len(X))
        for part in blocks(len(X), len(self.classes)):
            found[part] = novelty_of(self, self.prepare(X[part]))
        check_answers(found, X)
        return found

    def prepare(self, X: Floats, scaled: bool = False) -> Floats:
        """Return prepared rows; `scaled` says that they have length 1 already if they should."""
        if self.centered:
            return centered_unit_rows(X, self.mean)
        if self.unit:
            return X if scaled else unit_rows(X)
        return X if self.origin is None else X - self.origin.astype(X.dtype)

    def scores(self, rows: Floats) -> Floats:
        """Return minus the measure of prepared rows (n, N), up to a number that all classes of a row share."""
        if self.linear is None:
            return -self._measure(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            scores: Floats = self._cast("linear", rows.dtype).scores(rows)
        return scores

    def measure(self, rows: Floats) -> Floats:
        """Return the measure of prepared rows (n, N)."""
        if self.linear is None:
            return self._measure(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            measured: Floats = self._cast("linear", rows.dtype).measure(rows)
        return measured

    def distance(self, rows: Floats) -> Floats:
        """Return the distance of prepared rows to the class means (n, N)."""
        with np.errstate(over="ignore", invalid="ignore"):
            squared = self._cast("squared_distances", rows.dtype).measure(rows)
            distance: Floats = np.sqrt(np.maximum(squared, 0.0))
        return distance

    def _measure(self, rows: Floats) -> Floats:
        region: Any = self.region
        measured: Floats = region.measure(rows.astype(np.float64), **region.measure_options)
        return measured

    def _cast(self, name: str, dtype: np.dtype[Any]) -> LinearForm:
        """Return a linear form in the precision of the rows, made once."""
        found = self._casts.get((name, dtype))
        if found is None:
            found = self._casts[name, dtype] = cast_form(getattr(self, name), dtype)
        return found


def cast_form(form: LinearForm, dtype: np.dtype[Any]) -> LinearForm:
    """Return a linear form in another precision."""
    parts: dict[str, Any] = {}
    for name, part in vars(form).items():
        if part is None or isinstance(part, bool):
            parts[name] = part
        else:
            whitening = isinstance(part, Whitening)
            parts[name] = part.astype(dtype) if whitening else np.ascontiguousarray(part, dtype=dtype)
    return LinearForm(**parts)


def blocks(n_rows: int, way: int) -> list[slice]:
    """Return slices of rows whose scores for `way` classes fit into memory many times."""
    size = max(1, min(ROWS, BLOCK // way))
    return [slice(start, start + size) for start in range(0, n_rows, size)]
