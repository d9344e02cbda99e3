"""Labels of words in an episode: class 0 is O, then come the episode's types.

O has a region like any class, but not a class of the pool: its members are whatever belongs to none of the episode's
types. It is numbered `pool.n_classes`, one past the pool's own: a table with a row for each class of training needs one
row more for it.
"""

from collections.abc import Sequence

import numpy as np

from hyperproto.data import IntArray, Pool
from hyperproto.errors import EpisodeError


def sentence_offsets(pool: Pool) -> IntArray:
    """Where the words of each sentence begin and end; refuse a pool without sentences."""
    if not pool.many_units:
        raise EpisodeError(f"{pool}: items of one unit; sentences with a label for each word are needed here")
    return pool.unit_offsets


def token_classes(pool: Pool, types: Sequence[int]) -> IntArray:
    """Return the `classes` of an episode of these types: O, then the types."""
    return np.array([pool.n_classes, *types])


def token_labels(pool: Pool, types: Sequence[int], items: IntArray) -> IntArray:
    """Label the words of some sentences: 0 for O and for all other types, n for the n-th of the types."""
    table = np.zeros(pool.n_classes + 1, np.int64)  # the last place serves OUTSIDE = -1
    table[types] = np.arange(1, len(types) + 1)
    return table[pool.labels[word_rows(pool, items)]]


def word_rows(pool: Pool, items: IntArray) -> IntArray:
    """Where in the pool the words of some sentences are, sentence after sentence."""
    offsets = sentence_offsets(pool)
    starts = offsets[items]
    lengths = offsets[items + 1] - starts
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
