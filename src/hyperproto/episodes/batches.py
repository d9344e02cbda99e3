"""Batches of items for whole-classification: episodes of all classes at once, without support."""

import numpy as np

from hyperproto.data import IntArray, Pool
from hyperproto.episodes.episode import Episode
from hyperproto.episodes.random import BATCHES, raw_words
from hyperproto.errors import EpisodeError


class BatchSampler:
    """Batches `0, 1, 2, ...` of a seed, each a pure function of `(pool, seed, i)`: every epoch shows each item once.

    What is left of an epoch when no whole batch remains is passed over; another epoch passes over other items.
    """

    def __init__(self, pool: Pool, *, size: int, seed: int = 0) -> None:
        if pool.many_units:
            raise EpisodeError(f"{pool}: items of many units (words) have no class of their own to be classified by")
        self._items = np.flatnonzero(pool.labels >= 0)
        if not 1 <= size <= len(self._items):
            raise EpisodeError(f"{pool}: batches of {size} from {len(self._items)} items; lower the size")
        self.pool = pool
        self.size = size
        self.seed = seed
        self.per_epoch = len(self._items) // size
        self._classes = np.arange(pool.n_classes)
        self._epoch: tuple[int, IntArray] | None = None

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        """Return batches `start` to `start + count - 1`."""
        return [self[i] for i in range(start, start + count)]

    def __getitem__(self, i: int) -> Episode:
        """Batch `i`, as an episode whose query it is."""
        epoch, place = divmod(i, self.per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            words = raw_words(self.seed, BATCHES, epoch, 1, len(self._items))[0]
            self._epoch = epoch, self._items[np.argsort(words, kind="stable")]
        items = self._epoch[1][place * self.size : (place + 1) * self.size]
        none = np.zeros(0, np.int64)
        return Episode(self._classes, none, none, items, self.pool.labels[items])
