"""HyperProto trained through the closed form of evaluation, without stored radii."""

from typing import Any

from torch import Tensor

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Method
from hyperproto.methods.parts import linear_scores
from hyperproto.methods.task import Task
from hyperproto.regions import PRIOR_RATIO, Sphere


class HyperProtoClosed(Method):
    """Spheres fitted to the support of every training episode; the loss of the queries goes through the fit. Ours.

    `fit="bayes"` is differentiable, whitening and shrinkage included. `[episodes]` should draw many numbers of shots
    (`shot = [1, 1, 2, 5, 20]`, `most_shots`), so that vectors suit all of them. With `[names]` the vectors of names are
    learned, too. `prior_ratio` is as in `hyperproto`.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})
    fits = ("bayes", "unbiased")

    def __init__(self, *, prior_ratio: float = PRIOR_RATIO, **options: Any) -> None:
        super().__init__(**options)
        if prior_ratio <= 0:
            raise ConfigError(f"prior_ratio {prior_ratio} must be above 0")
        self.prior_ratio = prior_ratio

    @property
    def uses_evidence(self) -> frozenset[str]:
        """Kinds of evidence that the closed form uses."""
        return frozenset({"names", "unlabelled"} if self.fit == "bayes" else ())

    def scores(self, task: Task) -> Tensor:
        """Return minus the measure of each query, up to a number that all classes share."""
        return linear_scores(task, self.fitted)

    def doubt(self, task: Task, scores: Tensor) -> Tensor:
        """Return the out-of-class score of the spheres, (B, Q)."""
        task = task.centred()
        doubt: Tensor = self.fitted(task).novelty(task.query, task.counts().to(task.query))
        return doubt

    def fitted(self, task: Task) -> Sphere:
        """Fit spheres to the support, with the evidence of the task."""
        bayes = {"prior_ratio": self.prior_ratio, "evidence": task.evidence}
        more: dict[str, Any] = bayes if self.fit == "bayes" else {}
        return Sphere.fit(task.support, task.support_y, task.way, mode=self.fit, **more)
