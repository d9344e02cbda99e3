"""The threshold above which a query is rejected as none of the classes."""

import math

import numpy as np
from numpy.typing import NDArray


def choose_threshold(novelty: NDArray[np.float64], correct: NDArray[np.bool_], outside: NDArray[np.bool_]) -> float:
    """Return the threshold with the best accuracy with NOTA: what is newer is rejected, all queries counting alike.

    Every way to cut the queries in two is tried, none (infinity) and all (minus infinity) rejected among them. A cut
    lies half-way between two queries; of cuts that are equally good the one that rejects least is taken.
    """
    order = np.argsort(-novelty, kind="stable")  # newest first, as rejection takes them
    gain = outside[order].astype(np.int64) - correct[order]  # what rejecting one query more is worth
    falling = novelty[order]
    ends = np.append(np.flatnonzero(falling[1:] != falling[:-1]) + 1, len(falling))  # how many a cut rejects
    total = np.cumsum(gain)[ends - 1]
    best = int(np.argmax(total))
    if total[best] <= 0:
        return math.inf
    if ends[best] == len(falling):
        return -math.inf
    newest_kept, oldest_rejected = falling[ends[best]], falling[ends[best] - 1]
    middle = float(newest_kept + (oldest_rejected - newest_kept) / 2)
    return middle if middle < oldest_rejected else float(newest_kept)  # neighbours in floating point have no middle
