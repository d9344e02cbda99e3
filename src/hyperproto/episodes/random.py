"""Random numbers that are a pure function of (seed, purpose, index), the same on every NumPy version.

NumPy promises the raw bits of a bit generator for ever, but not what `Generator` makes of them: so the draws are ours.
Philox counts instead of remembering, so that draw number 10^9 costs what draw number 0 does.
"""

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import IntArray

# What the numbers are for: two purposes never share a stream.
EPISODES, SPARE_CLASSES, SPARE_ITEMS, INITIALISATION, TRAINING, SHUFFLE, BATCHES, NOTA, GREEDY = range(1, 10)
UNLABELLED, PAIRS, NOISE, NOISE_ITEMS, FINE_TUNING = 10, 11, 12, 13, 14
UNLABELLED_ITEMS, SPARE_UNLABELLED, DISTRACTORS, SHOTS, PICTURES = 15, 16, 17, 18, 19
_WORDS = 4  # 64-bit words for each step of Philox's counter


def raw_words(seed: int, purpose: int, start: int, rows: int, width: int, table: int = 0) -> NDArray[np.uint64]:
    """Random words of rows `start` to `start + rows - 1` of an endless table `width` words wide, (rows, width)."""
    steps = -(-width // _WORDS)
    key = np.array((seed, purpose), np.uint64)
    counter = np.array((start * steps, table, 0, 0), np.uint64)
    words: NDArray[np.uint64] = np.random.Philox(key=key, counter=counter).random_raw(rows * steps * _WORDS)
    return words.reshape(rows, steps * _WORDS)[:, :width]


def shuffled(seed: int, purpose: int, index: int, size: int) -> list[int]:
    """Put 0 to size - 1 in random order (Fisher-Yates). A modulo of 64 bits is biased by less than size / 2^64."""
    order = list(range(size))
    for here, word in enumerate(raw_words(seed, purpose, 0, 1, size, table=index)[0].tolist()):
        there = here + word % (size - here)
        order[here], order[there] = order[there], order[here]
    return order


def distinct(
    words: NDArray[np.uint64], sizes: IntArray, count: int, *, seed: int, spare: int, first_row: int
) -> IntArray:
    """Draw, for each row of random words, `count` distinct integers below the row's size, in random order.

    Words (rows, more than count) give numbers one after another; a number that came before is passed over. Should the
    words run out, the numbers not drawn yet are shuffled (purpose `spare`): both give every order the same chance.
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
