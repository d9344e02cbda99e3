"""HyperProto, the paper's method: a class is a hypersphere with a centre and a radius of its own."""

from typing import Any

from torch import Tensor

from hyperproto.methods.stored import StoredRegions
from hyperproto.regions import Sphere


class HyperProto(StoredRegions):
    """Ding et al., "Few-shot Classification with Hypersphere Modeling of Prototypes": M = ||x - z||^2 - eps.

    `squared=False` measures the distance itself, as the paper's text says; `radius_weight` scales eq. 3's radius at
    evaluation with `fit="paper"`.
    """

    fits = Sphere.modes

    def __init__(self, *, squared: bool = True, radius_weight: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.squared = squared
        self.radius_weight = radius_weight

    def closed_form(self, support: Tensor, labels: Tensor, way: int, mode: str) -> Sphere:
        """Fit spheres, eq. 3 or better."""
        weight = self.radius_weight if mode == "paper" else 1.0
        return Sphere.fit(support, labels, way, mode=mode, squared=self.squared, radius_weight=weight)

    def region(self, center: Tensor, radius: Tensor) -> Sphere:
        """Make spheres of stored centres and radii."""
        return Sphere(center, radius, squared=self.squared)
