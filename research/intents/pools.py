"""Pools of unlabelled texts, with and without the classes of the support.

all             every training text that is not in the support
out-of-class    the same, but only half of the classes are used; texts of the others stay in the pool
few-known       the same with five classes: at one shot, more than a thousand unlabelled texts for each labelled one
absent          only texts of half of the classes
unequal         150 texts of one class, 75 of the next, 150 / rank of each
by-name         every text, but half of the classes have a name and no example
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.intents.supports import some_classes

POOLS = ("all", "out-of-class", "few-known", "absent", "unequal", "by-name")
FEW = 5  # classes of `few-known`
LARGEST = 150  # texts of the first class of `unequal`

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Situation:
    """Classes of a draw, with the rows of its labelled and unlabelled training texts."""

    classes: Rows  # ascending
    support: Rows
    unlabelled: Rows

    def codes(self, labels: Rows) -> Rows:
        """Return labels as positions in `classes`; -1 for other classes."""
        found: Rows = np.where(np.isin(labels, self.classes), np.searchsorted(self.classes, labels), -1)
        return found


def situation(pool: str, labels: Rows, support: Rows, index: int, seed: int = 0) -> Situation:
    """Return the classes and rows of draw `index`, for a `support` of training texts with these `labels`."""
    way = int(labels.max()) + 1
    rest = np.setdiff1d(np.arange(len(labels)), support)
    every, order = np.arange(way), np.array(some_classes(way, way, index, seed))
    half = np.sort(order[: way // 2])
    if pool in ("out-of-class", "few-known"):
        known = half if pool == "out-of-class" else np.sort(order[:FEW])
        return Situation(known, support[np.isin(labels[support], known)], rest)
    if pool == "by-name":
        return Situation(every, support[np.isin(labels[support], half)], rest)
    if pool == "absent":
        rest = rest[np.isin(labels[rest], half)]
    elif pool == "unequal":
        sizes = np.maximum(LARGEST // np.arange(1, way + 1), 1)
        rest = np.concatenate([rest[labels[rest] == n][:size] for n, size in zip(order, sizes, strict=True)])
    return Situation(every, support, rest)
