"""TRAML: ProtoNet trained with margins that grow with the similarity of class names."""

from math import isfinite
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders.class_names import ClassNames
from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group
from hyperproto.methods.protonet import ProtoNet
from hyperproto.methods.task import Task
from hyperproto.regions.arrays import unit

Margin = Literal["fixed", "class", "task", "task-learned"]
LEAST_SPREAD = 1e-6  # added to the standard deviation of similarities


class TRAML(ProtoNet):
    """Li et al., "Boosting Few-Shot Learning with Adaptive Margin Loss", CVPR 2020.

    Scores are ProtoNet's. The training loss of a query of class y is the cross entropy of the logits s_k + m_yk, with
    m_yy = 0. With sim the cosines between the names of the episode's classes, the margins m_yk for k != y are

    - `margin = "fixed"`: beta for all pairs, a control without names;
    - "class", the paper's class-relevant margin: alpha sim_yk + beta;
    - "task", a reconstruction of the task-relevant margin: beta + alpha (sim_yk - mean) / std over the other classes of
      the episode, so that only differences matter. With two classes the margin is beta;
    - "task-learned", another reconstruction: a network G, N - 1 -> `hidden` -> N - 1, reads the similarities of y in
      descending order, and its softmax distributes the sum beta (N - 1). The number of training classes is fixed;
      evaluation may have another.

    A margin only increases the loss, so that minimising it over the margins would make them small. Therefore alpha and
    beta are constants, names get no gradient, and G is an opponent that maximises the loss under its fixed sum.

    Only names of training classes are used: evaluation has no margins. A class without a name has sim = 0.
    """

    needs_names = True  # unless margins are fixed
    names_at_evaluation: ClassVar[bool] = False
    takes_way: ClassVar[bool] = True

    def __init__(
        self, *, margin: Margin = "task", alpha: float = 0.5, beta: float = 0.5, hidden: int = 32, **options: Any
    ) -> None:
        super().__init__(**options)
        for name, value in {"alpha": alpha, "beta": beta}.items():
            if not (value >= 0 and isfinite(value)):
                raise ConfigError(f"TRAML: {name} = {value} must be a number, 0 or more, such as 0.5")
        self.margin = margin
        self.alpha, self.beta = alpha, beta
        self.needs_names = margin != "fixed"
        self._largest: Tensor | None = None  # largest margin of each class in the last training step, (B, N)
        if margin == "task-learned":
            if not isinstance(self.way, int) or self.way < 2:
                raise ConfigError(
                    f"TRAML: learned margins are for one number of classes, at least 2, but way is {self.way}; "
                    "say in [episodes] how many there are"
                )
            if hidden < 1:
                raise ConfigError(f"TRAML: hidden = {hidden} must be at least 1, such as 32")
            others = self.way - 1
            self.generator = nn.Sequential(nn.Linear(others, hidden), nn.ReLU(), nn.Linear(hidden, others))

    def read_pool(self, pool: Pool, names: ClassNames | None) -> None:
        """Raise an error if too few class names have vectors, since all margins would be equal."""
        if names is None or not names.frozen:
            return
        vectors, _ = names.of(torch.arange(pool.n_classes, device=self.log_temperature.device))
        known = int(vectors.any(-1).sum())
        if known < 2:
            raise ConfigError(
                f"TRAML compares names, but only {known} of the {pool.n_classes} names of {pool} have known words; "
                "give [names] a file {class: text}, or another encoder"
            )

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of the queries with margins."""
        return {"cls": self._margin_loss(task)}

    def opponent_loss(self, task: Task) -> dict[str, Tensor]:
        """Return minus the loss, for the network that generates margins."""
        return {"generator": -self._margin_loss(task)} if self.margin == "task-learned" else {}

    def _margin_loss(self, task: Task) -> Tensor:
        margins, labels = self.margins(task), self.labels_of(task)  # (B, N, N), (B, Q)
        self._largest = margins.detach().amax(-1)
        own = labels.clamp(min=0)[..., None].expand(-1, -1, task.way)
        logits = self.logits(self(task)) + margins.gather(1, own)  # (B, Q, N)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)

    def margins(self, task: Task) -> Tensor:
        """Return the margin of each class (row) against each other class, (B, N, N), 0 on the diagonal."""
        same = torch.eye(task.way, dtype=torch.bool, device=task.query.device)
        if self.margin == "fixed":
            return task.query.new_full((len(task.query), task.way, task.way), self.beta).masked_fill(same, 0.0)
        if task.names is None:
            raise ConfigError(
                'TRAML reads the names of classes in training; give the recipe [names], or margin = "fixed"'
            )
        names: Tensor = unit(task.names.detach().to(task.query))
        similar = names @ names.mT
        if self.margin == "task-learned":
            return self._learned(similar, task.classes)
        if self.margin == "task":
            others = max(task.way - 1, 1)
            apart = similar - similar.masked_fill(same, 0.0).sum(-1, keepdim=True) / others
            spread = (apart.masked_fill(same, 0.0).square().sum(-1, keepdim=True) / others).sqrt()
            similar = apart / (spread + LEAST_SPREAD)
        return (self.alpha * similar + self.beta).masked_fill(same, 0.0)

    def _learned(self, similar: Tensor, classes: Tensor) -> Tensor:
        """Return the generated margins for similarities (B, N, N), which the network reads in descending order.

        Ties are broken by the class number in `classes` (B, N), not by the position in the episode.
        """
        way = classes.shape[1]
        if way != self.way:
            raise ConfigError(
                f"TRAML learns margins for {self.way} classes an episode, but these have {way}; train it with as many"
            )
        place = torch.arange(way, device=classes.device)
        others = (place[:-1] + (place[:-1] >= place[:, None])).expand(len(classes), -1, -1)  # (B, N, N - 1)
        numbers = classes[:, None].expand(-1, way, -1).gather(-1, others)
        others = others.gather(-1, numbers.argsort(-1))
        seen, order = similar.gather(-1, others).sort(dim=-1, descending=True, stable=True)
        margins = self.beta * (way - 1) * self.generator(seen).softmax(-1)
        return torch.zeros_like(similar).scatter(-1, others.gather(-1, order), margins)

    def param_groups(self) -> dict[str, Group]:
        """Return the generator of margins, if there is one, as the opponent."""
        if self.margin != "task-learned":
            return {}
        return {"generator": Group(list(self.generator.parameters()), opponent=True)}

    def monitor(self) -> dict[str, float | list[float]]:
        """Return the mean over classes of the largest margin in the last step."""
        return {} if self._largest is None else {"largest_margin": float(self._largest.mean())}
