"""Validation: the episodes, of unseen classes, whose metric chooses the best weights of a run."""

import numpy as np

from hyperproto.data import Pool, Progress, open_pool
from hyperproto.evaluation import EncodedPool, measure_episodes, training_center
from hyperproto.problems import Measurement, problem_of
from hyperproto.recipes import Recipe
from hyperproto.training.learner import Learner


class Validator:
    """The validation episodes: of unseen classes, and never those that are reported."""

    def __init__(self, recipe: Recipe, train_pool: Pool, on_data: Progress | None = None) -> None:
        task = recipe.validation
        self.pool = open_pool(recipe.validation_spec, task.split, on_data)
        self.problem = problem_of(self.pool)
        shape = {"way": task.way, "shot": task.shot, "query": task.query, "seed": task.seed, **task.k2k()}
        self.episodes = self.problem.sampler(self.pool, **shape).draw(task.episodes)
        self.train_pool = train_pool
        self._kept: EncodedPool | None = None  # of a frozen encoder: it gives the same vectors again

    def measure(self, learner: Learner, *, last: bool = False) -> Measurement:
        """Measure the learner as it is; what is encoded after the `last` step is kept on disk, see `encoded`."""
        features = learner.features
        if features.transform.kind == "center-unit":
            features.transform.set_center(
                training_center(features.encoder, self.train_pool, cached=features.encoder.frozen)
            )
        return measure_episodes(learner, self.encoded(learner, last=last), self.episodes)

    def encoded(self, learner: Learner, *, last: bool = False) -> EncodedPool:
        """Encode what the episodes need (of a pool of which they draw little, only that); once if it is frozen.

        Vectors of the `last` weights are kept on disk, as those of a frozen encoder are: an evaluation asks for them.
        """
        encoder = learner.features.encoder
        if learner.method.reads == "items":
            return EncodedPool.unread(encoder, self.pool)
        if self._kept is not None:
            return self._kept
        if self.problem.few_items:
            drawn = np.unique(np.concatenate([part for e in self.episodes for part in (e.support, e.query)]))
            encoded = EncodedPool.of_items(encoder, self.pool, drawn)
        else:
            encoded = EncodedPool.encode(encoder, self.pool, cached=last or encoder.frozen)
        self._kept = encoded if encoder.frozen else None
        return encoded
