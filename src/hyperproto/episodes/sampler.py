"""N-way K-shot episodes, with equal or unequal shots, unlabelled items, noise, and out-of-class queries (NOTA)."""

import math
from typing import Unpack

import numpy as np

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.episodes.episode import Episode
from hyperproto.episodes.random import (
    DISTRACTORS,
    EPISODES,
    NOISE,
    NOISE_ITEMS,
    NOTA,
    SHOTS,
    SPARE_CLASSES,
    SPARE_ITEMS,
    SPARE_UNLABELLED,
    UNLABELLED_ITEMS,
    distinct,
    raw_words,
)
from hyperproto.errors import EpisodeError
from hyperproto.options import TrainingSamplerOptions, complete, unused

SHOT, QUERY = 5, 15  # defaults, for each class
MOST_QUERIES = 100_000  # largest number of out-of-class queries in an episode
AHEAD = 32  # number of episodes drawn together by `__getitem__`
USED = frozenset(
    {"way", "shot", "query", "seed", "nota_share", "na_rate", "noise_rate", "unlabelled", "distractors"}
    | {"most_shots", "anchor"}
)


class EpisodeSampler:
    """Sampler of episodes `0, 1, 2, ...`, each a pure function of `(pool, seed, i)`.

    - `shot`: one number for all classes, or one for each, such as `(1, 1, 2, 5, 20)`, assigned to classes at random.
      `shot=0` draws no support, as Algorithm 1 with stored centres needs none.
    - `nota_share` (such as 0.15 of all queries) or `na_rate` (of the FewRel 2.0 toolkit: 1 adds as many queries as one
      class has): adds queries of other classes, labelled OUTSIDE.
    - `noise_rate`: each support example is replaced with this probability by one of a class outside the episode, under
      the same label.
    - `most_shots`: each class has its own random number of shots, from `shot` to `most_shots`, with a probability
      proportional to 1 / shots.
    - `unlabelled`: number of additional items of each class without labels; `distractors`: number of items of other
      classes among them.
    - `anchor`: this class is the first of every episode; the others are random.

    NOTA queries, noise, unlabelled items and distractors do not change the rest of an episode.

    >>> import numpy as np
    >>> pool = Pool(np.zeros((60, 2)), np.repeat(np.arange(6), 10), tuple("abcdef"))
    >>> EpisodeSampler(pool, way=3, shot=2, query=4, seed=0)[7].query.shape
    (12,)
    """

    def __init__(self, pool: Pool, **settings: Unpack[TrainingSamplerOptions]) -> None:
        options = complete(TrainingSamplerOptions, settings)
        if names := unused(options, USED):
            raise EpisodeError(f"{pool}: {', '.join(names)}: not for N-way K-shot episodes; leave it out")
        if pool.many_units:
            raise EpisodeError(f"{pool}: sentences with tagged words need the K~2K sampler, not N-way K-shot")
        self.pool = pool
        self.way = way = options["way"]
        if way > pool.n_classes:  # before anything of that size is allocated
            raise EpisodeError(f"{pool}: {way}-way episodes from {pool.n_classes} classes; lower the way")
        shot = SHOT if options["shot"] is None else options["shot"]
        self.shots = [shot] * way if isinstance(shot, int) else list(shot)
        self.query = query = QUERY if options["query"] is None else options["query"]
        self.seed = options["seed"]
        self.most_shots = options["most_shots"]
        self.anchor = options["anchor"]
        self._check()
        self.nota = nota_count(pool, way, query, options["nota_share"], options["na_rate"])
        self.noise_rate = options["noise_rate"]
        self._check_noise()
        self.unlabelled = options["unlabelled"] or 0
        self.distractors = options["distractors"]
        self._check_unlabelled()
        self._per_class = self._most + query
        self._members = np.concatenate(pool.members)  # items, class by class
        self._starts = np.cumsum(pool.counts) - pool.counts
        place, shots = np.arange(self._per_class), np.array(self.shots)[:, None]
        self._is_support = place < shots  # (N, per_class)
        self._is_query = (shots <= place) & (place < shots + query)
        self._support_y = np.repeat(np.arange(way), self.shots)
        self._query_y = np.concatenate([np.repeat(np.arange(way), query), np.full(self.nota, OUTSIDE)])
        self._ahead: tuple[int, list[Episode]] | None = None

    def __getitem__(self, i: int) -> Episode:
        """Return episode `i`; the following ones are drawn with it and cached."""
        start = i - i % AHEAD
        if self._ahead is None or self._ahead[0] != start:
            self._ahead = start, self.draw(AHEAD, start)
        return self._ahead[1][i - start]

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        """Return episodes `start` to `start + count - 1`, drawn together."""
        way, pool = self.way, self.pool
        words = raw_words(self.seed, EPISODES, start, count, 2 * (way + way * self._per_class))  # twice the need
        fixed = [] if self.anchor is None else [self.anchor]
        others = np.full(count, pool.n_classes - len(fixed))
        spare = {"seed": self.seed, "spare": SPARE_CLASSES, "first_row": start}
        classes = distinct(words[:, : 2 * way], others, way - len(fixed), **spare)  # (E, N), or (E, N - 1)
        for anchor in fixed:
            classes += classes >= anchor  # index among the others -> index among all
            classes = np.insert(classes, 0, anchor, axis=1)
        flat = classes.reshape(-1)
        words = words[:, 2 * way :].reshape(len(flat), -1)
        spare = {"seed": self.seed, "spare": SPARE_ITEMS, "first_row": start * way}
        drawn = distinct(words, pool.counts[flat], self._per_class, **spare)  # (E N, per_class)
        items = self._members[self._starts[flat, None] + drawn].reshape(count, way, -1)
        if self.most_shots is not None:
            return self._with_random_shots(items, classes, drawn, start)
        support, query = items[:, self._is_support], items[:, self._is_query]  # (E, S), (E, Q)
        if self.noise_rate:
            support = self._with_noise(support, classes, start)
        if self.nota:
            outside = draw_outside(pool, classes, self.nota, seed=self.seed, start=start)
            query = np.concatenate([query, outside], axis=1)
        rest = self._unlabelled(classes, drawn, start) if self.unlabelled or self.distractors else [None] * count
        return [
            Episode(classes[e], support[e], self._support_y, query[e], self._query_y, rest[e]) for e in range(count)
        ]

    @property
    def _most(self) -> int:
        """Largest number of shots of a class."""
        return max(self.shots) if self.most_shots is None else self.most_shots

    def _with_random_shots(self, items: IntArray, classes: IntArray, drawn: IntArray, start: int) -> list[Episode]:
        """Return episodes with a random number of shots for each class, from `items` (E, N, per_class)."""
        least, most, count = self.shots[0], self._most, len(items)
        chance = 1 / np.arange(least, most + 1)
        bounds = np.cumsum(chance)[:-1] / chance.sum()
        words = raw_words(self.seed, SHOTS, start, count, self.way)
        shots = least + np.searchsorted(bounds, (words >> np.uint64(11)) * 2.0**-53, side="right")  # (E, N)
        place = np.arange(self._per_class)
        is_support = place < shots[..., None]
        is_query = ~is_support & (place < shots[..., None] + self.query)
        rest = self._unlabelled(classes, drawn, start) if self.unlabelled or self.distractors else [None] * count
        return [
            Episode(
                classes[e],
                items[e][is_support[e]],
                np.repeat(np.arange(self.way), shots[e]),
                items[e][is_query[e]],
                self._query_y,
                rest[e],
            )
            for e in range(count)
        ]

    def _unlabelled(self, classes: IntArray, drawn: IntArray, start: int) -> IntArray:
        """Return unlabelled items of each class, other than those `drawn` (E N, per_class), and distractors: (E, U)."""
        flat, each = classes.reshape(-1), self.unlabelled
        words = raw_words(self.seed, UNLABELLED_ITEMS, start * self.way, len(flat), 2 * each)
        spare = {"seed": self.seed, "spare": SPARE_UNLABELLED, "first_row": start * self.way}
        place = distinct(words, self.pool.counts[flat] - self._per_class, each, **spare)
        for taken in np.sort(drawn, axis=1).T:
            place += place >= taken[:, None]  # index among the others -> index among all
        items: IntArray = self._members[self._starts[flat, None] + place].reshape(len(classes), -1)
        if not self.distractors:
            return items
        more = draw_outside(self.pool, classes, self.distractors, seed=self.seed, start=start, purpose=DISTRACTORS)
        return np.concatenate([items, more], axis=1)

    def _check_unlabelled(self) -> None:
        pool, each = self.pool, self.unlabelled
        if each < 0 or self.distractors < 0:
            raise EpisodeError(f"unlabelled {each}, distractors {self.distractors}: numbers of items are at least 0")
        if self.distractors and self.way >= pool.n_classes:
            raise EpisodeError(
                f"{pool}: {self.distractors} distractors, but {self.way}-way episodes leave none of its "
                f"{pool.n_classes} classes for them; lower the way"
            )
        if self.distractors and self.nota:
            raise EpisodeError(
                f"{self.distractors} distractors and queries of none of the classes: an item could be both; leave one "
                "out"
            )
        used = self._most + self.query
        if each and int(pool.counts.min()) < used + each:
            name = pool.class_names[int(pool.counts.argmin())]
            raise EpisodeError(
                f"{pool}: class {name!r} has {pool.counts.min()} instances, but {used} for support and queries and "
                f"{each} without a label need {used + each}; lower unlabelled"
            )

    def _with_noise(self, support: IntArray, classes: IntArray, start: int) -> IntArray:
        """Replace random items of the support (E, S) by items of other classes."""
        words = raw_words(self.seed, NOISE, start, *support.shape)
        replaced = (words >> np.uint64(11)) * 2.0**-53 < self.noise_rate  # 53 bits: a float in [0, 1)
        items = draw_outside(self.pool, classes, support.shape[1], seed=self.seed, start=start, purpose=NOISE_ITEMS)
        return np.where(replaced, items, support)

    def _check_noise(self) -> None:
        rate, pool = self.noise_rate, self.pool
        if not 0 <= rate <= 1:
            raise EpisodeError(f"noise_rate {rate}: a probability is from 0 to 1")
        if rate and self.way >= pool.n_classes:
            raise EpisodeError(
                f"{pool}: noise_rate {rate} replaces support by examples of other classes, but {self.way}-way episodes "
                f"leave none of its {pool.n_classes}; lower the way"
            )
        if self.most_shots is not None and (rate or self.nota):
            raise EpisodeError(
                f"most_shots {self.most_shots} goes with neither noise_rate nor queries of none of the classes; leave "
                "them out"
            )
        if rate and not sum(self.shots):
            raise EpisodeError(f"noise_rate {rate} replaces support, but shot is 0; draw some, or leave noise_rate out")
        if rate and self.nota:
            raise EpisodeError(
                f"noise_rate {rate} and queries of none of the classes: an example could be both; leave out one of them"
            )

    def _check(self) -> None:
        pool = self.pool
        if self.way < 1 or self.query < 1 or not 0 <= self.seed < 2**63 or min(self.shots, default=0) < 0:
            raise EpisodeError(
                f"way {self.way}, shot {self.shots}, query {self.query}, seed {self.seed}: "
                "way and query must be at least 1, shot at least 0, seed from 0 to 2^63 - 1"
            )
        if self.anchor is not None and not 0 <= self.anchor < pool.n_classes:
            raise EpisodeError(f"{pool}: anchor {self.anchor}; its classes are 0 to {pool.n_classes - 1}")
        if len(self.shots) != self.way:
            raise EpisodeError(
                f"{len(self.shots)} shots ({self.shots}) for {self.way} classes; give one number, or {self.way}"
            )
        if self.most_shots is not None and (len(set(self.shots)) > 1 or not 1 <= self.shots[0] <= self.most_shots):
            raise EpisodeError(
                f"shot {self.shots} and most_shots {self.most_shots}: shots are drawn from one number, at least 1, to "
                "another that is not below it"
            )
        needed = self._most + self.query
        short = [(pool.class_names[n], int(count)) for n, count in enumerate(pool.counts) if count < needed]
        if short:
            name, count = min(short, key=lambda pair: pair[1])
            others = f" ({len(short) - 1} more classes are short too)" if len(short) > 1 else ""
            raise EpisodeError(
                f"{pool}: class {name!r} has {count} instances, but {self._most} shots and {self.query} queries "
                f"need {needed}{others}; lower shot or query, or keep only larger classes: pool.with_at_least({needed})"
            )


def nota_count(pool: Pool, way: int, query: int, nota_share: float, na_rate: int) -> int:
    """Return the number of out-of-class (NOTA) queries in an episode.

    `nota_share` is their share of all queries; the nearest count is used, at least one. `na_rate`, of the FewRel 2.0
    toolkit, is their number relative to the queries of one class: with 5 classes, 1 is a share of 1/6 and 5 of 1/2.
    """
    if not 0 <= nota_share < 1 or na_rate < 0:
        raise EpisodeError(
            f"nota_share {nota_share}, na_rate {na_rate}: the share must be at least 0 and below 1, na_rate at least 0"
        )
    if nota_share and na_rate:
        raise EpisodeError(f"nota_share {nota_share} and na_rate {na_rate} both say how many queries; give one of them")
    if (nota_share or na_rate) and way >= pool.n_classes:
        raise EpisodeError(
            f"{pool}: {way}-way episodes leave none of its {pool.n_classes} classes for queries of none of the above; "
            "lower the way"
        )
    count = na_rate * query
    if nota_share:
        known = way * query
        below = math.floor(known * nota_share / (1 - nota_share))
        count = min((max(below, 1), below + 1), key=lambda count: abs(count / (known + count) - nota_share))
    if count > MOST_QUERIES:
        raise EpisodeError(
            f"nota_share {nota_share}, na_rate {na_rate}: {count:,} queries of none of the classes in every episode; "
            f"ask for {MOST_QUERIES:,} at most"
        )
    return count


def draw_outside(pool: Pool, classes: IntArray, count: int, *, seed: int, start: int, purpose: int = NOTA) -> IntArray:
    """Draw items of other classes for episodes `start`, `start + 1`, ... of `classes` (E, N): (E, count).

    As in the FewRel 2.0 toolkit, a class is drawn uniformly from the others, then an item of it. A repeated item is
    replaced by one of as many spare draws; items repeat only if the other classes are too small for these to suffice.
    """
    words = raw_words(seed, purpose, start, len(classes), 4 * count)  # class and item, twice as many as needed
    other = (words[:, : 2 * count] % np.uint64(pool.n_classes - classes.shape[1])).astype(np.int64)  # (E, 2 count)
    for drawn in np.sort(classes, axis=1).T:
        other += other >= drawn[:, None]  # index among the others -> index among all
    place = (words[:, 2 * count :] % pool.counts[other].astype(np.uint64)).astype(np.int64)
    starts = np.cumsum(pool.counts) - pool.counts
    found = np.concatenate(pool.members)[starts[other] + place]
    items: IntArray = found[:, :count].copy()
    ordered = np.sort(items, axis=1)
    for row in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).tolist():
        different = list(dict.fromkeys(found[row].tolist()))[:count]
        items[row, : len(different)] = different
    return items
