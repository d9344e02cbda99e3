"""AUROC as what it means: how often a query of none of the classes looks newer than one of a class."""

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import IntArray
from hyperproto.errors import EpisodeError
from hyperproto.evaluation.intervals import FloatArray


def auroc(novelty: FloatArray, outside: NDArray[np.bool_], group: IntArray) -> FloatArray:
    """The share of pairs (outside, known) of each group in which the outside query is newer; a tie is half a pair.

    All arrays are flat, one place a query; groups are numbered from 0. Exact, by ranks: the ranks of outside queries,
    less what they would be without any known query, count the known queries below them (Mann and Whitney).
    """
    order = np.lexsort((novelty, group))
    group, novelty, outside = group[order], novelty[order], outside[order]
    total = np.bincount(group)
    n_outside = np.bincount(group, weights=outside)
    if (n_outside == 0).any() or (n_outside == total).any():
        lone = int(np.flatnonzero((n_outside == 0) | (n_outside == total))[0])
        raise EpisodeError(
            f"episode {lone}: {int(n_outside[lone])} of {total[lone]} queries are of none of its classes; AUROC needs "
            "both kinds: draw episodes with nota_share or na_rate"
        )
    new = np.ones(len(group), bool)
    new[1:] = (group[1:] != group[:-1]) | (novelty[1:] != novelty[:-1])
    first = np.flatnonzero(new)  # of each run of ties
    last = np.append(first[1:], len(group)) - 1
    rank = ((first + last) / 2)[np.cumsum(new) - 1] - (np.cumsum(total) - total)[group]  # from 0, ties in the middle
    below = np.bincount(group, weights=rank * outside) - n_outside * (n_outside - 1) / 2
    return below / (n_outside * (total - n_outside))
