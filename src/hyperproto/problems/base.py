"""The base class of problems, and the answers and measurements they work with."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Unpack

from torch import Tensor

from hyperproto.data import Pool
from hyperproto.episodes import Episode, Sampler
from hyperproto.errors import EpisodeError
from hyperproto.methods import Task
from hyperproto.options import TrainingSamplerOptions
from hyperproto.problems.intervals import FloatArray, mean_interval


@dataclass(frozen=True, eq=False)
class Answers:
    """Predictions for a block of episodes: scores, labels and, if asked for, scores for "none of these"."""

    task: Task
    scores: Tensor  # (B, Q, N)
    labels: Tensor  # (B, Q) predicted local labels
    doubt: Tensor | None = None  # (B, Q) score for "none of these", higher is likelier

    @property
    def truth(self) -> Tensor:
        """True local labels of the queries, (B, Q); OUTSIDE is none of the classes, PAD is padding."""
        if self.task.query_y is None:
            raise EpisodeError("these episodes hide the labels of their queries; nothing can be measured")
        return self.task.query_y


@dataclass(frozen=True, eq=False)
class Measurement:
    """Metrics over a list of episodes."""

    metric: str  # accuracy or f1
    value: float
    values: FloatArray  # (E,) whose mean is the value
    metrics: dict[str, Any] = field(default_factory=dict)  # further numbers, as `--json` prints them
    others: dict[str, FloatArray] = field(default_factory=dict)  # (E,) of further metrics by name
    log: dict[str, float] = field(default_factory=dict)  # further columns of a training log

    @property
    def ci95(self) -> float:
        """Half the width of the 95 % interval of the value; NaN for one episode."""
        return mean_interval(self.values)[1]

    def row(self) -> dict[str, float]:
        """Return the columns of a training log."""
        return {self.metric: self.value, "ci95": self.ci95, **self.log}


class Problem(ABC):
    """Base of all problems. A new one is a subclass in its own file, and a line in `problems/__init__.py`."""

    name: ClassVar[str]
    metric: ClassVar[str]  # selects the best weights and comes first in tables: from 0 to 1, higher is better
    few_items: ClassVar[bool] = False  # whether validation encodes only the items that its episodes draw

    @abstractmethod
    def sampler(self, pool: Pool, **settings: Unpack[TrainingSamplerOptions]) -> Sampler:
        """Build the sampler of a pool; raise an error for settings that do not apply."""

    @abstractmethod
    def measure(self, pool: Pool, episodes: Sequence[Episode], answers: Iterable[Answers], **how: Any) -> Measurement:
        """Compute the metrics of all episodes from their answers, which come in blocks."""

    def settings(self, **how: Any) -> dict[str, Any]:
        """Return the measuring options among `how` that a result should record."""
        return {}
