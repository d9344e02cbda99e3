"""The four spellings of a sentence with two entities: neither, the head, the tail, or both replaced by a blank."""

from typing import cast

import numpy as np

from hyperproto.data.pool import Pool
from hyperproto.data.relations import Relation, check_relations, mentions_overlap

BLANK = "[BLANK]"
SPELLINGS = 4  # item 4 i + s is sentence i with its head blank (s = 1, 3) and its tail blank (s = 2, 3)


def with_blanks(pool: Pool) -> Pool:
    """Return a pool in which every sentence stands four times, once in each spelling; labels are repeated."""
    check_relations(pool, "pairs")
    items = [spelling for item in pool.items for spelling in spellings(item)]
    return Pool(items, np.repeat(pool.labels, SPELLINGS), pool.class_names, name=pool.name, split=pool.split)


def spellings(item: Relation) -> list[Relation]:
    """Spell a sentence in four ways; one whose mentions overlap has no blanks, and is four times the same."""
    if mentions_overlap(item):
        return [item] * SPELLINGS
    return [item, _blanked(item, "head"), _blanked(item, "tail"), _blanked(_blanked(item, "head"), "tail")]


def _blanked(item: Relation, entity: str) -> Relation:
    """Replace the words of an entity by one blank; what stands behind them moves forward."""
    places = {"head": item["head"], "tail": item["tail"]}
    start, end = places[entity][0], places[entity][-1] + 1
    tokens = [*item["tokens"][:start], BLANK, *item["tokens"][end:]]
    moved = {key: [p - (end - start - 1) if p >= end else p for p in own] for key, own in places.items()}
    return cast(Relation, {**item, "tokens": tokens, **moved, entity: [start]})
