"""Random numbers as a pure function of (seed, purpose, index), equal in every version of NumPy.

NumPy guarantees the raw bits of its bit generators, but not the distributions of `Generator`; draws are therefore
computed here. Philox is counter-based: draw number 10^9 costs as much as draw number 0.
"""

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import IntArray

# Purposes of random numbers: each has a separate stream.
EPISODES, SPARE_CLASSES, SPARE_ITEMS, INITIALISATION, TRAINING, SHUFFLE, BATCHES, NOTA, GREEDY = range(1, 10)
UNLABELLED, PAIRS, NOISE, NOISE_ITEMS, FINE_TUNING = 10, 11, 12, 13, 14
UNLABELLED_ITEMS, SPARE_UNLABELLED, DISTRACTORS, SHOTS, PICTURES = 15, 16, 17, 18, 19
_WORDS = 4  # 64-bit words for each step of Philox's counter


def raw_words(seed: int, purpose: int, start: int, rows: int, width: int, table: int = 0) -> NDArray[np.uint64]:
    """Return rows `start` to `start + rows - 1` of an endless table of random words, (rows, width)."""
    steps = -(-width // _WORDS)
    key = np.array((seed, purpose), np.uint64)
    counter = np.array((start * steps, table, 0, 0), np.uint64)
    words: NDArray[np.uint64] = np.random.Philox(key=key, counter=counter).random_raw(rows * steps * _WORDS)
    return words.reshape(rows, steps * _WORDS)[:, :width]


def shuffled(seed: int, purpose: int, index: int, size: int) -> list[int]:
    """Return 0 to size - 1 in random order (Fisher-Yates); the bias of the modulo is below size / 2^64."""
    order = list(range(size))
    for here, word in enumerate(raw_words(seed, purpose, 0, 1, size, table=index)[0].tolist()):
        there = here + word % (size - here)
        order[here], order[there] = order[there], order[here]
    return order


def distinct(
    words: NDArray[np.uint64], sizes: IntArray, count: int, *, seed: int, spare: int, first_row: int
) -> IntArray:
    """Draw `count` distinct integers below the row's size for each row of random words, in random order.

    Words (rows, more than count) give one number each; repeated numbers are skipped. If the words do not suffice, the
    remaining numbers are shuffled (purpose `spare`). All orders are equally likely in both cases.
    """
    values = (words % sizes[:, None].astype(np.uint64)).astype(np.int64)
    drawn = values[:, :count]
    ordered = np.sort(drawn, axis=1)
    for row in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).tolist():
        found = list(dict.fromkeys(values[row].tolist()))[:count]
        if len(found) < count:
            rest = sorted(set(range(int(sizes[row]))).difference(found))
            order = shuffled(seed, spare, first_row + row, len(rest))
            found += [rest[i] for i in order[: count - len(found)]]
        drawn[row] = found
    return drawn
