"""What answers queries: features, a method on them, and the decision that follows its scores."""

from typing import Self

from torch import Tensor, nn

from hyperproto.data import Pool
from hyperproto.decisions import Decision, make_decision
from hyperproto.encoders import Encoder, Features, FeatureTransform
from hyperproto.encoders.class_names import ClassNames, NameEncoder
from hyperproto.errors import ConfigError
from hyperproto.evaluation.knowledge import Known
from hyperproto.methods import Method, Task, with_names


class Predictor(nn.Module):
    """The three parts that every number comes through; training's learner is one.

    `names` reads the names of classes, where a recipe asks for them, or where `known` says that they are told.
    """

    known = Known()

    def __init__(
        self, features: Features, method: Method, decision: Decision, names: NameEncoder | None = None
    ) -> None:
        super().__init__()
        self.features = features
        self.method = method
        self.decision = decision
        self.names = names
        self.class_names: ClassNames | None = None  # of the pool that was read last

    @classmethod
    def of(
        cls,
        method: Method,
        encoder: Encoder,
        transform: str = "none",
        center: Tensor | None = None,
        decision: Decision | None = None,
        names: NameEncoder | None = None,
        known: Known | None = None,
    ) -> Self:
        """Put parts together, where the encoder is; `center` is the mean of the training data for center-unit."""
        after = FeatureTransform(transform, encoder.feature_shape).to(encoder.device)
        if center is not None:
            after.set_center(center)
        decision = make_decision(method, {}) if decision is None else decision
        made = cls(Features(encoder, after), method.to(encoder.device), decision.to(encoder.device), names)
        made.known = Known() if known is None else known
        return made

    def read_pool(self, pool: Pool, *, training: bool = False) -> None:
        """Show a pool, and the names of its classes, to the method, before its episodes are trained on or scored.

        A method that reads names in training only gets none at evaluation, unless they are told.
        """
        check_names(self.method, self.names)
        told = self.known.names is not None
        names = self.names if training or self.method.names_at_evaluation or told else None
        self.class_names = None if names is None else names.of(pool, self.features.encoder)
        self.method.read_pool(pool, self.class_names)

    def named(self, task: Task) -> Task:
        """Give a task of the pool that was read last the names of its classes."""
        task = with_names(task, self.class_names)
        if self.known.names is not None and task.names is not None and task.names.shape[2:] != task.support.shape[2:]:
            raise ConfigError(
                f"names of classes are vectors of {task.names.shape[-1]} numbers, but the items of shape "
                f"{tuple(task.support.shape[2:])}; names are told as vectors of the same space"
            )
        return task

    def decide(self, scores: Tensor, task: Task) -> Tensor:
        """Labels (B, Q) that follow from the scores (B, Q, N)."""
        return self.decision.decide(self.method.logits(scores), task)

    def doubt(self, scores: Tensor, task: Task) -> Tensor:
        """Score (B, Q) for "none of these": the method's own, or the decision's where it has none."""
        own = self.method.doubt(task, scores)
        return self.decision.doubt(self.method.logits(scores), task) if own is None else own


def check_names(method: Method, names: NameEncoder | None) -> None:
    """Refuse a method that reads names of classes, not only in training, where none are given."""
    if method.needs_names and method.names_at_evaluation and names is None:
        raise ConfigError(
            f"{type(method).__name__} reads the names of classes, and there are none here; train it with a recipe that "
            "has [names], and evaluate the run"
        )
