"""Decisions: from scores to answers. The best class, the best path of labels, O known beforehand, none of these.

A decision reads the logits of a method, whatever the method, and the task they are of; what it has learned comes from
training data, and is stored with the run.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hyperproto.data import Pool
from hyperproto.decisions.outside import Outside
from hyperproto.decisions.path import Path
from hyperproto.decisions.reject import choose_threshold
from hyperproto.errors import ConfigError
from hyperproto.methods import Method, Task
from hyperproto.registry import keywords, option_problems

__all__ = ["DECISION_OPTIONS", "Decision", "Outside", "Path", "choose_threshold", "make_decision", "softmax_doubt"]


class Decision(nn.Module):
    """The label of every query, given its logits: the largest one (argmax), unless options say otherwise.

    With `path`, words are not labelled one by one: `tau` and `transitions` are those of `decisions.path`. With an
    `outside_weight`, training data have said what O looks like: see `decisions.outside`.
    """

    filled_in: ClassVar[frozenset[str]] = frozenset({"dimension"})

    def __init__(
        self,
        *,
        dimension: int,
        path: bool = False,
        tau: float | None = None,
        transitions: list[float] | None = None,
        outside_weight: float = 0.0,
    ) -> None:
        """Create what is learned, for units whose last axis has so many dimensions."""
        super().__init__()
        if not path and (tau is not None or transitions is not None):
            raise ConfigError("tau and transitions are of the best path of labels; add path = true, or leave them out")
        self.path = Path(1.0 if tau is None else tau, transitions) if path else None
        self.outside = Outside(outside_weight, dimension) if outside_weight else None

    @property
    def missing(self) -> str | None:
        """Name the option that it cannot do without and `read_labels` would find; None if there is none."""
        return None if self.path is None or self.path.known else "transitions"

    def read_labels(self, pool: Pool) -> None:
        """Learn from the labels of training data alone: transitions between labels."""
        if self.path is not None:
            self.path.count(pool)

    def decide(self, logits: Tensor, task: Task) -> Tensor:
        """Predict a label for each query, (B, Q): the best by itself, or on the best path through its item."""
        if self.outside is not None and self.outside.known:
            logits = self.outside.added_to(logits, task.query)
        if self.path is None or not self.path.known or task.way == 1:
            return logits.argmax(-1)
        return self.path.best(logits, task.query_offsets)

    def doubt(self, logits: Tensor, task: Task) -> Tensor:
        """Score each query for "none of these", (B, Q): higher is likelier. How unsure the softmax is."""
        return softmax_doubt(logits)


DECISION_OPTIONS: dict[str, Any] = {
    name: kind for name, kind in keywords(Decision).items() if name not in Decision.filled_in
}


def make_decision(method: Method, options: Mapping[str, Any]) -> Decision:
    """Make the decision that follows a method's scores: the method's own, changed by the options given."""
    complete = {**method.decision, **options}
    problems = option_problems("decision", "after " + type(method).__name__, Decision, complete)
    if problems:
        raise ConfigError("\n".join(problems))
    return Decision(dimension=method.feature_shape[-1], **complete)


def softmax_doubt(logits: Tensor) -> Tensor:
    """Minus the log odds of the likeliest class (B, Q): as its probability falls they rise, and never round to 1."""
    if logits.shape[-1] == 1:
        return torch.zeros_like(logits[..., 0])  # one class is all that it could be
    falling = logits.sort(dim=-1, descending=True).values
    return falling[..., 1:].logsumexp(-1) - falling[..., 0]
