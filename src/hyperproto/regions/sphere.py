"""Classes as hyperspheres B(z, eps): eq. 1-3 of the paper, and better closed forms."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.regions.arrays import Array, Doubles, Indices, at_least, positive, root, squared_distance
from hyperproto.regions.base import ClosedForm, LinearForm, Region, check_mode
from hyperproto.regions.bayes import (
    PRIOR_RATIO,
    SMALL,
    effective_counts,
    fit_bayes,
    left_out_distances,
    left_out_distances_with_names,
    left_out_radii,
)
from hyperproto.regions.evidence import NO_EVIDENCE, Evidence, FittedEvidence, fit_with_evidence
from hyperproto.regions.evidence_left_out import FoldCenters
from hyperproto.regions.left_out import Folds, LeftOut
from hyperproto.regions.statistics import (
    MEAN_DISTANCE,
    ClassStatistics,
    ExampleStatistics,
    Statistics,
    extent_radius,
    pooled_scatter,
    shrunk_scatter,
    with_examples,
)
from hyperproto.regions.whitening import Whitening

RADIUS_DISTANCES = ("squared", "plain")  # distances that the radius of eq. 3 averages, with the squared measure


@dataclass(frozen=True, eq=False)
class Sphere(Region):
    """Hyperspheres, with M(x, B_n) = ||A x - z_n||^2 - eps_n (eq. 2; A is the identity but in mode "bayes").

    If not `squared`, M = ||A x - z_n|| - eps_n; or, with `under_root`, sqrt(max(||A x - z_n||^2 - eps_n, 0)), for a
    bias that belongs to the squared distance.
    """

    modes: ClassVar[tuple[str, ...]] = ("bayes", "unbiased", "paper", "point")

    center: Array
    bias_radius: Array = None
    extent_radius: Array = None
    squared: bool = True
    under_root: bool = False
    whiten: Whitening | None = None
    scatter: Array = None  # (...) the pooled within-class scatter v
    ratio: Array = None  # (...) k, the ratio of within- to between-class variance
    gain: Array = None  # (...) strength of the whitening, b of `hyperproto.regions.whitening`
    evidence: FittedEvidence | None = None  # of a fit by "bayes" with evidence
    before: "Sphere | None" = None  # closed form that a refined head started from; leave-one-out is that of it
    sharpness: float = 1.0  # factor of the measures of `before` in leave-one-out
    fold_centers: FoldCenters | None = None  # for leave-one-out of a stored sphere whose unlabelled rows are not
    folds: Folds | None = None  # of models saved by version 0.2

    def __post_init__(self) -> None:
        """Set the radii to 0 if none are given."""
        if self.bias_radius is None:
            self._fill("bias_radius")

    @classmethod
    def fit(
        cls,
        support: Array,
        labels: Array,
        way: int,
        *,
        mode: str = "bayes",
        squared: bool = True,
        radius_distance: str = "squared",
        radius_weight: float = 1.0,
        prior_ratio: float = PRIOR_RATIO,
        groups: Array = None,
        correlation: float = 0.0,
        evidence: Evidence = NO_EVIDENCE,
    ) -> Self:
        """Estimate centres and radii from the support.

        - "bayes": shrunken centres in a whitened space, see `hyperproto.regions.bayes`; `prior_ratio` is the prior of
          the ratio of within- to between-class variance. Examples of one of the `groups` (..., S) may correlate: see
          `hyperproto.regions.bayes.effective_counts`. `evidence` holds class names and unlabelled rows: see
          `hyperproto.regions.evidence`.
        - "unbiased": eps_n = v / K_n, since E||x - z_n||^2 = ||x - mu_n||^2 + v / K_n; v is the pooled scatter.
        - "paper": eq. 3, eps_n = the mean distance of the support to its centre, times `radius_weight`. If the measure
          is `squared`, it is the mean of squared distances, or of plain ones with `radius_distance="plain"`.
        - "point": eps_n = 0.
        """
        check_mode(cls, mode)  # before the support is looked at
        stats = ClassStatistics.of(support, labels, way)
        if correlation and mode != "bayes":
            raise ConfigError(f"only the fit mode 'bayes' takes the correlation of examples; {mode!r} does not")
        return cls.from_statistics(
            stats,
            mode=mode,
            squared=squared,
            radius_distance=radius_distance,
            radius_weight=radius_weight,
            prior_ratio=prior_ratio,
            effective_count=effective_counts(stats.member, groups, correlation) if correlation else None,
            evidence=evidence,
        )

    @classmethod
    def from_statistics(
        cls,
        stats: Statistics,
        *,
        mode: str = "bayes",
        squared: bool = True,
        radius_distance: str = "squared",
        radius_weight: float = 1.0,
        prior_ratio: float = PRIOR_RATIO,
        effective_count: Array = None,
        evidence: Evidence = NO_EVIDENCE,
    ) -> Self:
        """Estimate centres and radii, as `fit` does; only "bayes" and mean distances of "paper" need the examples."""
        check_radius_distance(radius_distance, squared)
        check_mode(cls, mode)
        if radius_distance != "squared" and mode != "paper":
            raise ConfigError(
                f"radius_distance is a reading of eq. 3; the fit mode {mode!r} has no such radius: use 'paper'"
            )
        if radius_weight != 1.0 and mode != "paper":
            raise ConfigError(f"radius_weight weighs the radius of eq. 3; the fit mode {mode!r} has none: use 'paper'")
        if prior_ratio <= 0 or (prior_ratio != PRIOR_RATIO and mode != "bayes"):
            raise ConfigError(f"prior_ratio {prior_ratio} must be above 0, and is only for the fit mode 'bayes'")
        if mode != "bayes" and evidence:
            raise ConfigError(f"names and unlabelled rows are for the fit mode 'bayes'; {mode!r} cannot use them")
        if not squared and evidence.has_rows:
            raise ConfigError("unlabelled rows and refine go with the squared measure; use squared=True")
        if mode == "bayes":
            stats, fitted = with_examples(stats), None
            if evidence:
                fit, fitted = fit_with_evidence(stats, prior_ratio, effective_count, evidence)
            else:
                fit = fit_bayes(stats, prior_ratio, effective_count)
            return cls(**vars(fit), squared=squared, under_root=True, evidence=fitted)
        scatter = pooled_scatter(stats.squares, stats.count)
        eps = None
        if mode == "unbiased":
            eps = scatter[..., None] / positive(stats.count)
        elif mode == "paper":
            of_squares = squared and radius_distance == "squared"
            eps = radius_weight * (
                stats.squares / positive(stats.count) if of_squares else mean_distance(with_examples(stats))
            )
        extent = extent_radius(stats.squares, stats.count)
        return cls(stats.mean, eps, extent, squared, under_root=mode == "unbiased", scatter=scatter)

    @classmethod
    def options(cls, mode: str) -> tuple[str, ...]:
        """Name the forms of the measure, the reading of eq. 3, and the prior of "bayes"."""
        shared = ("squared", "radius_distance")
        return (*shared, "prior_ratio") if mode == "bayes" else shared

    @classmethod
    def needs_examples(cls, mode: str, **options: Any) -> str | None:
        """Say which forms need the examples: the whitening of "bayes", and a radius that is a mean of distances."""
        if mode == "bayes":
            return "fit_mode='bayes' whitens by them; use 'unbiased'"
        return MEAN_DISTANCE if mode == "paper" and averages_distances(**options) else None

    def measure(self, x: Array) -> Array:
        """Return the measure of eq. 2 (..., Q, N)."""
        return self.measure_at(self._squared_distance(x))

    def measure_at(self, distance2: Array) -> Array:
        """Return the measure at squared distances ||A x - z_n||^2 (..., Q, N)."""
        eps = self.bias_radius[..., None, :]
        if self.squared:
            return distance2 - eps
        return root(distance2 - eps) if self.under_root else root(distance2) - eps

    def distance(self, x: Array) -> Array:
        """Return ||A x - z_n|| (..., Q, N)."""
        return root(self._squared_distance(x))

    @property
    def is_linear(self) -> bool:
        """True if the measure is linear in x: true if `squared`."""
        return self.squared

    def linear(self, middle: Array = None) -> LinearForm:
        """Return weights and bias with x @ weights + bias = ||A x||^2 - M(x)."""
        if not self.squared:
            raise ConfigError("only the squared measure is linear in x up to a common term; fit with squared=True")
        return LinearForm.of_distances(self.center, self.bias_radius, self.whiten, middle)

    def moved(self, by: Array) -> Self:
        """Return the spheres moved by `by` (D,), which is whitened as the centres are."""
        return replace(self, center=self.center + (by if self.whiten is None else self.whiten(by[None, :])))

    def novelty(self, x: Array, count: Array) -> Array:
        """Score queries (..., Q) as out-of-class: by `background_ratio` after "bayes", else by the extents."""
        return self.beyond_extent(x, count) if self.ratio is None else self.background_ratio(x, count)

    def background_ratio(self, x: Array, count: Array) -> Array:
        """Return the log likelihood ratio (..., Q) of a new class to the likeliest given class; 0 is as likely.

        The sphere is of mode "bayes": scatter v, class centres of variance v / k about a common mean m. An example of
        class n has variance r_n = v_n (1 + 1 / (K_n + k)) about its centre z_n, one of a new class r = v (1 + 1/k)
        about m; both grow by the variance of m. Up to a factor D / 2, the log likelihood ratio is

            min_n ||x - z_n||^2 / r_n + log r_n  -  ||x - m||^2 / r - log r

        With one example a class, v follows from the spread of the centres and the prior k.
        """
        xp = array_namespace(x)
        k, known = self.ratio[..., None], self.scatter[..., None]
        if self.evidence is not None:
            count, known = self.evidence.posterior_count(count), self.evidence.scatter[..., None]
        weight = count / (count + k)  # (..., N) weight of the class mean in its centre
        middle = xp.mean(self.center, axis=-2, keepdims=True)  # (..., 1, D) m
        away = xp.sum((self.center - middle) ** 2, axis=-1) / at_least(weight, SMALL)  # an empty class lies at m
        guess = k * xp.sum(away, axis=-1, keepdims=True) / max(1, self.center.shape[-2] - 1)
        v = xp.where(known > 0, known, xp.where(guess > 0, guess, 1.0))  # (..., 1)
        grow = 1 + 1 / (count + k)
        own = xp.where(self.scatter[..., None] > 0, self._extent**2 / grow, v)
        variance = v / k / at_least(xp.sum(weight, axis=-1, keepdims=True), SMALL)  # of m
        reach = shrunk_scatter(own, v, count) * grow + (1 - weight) ** 2 * variance  # (..., N)
        background = v + v / k + variance  # (..., 1)
        own_class = self.distance(x) ** 2 / reach[..., None, :] + xp.log(reach)[..., None, :]  # (..., Q, N)
        away = Sphere(middle, whiten=self.whiten).distance(x)[..., 0] ** 2
        return xp.min(own_class, axis=-1) - (away / background + xp.log(background))

    def left_out(self, out: LeftOut, index: Indices, form: ClosedForm, fair: bool = False) -> Doubles:
        """Measure each example to spheres without it; if `fair`, the radius of eq. 3 is that of the whole class."""
        if self.folds is not None:
            return self.folds.measures(out.stats.rows, index)
        if self.before is not None:
            return self.sharpness * self.before.left_out(out, index, form, fair)
        fair = fair and form.mode in ("paper", "point")
        met: Any = self
        if form.mode == "bayes":
            place = self._distances_left_out(out, index, form)
            met = replace(self, bias_radius=left_out_radii(out, index, self.bias_radius))
        else:
            place = out.squared_distances(index, fair)
            if form.mode == "paper" and averages_distances(**form.options) and not fair:
                own = out.mean_of_others(index, _distances_of_others)
                met = replace(self, bias_radius=out.with_own(self.bias_radius, index, own))
            elif not (form.mode == "paper" and fair):
                met = form.fit(out.statistics(index))
        measured: Doubles = met.measure_at(place[:, None, :])[:, 0]
        return measured

    def centers_left_out(self, out: LeftOut, form: ClosedForm) -> FoldCenters | None:
        """Return the centres without each fold of the examples; None without unlabelled rows.

        Clusters whose rows are not stored take no part in leave-one-out: one that an example has formed would stay.
        """
        if self.fold_centers is not None:
            return self.fold_centers
        rows = form.options.get("evidence", NO_EVIDENCE).unlabelled
        if rows is None or self.evidence is None or self.evidence.clusters is None or not self.evidence.clusters.spread:
            return None
        made: FoldCenters = out.kept("folds", rows, lambda: FoldCenters.fit(self, out, rows))
        return made

    def _distances_left_out(self, out: LeftOut, index: Indices, form: ClosedForm) -> Doubles:
        """Return squared distances (B, N) of the examples `index` to centres without them."""
        evidence, whiten, given = self.evidence, self.whiten, (self.ratio, self.gain)
        if (folds := self.centers_left_out(out, form)) is not None:
            return folds.distances(self, out, index)
        if evidence is None or evidence.names is None or whiten is None:
            return left_out_distances(out, index, whiten, *given)
        return left_out_distances_with_names(out, index, evidence.names, evidence.name_weight, whiten, *given)

    def _squared_distance(self, x: Array) -> Array:
        return squared_distance(x if self.whiten is None else self.whiten(x), self.center)


def check_radius_distance(name: str, squared: bool) -> None:
    """Refuse an unknown reading of the radius of eq. 3, or one that the unsquared measure implies."""
    if name not in RADIUS_DISTANCES:
        raise ConfigError(unknown_name("radius_distance", name, RADIUS_DISTANCES))
    if name == "plain" and not squared:
        raise ConfigError(
            "radius_distance='plain' goes with the squared measure; with squared=False the radius is a mean of plain "
            "distances already: leave radius_distance out"
        )


def averages_distances(squared: bool = True, radius_distance: str = "squared", **_: Any) -> bool:
    """Return whether the radius of eq. 3 averages plain distances, which needs the examples."""
    return not squared or radius_distance == "plain"


def mean_distance(stats: ExampleStatistics) -> Array:
    """Return the mean of ||x - z|| over each class (..., N)."""
    xp = array_namespace(stats.mean)
    return stats.average(xp.linalg.vector_norm(stats.residual, axis=-1))


def _distances_of_others(out: LeftOut, index: Indices, members: Indices) -> Doubles:
    """Return the distance of each member of a class to its mean without each of `index` (B, K).

    Leaving out an example of residual r_i moves the mean by -t r_i, so that the others have residuals r_j + t r_i: one
    product of residuals gives all distances of a class.
    """
    residual, lengths = out.stats.residual, out.stats.lengths
    t = out.step[index, None]
    squared = lengths[members] + 2 * t * (residual[index] @ residual[members].T) + t * t * lengths[index, None]
    found: Doubles = np.sqrt(np.maximum(squared, 0.0))
    return found
