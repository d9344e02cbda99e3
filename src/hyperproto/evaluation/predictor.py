"""The predictor: features, a method that scores them, and a decision on the scores."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from torch import Tensor, nn

from hyperproto.data import Pool
from hyperproto.decisions import Decision, make_decision
from hyperproto.encoders import Encoder, Features, FeatureTransform
from hyperproto.encoders.class_names import ClassNames, NameEncoder
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.methods import Method, Task, with_names

EVIDENCE = ("nothing", "names", "example", "unlabelled", "queries")


@dataclass(frozen=True)
class EvidenceChoice:
    """Which evidence a method gets besides the support of an episode, and how it is used.

    `names` are prior means of the method's own ("prior"), or one more example of each class ("example"), which any
    method can use. `rows` without a label are other items of the pool ("unlabelled") or the episode's own queries
    ("queries": transductive answers).
    """

    names: Literal["prior", "example"] | None = None
    rows: Literal["unlabelled", "queries"] | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read words joined by +, such as `names+unlabelled`."""
        words = text.split("+")
        for word in words:
            if word not in EVIDENCE:
                raise ConfigError(f"--evidence {text}: {unknown_name('word', word, EVIDENCE)}")
        if len(set(words)) < len(words) or {"names", "example"} <= {*words} or {"unlabelled", "queries"} <= {*words}:
            raise ConfigError(
                f"--evidence {text}: names are a prior (names) or an example, and rows unlabelled items or the "
                "queries, each named once; repeat --evidence to compare several"
            )
        if "nothing" in words and len(words) > 1:
            raise ConfigError(f"--evidence {text}: nothing stands alone; repeat --evidence to compare several")
        names: Literal["prior", "example"] | None = "prior" if "names" in words else None
        if "example" in words:
            names = "example"
        rows: Literal["unlabelled", "queries"] | None = "unlabelled" if "unlabelled" in words else None
        return cls(names, "queries" if "queries" in words else rows)

    def __str__(self) -> str:
        """Return the words that `parse` reads."""
        words = [{"prior": "names", "example": "example"}[self.names]] if self.names else []
        return "+".join([*words, *([self.rows] if self.rows else [])]) or "nothing"

    def settings(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """Return what a result records; `drawn` are the numbers of unlabelled items, recorded where these are used."""
        said: dict[str, Any] = {} if self == EvidenceChoice() else {"knows": str(self)}
        return said | (drawn if self.rows == "unlabelled" else {})

    def serves(self, method: Method) -> bool:
        """Return whether a method can use all of it."""
        needed = ({"names"} if self.names == "prior" else set()) | ({"unlabelled"} if self.rows else set())
        return needed <= method.uses_evidence and (self.names != "example" or method.reads == "vectors")


class Predictor(nn.Module):
    """Features, method and decision: the steps from items to answers. The learner of a training is a predictor.

    `names` encodes class names, if a recipe has `[names]` or if they are part of the `evidence`.
    """

    evidence = EvidenceChoice()

    def __init__(
        self, features: Features, method: Method, decision: Decision, names: NameEncoder | None = None
    ) -> None:
        super().__init__()
        self.features = features
        self.method = method
        self.decision = decision
        self.names = names
        self.class_names: ClassNames | None = None  # of the last pool given to `read_pool`

    @classmethod
    def of(
        cls,
        method: Method,
        encoder: Encoder,
        transform: str = "none",
        center: Tensor | None = None,
        decision: Decision | None = None,
        names: NameEncoder | None = None,
        evidence: EvidenceChoice | None = None,
    ) -> Self:
        """Combine parts on the encoder's device; `center` is the mean of the training data, for center-unit."""
        after = FeatureTransform(transform, encoder.feature_shape).to(encoder.device)
        if center is not None:
            after.set_center(center)
        decision = make_decision(method, {}) if decision is None else decision
        made = cls(Features(encoder, after), method.to(encoder.device), decision.to(encoder.device), names)
        made.evidence = EvidenceChoice() if evidence is None else evidence
        return made

    def read_pool(self, pool: Pool, *, training: bool = False) -> None:
        """Give the method a pool and its class names, before episodes of the pool are trained on or scored.

        A method that reads names only in training gets none at evaluation, unless they are evidence.
        """
        check_names(self.method, self.names)
        given = self.evidence.names is not None
        names = self.names if training or self.method.names_at_evaluation or given else None
        self.class_names = None if names is None else names.of(pool, self.features.encoder)
        self.method.read_pool(pool, self.class_names)

    def named(self, task: Task) -> Task:
        """Add the class names of the last pool given to `read_pool` to a task."""
        task = with_names(task, self.class_names)
        if self.evidence.names is None or task.names is None:
            return task
        if task.names.shape[2:] != task.support.shape[2:]:
            raise ConfigError(
                f"names of classes are vectors of {task.names.shape[-1]} numbers, but the items of shape "
                f"{tuple(task.support.shape[2:])}; names used as evidence must be vectors of the same space"
            )
        return task

    def decide(self, scores: Tensor, task: Task) -> Tensor:
        """Return the predicted labels (B, Q) for scores (B, Q, N)."""
        return self.decision.decide(self.method.logits(scores), task)

    def doubt(self, scores: Tensor, task: Task) -> Tensor:
        """Return the score (B, Q) for "none of these": the method's own, or else the decision's."""
        own = self.method.doubt(task, scores)
        return self.decision.doubt(self.method.logits(scores), task) if own is None else own


def check_names(method: Method, names: NameEncoder | None) -> None:
    """Raise a ConfigError for a method that needs class names at evaluation, if none are given."""
    if method.needs_names and method.names_at_evaluation and names is None:
        raise ConfigError(
            f"{type(method).__name__} reads the names of classes, and there are none here; train it with a recipe that "
            "has [names], and evaluate the run"
        )
