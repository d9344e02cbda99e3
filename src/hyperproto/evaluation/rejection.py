"""None of the above: a query whose novelty exceeds a threshold is rejected; how good that is, and which threshold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hyperproto.data import OUTSIDE, IntArray, Pool, Progress
from hyperproto.encoders import Encoder, FeatureTransform
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.errors import EpisodeError
from hyperproto.evaluation.auroc import auroc
from hyperproto.evaluation.intervals import FloatArray, mean_interval
from hyperproto.evaluation.scoring import EncodedPool, score_episodes
from hyperproto.methods import Method

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rejection:
    """Where thresholds are chosen: episodes with queries of none of the classes, of other data than are reported."""

    pool: Pool
    episodes: Sequence[Episode]
    encoded: dict[Encoder, EncodedPool] = field(default_factory=dict)  # each encoder reads the pool once

    def threshold(self, method: Method, transform: FeatureTransform, encoder: Encoder) -> float:
        """Choose the threshold of one method."""
        if encoder not in self.encoded:
            self.encoded[encoder] = EncodedPool.encode(encoder, self.pool, cached=True)
        verdicts = judge_episodes(method, transform, self.encoded[encoder], self.episodes)
        return choose_threshold(verdicts.novelty, verdicts.correct, verdicts.outside)

    def settings(self) -> dict[str, Any]:
        """Say where the threshold comes from."""
        drawn = episodes_hash(self.pool, self.episodes)
        return {"threshold_data": self.pool.name, "threshold_split": self.pool.split, "threshold_hash": drawn}


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What a method said of the queries of some episodes: flat arrays, one place a query."""

    episode: IntArray  # the episode's number in the list
    label: IntArray  # the true one: local, or OUTSIDE
    predicted: IntArray  # the best of the episode's classes
    novelty: FloatArray

    @cached_property
    def outside(self) -> BoolArray:
        """Which queries are of none of the classes."""
        outside: BoolArray = self.label == OUTSIDE
        return outside

    @cached_property
    def correct(self) -> BoolArray:
        """Which are right if they are accepted."""
        correct: BoolArray = self.predicted == self.label
        return correct

    def aurocs(self) -> FloatArray:
        """AUROC of the novelty within each episode, (E,)."""
        return auroc(self.novelty, self.outside, self.episode)

    def accuracies(self, threshold: float) -> FloatArray:
        """Accuracy with NOTA of each episode, (E,): N + 1 answers, of which rejection is one."""
        right = np.where(self.novelty > threshold, self.outside, self.correct)
        accuracies: FloatArray = np.bincount(self.episode, weights=right) / np.bincount(self.episode)
        return accuracies

    def counts(self, threshold: float, way: int) -> tuple[IntArray, IntArray]:
        """Count right and all queries for each local class of each episode: two arrays (E, N)."""
        episodes = int(self.episode.max()) + 1
        place = self.label + way * self.episode
        right = self.correct & (self.novelty <= threshold)
        found = [np.bincount(place[mask], minlength=episodes * way) for mask in (right, ~self.outside)]
        return found[0].reshape(episodes, way), found[1].reshape(episodes, way)

    def metrics(self, threshold: float) -> dict[str, Any]:
        """Everything but accuracy, as `--json` prints it.

        `coverage` is the share of the classes' own queries that are accepted, `outside_rejected` that of the others
        that are not, `accuracy_of_accepted` the share of *all* accepted queries whose class is right (None: none was
        accepted), `share` that of the queries that are of no class. `auroc` is the mean over episodes, `pooled_auroc`
        ranks the queries of all episodes together, as one threshold for all must. The threshold is None where the best
        is to reject nothing (coverage 1) or everything (coverage 0).
        """
        accepted = self.novelty <= threshold
        mean, ci95 = mean_interval(self.aurocs())
        [pooled] = auroc(self.novelty, self.outside, np.zeros_like(self.episode))
        return {
            "threshold": threshold if math.isfinite(threshold) else None,
            "auroc": mean,
            "auroc_ci95": None if math.isnan(ci95) else ci95,
            "pooled_auroc": float(pooled),
            "coverage": float(accepted[~self.outside].mean()),
            "outside_rejected": float(1 - accepted[self.outside].mean()),
            "accuracy_of_accepted": float(self.correct[accepted].mean()) if accepted.any() else None,
            "share": float(self.outside.mean()),
        }


@torch.no_grad()
def judge_episodes(
    method: Method,
    transform: FeatureTransform,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> Verdicts:
    """Predict the class, and tell the novelty, of every query of the episodes."""
    parts: list[tuple[NDArray[Any], ...]] = []
    done = 0
    for block, scores, task in score_episodes(method, transform, encoded, episodes, progress):
        if task.query_y is None:
            raise EpisodeError("these episodes hide the labels of their queries; there is nothing to count")
        row, place = (task.query_y >= OUTSIDE).nonzero(as_tuple=True)  # not PAD
        columns = (task.query_y, method.decode(scores, task), method.novelty(task, scores).double())
        parts.append(((row + done).cpu().numpy(), *(column[row, place].cpu().numpy() for column in columns)))
        done += len(block)
    return Verdicts(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def choose_threshold(novelty: FloatArray, correct: BoolArray, outside: BoolArray) -> float:
    """Return the threshold with the best accuracy with NOTA: what is newer is rejected, all queries counting alike.

    Every way to cut the queries in two is tried, none (infinity) and all (minus infinity) rejected among them. A cut
    lies half-way between two queries; of cuts that are equally good the one that rejects least is taken.
    """
    order = np.argsort(-novelty, kind="stable")  # newest first, as rejection takes them
    gain = outside[order].astype(np.int64) - correct[order]  # what rejecting one query more is worth
    falling = novelty[order]
    ends = np.append(np.flatnonzero(falling[1:] != falling[:-1]) + 1, len(falling))  # how many a cut rejects
    total = np.cumsum(gain)[ends - 1]
    best = int(np.argmax(total))
    if total[best] <= 0:
        return math.inf
    if ends[best] == len(falling):
        return -math.inf
    newest_kept, oldest_rejected = falling[ends[best]], falling[ends[best] - 1]
    middle = float(newest_kept + (oldest_rejected - newest_kept) / 2)
    return middle if middle < oldest_rejected else float(newest_kept)  # neighbours in floating point have no middle
