"""ProtoNet with an adversarial loss that makes the vectors of two domains indistinguishable."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group
from hyperproto.methods.protonet import ProtoNet
from hyperproto.methods.task import Task


class ProtoADV(ProtoNet):
    """Gao et al., "FewRel 2.0: Towards More Challenging Few-Shot Relation Classification", EMNLP-IJCNLP 2019.

    The adversary follows Wang et al., "Adversarial Multi-lingual Neural Relation Extraction", COLING 2018, and Ganin et
    al., "Domain-Adversarial Training of Neural Networks", JMLR 2016. Scores are ProtoNet's. In training a
    discriminator, D -> D -> 2, classifies the domain of support vectors and of as many unlabelled vectors of the other
    domain.

    - `adversary = "flip"`, as in the FewRel toolkit: each step first updates the discriminator, then the encoder by
      `adversary_weight` times the cross entropy of the swapped domain labels.
    - `adversary = "reverse"`, the paper's min-max: in one step, the gradient between discriminator and encoder is
      reversed and multiplied by `adversary_weight`, which rises linearly over the first `ramp` steps.

    The toolkit has two optimisers for the encoder; one step on the sum is equal to first order.
    """

    transforms = ("none", "unit")  # the batch mean of center-unit would mix the domains
    needs_unlabelled = True

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        adversary: Literal["flip", "reverse"] = "flip",
        adversary_weight: float = 0.1,
        ramp: int = 500,
        dropout: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(feature_shape=feature_shape, **options)
        if adversary_weight < 0 or ramp < 0:
            raise ConfigError(f"adversary_weight {adversary_weight} and ramp {ramp} must not be negative")
        [size] = feature_shape
        self.adversary = adversary
        self.adversary_weight = adversary_weight
        self.ramp = ramp
        self.discriminator = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Dropout(dropout), nn.Linear(size, 2))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))  # number of training steps so far
        self._accuracy: float | None = None  # of the discriminator in the last step

    steps: Tensor

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of the queries (`cls`) and the adversarial loss (`adv`; with "reverse": `dis`)."""
        losses = super().loss(task)
        x, domains = domain_batch(task)
        if self.adversary == "flip":
            return {**losses, "adv": self.adversary_weight * F.cross_entropy(self.discriminator(x), 1 - domains)}
        if self.training:
            self.steps += 1
        risen = min(1.0, int(self.steps) / self.ramp) if self.ramp else 1.0
        return {**losses, "dis": self._domain_loss(reversed_gradient(x, risen * self.adversary_weight), domains)}

    def opponent_loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of the discriminator; {} with "reverse", where it is part of the loss."""
        return {"dis": self._domain_loss(*domain_batch(task))} if self.adversary == "flip" else {}

    def _domain_loss(self, x: Tensor, domains: Tensor) -> Tensor:
        logits = self.discriminator(x)
        self._accuracy = float((logits.argmax(-1) == domains).float().mean())
        return F.cross_entropy(logits, domains)

    def param_groups(self) -> dict[str, Group]:
        """Return the discriminator as a group, the opponent unless gradients are reversed."""
        return {"discriminator": Group(list(self.discriminator.parameters()), opponent=self.adversary == "flip")}

    def monitor(self) -> dict[str, float | list[float]]:
        """Return the accuracy of the discriminator: 0.5 to 0.6 is the aim, 1 means that domains are separable."""
        return {} if self._accuracy is None else {"discriminator_accuracy": self._accuracy}


def domain_batch(task: Task) -> tuple[Tensor, Tensor]:
    """Return M support vectors and M unlabelled ones, (2 M, D), and their domains, 0 or 1."""
    if task.unlabelled is None:
        raise ConfigError("proto-adv needs unlabelled items besides its episodes; add [unlabelled]")
    support, other = task.support[task.support_y >= 0], task.unlabelled.flatten(0, 1)  # (M, D) each
    size = min(len(support), len(other))
    if len(support) > size:
        support = support[torch.randperm(len(support), device=support.device)[:size]]
    x = torch.cat([support, other[:size]])
    return x, torch.arange(2, device=x.device).repeat_interleave(size)


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * gradient, None


def reversed_gradient(x: Tensor, factor: float) -> Tensor:
    """Return x; the backward pass multiplies its gradient by `-factor`."""
    reversed_x: Tensor = _Reversed.apply(x, factor)  # type: ignore[no-untyped-call]
    return reversed_x
