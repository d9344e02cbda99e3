"""Counts of all types in one integer, a field of bits for each: adding, comparing and counting take one operation."""

from collections.abc import Iterable

import numpy as np

from hyperproto.data import IntArray


class Tally:
    """Packed counts of groups of sentences.

    The highest bit of each field is the *sign* of its type: no count reaches it, but a count plus `above[n]` does if it
    is greater than n. So `(counts + above[n]) & signs` tells at once which types have more than n.
    """

    def __init__(self, counts: IntArray, most: int) -> None:
        """Pack `counts` (n_types, G) of each group; up to `most` are added up, and one group more."""
        self._width = (most + int(counts.max(initial=0))).bit_length() + 1
        self._sign = 1 << (self._width - 1)
        types = range(len(counts))
        self.signs = self.of_types(types)
        self.above = [sum((self._sign - 1 - n) << (self._width * kind) for kind in types) for n in range(most + 1)]
        self.counts = [0] * counts.shape[1]  # of each group
        for kind, group in zip(*(axis.tolist() for axis in np.nonzero(counts)), strict=True):
            self.counts[group] += int(counts[kind, group]) << (self._width * kind)
        self.types = [(packed + self.above[0]) & self.signs for packed in self.counts]  # the signs of each group

    def of_types(self, types: Iterable[int]) -> int:
        """Return the signs of some types."""
        return sum(self._sign << (self._width * kind) for kind in types)

    def values(self, packed: int, types: Iterable[int]) -> list[int]:
        """Unpack the counts of some types."""
        return [packed >> (self._width * kind) & self._sign - 1 for kind in types]
