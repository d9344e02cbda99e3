"""HyperProto, the paper's method: each class is a hypersphere with its own centre and radius."""

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

    `squared=False` measures the plain distance, as the paper's text does. `radius_distance="plain"` keeps the squared
    measure and averages plain distances in eq. 3, in the initialisation and in `fit="paper"`. At evaluation,
    `radius_weight` scales the radius of eq. 3, and `prior_ratio` is the prior of `fit="bayes"` for the ratio of
    within-class to between-class variance: 4 suits frozen text encoders, and a trained run stores its own.

    Two options are for words. `count_prior` adds `count_prior (2 v / D) log K_n` to the score of a class of K_n
    examples, v the pooled scatter: 1 is the class prior of a Gaussian classifier with independent coordinates;
    correlated coordinates need more. `unit_correlation`, from 0 to 1, is the correlation of units of one class in one
    item, by which `fit="bayes"` reduces the effective number of examples.

    `fit="bayes"` also uses the evidence of a task, class names and unlabelled units: see `hyperproto.regions.evidence`.

    `start_radius="zero"` starts the radii of training at 0 in place of eq. 3, as a free bias per class.
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
        """Kinds of evidence that the closed form uses."""
        return frozenset({"names", "unlabelled"} if self.fit == "bayes" else ())

    @torch.no_grad()
    def setup(self, pool: Pool, features: Features) -> None:
        """Run the initialisation phase of Algorithm 1; radii may start at 0."""
        super().setup(pool, features)
        if self.start_radius == "zero":
            self.radius.zero_()

    def closed_form(self, support: Tensor, labels: Tensor, way: int, mode: str, **options: Any) -> Sphere:
        """Fit spheres to a support set."""
        if mode == "paper":
            options["radius_distance"] = self.radius_distance
        return Sphere.fit(support, labels, way, mode=mode, squared=self.squared, **options)

    def evaluation_options(self) -> dict[str, Any]:
        """Return the keyword arguments of the current closed form."""
        own = {"paper": {"radius_weight": self.radius_weight}, "bayes": {"prior_ratio": self.prior_ratio}}
        return own.get(self.fit, {})

    def fitted(self, task: Task) -> Sphere:
        """Fit unseen classes in closed form, with the prior of `count_prior` in the radii."""
        more: dict[str, Any] = self.evaluation_options()
        if self.unit_correlation and self.fit == "bayes":
            more |= {"groups": task.support_items(), "correlation": self.unit_correlation}
        if self.fit == "bayes":
            more["evidence"] = task.evidence
        fitted = self.closed_form(task.support, task.support_y, task.way, self.fit, **more)
        sphere: Sphere = self.with_one_shot_radius(fitted, task)
        if not self.count_prior:
            return sphere
        nat = 2 * sphere.scatter[..., None] / task.support.shape[-1]  # squared distance of one nat
        return replace(
            sphere, bias_radius=sphere.bias_radius + self.count_prior * nat * task.counts().clamp(min=1).log()
        )

    def scores(self, task: Task) -> Tensor:
        """Score by the linear form if the measure is squared."""
        if not self.squared:
            return super().scores(task)
        return linear_scores(task, self.fitted)

    def placed(self, task: Task) -> Task:
        """Centre the task: the measure depends on differences only."""
        return task.centred()

    def region(self, center: Tensor, radius: Tensor) -> Sphere:
        """Make spheres of stored centres and radii."""
        return Sphere(center, radius, squared=self.squared)
