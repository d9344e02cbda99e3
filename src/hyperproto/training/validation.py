"""Validation: what chooses the best weights of a run. Accuracy, or the F1 of entities where words are tagged."""

from dataclasses import dataclass, field

import numpy as np

from hyperproto.data import Pool, Progress, open_pool
from hyperproto.episodes import make_sampler
from hyperproto.evaluation import (
    EncodedPool,
    episode_accuracies,
    f1_interval,
    mean_interval,
    tag_episodes,
    training_center,
)
from hyperproto.recipes import Recipe
from hyperproto.training.learner import Learner


@dataclass(frozen=True)
class Measured:
    """What a validation found; the larger, the better."""

    metric: str  # accuracy or f1
    value: float
    ci95: float
    more: dict[str, float] = field(default_factory=dict)

    def row(self) -> dict[str, float]:
        """Return what the log says of it."""
        return {self.metric: self.value, "ci95": self.ci95, **self.more}


class Validation:
    """The validation episodes: of unseen classes, and never those that are reported."""

    def __init__(self, recipe: Recipe, train_pool: Pool, on_data: Progress | None = None) -> None:
        task = recipe.validation
        self.pool = open_pool(recipe.data.spec, task.split, on_data)
        shape = {"way": task.way, "shot": task.shot, "query": task.query, "seed": task.seed, **task.k2k()}
        self.episodes = make_sampler(self.pool, **shape).draw(task.episodes)
        self.train_pool = train_pool

    def measure(self, learner: Learner) -> Measured:
        """Measure the learner as it is."""
        features = learner.features
        if features.transform.kind == "center-unit":
            features.transform.set_center(training_center(features.encoder, self.train_pool))
        if self.pool.offsets is not None:
            return self._f1(learner)
        encoded = EncodedPool.encode(features.encoder, self.pool)
        correct, total = episode_accuracies(learner.method, features.transform, encoded, self.episodes)
        return Measured("accuracy", *mean_interval(correct.sum(1) / total.sum(1)))

    def _f1(self, learner: Learner) -> Measured:
        """Tag the episodes; of a large pool they need few sentences, and only those are read."""
        drawn = np.unique(np.concatenate([part for e in self.episodes for part in (e.support, e.query)]))
        encoded = EncodedPool.of_items(learner.features.encoder, self.pool, drawn)
        counts = tag_episodes(learner.method, learner.features.transform, encoded, self.episodes).counts("sentence")
        more = {"precision": counts.precision, "recall": counts.recall}
        return Measured("f1", *f1_interval(counts), more)
