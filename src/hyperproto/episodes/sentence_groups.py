"""Sentences grouped by what K~2K sampling sees of them: how many entities of each type they hold."""

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import IntArray, Pool
from hyperproto.data.tagged_text import find_spans
from hyperproto.episodes.tokens import offsets_of

_BITS = 64  # types in one word of a mask


class SentenceGroups:
    """All sentences that hold the same number of entities of each type are one group: they are exchangeable.

    A hundred thousand sentences make some hundreds or thousands of groups, each with a bit mask of its types, so that a
    question to all sentences ("which hold none but these types?") is one vector operation on a short array. Sentences
    without entities are in no group.
    """

    counts: IntArray  # (n_classes, G) entities of each type in a sentence of the group
    masks: NDArray[np.uint64]  # (words, G) the types of the group, a bit each
    sizes: IntArray  # (G,) sentences in the group
    starts: list[int]  # where in `sentences` those of each group begin
    sentences: IntArray  # indices of the pool's items, group after group

    def __init__(self, pool: Pool) -> None:
        spans = find_spans(pool.labels, offsets_of(pool))
        owner = offsets_of(pool).searchsorted(spans.start, side="right") - 1
        pairs, counts = np.unique(owner * pool.n_classes + spans.label, return_counts=True)
        owner, kind = np.divmod(pairs, pool.n_classes)  # how many of a kind each sentence has
        items, first = np.unique(owner, return_index=True)
        stops = np.append(first, len(pairs))[1:]
        keys = np.stack([kind, counts], axis=1).astype("<i4").tobytes()  # eight bytes for each pair
        number: dict[bytes, int] = {}  # groups in the order of their first sentences
        group = np.zeros(len(items), np.int64)
        for i, (start, stop) in enumerate(zip((8 * first).tolist(), (8 * stops).tolist(), strict=True)):
            group[i] = number.setdefault(keys[start:stop], len(number))
        self.sentences = items[np.argsort(group, kind="stable")]
        self.sizes = np.bincount(group, minlength=len(number))
        self.starts = (np.cumsum(self.sizes) - self.sizes).tolist()
        self.counts = np.zeros((pool.n_classes, len(number)), np.int64)
        for g, i in enumerate(np.unique(group, return_index=True)[1].tolist()):  # one sentence speaks for its group
            self.counts[kind[first[i] : stops[i]], g] = counts[first[i] : stops[i]]
        self.masks = np.zeros((-(-pool.n_classes // _BITS), len(number)), np.uint64)
        for n, has in enumerate(self.counts > 0):
            self.masks[n // _BITS] |= has.astype(np.uint64) << np.uint64(n % _BITS)

    def within(self, types: list[int]) -> IntArray:
        """Find the groups whose sentences hold none but these types."""
        allowed = sum(1 << kind for kind in types)
        others = ~allowed & ((1 << (_BITS * len(self.masks))) - 1)
        forbidden = [others >> (_BITS * word) & (1 << _BITS) - 1 for word in range(len(self.masks))]
        found = self.masks & np.array(forbidden, np.uint64)[:, None]
        return np.flatnonzero(np.all(found == 0, axis=0))

    def supply(self, most: int) -> IntArray:
        """Count the entities of each type in sentences that hold at most so many of it, (n_classes,)."""
        supply: IntArray = np.where(self.counts <= most, self.counts, 0) @ self.sizes
        return supply
