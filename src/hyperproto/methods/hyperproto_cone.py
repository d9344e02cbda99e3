"""HyperProto with cones: each class is a direction and an angle about it."""

from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from hyperproto.methods.stored import StoredRegions
from hyperproto.methods.task import Task
from hyperproto.regions import Cone, cone_overlap_loss
from hyperproto.regions.arrays import unit


class HyperProtoCone(StoredRegions):
    """Cone-like prototypes of the paper, with L_dis to keep the cones of an episode apart.

    The measure lies between -1 and 1, so the softmax needs a temperature well below 1. Two readings of the paper are
    options: `mean_of="raw"` takes centres from means of vectors of any length in place of unit vectors; `own_pair` adds
    the pairs i = j of L_dis, a penalty of 2 |eps_i|.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})
    fits = Cone.modes
    start_temperature = 0.1

    def __init__(self, *, mean_of: Literal["unit", "raw"] = "unit", own_pair: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.mean_of: Literal["unit", "raw"] = mean_of
        self.own_pair = own_pair

    def closed_form(self, support: Tensor, labels: Tensor, way: int, mode: str, **options: Any) -> Cone:
        """Fit cones; the mode "unbiased" takes means of unit vectors."""
        mean_of = "unit" if mode == "unbiased" else self.mean_of
        return Cone.fit(support, labels, way, mode=mode, mean_of=mean_of, **options)

    def episode_centers(self, task: Task) -> Tensor:
        """Return the mean of each class, of unit vectors or of raw ones."""
        if self.mean_of == "raw":
            return super().episode_centers(task)
        return super().episode_centers(replace(task, support=unit(task.support)))

    def region(self, center: Tensor, radius: Tensor) -> Cone:
        """Make cones of stored directions and angles."""
        return Cone(center, radius)

    def measure(self, region: Any, query: Tensor) -> Tensor:
        """Return the measure; at evaluation, ties inside several cones are broken by depth."""
        measure: Tensor = region.measure(query, break_ties=not self.training)
        return measure

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the parts L_cls and L_dis."""
        cones = self.stored_regions(task)
        return {
            "cls": self.cross_entropy(-self.measure(cones, task.query), task),
            "dis": cone_overlap_loss(cones.center, cones.bias_radius, self.own_pair).mean(),
        }
