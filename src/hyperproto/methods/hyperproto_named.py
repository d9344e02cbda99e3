"""Spheres with centres between the examples and the name of a class, trained with the encoder of both."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics, Sphere


class HyperProtoNamed(Method):
    """Posterior centres c_n = (K_n z_n + k P_n) / (K_n + k) in the encoder's own space. Ours.

    P_n is the vector of the name of class n, z_n the mean of its K_n examples. The prior weight of a name is k examples
    (`name_worth` is its start value; it is learned unless `learn_worth = false`). The radius eps_n = v / (K_n + k), v
    learned, is the bias of the squared distance to such a centre. A class without a name has k = 0; a class without
    examples has its name as centre. After Liu et al., "A Simple yet Effective Relation Information Guided Approach for
    Few-Shot Relation Extraction", 2022, who add the two vectors.

    With `[names] encoder = "same"` names are vectors of the same space as items and are learned with them. Names of
    another space have `name_size` numbers, and a linear map into this one is learned.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})
    needs_names = True
    start_temperature = 0.1
    starts: ClassVar[dict[str, str]] = {**Method.starts, "name_worth": "log_worth", "scatter": "log_scatter"}

    def __init__(
        self,
        *,
        name_worth: float = 1.0,
        learn_worth: bool = True,
        scatter: float = 0.5,
        name_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        for name, value in {"name_worth": name_worth, "scatter": scatter}.items():
            if not value > 0:
                raise ConfigError(f"{name} {value} must be above 0")
        [size] = self.feature_shape
        self.log_worth = nn.Parameter(torch.tensor(float(name_worth)).log(), requires_grad=learn_worth)
        self.log_scatter = nn.Parameter(torch.tensor(float(scatter)).log())
        self.name_size = name_size
        self.name_map = None if name_size is None else nn.Linear(name_size, size)

    @property
    def uses_evidence(self) -> frozenset[str]:
        """Kinds of evidence: names, if they are of the space of the items."""
        return frozenset({"names"} if self.name_map is None else ())

    def scores(self, task: Task) -> Tensor:
        """Return minus the measure of each query."""
        measure: Tensor = self.fitted(task).measure(task.query)
        return -measure

    def doubt(self, task: Task, scores: Tensor) -> Tensor:
        """Return the distance to the nearest class in units of its extent, (B, Q)."""
        doubt: Tensor = self.fitted(task).novelty(task.query, task.counts().to(task.query))
        return doubt

    def fitted(self, task: Task) -> Sphere:
        """Return spheres with posterior centres."""
        assert task.names is not None  # needs_names
        place = task.names if self.name_map is None else self.name_map(task.names)
        if place.shape[2:] != task.support.shape[2:]:
            raise ConfigError(
                f"names are vectors of {place.shape[-1]} numbers, items of {task.support.shape[-1]}; a linear map "
                f"between them is learned with name_size = {place.shape[-1]} in [method]"
            )
        stats = ClassStatistics.of(task.support, task.support_y, task.way)
        prior = self.log_worth.exp() * task.evidence.named.to(stats.mean)  # (B, N)
        total = stats.count + prior
        weight = prior / total.clamp(min=torch.finfo(total.dtype).tiny)
        center = torch.lerp(stats.mean, place, weight[..., None])  # (B, N, D)
        scatter = self.log_scatter.exp()
        grow = 1 / total.clamp(min=torch.finfo(total.dtype).eps)
        return Sphere(center, scatter * grow, (scatter * (1 + grow)).sqrt())

    def param_groups(self) -> dict[str, Group]:
        """Give the prior weight and the scatter, two numbers, a group for an optimiser of their own."""
        return {"prior": Group([self.log_worth, self.log_scatter])}

    def monitor(self) -> dict[str, float | list[float]]:
        """Report the prior weight of a name, in examples, and the scatter."""
        return {"name_worth": self.log_worth.exp().item(), "scatter": self.log_scatter.exp().item()}
