"""The method contract: one class, one file, one registry line."""

from copy import copy
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders import Encoder
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.methods.novelty import doubt
from hyperproto.methods.outside import Outside
from hyperproto.methods.path import Path
from hyperproto.methods.task import Task

# What a method may promise; tests/contract holds it to each.
TRAITS = {
    "equivariant": "renaming the classes renames the scores, and nothing else",
    "unequal-shots": "classes may have different numbers of support examples",
    "any-way": "the number of classes may differ from training and from episode to episode",
    "feature-maps": "a unit may have more than one axis",
}


class Method(nn.Module):
    """Base of all methods: a subclass writes `scores`, and whatever else differs from the defaults below."""

    needs: ClassVar[Literal["units", "items"]] = "units"
    traits: ClassVar[frozenset[str]] = frozenset({"equivariant", "unequal-shots", "any-way"})
    fits: ClassVar[tuple[str, ...]] = ("point",)  # closed forms it has at evaluation, its default first
    transform: ClassVar[str | None] = None  # the feature transform it is defined with, if it is
    start_temperature: ClassVar[float] = 1.0
    start_tau: ClassVar[float] = 1.0
    # Options whose values are kept in the state, too.
    option_state: ClassVar[dict[str, str]] = {"temperature": "log_temperature", "transitions": "path.transitions"}

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        n_classes: int,
        fit: str | None = None,
        temperature: float | None = None,
        learn_temperature: bool = False,
        path: bool = False,
        tau: float | None = None,
        transitions: list[float] | None = None,
        outside_weight: float = 0.0,
    ) -> None:
        """Create every parameter, for `n_classes` training classes (0 where nothing is trained).

        With `path`, words are not labelled one by one: `tau` and `transitions` are those of `methods.path`. With an
        `outside_weight`, evaluation has learned on the training data what O looks like: see `methods.outside`.
        """
        super().__init__()
        if len(feature_shape) != 1 and "feature-maps" not in self.traits:
            raise ConfigError(
                f"{type(self).__name__} reads vectors, but the encoder gives units of shape {feature_shape}"
            )
        self.feature_shape = feature_shape
        self.n_classes = n_classes
        self.fit = self._checked(self.fits[0] if fit is None else fit)
        temperature = self.start_temperature if temperature is None else temperature
        if temperature <= 0:
            raise ConfigError(f"temperature {temperature} must be above 0")
        if not path and (tau is not None or transitions is not None):
            raise ConfigError("tau and transitions are of the best path of labels; add path = true, or leave them out")
        self.path = Path(self.start_tau if tau is None else tau, transitions) if path else None
        self.outside = Outside(outside_weight, feature_shape[-1]) if outside_weight else None
        log_temperature = torch.tensor(float(temperature)).log()
        self.log_temperature = nn.Parameter(log_temperature, requires_grad=learn_temperature)

    @property
    def needs_support(self) -> bool:
        """Whether training episodes must have a support set."""
        return True

    @property
    def found_in_labels(self) -> str | None:
        """Name the option that evaluation cannot do without and `read_labels` would find; None if there is none."""
        return None if self.path is None or self.path.known else "transitions"

    def with_fit(self, fit: str) -> Self:
        """Return the same method, sharing its parameters, with another closed form at evaluation."""
        twin = copy(self)
        twin.fit = self._checked(fit)
        return twin

    def read_labels(self, pool: Pool) -> None:
        """Learn from the labels of training data alone: for training, and for evaluation with a ready encoder."""
        if self.path is not None:
            self.path.count(pool)

    def setup(self, pool: Pool, encoder: Encoder) -> None:
        """Fill the parameters from training data before the first step; never create any."""

    def scores(self, task: Task) -> Tensor:
        """Score every query against every class, (B, Q, N), higher is better."""
        raise NotImplementedError

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the parts of the training loss by name; their sum is minimised."""
        return {"cls": self.cross_entropy(self.scores(task), task)}

    def cross_entropy(self, scores: Tensor, task: Task) -> Tensor:
        """Softmax over the episode's classes, eq. 4-5, at this method's temperature."""
        logits = scores / self.log_temperature.exp()
        return F.cross_entropy(logits.flatten(0, 1), self.labels_of(task).flatten(), ignore_index=-1)

    def labels_of(self, task: Task) -> Tensor:
        """Local labels of the queries, (B, Q), for training: -1 where there is nothing to learn from."""
        if task.query_y is None:
            raise ConfigError("these episodes hide the labels of their queries; they cannot be trained on")
        return task.query_y.clamp(min=-1)

    def novelty(self, task: Task, scores: Tensor) -> Tensor:
        """Say how little each query belongs to any class, (B, Q): higher is more likely none of these.

        By default how unsure the softmax is at this method's temperature: it rises as the largest probability falls.
        """
        return doubt(scores / self.log_temperature.exp())

    def decode(self, scores: Tensor, task: Task) -> Tensor:
        """Predict a label for each query, (B, Q): the best by itself, or on the best path through its item."""
        logits = scores / self.log_temperature.exp()
        if self.outside is not None and self.outside.known:
            logits = self.outside.added_to(logits, task.query)
        if self.path is None or not self.path.known or task.way == 1:
            return logits.argmax(-1)
        return self.path.best(logits, task.query_offsets)

    def param_groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters with an optimiser of their own, by the name of its section `[optim.NAME]`."""
        return {}

    def uses(self, option: str) -> bool:
        """Tell whether an option changes the scores of this method with this closed form: labels name only such."""
        return True

    def monitor(self) -> dict[str, float | list[float]]:
        """Name what is worth watching during training."""
        return {}

    def _checked(self, fit: str) -> str:
        if fit not in self.fits:
            raise ConfigError(f"{type(self).__name__}: {unknown_name('fit', fit, self.fits)}")
        return fit
