"""One K~2K episode while it is drawn: which sentences are left, and which of them still fit."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import IntArray
from hyperproto.episodes.random import GREEDY, raw_words
from hyperproto.episodes.sentence_groups import SentenceGroups
from hyperproto.episodes.tally import Tally

BLOCK = 48  # random sentences looked at before those that no longer fit are weeded out
WORDS = 16 * BLOCK  # random words made for an episode at a time


class Stuck(Exception):  # noqa: N818 - no error yet: the episode is begun anew
    """No sentence is left that fits, and type `kind` is still short."""

    def __init__(self, kind: int) -> None:
        super().__init__(kind)
        self.kind = kind


class WordStream:
    """The random words of episode `i` of a seed, as many as it takes."""

    def __init__(self, seed: int, i: int, first: NDArray[np.uint64]) -> None:
        self._seed, self._i, self._row = seed, i, first
        self._table = self._at = 0

    def take(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words."""
        if self._at + count > len(self._row):
            self._table += 1
            self._row, self._at = raw_words(self._seed, GREEDY, self._i, 1, max(WORDS, count), self._table)[0], 0
        self._at += count
        return self._row[self._at - count : self._at]


class Drawing:
    """Draws sentences, evenly from those that fit, each at most once.

    A sentence that does not fit will not fit later either: counts only grow, and types that are short only grow fewer.
    So sentences are offered in blocks, and what no longer fits is passed over; the first of a block always fits. That
    is the same as asking all sentences again after each one, and never takes more blocks than sentences.
    """

    def __init__(self, groups: SentenceGroups, tally: Tally, words: WordStream) -> None:
        self._groups = groups
        self._tally = tally
        self._words = words
        self.types: list[int] = []
        self._left = groups.sizes.copy()  # sentences of each group that are not drawn yet
        self._moved: dict[int, int] = {}  # where one was drawn, the last one left of its group stands instead

    def draw_types(self, eligible: list[int], way: int) -> None:
        """Draw `way` different types."""
        order = list(eligible)
        for here, word in enumerate(self._words.take(way).tolist()):
            there = here + word % (len(order) - here)
            order[here], order[there] = order[there], order[here]
        self.types = order[:way]

    @cached_property
    def _candidates(self) -> tuple[IntArray, IntArray, int]:
        """Groups that hold none but the types drawn, their counts (N, groups), and the signs of the types."""
        groups = self._groups.within(self.types)
        return groups, self._groups.counts[np.array(self.types)[:, None], groups], self._tally.of_types(self.types)

    def fill(self, need: int, *, helpful: bool, total: int = 0) -> list[int]:
        """Draw sentences with no other types until each type has `need` entities, none ever more than twice that.

        `helpful` admits only sentences with a type that is still short. `total` counts entities drawn before.
        """
        candidates, counts, wanted = self._candidates
        packed, signs, types_of = self._tally.counts, self._tally.signs, self._tally.types
        too_many, enough = self._tally.above[2 * need], self._tally.above[need - 1]
        short = wanted & ~(total + enough)
        sentences: list[int] = []
        while short:
            sums = np.array(self._tally.values(total, self.types))
            fits = np.all(counts <= (2 * need - sums)[:, None], axis=0)
            if helpful:
                fits &= np.any(counts[sums < need], axis=0)
            offers = self._offers(candidates, fits)
            if not offers:
                raise Stuck(self.types[int(np.argmax(sums < need))])
            for group, place in offers:
                after = total + packed[group]
                if (after + too_many) & signs or (helpful and not types_of[group] & short):
                    continue
                if place >= self._left[group]:  # the place of one that was drawn since
                    continue
                sentences.append(self._take(group, place))
                total = after
                short = wanted & ~(total + enough)
                if not short:
                    break
        return sentences

    def collect(self, eligible: list[int], way: int, need: int) -> tuple[list[int], int]:
        """Draw sentences of any types until `way` types are among them; count what they hold.

        No type gets more than twice `need` entities, and no sentence brings in more types than are asked for.
        """
        candidates = self._groups.within(eligible)
        counts = self._groups.counts[:, candidates]
        total = np.zeros(len(counts), np.int64)
        sentences: list[int] = []
        packed = 0
        while len(self.types) < way:
            new = (counts[total == 0] > 0).sum(axis=0)  # types that a sentence would bring in
            fits = (counts <= (2 * need - total)[:, None]).all(axis=0) & (new <= way - len(self.types))
            offers = self._offers(candidates, fits, block=1)
            if not offers:
                raise Stuck(next(kind for kind in eligible if not total[kind]))
            [(group, place)] = offers
            own = self._groups.counts[:, group]
            self.types += np.flatnonzero((own > 0) & (total == 0)).tolist()
            total += own
            packed += self._tally.counts[group]
            sentences.append(self._take(group, place))
        return sentences, packed

    def _offers(self, groups: IntArray, fits: NDArray[np.bool_], block: int = BLOCK) -> list[tuple[int, int]]:
        """Draw from the sentences left in the groups that fit: each one's group, and its place among those left."""
        left = self._left[groups] * fits
        ends = left.cumsum()
        if not len(ends) or not ends[-1]:
            return []
        drawn = (self._words.take(block) % np.uint64(ends[-1])).astype(np.int64)
        which = ends.searchsorted(drawn, side="right")
        places = drawn - (ends - left)[which]
        return list(zip(groups[which].tolist(), places.tolist(), strict=True))

    def _take(self, group: int, place: int) -> int:
        """Draw the sentence at a place among those left of its group."""
        start, left, moved = self._groups.starts[group], int(self._left[group]) - 1, self._moved
        self._left[group] = left
        drawn = moved.get(start + place, start + place)
        moved[start + place] = moved.get(start + left, start + left)
        return int(self._groups.sentences[drawn])
