"""Small pools of tagged sentences, and what a plain loop says of them."""

import os
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from hyperproto.data import OUTSIDE, Pool

real = pytest.mark.skipif(
    not (Path(os.environ.get("HYPERPROTO_DATA", "")) / "fewnerd").is_dir(),
    reason="HYPERPROTO_DATA names no folder with fewnerd",
)


def tagged(sentences: Sequence[str], types: str = "abcdefgh") -> Pool:
    """Make a pool of sentences written as labels, a letter a word: "aa.b" has an a, an O and a b."""
    labels = [[OUTSIDE if letter == "." else types.index(letter) for letter in sentence] for sentence in sentences]
    used = max(max(row) for row in labels) + 1
    words = [[f"w{s}.{i}" for i in range(len(row))] for s, row in enumerate(labels)]
    offsets = np.cumsum([0, *map(len, labels)])
    return Pool(words, np.concatenate(labels), tuple(types[:used]), name="some", offsets=offsets)


def random_sentences(count: int, n_types: int, seed: int = 0, most_runs: int = 5) -> Pool:
    """Make sentences of a few runs each; low types are frequent, high ones rare."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, n_types + 1)
    items, labels = [], []
    for _ in range(count):
        runs = random.integers(1, most_runs + 1)
        kinds = random.choice(n_types, size=runs, p=share / share.sum())
        row = [OUTSIDE] * int(random.integers(0, 2))
        for kind in kinds.tolist():
            row += [kind] * int(random.integers(1, 4)) + [OUTSIDE] * int(random.integers(0, 3))
        items.append([f"w{random.integers(1000)}" for _ in row])
        labels.append(row)
    names = tuple(f"{'person' if n % 2 else 'place'}-{n}" for n in range(n_types))
    offsets = np.cumsum([0, *map(len, labels)])
    return Pool(items, np.concatenate(labels), names, name="random", offsets=offsets)


def entities(pool: Pool, item: int) -> Counter[int]:
    """Count the entities of a sentence, type by type, in a loop."""
    assert pool.offsets is not None
    labels = pool.labels[pool.offsets[item] : pool.offsets[item + 1]].tolist()
    return Counter(kind for kind, _ in groupby(labels) if kind != OUTSIDE)


def total(pool: Pool, items: Sequence[int]) -> Counter[int]:
    """Count the entities of some sentences."""
    found: Counter[int] = Counter()
    for item in items:
        found.update(entities(pool, item))
    return found
