"""Episodes as arrays of integers: drawing one does not decode, tokenise or copy items.

In tagging, class 0 of an episode is O, followed by the episode's types. O has a region like any class, but is not a
class of the pool: its members are all words of other types or of none. Its number is `pool.n_classes`, so a table with
a row for each training class needs one row more.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hyperproto.data import IntArray, Pool
from hyperproto.errors import EpisodeError


@dataclass(frozen=True, eq=False, slots=True)
class Episode:
    """A few-shot task: N classes, a support set and a query set, as indices of a pool's items.

    Labels are local, 0 to N - 1, one for each unit; a query unit of none of the classes has the label OUTSIDE.
    """

    classes: IntArray  # (N,) the pool's class of each local label
    support: IntArray  # items
    support_y: IntArray  # local label of each support unit
    query: IntArray  # items
    query_y: IntArray | None  # local label of each query unit; None in a hidden test set
    unlabelled: IntArray | None = None  # unlabelled items, of the same or of other classes

    @property
    def way(self) -> int:
        """Number of classes."""
        return len(self.classes)


class Sampler(Protocol):
    """Interface of samplers: episodes `0, 1, 2, ...` of a seed."""

    query: int

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        """Return episodes `start` to `start + count - 1`."""


def episodes_hash(pool: Pool, episodes: Sequence[Episode]) -> str:
    """Return the hash of a list of episodes and their pool, 16 hex digits, stored with every result."""
    digest = hashlib.sha256(pool.digest.encode())
    for episode in episodes:
        own = [episode.classes, episode.support, episode.support_y, episode.query, episode.query_y]
        for part in own if episode.unlabelled is None else [*own, episode.unlabelled]:
            values = np.zeros(0, np.int64) if part is None else np.ascontiguousarray(part, dtype="<i8")
            digest.update(len(values).to_bytes(8, "little"))
            digest.update(values.tobytes())
    return digest.hexdigest()[:16]


def sentence_offsets(pool: Pool) -> IntArray:
    """Return the boundaries of the words of each sentence; raise an EpisodeError for a pool without sentences."""
    if not pool.many_units:
        raise EpisodeError(f"{pool}: items of one unit; sentences with a label for each word are needed here")
    return pool.unit_offsets


def token_classes(pool: Pool, types: Sequence[int]) -> IntArray:
    """Return the `classes` of an episode of these types: O, then the types."""
    return np.array([pool.n_classes, *types])


def token_labels(pool: Pool, types: Sequence[int], items: IntArray) -> IntArray:
    """Return the local labels of the words of sentences: n for the n-th of the types, 0 for all other words."""
    table = np.zeros(pool.n_classes + 1, np.int64)  # the last entry is for the label OUTSIDE = -1
    table[types] = np.arange(1, len(types) + 1)
    return table[pool.labels[word_rows(pool, items)]]


def word_rows(pool: Pool, items: IntArray) -> IntArray:
    """Return the units of the words of some sentences, sentence by sentence."""
    offsets = sentence_offsets(pool)
    starts = offsets[items]
    lengths = offsets[items + 1] - starts
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
