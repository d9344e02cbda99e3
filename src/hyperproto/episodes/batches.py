"""Batches of items and pairs of sentences, for pre-training."""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.data.formats.relations import SPELLINGS, sentence_key
from hyperproto.episodes.episode import Episode
from hyperproto.episodes.random import BATCHES, PAIRS, raw_words
from hyperproto.errors import EpisodeError

Kind = Literal["positive", "hard", "easy"]
KINDS: dict[str, tuple[Kind, ...]] = {
    "identities": ("positive", "hard", "positive", "easy"),
    "labels": ("positive", "easy"),
}


class BatchSampler:
    """Sampler of batches `0, 1, 2, ...`, each a pure function of `(pool, seed, i)`; an epoch has each item once.

    Items that do not fill a whole batch at the end of an epoch are skipped; each epoch has its own random order.
    """

    def __init__(self, pool: Pool, *, size: int, seed: int = 0) -> None:
        if pool.many_units:
            raise EpisodeError(f"{pool}: sentences with a label for each word cannot be drawn as batches of items")
        self._items = np.flatnonzero(pool.labels >= 0)
        if not 1 <= size <= len(self._items):
            raise EpisodeError(f"{pool}: batches of {size} from {len(self._items)} items; lower the size")
        self.pool = pool
        self.size = size
        self.seed = seed
        self.per_epoch = len(self._items) // size
        self._classes = np.arange(pool.n_classes)
        self._epoch: tuple[int, IntArray] | None = None

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        """Return batches `start` to `start + count - 1`."""
        return [self[i] for i in range(start, start + count)]

    def __getitem__(self, i: int) -> Episode:
        """Return batch `i` as an episode without support."""
        epoch, place = divmod(i, self.per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            words = raw_words(self.seed, BATCHES, epoch, 1, len(self._items))[0]
            self._epoch = epoch, self._items[np.argsort(words, kind="stable")]
        items = self._epoch[1][place * self.size : (place + 1) * self.size]
        none = np.zeros(0, np.int64)
        return Episode(self._classes, none, none, items, self.pool.labels[items])


class PairSampler:
    """Sampler of pairs `0, 1, 2, ...`, each a pure function of `(pool, seed, i)`, from a pool of `with_blanks`.

    A pair is an episode of one class: the support is one sentence, the query another, of the same class or OUTSIDE.
    `source="identities"`: a positive pair has the same head and tail, a hard negative one of them, an easy negative
    neither; they are a half, a quarter and a quarter of the pairs. Heads are compared with heads only.
    `source="labels"`: half of the pairs share a label, half do not. The first sentence of a pair is drawn from those
    with a partner of that type, the second from these partners; no sentence is paired with itself. Every entity is
    replaced by a blank with probability `blanks`, independently each time.
    """

    def __init__(
        self, pool: Pool, *, source: Literal["identities", "labels"], blanks: float = 0.7, seed: int = 0
    ) -> None:
        self._kinds = KINDS[source]
        self._labels = pool.labels[::SPELLINGS]
        self._statements = np.arange(len(self._labels))
        if source == "labels":
            self._statements = np.flatnonzero(self._labels >= 0)
        items = [pool.items[SPELLINGS * i] for i in self._statements.tolist()]
        self._heads, self._tails = self._labels[self._statements], self._labels[self._statements]
        if source == "identities":
            if not all({"head_id", "tail_id"} <= item.keys() for item in items):
                raise EpisodeError(
                    f"{pool}: its entities have no ids to make pairs by; read the file as statements:FILE, or "
                    'make pairs by label: source = "labels"'
                )
            self._heads, self._tails = (_codes(item[key] for item in items) for key in ("head_id", "tail_id"))
        self._sentences = _codes(sentence_key(item["tokens"]) for item in items)
        self._first = {kind: np.flatnonzero(self._counts(kind)) for kind in self._kinds}
        for kind, first in self._first.items():
            if not len(first):
                alike = self.n_positive
                raise EpisodeError(
                    f"{pool}: no {kind} pairs by {source} ({len(items):,} sentences make {alike:,} positive pairs); "
                    "give it a larger corpus"
                )
        self.pool = pool
        self.blanks = blanks
        self.seed = seed

    @property
    def n_positive(self) -> int:
        """Number of positive pairs."""
        return int(self._counts("positive").sum()) // 2

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        """Return pairs `start` to `start + count - 1`."""
        return [self[i] for i in range(start, start + count)]

    def __getitem__(self, i: int) -> Episode:
        """Return pair `i` as an episode of one class, one support sentence and one query."""
        kind = self._kinds[i % len(self._kinds)]
        words = raw_words(self.seed, PAIRS, i, 1, 6)[0]
        first = int(self._first[kind][int(words[0]) % len(self._first[kind])])
        partners = self._partners(first, kind)
        second = int(partners[int(words[1]) % len(partners)])
        a, b = (int(self._statements[n]) for n in (first, second))
        blank = (words[2:] >> np.uint64(11)).astype(np.float64) / 2**53 < self.blanks
        spelled = (SPELLINGS * np.array([a, b]) + blank.reshape(2, 2) @ np.array([1, 2])).astype(np.int64)
        zero = np.zeros(1, np.int64)
        answer = zero if kind == "positive" else zero + OUTSIDE
        return Episode(self._labels[[a]], spelled[:1], zero, spelled[1:], answer)

    def _partners(self, first: int, kind: Kind) -> IntArray:
        """Return the sentences that form a pair of this type with one sentence."""
        head, tail = self._heads == self._heads[first], self._tails == self._tails[first]
        alike = {"positive": head & tail, "hard": head ^ tail, "easy": ~(head | tail)}[kind]
        partners: IntArray = np.flatnonzero(alike & (self._sentences != self._sentences[first]))
        return partners

    def _counts(self, kind: Kind) -> IntArray:
        """Return the number of partners of a type for each sentence, by inclusion and exclusion."""
        h, t, s = self._heads, self._tails, self._sentences
        head, tail, positive = (_sharing(*own) - _sharing(*own, s) for own in ((h,), (t,), (h, t)))  # others
        hard: IntArray = head + tail - 2 * positive
        easy: IntArray = len(h) - _sharing(s) - positive - hard
        return {"positive": positive, "hard": hard, "easy": easy}[kind]


def _codes(names: Iterable[str]) -> IntArray:
    """Return the index of each name, in order of first occurrence."""
    known: dict[str, int] = {}
    codes: IntArray = np.array([known.setdefault(name, len(known)) for name in names], np.int64)
    return codes


def _sharing(*codes: IntArray) -> IntArray:
    """Return the number of rows with the same codes as each row, itself included."""
    _, inverse, counts = np.unique(np.stack(codes), axis=1, return_inverse=True, return_counts=True)
    found: IntArray = counts[inverse.ravel()]
    return found
