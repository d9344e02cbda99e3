"""Classification: every item has one class; episodes are N-way K-shot, and the metric is accuracy."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from hyperproto.data import IntArray, Pool
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.episodes.greedy import Rule
from hyperproto.errors import EpisodeError
from hyperproto.problems.base import Answers, Measurement, Problem
from hyperproto.problems.rejection import Verdicts

QUERIES = 15  # a class, unless said otherwise


class Classification(Problem):
    """N-way K-shot episodes and their accuracy; with a threshold, accuracy with "none of these" as one more answer."""

    name = "classification"
    metric = "accuracy"

    def sampler(
        self,
        pool: Pool,
        *,
        way: int,
        shot: int | Sequence[int],
        query: int | None = None,
        seed: int = 0,
        nota_share: float = 0.0,
        na_rate: int = 0,
        rule: Rule | None = None,
        least_spans: int | None = None,
        noise_rate: float = 0.0,
        unlabelled: int = 0,
        strangers: int = 0,
        most_shots: int | None = None,
    ) -> EpisodeSampler:
        """Draw 15 queries a class unless `query` says otherwise, and queries of none of the classes if asked to."""
        if rule is not None or least_spans is not None:
            raise EpisodeError(f"{pool}: rule and least_spans are of K~2K episodes, for sentences with tagged words")
        query = QUERIES if query is None else query
        more: dict[str, Any] = {"nota_share": nota_share, "na_rate": na_rate, "noise_rate": noise_rate}
        more |= {"unlabelled": unlabelled, "strangers": strangers, "most_shots": most_shots}
        return EpisodeSampler(pool, way=way, shot=shot, query=query, seed=seed, **more)

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
        """Accuracy of each episode and, where `shots` is a list, of the classes of 1, 2, ... examples.

        With `threshold`, queries of more doubt are rejected.
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
    """Accuracy of the classes that had 1, 2, ... examples: what a mean over classes hides when shots are unequal."""
    shot = np.array(shots)
    return {str(k): float(correct[:, shot == k].sum() / max(1, total[:, shot == k].sum())) for k in sorted(set(shots))}
