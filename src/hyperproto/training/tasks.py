"""Training tasks by step (episodes, batches or pairs, with unlabelled items if a recipe has some), and validation.

The training loop asks a `TaskSource` for the task of each step. A source of your own overrides `draw`:

    class FewTasks(SampledTasks):
        def draw(self, step):
            return super().draw(step % 100)  # the same 100 steps again and again

    train(recipe, "runs/few", source=FewTasks)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import torch

from hyperproto.data import IntArray, Pool, Progress, open_pool
from hyperproto.data.formats.relations import with_blanks
from hyperproto.encoders import FeatureTransform
from hyperproto.episodes import BatchSampler, Episode, PairSampler, Sampler
from hyperproto.episodes.random import UNLABELLED, raw_words
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, measure_episodes, training_center
from hyperproto.methods import Task
from hyperproto.problems import Measurement, make_sampler, problem_of
from hyperproto.recipes import Recipe, Unlabelled
from hyperproto.regions import ClassStatistics
from hyperproto.regions.bayes import measured_ratio
from hyperproto.training.learner import Learner
from hyperproto.training.run import PriorRatio


class TrainingTask(NamedTuple):
    """The encoded task of one step, and the raw batch it was encoded from, which the encoder's own loss reads."""

    task: Task
    batch: Any


class TaskSource(ABC):
    """Training tasks by step.

    For a resumed run to equal an uninterrupted one, everything a source remembers must follow from the step, the
    learner's weights and the rows of the log.
    """

    def __init__(self, recipe: Recipe, pool: Pool, learner: Learner, progress: Progress | None = None) -> None:
        self.pool, self.learner = pool, learner
        self.unlabelled = UnlabelledItems.of(recipe, progress)

    @abstractmethod
    def draw(self, step: int) -> list[Episode]:
        """Draw the episodes of a step, counted from 0."""

    def task(self, step: int) -> TrainingTask:
        """Draw the episodes of a step and encode their items, in training mode and in one pass."""
        episodes, learner = self.draw(step), self.learner.train()
        batch, local, items = learner.collate(self.pool, episodes)
        task = learner.task(batch, local, items)
        if self.unlabelled is not None:
            task = learner.with_unlabelled(task, self.unlabelled.pool, self.unlabelled.draw(step, episodes))
        return TrainingTask(task, batch)

    def begin(self, rows: Sequence[dict[str, Any]], progress: Progress | None = None) -> None:
        """Encode the pools of a frozen encoder once; `rows` is the log of a resumed run, up to its checkpoint."""
        self.learner.store(self.pool, progress)
        if self.unlabelled is not None:
            self.learner.store(self.unlabelled.pool, progress)

    def log(self) -> dict[str, float]:
        """Return additional columns for a row of the log."""
        return {}


class SampledTasks(TaskSource):
    """Training tasks drawn as section `[episodes]`, `[batches]` or `[pairs]` of a recipe describes."""

    def __init__(self, recipe: Recipe, pool: Pool, learner: Learner, progress: Progress | None = None) -> None:
        super().__init__(recipe, pool, learner, progress)
        self.sampler, self.number = _sampler(recipe, pool)

    def draw(self, step: int) -> list[Episode]:
        """Draw the next episodes, batch or pairs."""
        return self.sampler.draw(self.number, start=step * self.number)


MakeSource = Callable[[Recipe, Pool, Learner, Progress | None], TaskSource]


def _sampler(recipe: Recipe, pool: Pool) -> tuple[Sampler | BatchSampler | PairSampler, int]:
    """Build the sampler of a recipe; return it with the number of draws a step."""
    seed, config = recipe.training.seed, recipe.episodes
    if (batches := recipe.batches) is not None:
        return BatchSampler(pool, size=batches.size, seed=seed), 1
    if (pairs := recipe.pairs) is not None:
        return PairSampler(pool, source=pairs.source, blanks=pairs.blanks, seed=seed), pairs.size
    assert config is not None  # by the schema
    shape = {"way": config.way, "shot": config.shot, "query": config.query, "seed": seed, **config.sampler_options()}
    shape |= {"noise_rate": config.noise_rate or 0.0, "most_shots": config.most_shots}
    return make_sampler(pool, **shape), config.batch


def training_pool(recipe: Recipe, progress: Progress | None = None) -> Pool:
    """Open the training data of a recipe; for pairs, with every sentence in its four spellings (see `with_blanks`)."""
    pool = open_pool(recipe.data.spec, recipe.data.split, progress)
    return pool if recipe.pairs is None else with_blanks(pool)


class UnlabelledItems:
    """Items of section `[unlabelled]`, drawn anew for each step without replacement, from seed and step alone."""

    def __init__(self, pool: Pool, config: Unlabelled, seed: int) -> None:
        if pool.many_units:
            raise ConfigError(f"[unlabelled]: {pool} has items of many units (words); name data of one unit an item")
        self.pool = pool
        self.config = config
        self.seed = seed

    @classmethod
    def of(cls, recipe: Recipe, progress: Progress | None = None) -> "UnlabelledItems | None":
        """Open the unlabelled data of a recipe; return None if it has none."""
        config = recipe.unlabelled
        if config is None:
            return None
        return cls(open_pool(config.data, config.split, progress), config, recipe.training.seed)

    def draw(self, step: int, episodes: Sequence[Episode]) -> IntArray:
        """Draw the item indices of a step, (B, U)."""
        config = self.config
        least = min(len(episode.support_y) for episode in episodes)
        each = config.number or min(least, max(1, config.most // len(episodes)))
        if each * len(episodes) > len(self.pool):
            raise ConfigError(
                f"[unlabelled]: {each} items for each of {len(episodes)} episodes, but {self.pool} has only "
                f"{len(self.pool)}; lower unlabelled.number"
            )
        words = raw_words(self.seed, UNLABELLED, step, 1, len(self.pool))[0]
        return np.argsort(words, kind="stable")[: each * len(episodes)].reshape(len(episodes), each)


class Validator:
    """The validation episodes of a run. Their classes are not trained on, and their results are not reported."""

    def __init__(self, recipe: Recipe, train_pool: Pool, on_data: Progress | None = None) -> None:
        task = recipe.validation
        self.pool = open_pool(recipe.validation_spec, task.split, on_data)
        self.problem = problem_of(self.pool)
        shape = {"way": task.way, "shot": task.shot, "query": task.query, "seed": task.seed, **task.sampler_options()}
        self.episodes = self.problem.sampler(self.pool, **shape).draw(task.episodes)
        self.train_pool = train_pool
        self._kept: EncodedPool | None = None  # vectors of a frozen encoder, which do not change

    def measure(self, learner: Learner, *, last: bool = False) -> Measurement:
        """Measure the learner on the validation episodes; `last` as in `encoded`."""
        features = learner.features
        if features.transform.kind == "center-unit":
            features.transform.set_center(
                training_center(features.encoder, self.train_pool, cached=features.encoder.frozen)
            )
        return measure_episodes(learner, self.encoded(learner, last=last), self.episodes)

    def encoded(self, learner: Learner, *, last: bool = False) -> EncodedPool:
        """Encode the validation pool; where the episodes draw few of its items, only those.

        Vectors of a frozen encoder are reused. They are cached on disk, as those of the `last` step are, for later
        evaluations of the run.
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

    def can_measure_ratio(self, learner: Learner) -> bool:
        """Return whether the prior ratio is defined: one vector an item, and no class in common with training."""
        vectors = learner.method.reads == "vectors" and self.pool.outside_row is None
        return vectors and not set(self.pool.class_names) & set(self.train_pool.class_names)

    def prior_ratio(self, learner: Learner) -> PriorRatio:
        """Measure the ratio of within- to between-class variance, for the transforms "none", "unit" and the run's."""
        features, pool = learner.features, self.pool
        vectors = self.encoded(learner, last=True).units.x.double()
        labels = torch.from_numpy(pool.labels).to(vectors.device)
        ratio = {}
        for kind in dict.fromkeys(("none", "unit", features.transform.kind)):
            transform = FeatureTransform(kind, features.feature_shape).to(vectors.device).eval()
            if kind == "center-unit":
                transform.set_center(features.transform.center)
            x = transform(vectors).flatten(1)
            stats = ClassStatistics.of(x - x.mean(0), labels, pool.n_classes)
            found = round(float(measured_ratio(stats)), 4)
            if isfinite(found) and found > 0:  # otherwise there are too few vectors, or they do not vary
                ratio[kind] = found
        return PriorRatio(pool.name, pool.split, list(pool.class_names), ratio)
