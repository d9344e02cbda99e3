"""The base class of problems, their answers and measurements, intervals of means and paired differences."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.episodes import Episode, Sampler
from hyperproto.errors import EpisodeError
from hyperproto.methods import Task
from hyperproto.options import TrainingSamplerOptions

FloatArray = NDArray[np.float64]
Mark = Literal["best", "tied", ""]
Difference = tuple[float, float | None]  # mean, half its interval


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


def mean_interval(values: FloatArray) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval, by Student's t over episodes.

    The interval covers the choice of episodes from this pool with this encoder, not that of other pools or seeds.
    """
    from scipy.stats import t as student

    n = len(values)
    if n < 2:
        return float(np.mean(values)), float("nan")
    error = float(np.std(values, ddof=1)) / np.sqrt(n)
    return float(np.mean(values)), float(student.ppf(0.975, n - 1) * error)


def paired_difference(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Return the mean of `a - b` over the same episodes and half the width of its 95 % interval."""
    if a.shape != b.shape:
        raise ValueError(f"paired values must have one shape, not {a.shape} and {b.shape}")
    return mean_interval(a - b)


def or_none(ci95: float) -> float | None:
    """Return None for the NaN interval of one episode, since JSON has no NaN."""
    return None if np.isnan(ci95) else ci95


def best_marks(means: Sequence[float], paired: Callable[[int, int], Difference | None]) -> list[Mark]:
    """Mark the largest of several means as "best" if its paired intervals exclude 0 against every other mean.

    `paired(i, j)` returns the paired difference of i minus j, or None if the two were not measured together. Means
    whose interval includes 0 are "tied" with the largest, which is then "tied" too. Nothing is marked if a difference
    from the largest is unknown, or if there is only one mean.
    """
    if len(means) < 2:
        return [""] * len(means)
    leader = int(np.argmax(means))
    tied = []
    for other in range(len(means)):
        found = (0.0, 0.0) if other == leader else paired(leader, other)
        if found is None:
            return [""] * len(means)
        difference, half = found
        if half is None or not difference > half:
            tied.append(other)
    mark: Mark = "best" if tied == [leader] else "tied"
    return [mark if place in tied else "" for place in range(len(means))]


def best_of_draws(values: Sequence[Sequence[float]]) -> list[Mark]:
    """Mark the best of several rows by their values over the same draws; longer rows are cut to the shortest."""
    common = min(map(len, values))
    rows = [np.asarray(row[:common], np.float64) for row in values]

    def paired(i: int, j: int) -> Difference:
        mean, half = paired_difference(rows[i], rows[j])
        return mean, or_none(half)

    return best_marks([float(row.mean()) for row in rows], paired)
