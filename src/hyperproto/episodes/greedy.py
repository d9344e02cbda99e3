"""Greedy K~2K sampling: N types, and sentences until each has K to 2K entities (Ding et al., "Few-NERD", ACL 2021)."""

from collections import Counter
from typing import Literal, get_args

import numpy as np

from hyperproto.data import Pool
from hyperproto.episodes.episode import Episode
from hyperproto.episodes.greedy_draw import WORDS, Drawing, Stuck, WordStream
from hyperproto.episodes.random import GREEDY, raw_words
from hyperproto.episodes.sentence_groups import SentenceGroups
from hyperproto.episodes.tally import Tally
from hyperproto.episodes.tokens import offsets_of, token_classes, token_labels
from hyperproto.errors import EpisodeError, unknown_name

Rule = Literal["toolkit", "appendix"]
RULES: tuple[Rule, ...] = get_args(Rule)
AHEAD = 32  # episodes whose random words are made together
ATTEMPTS = 100  # times an episode is begun anew before it is given up


class GreedySampler:
    """N-way K~2K-shot episodes `0, 1, 2, ...` of a seed: each a pure function of `(pool, seed, i)`.

    Entities are counted as spans, runs of words of one type. `rule="toolkit"`, which published numbers use, draws N
    types first; then sentences, evenly from those that hold no other types, bring no type above 2K and have a type that
    is still below K, until none is. The query follows by the same rule with `query` for K, from other sentences.
    `rule="appendix"` is the algorithm as the paper prints it: sentences are drawn from all and kept unless there would
    be more than N types or more than 2K entities of one; the N types that come up first are the episode's.

    Where the toolkit would search for ever, the episode is begun anew, types and all, and given up after 100 attempts.
    Types with fewer than `least_spans` entities are never drawn, nor are sentences that hold them; under both rules a
    sentence without entities is never drawn.

    An episode has N + 1 classes: class 0 is O (see `episodes.tokens`).

    >>> import numpy as np
    >>> pool = Pool([["a", "b"]] * 60, np.tile([0, -1, 1, -1, 2, -1], 20), tuple("xyz"), offsets=np.arange(0, 121, 2))
    >>> episode = GreedySampler(pool, way=2, shot=3, query=1)[7]
    >>> episode.way, len(episode.support), len(episode.support_y)
    (3, 6, 12)
    """

    def __init__(
        self,
        pool: Pool,
        *,
        way: int,
        shot: int,
        query: int,
        seed: int = 0,
        rule: Rule = "toolkit",
        least_spans: int = 0,
    ) -> None:
        self.pool = pool
        self.way = way
        self.shot = shot
        self.query = query
        self.seed = seed
        self.rule = rule
        self._lengths = np.diff(offsets_of(pool))
        self._groups = SentenceGroups(pool)
        self._spans = self._groups.supply(len(pool.labels))
        self._eligible: list[int] = np.flatnonzero(self._spans >= least_spans).tolist()
        self._check(least_spans)
        self._tally = Tally(self._groups.counts, 2 * max(shot, query))
        self.draw(1)  # what cannot be drawn is refused now

    def __getitem__(self, i: int) -> Episode:
        """Episode `i`."""
        return self.draw(1, i)[0]

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        """Return episodes `start` to `start + count - 1`."""
        episodes = []
        for first in range(start, start + count, AHEAD):
            words = raw_words(self.seed, GREEDY, first, min(AHEAD, start + count - first), WORDS)
            episodes += [self._episode(i, WordStream(self.seed, i, row)) for i, row in enumerate(words, start=first)]
        return episodes

    def _episode(self, i: int, words: WordStream) -> Episode:
        stuck: Counter[int] = Counter()
        for _ in range(ATTEMPTS):
            drawing = Drawing(self._groups, self._tally, words)
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

    def _toolkit(self, drawing: Drawing) -> tuple[list[int], list[int]]:
        drawing.draw_types(self._eligible, self.way)
        support = drawing.fill(self.shot, helpful=True) if self.shot else []
        return support, drawing.fill(self.query, helpful=True)

    def _appendix(self, drawing: Drawing) -> tuple[list[int], list[int]]:
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
        if self.way < 1 or self.query < 1 or not 0 <= self.seed < 2**63 or self.shot < 0:
            raise EpisodeError(
                f"way {self.way}, shot {self.shot}, query {self.query}, seed {self.seed}: "
                "way and query must be at least 1, shot at least 0, seed from 0 to 2^63 - 1"
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
