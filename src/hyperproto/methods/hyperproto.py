"""HyperProto, the paper's method: a class is a hypersphere with a centre and a radius of its own."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.encoders import Features
from hyperproto.errors import ConfigError
from hyperproto.methods.parts import linear_scores
from hyperproto.methods.stored import StoredRegions
from hyperproto.methods.task import Task
from hyperproto.regions import PRIOR_RATIO, Sphere
from hyperproto.regions.sphere import check_radius_distance


class HyperProto(StoredRegions):
    """Ding et al., "Few-shot Classification with Hypersphere Modeling of Prototypes": M = ||x - z||^2 - eps.

    `squared=False` measures the distance itself, as the paper's text says. `radius_distance="plain"` keeps the squared
    measure and takes eq. 3's "mean distance" unsquared, in the initialisation and in `fit="paper"`. At evaluation,
    `radius_weight` scales the radius of eq. 3, and `prior_ratio` is the ratio of variance within classes to variance
    between them that `fit="bayes"` expects: 4 fits frozen text encoders, and a trained run carries its own.

    Two more options are for words. `count_prior` adds `count_prior (2 v / D) log K_n` to the score of a class of K_n
    examples, v the pooled scatter: 1 is the prior of a Gaussian classifier with independent coordinates, and those of
    an encoder, which are not, want more. `unit_correlation` is how alike the units of one class in one item are, from 0
    to 1: `fit="bayes"` then believes the mean of a class no more than so many independent examples deserve.

    `fit="bayes"` also learns from names of the classes and from units without a label, where a task has them: see
    `hyperproto.regions.evidence`.

    `start_radius="zero"` has the radii of training start at 0, not at eq. 3: nothing but a free bias per class.
    """

    fits = Sphere.modes

    def __init__(
        self,
        *,
        squared: bool = True,
        radius_distance: Literal["squared", "plain"] = "squared",
        radius_weight: float = 1.0,
        prior_ratio: float = PRIOR_RATIO,
        start_radius: Literal["paper", "zero"] = "paper",
        count_prior: float = 0.0,
        unit_correlation: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if not 0 <= unit_correlation <= 1:
            raise ConfigError(f"unit_correlation {unit_correlation} must be from 0 to 1")
        if count_prior and not squared:
            raise ConfigError("count_prior is in the unit of a squared distance; it goes with squared = true")
        self.count_prior = count_prior
        self.unit_correlation = unit_correlation
        if prior_ratio <= 0:
            raise ConfigError(f"prior_ratio {prior_ratio} must be above 0")
        self.prior_ratio = prior_ratio
        check_radius_distance(radius_distance, squared)
        self.squared = squared
        self.radius_distance = radius_distance
        self.radius_weight = radius_weight
        self.start_radius = start_radius

    @property
    def uses_evidence(self) -> frozenset[str]:
        """Names of classes and units without a label, with the closed form that has a use for them."""
        return frozenset({"names", "unlabelled"} if self.fit == "bayes" else ())

    @torch.no_grad()
    def setup(self, pool: Pool, features: Features) -> None:
        """Initialisation phase of Algorithm 1, unless the radii start at 0."""
        super().setup(pool, features)
        if self.start_radius == "zero":
            self.radius.zero_()

    def closed_form(self, support: Tensor, labels: Tensor, way: int, mode: str, **options: Any) -> Sphere:
        """Fit spheres, eq. 3 or better."""
        if mode == "paper":
            options["radius_distance"] = self.radius_distance
        return Sphere.fit(support, labels, way, mode=mode, squared=self.squared, **options)

    def evaluation_options(self) -> dict[str, Any]:
        """Each closed form has an option of its own."""
        own = {"paper": {"radius_weight": self.radius_weight}, "bayes": {"prior_ratio": self.prior_ratio}}
        return own.get(self.fit, {})

    def fitted(self, task: Task) -> Sphere:
        """Fit unseen classes in closed form; classes of many examples are likelier, if that is asked for."""
        more: dict[str, Any] = self.evaluation_options()
        if self.unit_correlation and self.fit == "bayes":
            more |= {"groups": task.support_items(), "correlation": self.unit_correlation}
        if self.fit == "bayes":
            more["evidence"] = task.evidence
        fitted = self.closed_form(task.support, task.support_y, task.way, self.fit, **more)
        sphere: Sphere = self.with_one_shot_radius(fitted, task)
        if not self.count_prior:
            return sphere
        nat = 2 * sphere.scatter[..., None] / task.support.shape[-1]  # squared distance that is worth a factor of e
        return replace(
            sphere, bias_radius=sphere.bias_radius + self.count_prior * nat * task.counts().clamp(min=1).log()
        )

    def scores(self, task: Task) -> Tensor:
        """Score by the linear form where there is one."""
        if not self.squared:
            return super().scores(task)
        return linear_scores(task, self.fitted)

    def placed(self, task: Task) -> Task:
        """Only differences count."""
        return task.centred()

    def region(self, center: Tensor, radius: Tensor) -> Sphere:
        """Make spheres of stored centres and radii."""
        return Sphere(center, radius, squared=self.squared)
