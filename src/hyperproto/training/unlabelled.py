"""Items without labels that training sees beside its episodes: `[unlabelled]` of a recipe."""

from collections.abc import Sequence

import numpy as np

from hyperproto.data import IntArray, Pool, Progress, open_pool
from hyperproto.episodes import Episode
from hyperproto.episodes.random import UNLABELLED, raw_words
from hyperproto.errors import ConfigError
from hyperproto.recipes import Recipe, Unlabelled


class UnlabelledItems:
    """Draws items of a pool for each step: a pure function of (pool, seed, step), each item at most once a step."""

    def __init__(self, pool: Pool, config: Unlabelled, seed: int) -> None:
        if pool.many_units:
            raise ConfigError(f"[unlabelled]: {pool} has items of many units (words); name data of one unit an item")
        self.pool = pool
        self.config = config
        self.seed = seed

    @classmethod
    def of(cls, recipe: Recipe, on_data: Progress | None = None) -> "UnlabelledItems | None":
        """Open the data that a recipe names, if it names any."""
        config = recipe.unlabelled
        if config is None:
            return None
        return cls(open_pool(config.data, config.split, on_data), config, recipe.training.seed)

    def draw(self, step: int, episodes: Sequence[Episode]) -> IntArray:
        """Draw the items of a step, (B, U)."""
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
