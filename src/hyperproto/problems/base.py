"""What a problem answers: which sampler draws its episodes, which metric says how good the answers are."""

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
    """What was predicted of a block of episodes: a label for each query, and how doubtful it is."""

    task: Task
    scores: Tensor  # (B, Q, N) of the method
    labels: Tensor  # (B, Q) local labels that were decided on
    doubt: Tensor | None = None  # (B, Q) higher is likelier none of the classes; None where nothing is rejected

    @property
    def truth(self) -> Tensor:
        """Local labels of the queries, (B, Q): OUTSIDE is none of the classes, PAD no query."""
        if self.task.query_y is None:
            raise EpisodeError("these episodes hide the labels of their queries; there is nothing to count")
        return self.task.query_y


@dataclass(frozen=True, eq=False)
class Measurement:
    """How good the answers are."""

    metric: str  # accuracy or f1
    value: float
    values: FloatArray  # (E,) whose mean is the value
    metrics: dict[str, Any] = field(default_factory=dict)  # every other number, as `--json` prints it
    others: dict[str, FloatArray] = field(default_factory=dict)  # (E,) of a second metric, by its name
    log: dict[str, float] = field(default_factory=dict)  # what the log of a training says beside the value

    @property
    def ci95(self) -> float:
        """Half the width of the value's 95 % interval; NaN for one episode."""
        return mean_interval(self.values)[1]

    def row(self) -> dict[str, float]:
        """Return what the log of a training says of it."""
        return {self.metric: self.value, "ci95": self.ci95, **self.log}


class Problem(ABC):
    """One kind of problem. A new one is a file with a subclass, and a line in `problems/__init__.py`."""

    name: ClassVar[str]
    metric: ClassVar[str]  # chooses the best weights and heads the table: from 0 to 1, higher is better
    few_items: ClassVar[bool] = False  # whether validation encodes only the items that its episodes draw

    @abstractmethod
    def sampler(self, pool: Pool, **settings: Unpack[TrainingSamplerOptions]) -> Sampler:
        """Make the sampler of a pool; refuse settings that it has no use for."""

    @abstractmethod
    def measure(self, pool: Pool, episodes: Sequence[Episode], answers: Iterable[Answers], **how: Any) -> Measurement:
        """Measure the answers to the queries of all episodes, which come block by block."""

    def settings(self, **how: Any) -> dict[str, Any]:
        """Name what of `how` a result should say."""
        return {}
