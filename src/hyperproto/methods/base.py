"""Base class of few-shot methods."""

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

# Properties that a method may declare; `hyperproto.testing.check_method` tests each.
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
LEAST_TEMPERATURE = 1e-30  # the largest is its inverse: the range of float32


@dataclass(frozen=True, eq=False)
class Group:
    """Parameters with a separate optimiser, `[optim.NAME]`.

    A `table` has one row a class and sparse gradients: rows of classes that a step did not draw are unchanged. Other
    groups are dense and may have momentum and weight decay. An `opponent` is the adversary in adversarial training.
    """

    params: list[nn.Parameter]
    table: bool = False
    opponent: bool = False


class Method(nn.Module):
    """Base class of methods: a subclass implements `scores`, and overrides other defaults as needed.

    `method(task)` returns `method.scores(task)` after a check of shape and values.
    """

    reads: ClassVar[Reads] = "vectors"  # input: vectors, maps (C, H, W), tokens (-1, C) of the encoder, or the items
    trains_on_items: ClassVar[bool] = False  # True if the loss reads items, although scores read units
    token_output: ClassVar[Literal["maps", "embeddings"]] = "maps"  # encoder output for `reads = "tokens"`
    traits: frozenset[str] = frozenset()  # declared properties, see TRAITS; an instance may have fewer than its class
    fits: ClassVar[tuple[str, ...]] = ("point",)  # closed forms at evaluation, the default first
    transforms: ClassVar[tuple[str, ...] | None] = None  # allowed feature transforms; None: all
    reads_pairs: ClassVar[bool] = False  # True if the loss accepts `[pairs]`
    needs_support: bool = True  # True if training episodes must have a support set
    least_batch: int = 1  # smallest size of `[batches]`
    learns_encoder: bool = True  # False: no gradient reaches the encoder, which should be frozen
    needs_unlabelled: bool = False  # True if training needs unlabelled items, `task.unlabelled`
    needs_names: bool = False  # True if it needs class names: a recipe must have [names]
    names_at_evaluation: ClassVar[bool] = True  # False: class names are used in training only
    takes_way: ClassVar[bool] = False  # True if the constructor gets the way of training episodes
    start_temperature: ClassVar[float] = 1.0
    starts: ClassVar[dict[str, str]] = {"temperature": "log_temperature"}  # initial values of parameters
    decision: ClassVar[dict[str, Any]] = {}  # options of the published decision rule

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
        """Create all parameters for `n_classes` training classes (0 if nothing is trained).

        `way` and `shot` of the training episodes are for methods whose parameters depend on them.
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
        """Evidence that it can use at evaluation besides the support: "names" and "unlabelled" of the task."""
        return frozenset()

    def setup(self, pool: Pool, features: Features) -> None:
        """Initialise parameters from training data before the first step; must not create any."""

    def read_pool(self, pool: Pool, names: ClassNames | None) -> None:
        """Read a pool, and its class names if a recipe has them, before its episodes are scored.

        Training calls this before every step, because validation uses another pool in between.
        """

    def scores(self, task: Task) -> Tensor:
        """Return the score of every query for every class, (B, Q, N); higher is better."""
        raise NotImplementedError

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the terms of the training loss by name; their sum is minimised."""
        return {"cls": self.cross_entropy(self(task), task)}

    def opponent_loss(self, task: Task) -> dict[str, Tensor]:
        """Return the loss terms of the adversary, for groups with `Group.opponent`; vectors get no gradient."""
        return {}

    def doubt(self, task: Task, scores: Tensor) -> Tensor | None:
        """Return a score for "none of these", (B, Q), higher is more likely; None: the decision computes one."""
        return None

    def param_groups(self) -> dict[str, Group]:
        """Return parameters with a separate optimiser by the name of its section `[optim.NAME]`."""
        return {}

    def monitor(self) -> dict[str, float | list[float]]:
        """Return numbers to log during training."""
        return {}

    def forward(self, task: Task) -> Tensor:
        """Return `scores(task)` after a check of shape and values; wrong shapes would broadcast silently."""
        try:
            scores = self.scores(task)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined] # of matrices that hold NaN or infinity
            raise NonFiniteError(
                f"{type(self).__name__}.scores cannot be computed for these vectors ({error})"
            ) from None
        shape = *task.query.shape[:2], task.way
        if scores.shape != shape:
            raise ConfigError(
                f"{type(self).__name__}.scores returned shape {tuple(scores.shape)}; {shape} was expected: "
                "(episodes, queries, classes)"
            )
        if not self.training and scores.isnan().any():  # in training the loss is checked
            name = type(self).__name__
            raise NonFiniteError(f"{name}.scores returned NaN for some queries; check its inputs and options")
        return scores

    def logits(self, scores: Tensor) -> Tensor:
        """Divide scores by the temperature; their softmax over the episode's classes is eq. 4."""
        return scores / self.log_temperature.exp()

    def cross_entropy(self, scores: Tensor, task: Task) -> Tensor:
        """Return the mean cross entropy over the episode's classes, eq. 4-5."""
        return F.cross_entropy(self.logits(scores).flatten(0, 1), self.labels_of(task).flatten(), ignore_index=-1)

    def labels_of(self, task: Task) -> Tensor:
        """Return the local labels of the queries for training, (B, Q); -1 for queries without a target."""
        if task.query_y is None:
            raise ConfigError("these episodes hide the labels of their queries; they cannot be trained on")
        return task.query_y.clamp(min=-1)

    def with_fit(self, fit: str) -> Self:
        """Return a copy that shares all parameters but uses another closed form at evaluation."""
        twin = copy(self)
        twin.fit = self._checked(fit)
        return twin

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise a ConfigError if the method cannot read units of this shape, with advice on the encoder."""
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
