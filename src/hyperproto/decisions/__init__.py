"""Decisions turn the scores of any method into answers: argmax, best label path, learned O, "none of these".

Parameters of a decision are fitted on training or validation data and stored with the run.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperproto.data import Pool
from hyperproto.decisions.outside import Outside
from hyperproto.decisions.path import Path
from hyperproto.errors import ConfigError
from hyperproto.methods import Method, Task
from hyperproto.registry import keywords, option_problems

__all__ = ["DECISION_OPTIONS", "Decision", "Outside", "Path", "choose_threshold", "make_decision", "softmax_doubt"]


class Decision(nn.Module):
    """The rule from logits to labels: argmax by default.

    With `path`, the words of a sentence are labelled jointly; `tau` and `transitions` are those of `decisions.path`.
    With an `outside_weight`, a discriminant fitted on training data adjusts the logit of O: see `decisions.outside`.
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
        """Create the parameters; `dimension` is the last axis of the encoder's vectors."""
        super().__init__()
        if not path and (tau is not None or transitions is not None):
            raise ConfigError("tau and transitions apply only with path = true; add it, or leave them out")
        self.path = Path(1.0 if tau is None else tau, transitions) if path else None
        self.outside = Outside(outside_weight, dimension) if outside_weight else None

    @property
    def missing(self) -> str | None:
        """Name of a required option that only `read_labels` can fill in; None if nothing is missing."""
        return None if self.path is None or self.path.fitted else "transitions"

    def read_labels(self, pool: Pool) -> None:
        """Estimate the transitions between labels from the labels of training data."""
        if self.path is not None:
            self.path.count(pool)

    def decide(self, logits: Tensor, task: Task) -> Tensor:
        """Predict a label for each query, (B, Q): by argmax, or on the best path through its sentence."""
        if self.outside is not None and self.outside.fitted:
            logits = self.outside.added_to(logits, task.query)
        if self.path is None or not self.path.fitted or task.way == 1:
            return logits.argmax(-1)
        return self.path.best(logits, task.query_offsets)

    def doubt(self, logits: Tensor, task: Task) -> Tensor:
        """Score each query for "none of these", (B, Q), by the uncertainty of the softmax; higher is likelier."""
        return softmax_doubt(logits)


DECISION_OPTIONS: dict[str, Any] = {
    name: kind for name, kind in keywords(Decision).items() if name not in Decision.filled_in
}


def make_decision(method: Method, options: Mapping[str, Any]) -> Decision:
    """Build the decision of a method: its own defaults, overridden by `options`."""
    complete = {**method.decision, **options}
    problems = option_problems("decision", "after " + type(method).__name__, Decision, complete)
    if problems:
        raise ConfigError("\n".join(problems))
    return Decision(dimension=method.feature_shape[-1], **complete)


def softmax_doubt(logits: Tensor) -> Tensor:
    """Return minus the log odds of the most likely class, (B, Q), which do not saturate as probabilities do."""
    if logits.shape[-1] == 1:
        return torch.zeros_like(logits[..., 0])  # with one class there is no alternative
    falling = logits.sort(dim=-1, descending=True).values
    return falling[..., 1:].logsumexp(-1) - falling[..., 0]


def choose_threshold(novelty: NDArray[np.float64], correct: NDArray[np.bool_], outside: NDArray[np.bool_]) -> float:
    """Return the novelty threshold with the best accuracy, where queries above it are answered "none of these".

    All cuts between two queries are tried (the threshold is half-way between them), and also rejecting nothing
    (infinity) or everything (minus infinity). Of equally good cuts, the one that rejects least is returned.
    """
    order = np.argsort(-novelty, kind="stable")  # the order in which queries are rejected
    gain = outside[order].astype(np.int64) - correct[order]  # change in correct answers by rejecting each query
    falling = novelty[order]
    ends = np.append(np.flatnonzero(falling[1:] != falling[:-1]) + 1, len(falling))  # queries rejected by each cut
    total = np.cumsum(gain)[ends - 1]
    best = int(np.argmax(total))
    if total[best] <= 0:
        return math.inf
    if ends[best] == len(falling):
        return -math.inf
    highest_kept, lowest_rejected = falling[ends[best]], falling[ends[best] - 1]
    middle = float(highest_kept + (lowest_rejected - highest_kept) / 2)
    return middle if middle < lowest_rejected else float(highest_kept)  # adjacent floats have no middle
