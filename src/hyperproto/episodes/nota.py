"""NOTA, none of the above: queries of classes that an episode did not draw."""

import math

import numpy as np

from hyperproto.data import IntArray, Pool
from hyperproto.episodes.random import NOTA, raw_words
from hyperproto.errors import EpisodeError


def nota_count(pool: Pool, *, way: int, query: int, nota_share: float, na_rate: int) -> int:
    """How many NOTA queries an episode gets.

    `nota_share` is their share of all queries: the count that comes nearest to it, and at least one. `na_rate` is the
    FewRel 2.0 toolkit's: that many for each query *of one class*, so 5-way, 1 makes a share of 1/6 and 5 one of 1/2.
    """
    if not 0 <= nota_share < 1 or na_rate < 0:
        raise EpisodeError(
            f"nota_share {nota_share}, na_rate {na_rate}: the share must be at least 0 and below 1, na_rate at least 0"
        )
    if nota_share and na_rate:
        raise EpisodeError(f"nota_share {nota_share} and na_rate {na_rate} both say how many queries; give one of them")
    if (nota_share or na_rate) and way >= pool.n_classes:
        raise EpisodeError(
            f"{pool}: {way}-way episodes leave none of its {pool.n_classes} classes for queries of none of the above; "
            "lower the way"
        )
    if not nota_share:
        return na_rate * query
    known = way * query
    below = math.floor(known * nota_share / (1 - nota_share))
    return min((max(below, 1), below + 1), key=lambda count: abs(count / (known + count) - nota_share))


def draw_outside(pool: Pool, classes: IntArray, count: int, *, seed: int, start: int) -> IntArray:
    """Items of other classes for episodes `start`, `start + 1`, ... of `classes` (E, N): (E, count).

    As in the FewRel 2.0 toolkit each is drawn from a class drawn evenly from the others: large classes come no more
    often. An item that came before is passed over for one of as many spare draws; only where the other classes are so
    small that these do not suffice does an item come twice.
    """
    words = raw_words(seed, NOTA, start, len(classes), 4 * count)  # a class and an item, twice what is needed
    other = (words[:, : 2 * count] % np.uint64(pool.n_classes - classes.shape[1])).astype(np.int64)  # (E, 2 count)
    for drawn in np.sort(classes, axis=1).T:
        other += other >= drawn[:, None]  # counted among the others only; now among all
    place = (words[:, 2 * count :] % pool.counts[other].astype(np.uint64)).astype(np.int64)
    starts = np.cumsum(pool.counts) - pool.counts
    found = np.concatenate(pool.members)[starts[other] + place]
    items: IntArray = found[:, :count].copy()
    ordered = np.sort(items, axis=1)
    for row in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).tolist():
        different = list(dict.fromkeys(found[row].tolist()))[:count]
        items[row, : len(different)] = different
    return items
