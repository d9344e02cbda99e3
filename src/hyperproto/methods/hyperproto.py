"""HyperProto, the paper's method: a class is a hypersphere with a centre and a radius of its own."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.encoders import Encoder
from hyperproto.errors import ConfigError
from hyperproto.methods.linear import linear_scores
from hyperproto.methods.novelty import rather_unseen
from hyperproto.methods.stored import StoredRegions
from hyperproto.methods.task import Task
from hyperproto.regions import PRIOR_RATIO, Sphere


class HyperProto(StoredRegions):
    """Ding et al., "Few-shot Classification with Hypersphere Modeling of Prototypes": M = ||x - z||^2 - eps.

    `squared=False` measures the distance itself, as the paper's text says. At evaluation, `radius_weight` scales the
    radius of eq. 3 (`fit="paper"`), and `prior_ratio` is the ratio of variance within classes to variance between them
    that `fit="bayes"` expects: choose it on validation classes, less than 4 for an encoder trained on such data.

    `start_radius="zero"` has the radii of training start at 0, not at eq. 3: nothing but a free bias per class.
    """

    fits = Sphere.modes

    def __init__(
        self,
        *,
        squared: bool = True,
        radius_weight: float = 1.0,
        prior_ratio: float = PRIOR_RATIO,
        start_radius: Literal["paper", "zero"] = "paper",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if prior_ratio <= 0:
            raise ConfigError(f"prior_ratio {prior_ratio} must be above 0")
        self.prior_ratio = prior_ratio
        self.squared = squared
        self.radius_weight = radius_weight
        self.start_radius = start_radius

    @torch.no_grad()
    def setup(self, pool: Pool, encoder: Encoder) -> None:
        """Initialisation phase of Algorithm 1, unless the radii start at 0."""
        super().setup(pool, encoder)
        if self.start_radius == "zero":
            self.radius.zero_()

    def closed_form(self, support: Tensor, labels: Tensor, way: int, mode: str, **options: Any) -> Sphere:
        """Fit spheres, eq. 3 or better."""
        return Sphere.fit(support, labels, way, mode=mode, squared=self.squared, **options)

    def evaluation_options(self) -> dict[str, Any]:
        """Each closed form has an option of its own."""
        own = {"paper": {"radius_weight": self.radius_weight}, "bayes": {"prior_ratio": self.prior_ratio}}
        return own.get(self.fit, {})

    def uses(self, option: str) -> bool:
        """The options that belong to one closed form change no other."""
        return {"radius_weight": "paper", "prior_ratio": "bayes"}.get(option, self.fit) == self.fit

    def scores(self, task: Task) -> Tensor:
        """Score by the linear form where there is one."""
        if not self.squared:
            return super().scores(task)
        return linear_scores(task, lambda support: self.fitted(replace(task, support=support)))

    def novelty(self, task: Task, scores: Tensor) -> Tensor:
        """By extent; a fit that knows how class centres lie compares it with the reach of all classes."""
        if self.fit != "bayes":
            return super().novelty(task, scores)
        task = self.placed(task)
        return rather_unseen(self.fitted(task), task)

    def placed(self, task: Task) -> Task:
        """Only differences count."""
        return task.centred()

    def region(self, center: Tensor, radius: Tensor) -> Sphere:
        """Make spheres of stored centres and radii."""
        return Sphere(center, radius, squared=self.squared)
