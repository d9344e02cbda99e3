"""Classification: one class an item, N-way K-shot episodes, accuracy with or without "none of these"."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.errors import EpisodeError
from hyperproto.options import TrainingSamplerOptions
from hyperproto.problems.base import Answers, FloatArray, Measurement, Problem, mean_interval, or_none

BoolArray = NDArray[np.bool_]


class Classification(Problem):
    """N-way K-shot episodes and their accuracy; with a threshold, "none of these" is one more answer."""

    name = "classification"
    metric = "accuracy"

    def sampler(self, pool: Pool, **settings: Unpack[TrainingSamplerOptions]) -> EpisodeSampler:
        """Build a sampler of N-way K-shot episodes."""
        return EpisodeSampler(pool, **settings)

    def measure(
        self,
        pool: Pool,
        episodes: Sequence[Episode],
        answers: Iterable[Answers],
        *,
        shots: Any = None,
        threshold: float | None = None,
        **how: Any,
    ) -> Measurement:
        """Compute the accuracy of each episode and, if `shots` is a list, by number of support examples.

        With `threshold`, queries with a higher score for "none of these" are rejected.
        """
        if threshold is not None:
            verdicts = Verdicts.of(answers)
            counts = verdicts.counts(threshold, len(shots)) if isinstance(shots, list) else None
            values = verdicts.accuracies(threshold)
            more, others = {"nota": verdicts.metrics(threshold)}, {"auroc": verdicts.aurocs()}
        else:
            counts = count_correct(answers)
            values = counts[0].sum(1) / counts[1].sum(1)
            more, others = {}, {}
        by_shot = {"accuracy_by_shot": accuracy_by_shot(*counts, shots)} if counts and isinstance(shots, list) else {}
        return Measurement(self.metric, float(np.mean(values)), values, {**by_shot, **more}, others)


def count_correct(answers: Iterable[Answers]) -> tuple[IntArray, IntArray]:
    """Count correct and scored queries for each local class of each episode: two arrays (E, N)."""
    correct: list[IntArray] = []
    total: list[IntArray] = []
    for block in answers:
        task, truth = block.task, block.truth
        real = truth >= 0  # OUTSIDE and PAD are no class
        episode = torch.arange(len(real), device=real.device)[:, None]
        place = truth + task.way * episode  # (B, Q) into (B, N), flat
        for mask, counts in ((real & (block.labels == truth), correct), (real, total)):
            found = torch.bincount(place[mask], minlength=task.classes.numel())
            counts.append(found.view_as(task.classes).cpu().numpy())
    return np.concatenate(correct), np.concatenate(total)


def accuracy_by_shot(correct: IntArray, total: IntArray, shots: Sequence[int]) -> dict[str, float]:
    """Return the accuracy of classes with 1, 2, ... support examples, for episodes of unequal shots."""
    shot = np.array(shots)
    return {str(k): float(correct[:, shot == k].sum() / max(1, total[:, shot == k].sum())) for k in sorted(set(shots))}


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Predictions for the queries of all episodes, as flat arrays (n_queries,)."""

    episode: IntArray  # index of the episode
    label: IntArray  # true local label, or OUTSIDE
    predicted: IntArray  # best class of the episode
    novelty: FloatArray

    @classmethod
    def of(cls, answers: Iterable[Answers]) -> Self:
        """Concatenate the answers of all blocks of episodes."""
        parts: list[tuple[NDArray[Any], ...]] = []
        done = 0
        for block in answers:
            truth, doubt = block.truth, block.doubt
            assert doubt is not None  # requested by the caller
            row, place = (truth >= OUTSIDE).nonzero(as_tuple=True)  # not PAD
            columns = (truth, block.labels, doubt.double())
            parts.append(((row + done).cpu().numpy(), *(column[row, place].cpu().numpy() for column in columns)))
            done += len(truth)
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    @cached_property
    def outside(self) -> BoolArray:
        """Mask of the queries of none of the classes."""
        outside: BoolArray = self.label == OUTSIDE
        return outside

    @cached_property
    def correct(self) -> BoolArray:
        """Mask of the queries that are correct if accepted."""
        correct: BoolArray = self.predicted == self.label
        return correct

    def aurocs(self) -> FloatArray:
        """Return the AUROC of the novelty within each episode, (E,)."""
        return auroc(self.novelty, self.outside, self.episode)

    def accuracies(self, threshold: float) -> FloatArray:
        """Return the accuracy of each episode, (E,), over N + 1 answers, of which rejection is one."""
        right = np.where(self.novelty > threshold, self.outside, self.correct)
        accuracies: FloatArray = np.bincount(self.episode, weights=right) / np.bincount(self.episode)
        return accuracies

    def counts(self, threshold: float, way: int) -> tuple[IntArray, IntArray]:
        """Count correct and all queries for each local class of each episode: two arrays (E, N)."""
        episodes = int(self.episode.max()) + 1
        place = self.label + way * self.episode
        right = self.correct & (self.novelty <= threshold)
        found = [np.bincount(place[mask], minlength=episodes * way) for mask in (right, ~self.outside)]
        return found[0].reshape(episodes, way), found[1].reshape(episodes, way)

    def metrics(self, threshold: float) -> dict[str, Any]:
        """Return all metrics of rejection except accuracy, as `--json` prints them.

        - `coverage`: share of in-class queries that are accepted
        - `outside_rejected`: share of out-of-class queries that are rejected
        - `accuracy_of_accepted`: share of all accepted queries with the right class; None if none is accepted
        - `share`: share of queries that are out of class
        - `auroc`, `pooled_auroc`: mean over episodes; over the queries of all episodes, ranked together
        - `threshold`: None if nothing (coverage 1) or everything (coverage 0) is rejected
        """
        accepted = self.novelty <= threshold
        mean, ci95 = mean_interval(self.aurocs())
        [pooled] = auroc(self.novelty, self.outside, np.zeros_like(self.episode))
        return {
            "threshold": threshold if math.isfinite(threshold) else None,
            "auroc": mean,
            "auroc_ci95": or_none(ci95),
            "pooled_auroc": float(pooled),
            "coverage": float(accepted[~self.outside].mean()),
            "outside_rejected": float(1 - accepted[self.outside].mean()),
            "accuracy_of_accepted": float(self.correct[accepted].mean()) if accepted.any() else None,
            "share": float(self.outside.mean()),
        }


def auroc(novelty: FloatArray, outside: NDArray[np.bool_], group: IntArray) -> FloatArray:
    """Return the AUROC of each group: the probability that an out-of-class query has the higher novelty.

    All arrays are flat, (n_queries,); groups are numbered from 0. Computed from ranks (Mann and Whitney); a tie counts
    as half a pair.
    """
    order = np.lexsort((novelty, group))
    group, novelty, outside = group[order], novelty[order], outside[order]
    total = np.bincount(group)
    n_outside = np.bincount(group, weights=outside)
    if (n_outside == 0).any() or (n_outside == total).any():
        wrong = int(np.flatnonzero((n_outside == 0) | (n_outside == total))[0])
        raise EpisodeError(
            f"episode {wrong}: {int(n_outside[wrong])} of {total[wrong]} queries are of none of its classes; AUROC "
            "needs both kinds: draw episodes with nota_share or na_rate"
        )
    new = np.ones(len(group), bool)
    new[1:] = (group[1:] != group[:-1]) | (novelty[1:] != novelty[:-1])
    first = np.flatnonzero(new)  # start of each run of ties
    last = np.append(first[1:], len(group)) - 1
    rank = ((first + last) / 2)[np.cumsum(new) - 1] - (np.cumsum(total) - total)[group]  # from 0, ties in the middle
    below = np.bincount(group, weights=rank * outside) - n_outside * (n_outside - 1) / 2
    return below / (n_outside * (total - n_outside))
