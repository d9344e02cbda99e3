"""Greedy K~2K sampling: N types with K to 2K entities each (Ding et al., "Few-NERD", ACL 2021)."""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Literal, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import IntArray, Pool
from hyperproto.data.formats.tagged import find_spans
from hyperproto.episodes.episode import Episode, sentence_offsets, token_classes, token_labels
from hyperproto.episodes.random import GREEDY, raw_words
from hyperproto.episodes.sampler import SHOT
from hyperproto.errors import EpisodeError, unknown_name
from hyperproto.options import TrainingSamplerOptions, complete, unused

Rule = Literal["toolkit", "appendix"]
RULES: tuple[Rule, ...] = get_args(Rule)
AHEAD = 32  # number of episodes whose random words are generated together
ATTEMPTS = 100  # number of attempts to draw an episode
BLOCK = 48  # number of random sentences tried before unsuitable ones are removed
WORDS = 16 * BLOCK  # number of random words generated for an episode at a time
_BITS = 64  # types in one word of a bit mask
USED = frozenset({"way", "shot", "query", "seed", "rule", "least_spans"})


class GreedySampler:
    """Sampler of N-way K~2K-shot episodes `0, 1, 2, ...`, each a pure function of `(pool, seed, i)`.

    Entities are counted as spans, runs of words of one type. `rule="toolkit"`, used for published results, first draws
    N types. Then it draws sentences uniformly from those without other types that keep all types at 2K entities or less
    and contain a type with fewer than K, until every type has K. The query is drawn from other sentences by the same
    rule, with `query` for K. `rule="appendix"` is the algorithm printed in the paper: sentences are drawn from all, and
    rejected if there would be more than N types, or more than 2K entities of one; the first N types are the episode's.

    If no sentence fits, the episode is drawn again with new types, at most 100 times (the toolkit would not terminate).
    Types with fewer than `least_spans` entities, sentences that contain them, and sentences without entities are never
    drawn.

    An episode has N + 1 classes: class 0 is O (see `episodes.episode`).

    >>> import numpy as np
    >>> pool = Pool([["a", "b"]] * 60, np.tile([0, -1, 1, -1, 2, -1], 20), tuple("xyz"), offsets=np.arange(0, 121, 2))
    >>> episode = GreedySampler(pool, way=2, shot=3, query=1)[7]
    >>> episode.way, len(episode.support), len(episode.support_y)
    (3, 6, 12)
    """

    def __init__(self, pool: Pool, **settings: Unpack[TrainingSamplerOptions]) -> None:
        options = complete(TrainingSamplerOptions, settings)
        if names := unused(options, USED):
            raise EpisodeError(f"{pool}: {', '.join(names)}: not for K~2K episodes of sentences; leave it out")
        shot = SHOT if options["shot"] is None else options["shot"]
        if not isinstance(shot, int):
            raise EpisodeError(
                f"{pool}: K~2K episodes have one K for all types, not shots {list(shot)}; give one number"
            )
        self.pool = pool
        self.way = options["way"]
        self.shot = shot
        self.query = max(1, shot) if options["query"] is None else options["query"]
        self.seed = options["seed"]
        self.rule = options["rule"] or "toolkit"
        least_spans = options["least_spans"] or 0
        self._lengths = np.diff(sentence_offsets(pool))
        self._groups = SentenceGroups(pool)
        self._spans = self._groups.supply(len(pool.labels))
        self._eligible: list[int] = np.flatnonzero(self._spans >= least_spans).tolist()
        self._check(least_spans)
        self._packed = PackedCounts(self._groups.counts, 2 * max(shot, self.query))
        self.draw(1)  # raises an error now if episodes cannot be drawn

    def __getitem__(self, i: int) -> Episode:
        """Return episode `i`."""
        return self.draw(1, i)[0]

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        """Return episodes `start` to `start + count - 1`."""
        episodes = []
        for first in range(start, start + count, AHEAD):
            words = raw_words(self.seed, GREEDY, first, min(AHEAD, start + count - first), WORDS)
            episodes += [self._episode(i, WordStream(self.seed, i, row)) for i, row in enumerate(words, start=first)]
        return episodes

    def _episode(self, i: int, words: "WordStream") -> Episode:
        stuck: Counter[int] = Counter()
        for _ in range(ATTEMPTS):
            drawing = SentenceDraw(self._groups, self._packed, words)
            try:
                support, query = self._toolkit(drawing) if self.rule == "toolkit" else self._appendix(drawing)
            except Stuck as found:
                stuck[found.kind] += 1
                continue
            return self._made(drawing.types, support, query)
        kind, times = stuck.most_common(1)[0]
        raise EpisodeError(
            f"{self.pool}: episode {i} of seed {self.seed} cannot be drawn: in {times} of {ATTEMPTS} attempts class "
            f"{self.pool.class_names[kind]!r} could not be filled: too few sentences hold it and no types but the "
            f"{self.way} drawn; lower shot or query ({self._asked()}), raise the way, or draw from larger classes "
            "only: least_spans"
        )

    def _made(self, types: list[int], support: list[int], query: list[int]) -> Episode:
        items = np.array(support + query)
        labels = token_labels(self.pool, types, items)
        border = int(self._lengths[support].sum())
        parts = items[: len(support)], labels[:border], items[len(support) :], labels[border:]
        return Episode(token_classes(self.pool, types), *parts)

    def _toolkit(self, drawing: "SentenceDraw") -> tuple[list[int], list[int]]:
        drawing.draw_types(self._eligible, self.way)
        support = drawing.fill(self.shot, helpful=True) if self.shot else []
        return support, drawing.fill(self.query, helpful=True)

    def _appendix(self, drawing: "SentenceDraw") -> tuple[list[int], list[int]]:
        need = self.shot or self.query
        first, total = drawing.collect(self._eligible, self.way, need)
        first += drawing.fill(need, helpful=False, total=total)
        return (first, drawing.fill(self.query, helpful=False)) if self.shot else ([], first)

    def _asked(self) -> str:
        return f"{self.shot}~{2 * self.shot} shots and {self.query}~{2 * self.query} queries"

    def _check(self, least_spans: int) -> None:
        pool, groups = self.pool, self._groups
        if self.rule not in RULES:
            raise EpisodeError(unknown_name("rule", self.rule, RULES))
        countable = max(self.way, self.shot, self.query) < 2**31
        if not countable or self.way < 1 or self.query < 1 or not 0 <= self.seed < 2**63 or self.shot < 0:
            raise EpisodeError(
                f"way {self.way}, shot {self.shot}, query {self.query}, seed {self.seed}: way and query must be at "
                "least 1, shot at least 0, all of them below 2^31, and seed from 0 to 2^63 - 1"
            )
        if self.way > len(self._eligible):
            found = f"{len(self._eligible)} types" + (f" of {least_spans} entities or more" if least_spans else "")
            raise EpisodeError(f"{pool}: {self.way}-way episodes from {found}; lower the way")
        needed = self.shot + self.query
        usable = groups.supply(2 * max(self.shot, self.query))
        short = np.minimum(usable - needed, groups.supply(2 * self.query) - self.query)
        if self.shot:
            short = np.minimum(short, groups.supply(2 * self.shot) - self.shot)
        small = [kind for kind in self._eligible if short[kind] < 0]
        if small:
            worst = min(small, key=lambda kind: int(usable[kind]))
            others = f" ({len(small) - 1} more classes are short too)" if len(small) > 1 else ""
            raise EpisodeError(
                f"{pool}: class {pool.class_names[worst]!r} has {usable[worst]} entities in sentences without too many "
                f"of them, but {self._asked()} need {needed}{others}; lower shot or query, or draw from larger classes "
                f"only: least_spans={self._spans[small].max() + 1}"
            )


class SentenceDraw:
    """Uniform sampling without replacement from the sentences that fit an episode.

    A sentence that does not fit will not fit later, since counts only grow and incomplete types only get fewer.
    Therefore sentences are drawn in blocks, and those that no longer fit are skipped; the first of a block always fits.
    This equals filtering all sentences after each draw, and needs at most as many blocks as sentences.
    """

    def __init__(self, groups: "SentenceGroups", packed: "PackedCounts", words: "WordStream") -> None:
        self._groups = groups
        self._packed = packed
        self._words = words
        self.types: list[int] = []
        self._left = groups.sizes.copy()  # number of sentences of each group not yet drawn
        self._moved: dict[int, int] = {}  # position of a drawn sentence -> the last remaining one of its group

    def draw_types(self, eligible: list[int], way: int) -> None:
        """Draw `way` different types."""
        order = list(eligible)
        for here, word in enumerate(self._words.take(way).tolist()):
            there = here + word % (len(order) - here)
            order[here], order[there] = order[there], order[here]
        self.types = order[:way]

    @cached_property
    def _candidates(self) -> tuple[IntArray, IntArray, int]:
        """Return the groups without other types than those drawn, their counts (N, groups), and the types' signs."""
        groups = self._groups.within(self.types)
        return groups, self._groups.counts[np.array(self.types)[:, None], groups], self._packed.of_types(self.types)

    def fill(self, need: int, *, helpful: bool, total: int = 0) -> list[int]:
        """Draw sentences without other types until each type has `need` to 2 `need` entities.

        With `helpful`, every sentence contains a type that still needs entities. `total` counts entities drawn before.
        """
        candidates, counts, wanted = self._candidates
        packed, signs, types_of = self._packed.counts, self._packed.signs, self._packed.types
        too_many, enough = self._packed.above[2 * need], self._packed.above[need - 1]
        short = wanted & ~(total + enough)
        sentences: list[int] = []
        while short:
            sums = np.array(self._packed.values(total, self.types))
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
                if place >= self._left[group]:  # this sentence was drawn in the meantime
                    continue
                sentences.append(self._take(group, place))
                total = after
                short = wanted & ~(total + enough)
                if not short:
                    break
        return sentences

    def collect(self, eligible: list[int], way: int, need: int) -> tuple[list[int], int]:
        """Draw sentences of any types until there are `way` types; return the sentences and their entity counts.

        No type gets more than twice `need` entities, and a sentence that would exceed `way` types is rejected.
        """
        candidates = self._groups.within(eligible)
        counts = self._groups.counts[:, candidates]
        total = np.zeros(len(counts), np.int64)
        sentences: list[int] = []
        packed = 0
        while len(self.types) < way:
            new = (counts[total == 0] > 0).sum(axis=0)  # new types of a sentence
            fits = (counts <= (2 * need - total)[:, None]).all(axis=0) & (new <= way - len(self.types))
            offers = self._offers(candidates, fits, block=1)
            if not offers:
                raise Stuck(next(kind for kind in eligible if not total[kind]))
            [(group, place)] = offers
            own = self._groups.counts[:, group]
            self.types += np.flatnonzero((own > 0) & (total == 0)).tolist()
            total += own
            packed += self._packed.counts[group]
            sentences.append(self._take(group, place))
        return sentences, packed

    def _offers(self, groups: IntArray, fits: NDArray[np.bool_], block: int = BLOCK) -> list[tuple[int, int]]:
        """Draw from the remaining sentences of groups that fit: group, and position among the remaining ones."""
        left = self._left[groups] * fits
        ends = left.cumsum()
        if not len(ends) or not ends[-1]:
            return []
        drawn = (self._words.take(block) % np.uint64(ends[-1])).astype(np.int64)
        which = ends.searchsorted(drawn, side="right")
        places = drawn - (ends - left)[which]
        return list(zip(groups[which].tolist(), places.tolist(), strict=True))

    def _take(self, group: int, place: int) -> int:
        """Remove and return the sentence at a position among the remaining ones of its group."""
        start, left, moved = self._groups.starts[group], int(self._left[group]) - 1, self._moved
        self._left[group] = left
        drawn = moved.get(start + place, start + place)
        moved[start + place] = moved.get(start + left, start + left)
        return int(self._groups.sentences[drawn])


class Stuck(Exception):  # noqa: N818 - not an error: the episode is drawn again
    """No remaining sentence fits, and type `kind` has too few entities."""

    def __init__(self, kind: int) -> None:
        super().__init__(kind)
        self.kind = kind


class WordStream:
    """Unlimited random words of episode `i` of a seed."""

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


class SentenceGroups:
    """Groups of sentences with equal numbers of entities of each type, which are exchangeable.

    A hundred thousand sentences form hundreds or thousands of groups, each with a bit mask of its types. Finding all
    sentences with given types only is one vector operation on a short array. Sentences without entities are in no
    group.
    """

    counts: IntArray  # (n_classes, G) entities of each type in a sentence of the group
    masks: NDArray[np.uint64]  # (words, G) bit mask of the group's types
    sizes: IntArray  # (G,) sentences in the group
    starts: list[int]  # first index of each group in `sentences`
    sentences: IntArray  # indices of the pool's items, group by group

    def __init__(self, pool: Pool) -> None:
        spans = find_spans(pool.labels, sentence_offsets(pool))
        owner = sentence_offsets(pool).searchsorted(spans.start, side="right") - 1
        pairs, counts = np.unique(owner * pool.n_classes + spans.label, return_counts=True)
        owner, kind = np.divmod(pairs, pool.n_classes)  # sentence and type of each pair
        items, first = np.unique(owner, return_index=True)
        stops = np.append(first, len(pairs))[1:]
        keys = np.stack([kind, counts], axis=1).astype("<i4").tobytes()  # eight bytes for each pair
        number: dict[bytes, int] = {}  # groups in order of their first sentences
        group = np.zeros(len(items), np.int64)
        for i, (start, stop) in enumerate(zip((8 * first).tolist(), (8 * stops).tolist(), strict=True)):
            group[i] = number.setdefault(keys[start:stop], len(number))
        self.sentences = items[np.argsort(group, kind="stable")]
        self.sizes = np.bincount(group, minlength=len(number))
        self.starts = (np.cumsum(self.sizes) - self.sizes).tolist()
        self.counts = np.zeros((pool.n_classes, len(number)), np.int64)
        for g, i in enumerate(np.unique(group, return_index=True)[1].tolist()):  # one sentence represents its group
            self.counts[kind[first[i] : stops[i]], g] = counts[first[i] : stops[i]]
        self.masks = np.zeros((-(-pool.n_classes // _BITS), len(number)), np.uint64)
        for n, has in enumerate(self.counts > 0):
            self.masks[n // _BITS] |= has.astype(np.uint64) << np.uint64(n % _BITS)

    def within(self, types: list[int]) -> IntArray:
        """Return the groups whose sentences have no other types than these."""
        allowed = sum(1 << kind for kind in types)
        others = ~allowed & ((1 << (_BITS * len(self.masks))) - 1)
        forbidden = [others >> (_BITS * word) & (1 << _BITS) - 1 for word in range(len(self.masks))]
        found = self.masks & np.array(forbidden, np.uint64)[:, None]
        return np.flatnonzero(np.all(found == 0, axis=0))

    def supply(self, most: int) -> IntArray:
        """Count the entities of each type in sentences with at most `most` of it, (n_classes,)."""
        supply: IntArray = np.where(self.counts <= most, self.counts, 0) @ self.sizes
        return supply


class PackedCounts:
    """Entity counts of all types, packed into one integer for each group of sentences.

    The highest bit of each field is the *sign* of its type. No count reaches it, but a count plus `above[n]` does if it
    is greater than n: `(counts + above[n]) & signs` marks all types with more than n.
    """

    def __init__(self, counts: IntArray, most: int) -> None:
        """Pack `counts` (n_types, G); fields hold sums up to `most` plus the counts of one more group."""
        self._width = (most + int(counts.max(initial=0))).bit_length() + 1
        self._sign = 1 << (self._width - 1)
        types = range(len(counts))
        self.signs = self.of_types(types)
        self.above = [sum((self._sign - 1 - n) << (self._width * kind) for kind in types) for n in range(most + 1)]
        self.counts = [0] * counts.shape[1]  # of each group
        for kind, group in zip(*(axis.tolist() for axis in np.nonzero(counts)), strict=True):
            self.counts[group] += int(counts[kind, group]) << (self._width * kind)
        self.types = [(packed + self.above[0]) & self.signs for packed in self.counts]  # signs of each group's types

    def of_types(self, types: Iterable[int]) -> int:
        """Return the signs of the given types."""
        return sum(self._sign << (self._width * kind) for kind in types)

    def values(self, packed: int, types: Iterable[int]) -> list[int]:
        """Unpack the counts of the given types."""
        return [packed >> (self._width * kind) & self._sign - 1 for kind in types]
