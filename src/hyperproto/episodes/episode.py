"""An episode is a handful of integers: nothing is decoded, tokenised or copied when it is drawn."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hyperproto.data import IntArray, Pool


@dataclass(frozen=True, eq=False, slots=True)
class Episode:
    """One few-shot task: N classes, a support set and a query set, as indices of a pool's items.

    Labels are the episode's own, 0 to N - 1, one per *unit*; a query unit of none of the classes is OUTSIDE.
    """

    classes: IntArray  # (N,) the pool's class of each local label
    support: IntArray  # items
    support_y: IntArray  # local label of each support unit
    query: IntArray  # items
    query_y: IntArray | None  # local label of each query unit; None in a hidden test set
    unlabelled: IntArray | None = None  # items, of the same or of other classes, that come without a label

    @property
    def way(self) -> int:
        """How many classes."""
        return len(self.classes)


class Sampler(Protocol):
    """Episodes `0, 1, 2, ...` of a seed."""

    query: int

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        """Return episodes `start` to `start + count - 1`."""


def episodes_hash(pool: Pool, episodes: Sequence[Episode]) -> str:
    """Sixteen hex digits for a list of episodes over this very pool; every reported number carries them."""
    digest = hashlib.sha256(pool.digest.encode())
    for episode in episodes:
        own = [episode.classes, episode.support, episode.support_y, episode.query, episode.query_y]
        for part in own if episode.unlabelled is None else [*own, episode.unlabelled]:
            values = np.zeros(0, np.int64) if part is None else np.ascontiguousarray(part, dtype="<i8")
            digest.update(len(values).to_bytes(8, "little"))
            digest.update(values.tobytes())
    return digest.hexdigest()[:16]
