"""HyperProto with Gaussians: each class is a mean and a standard deviation."""

from typing import Any, Literal

from torch import Tensor

from hyperproto.methods.stored import StoredRegions
from hyperproto.methods.task import Task
from hyperproto.regions import Gaussian


class HyperProtoGaussian(StoredRegions):
    """Gaussian prototypes of the paper: sigma, in place of the radius, scales the distance.

    `sigma="ml"` initialises and fits it by maximum likelihood, `"eq3"` by eq. 3 to the letter (D times the variance).
    """

    fits = Gaussian.modes
    radius_name = "sigma"

    def __init__(self, *, sigma: Literal["ml", "eq3"] = "ml", **options: Any) -> None:
        super().__init__(**options)
        self.sigma: Literal["ml", "eq3"] = sigma

    def closed_form(self, support: Tensor, labels: Tensor, way: int, mode: str, **options: Any) -> Gaussian:
        """Fit Gaussians."""
        return Gaussian.fit(support, labels, way, mode=mode, sigma=self.sigma if mode == "paper" else "ml", **options)

    def placed(self, task: Task) -> Task:
        """Centre the task: the measure depends on differences only."""
        return task.centred()

    def region(self, center: Tensor, radius: Tensor) -> Gaussian:
        """Make Gaussians of stored means and deviations."""
        return Gaussian(center, radius)
