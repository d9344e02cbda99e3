"""Pools of classes of given sizes, and a comparison of two episodes."""

import numpy as np

from hyperproto.data import Pool
from hyperproto.episodes import Episode


def labelled(counts: list[int]) -> Pool:
    """Make classes of so many items, in a random order."""
    labels = np.repeat(np.arange(len(counts)), counts)
    order = np.random.default_rng(0).permutation(len(labels))
    items = np.arange(len(labels), dtype=np.float32)[:, None]
    return Pool(items, labels[order], tuple(f"class {n}" for n in range(len(counts))), name="some")


def same(a: Episode, b: Episode) -> bool:
    """Whether two episodes are the same, place by place."""
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in Episode.__slots__)
