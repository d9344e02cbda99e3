"""The method contract: one class, one file, one registry line."""

from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders import Features
from hyperproto.encoders.class_names import ClassNames
from hyperproto.errors import ConfigError, NonFiniteError, unknown_name
from hyperproto.methods.task import Task

# What a method may promise; `hyperproto.testing.check_method` holds it to each.
TRAITS = {
    "any-way": "the number of classes may differ from training and from episode to episode",
    "any-shot": "the number of support examples may differ from training",
    "unequal-shots": "the classes of one episode may have different numbers of support examples",
    "equivariant": "renaming the classes renames the scores, and nothing else",
    "untrained": "better than chance without any training",
    "transductive": "the queries of an episode see each other",
    "translation-free": "moving all vectors by the same amount changes no answer",
}
Reads = Literal["vectors", "maps", "tokens", "items"]
LEAST_TEMPERATURE = 1e-30  # and its inverse is the largest: float32 has no room for more


@dataclass(frozen=True, eq=False)
class Group:
    """Parameters with an optimiser of their own, `[optim.NAME]`.

    A `table` has one row a class and a sparse gradient: rows that a step did not draw stay where they are. Other groups
    are dense, and may have momentum and weight decay. An `opponent` is the second player of a game.
    """

    params: list[nn.Parameter]
    table: bool = False
    opponent: bool = False


class Method(nn.Module):
    """Base of all methods: a subclass writes `scores`, and whatever else differs from the defaults below.

    `method(task)` is `method.scores(task)` with the shape and the values checked.
    """

    reads: ClassVar[Reads] = "vectors"  # of the encoder: vectors, maps (C, H, W), tokens (-1, C); or the items
    trains_on_items: ClassVar[bool] = False  # whether its loss reads the items, though its scores read units
    token_output: ClassVar[Literal["maps", "embeddings"]] = "maps"  # which token states, for a method that reads those
    traits: frozenset[str] = frozenset()  # what it promises; an instance may promise less than its class
    fits: ClassVar[tuple[str, ...]] = ("point",)  # closed forms it has at evaluation, its default first
    transforms: ClassVar[tuple[str, ...] | None] = None  # feature transforms it is defined with; None: all
    reads_pairs: ClassVar[bool] = False  # whether its loss can be computed of `[pairs]`
    needs_support: bool = True  # whether training episodes must have a support set
    least_batch: int = 1  # items that `[batches]` must have
    learns_encoder: bool = True  # False: vectors are constants to its loss, it is meant for a frozen encoder
    needs_unlabelled: bool = False  # whether training needs items without labels, `task.unlabelled`
    needs_names: bool = False  # whether it reads names of classes: a recipe must say which, in [names]
    names_at_evaluation: ClassVar[bool] = True  # False: it gets names of classes in training only
    takes_way: ClassVar[bool] = False  # whether it is told the way of training episodes, though it serves any
    start_temperature: ClassVar[float] = 1.0
    starts: ClassVar[dict[str, str]] = {"temperature": "log_temperature"}  # options that say where a parameter begins
    decision: ClassVar[dict[str, Any]] = {}  # options of the decision that the method is published with

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        n_classes: int,
        way: int | None = None,
        shot: int | list[int] | None = None,
        fit: str | None = None,
        temperature: float | None = None,
        learn_temperature: bool = False,
    ) -> None:
        """Create every parameter, for `n_classes` training classes (0 where nothing is trained).

        `way` and `shot` are those of the training episodes, for a method whose parameters depend on them.
        """
        super().__init__()
        self._check_shape(feature_shape)
        self.feature_shape = feature_shape
        self.n_classes = n_classes
        self.way = way
        self.shot = shot
        self.fit = self._checked(self.fits[0] if fit is None else fit)
        temperature = self.start_temperature if temperature is None else temperature
        if not LEAST_TEMPERATURE <= temperature <= 1 / LEAST_TEMPERATURE:
            raise ConfigError(f"temperature {temperature} must be a number above 0, such as 1.0")
        log_temperature = torch.tensor(float(temperature)).log()
        self.log_temperature = nn.Parameter(log_temperature, requires_grad=learn_temperature)

    @property
    def uses_evidence(self) -> frozenset[str]:
        """What it can use at evaluation besides the support: "names" and "unlabelled" of the task."""
        return frozenset()

    def setup(self, pool: Pool, features: Features) -> None:
        """Fill the parameters from training data before the first step; never create any."""

    def read_pool(self, pool: Pool, names: ClassNames | None) -> None:
        """Look at a pool, and at the names of its classes if a recipe has them, before its episodes are scored.

        Training calls it before every step, since validation shows the method another pool in between.
        """

    def scores(self, task: Task) -> Tensor:
        """Score every query against every class, (B, Q, N), higher is better."""
        raise NotImplementedError

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the parts of the training loss by name; their sum is minimised."""
        return {"cls": self.cross_entropy(self(task), task)}

    def opponent_loss(self, task: Task) -> dict[str, Tensor]:
        """Return the parts of the second player's loss, for its groups (`Group.opponent`); vectors are constants."""
        return {}

    def doubt(self, task: Task, scores: Tensor) -> Tensor | None:
        """Score each query for "none of these", (B, Q), higher is likelier; None: as the decision does."""
        return None

    def param_groups(self) -> dict[str, Group]:
        """Parameters with an optimiser of their own, by the name of its section `[optim.NAME]`."""
        return {}

    def monitor(self) -> dict[str, float | list[float]]:
        """Name what is worth watching during training."""
        return {}

    def forward(self, task: Task) -> Tensor:
        """Return `scores(task)`, checked: a wrong shape would otherwise be broadcast into wrong answers."""
        try:
            scores = self.scores(task)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined] # of matrices that hold NaN or infinity
            raise NonFiniteError(
                f"{type(self).__name__}.scores cannot be computed of these vectors ({error})"
            ) from None
        shape = *task.query.shape[:2], task.way
        if scores.shape != shape:
            raise ConfigError(
                f"{type(self).__name__}.scores returned shape {tuple(scores.shape)}; {shape} was expected: "
                "(episodes, queries, classes)"
            )
        if not self.training and scores.isnan().any():  # in training the loss tells
            name = type(self).__name__
            raise NonFiniteError(f"{name}.scores returned NaN for some queries; see its inputs and options")
        return scores

    def logits(self, scores: Tensor) -> Tensor:
        """Scores at this method's temperature: their softmax is over the episode's classes, eq. 4."""
        return scores / self.log_temperature.exp()

    def cross_entropy(self, scores: Tensor, task: Task) -> Tensor:
        """Softmax over the episode's classes, eq. 4-5, at this method's temperature."""
        return F.cross_entropy(self.logits(scores).flatten(0, 1), self.labels_of(task).flatten(), ignore_index=-1)

    def labels_of(self, task: Task) -> Tensor:
        """Local labels of the queries, (B, Q), for training: -1 where there is nothing to learn from."""
        if task.query_y is None:
            raise ConfigError("these episodes hide the labels of their queries; they cannot be trained on")
        return task.query_y.clamp(min=-1)

    def with_fit(self, fit: str) -> Self:
        """Return the same method, sharing its parameters, with another closed form at evaluation."""
        twin = copy(self)
        twin.fit = self._checked(fit)
        return twin

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse units of a shape that the method cannot read, and say which output of which encoder it can."""
        name, gives = type(self).__name__, "vectors" if len(shape) == 1 else "token states" if -1 in shape else "maps"
        if self.reads == "vectors" and gives != "vectors":
            raise ConfigError(
                f"{name} reads vectors, but the encoder gives units of shape {shape}; leave output out of [encoder]"
            )
        if self.reads == "maps" and gives == "vectors":
            raise ConfigError(
                f"{name} reads feature maps, but the encoder gives vectors of shape {shape}; "
                'add output = "maps" to [encoder]'
            )
        if self.reads == "maps" and gives == "token states":
            raise ConfigError(
                f"{name} reads feature maps of one size, but the encoder gives token states of shape {shape}; choose "
                'an image encoder, with output = "maps"'
            )
        if self.reads == "tokens" and (gives != "token states" or len(shape) != 2):
            encoders = "relation-cnn or relation-transformer" if self.token_output == "maps" else "relation-cnn"
            raise ConfigError(
                f"{name} reads token states, but the encoder gives {gives} of shape {shape}; choose {encoders} with "
                f'output = "{self.token_output}" in [encoder]'
            )

    def _checked(self, fit: str) -> str:
        if fit not in self.fits:
            raise ConfigError(f"{type(self).__name__}: {unknown_name('fit', fit, self.fits)}")
        return fit
