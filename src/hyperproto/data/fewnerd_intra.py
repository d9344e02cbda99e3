"""An INTRA-style split of Few-NERD's INTER files: other coarse types in training than in testing."""

from collections.abc import Sequence

import numpy as np

from hyperproto.data.pool import OUTSIDE, IntArray, Pool
from hyperproto.errors import DataError

INTRA = {  # the coarse types of each split in Few-NERD (INTRA)
    "train": ("art", "other", "person", "product"),
    "dev": ("building", "event"),
    "test": ("location", "organization"),
}
_NOWHERE = len(INTRA)


def coarse_type(name: str) -> str:
    """`person` of `person-actor`."""
    return name.partition("-")[0]


def intra_style(pools: Sequence[Pool], *, name: str, split: str) -> Pool:
    """Deal the sentences of some pools out by coarse type, as Few-NERD's own splits were made.

    A sentence with an entity of a training type goes to train; of the rest, one with a dev type to dev; the others to
    test. In each split, entities of the other splits' types become O. Copies of a sentence go to one split together.
    """
    wanted = list(INTRA).index(split)
    ranks = [_word_ranks(pool) for pool in pools]
    own = [np.minimum.reduceat(rank, _offsets(pool)[:-1]) for pool, rank in zip(pools, ranks, strict=True)]
    first: dict[tuple[str, ...], int] = {}  # the split of each text
    for pool, sentence_ranks in zip(pools, own, strict=True):
        for words, rank in zip(pool.items, sentence_ranks.tolist(), strict=True):
            first[tuple(words)] = min(rank, first.get(tuple(words), _NOWHERE))
    types = sorted({kind for pool in pools for kind in pool.class_names if coarse_type(kind) in INTRA[split]})
    number = {kind: n for n, kind in enumerate(types)}
    sentences: list[list[str]] = []
    labels = []
    for pool, sentence_ranks in zip(pools, own, strict=True):
        kept = (sentence_ranks == wanted) & [first[tuple(words)] == wanted for words in pool.items]
        sentences += [pool.items[i] for i in np.flatnonzero(kept).tolist()]
        table = np.array([*(number.get(kind, OUTSIDE) for kind in pool.class_names), OUTSIDE])  # the last: OUTSIDE = -1
        labels.append(table[pool.labels[np.repeat(kept, np.diff(_offsets(pool)))]])
    if not sentences:
        raise DataError(f"{name}: no sentence has an entity of a type for {split} ({', '.join(INTRA[split])})")
    offsets = np.cumsum([0, *map(len, sentences)])
    return Pool(sentences, np.concatenate(labels), tuple(types), name=name, split=split, offsets=offsets)


def _word_ranks(pool: Pool) -> IntArray:
    """Say of each word which split its type belongs to, 0 for the first."""
    order = {kind: rank for rank, kinds in enumerate(INTRA.values()) for kind in kinds}
    ranks = [order.get(coarse_type(kind), _NOWHERE) for kind in pool.class_names]
    return np.array([*ranks, _NOWHERE])[pool.labels]


def _offsets(pool: Pool) -> IntArray:
    assert pool.offsets is not None  # sentences have words
    return pool.offsets
