"""Drawing episodes, against a search for the members of each class every time; and the cost of a larger pool."""

from collections.abc import Callable

import numpy as np

from benchmarks.measure import Measurement, Times, in_turns
from hyperproto.data import IntArray, Pool
from hyperproto.episodes import Episode, EpisodeSampler

WAY, SHOT, QUERY = 5, 5, 15
SPEED_UP, FLATNESS = 20.0, 1.5


def drawing(quick: bool) -> list[Measurement]:
    """Measure 5-way 5-shot episodes with 15 queries a class, from pools of several sizes."""
    sampler = _sampler(10**5, 100)
    return [
        _against_search("drawing, all at once", sampler, sampler.draw, quick),
        _against_search("drawing, one by one", sampler, lambda count: [sampler[i] for i in range(count)], quick),
        _flatness("100 classes in both pools", _sampler(10**6, 100), quick),
        _flatness("100 instances a class in both pools", _sampler(10**6, 10**4), quick),
    ]


def _against_search(
    name: str, sampler: EpisodeSampler, draw: Callable[[int], list[Episode]], quick: bool
) -> Measurement:
    n_drawn, n_searched, repeats = (20, 2, 3) if quick else (1000, 50, 25)
    random = np.random.default_rng(0)

    def baseline() -> None:
        for _ in range(n_searched):
            draw_by_search(sampler.pool, random)

    times = in_turns(lambda: draw(n_drawn), baseline, repeats, parts=(n_drawn, n_searched))
    words = "np.flatnonzero(labels == c) for each class"
    detail = {"items": len(sampler.pool), "classes": sampler.pool.n_classes, "seconds_are": "per episode"}
    return times.measurement(name, words, ">=", SPEED_UP, **detail)


def _flatness(which: str, large: EpisodeSampler, quick: bool) -> Measurement:
    """Compare the time of an episode from a large pool with that of one from 10^4 items, 100 classes of 100."""
    n_drawn, repeats = (20, 3) if quick else (1000, 25)
    small = _sampler(10**4, 100)
    times: Times = in_turns(lambda: large.draw(n_drawn), lambda: small.draw(n_drawn), repeats, parts=(n_drawn, n_drawn))
    detail = {"items": len(large.pool), "classes": large.pool.n_classes, "seconds_are": "per episode"}
    return times.measurement(f"drawing from 10^6 items, {which}", "drawing from 10^4 items", "<=", FLATNESS, **detail)


def draw_by_search(pool: Pool, random: np.random.Generator) -> Episode:
    """Draw one episode the plain way."""
    classes = random.choice(pool.n_classes, WAY, replace=False)
    support: list[IntArray] = []
    query: list[IntArray] = []
    for c in classes:
        items = random.choice(np.flatnonzero(pool.labels == c), SHOT + QUERY, replace=False)
        support.append(items[:SHOT])
        query.append(items[SHOT:])
    support_y, query_y = np.repeat(np.arange(WAY), SHOT), np.repeat(np.arange(WAY), QUERY)
    return Episode(classes, np.concatenate(support), support_y, np.concatenate(query), query_y)


def _sampler(n_items: int, n_classes: int) -> EpisodeSampler:
    labels = np.random.default_rng(0).permutation(np.arange(n_items) % n_classes)
    pool = Pool(range(n_items), labels, tuple(map(str, range(n_classes))))
    return EpisodeSampler(pool, way=WAY, shot=SHOT, query=QUERY)
