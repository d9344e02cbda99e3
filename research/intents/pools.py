"""Pools of unlabelled texts, good and bad: what a classifier may be given beside its support.

all         every training text that is not in the support
strangers   the same, but only half of the classes are known: the others' texts are in the pool all the same
few-known   the same with five classes known: at one shot, a thousand and more unlabelled texts for each labelled one
absent      only texts of half of the classes
unequal     150 texts of one class, 75 of the next, 150 / rank of each
by-name     every text, but half of the classes have no example: their names are all that is known of them
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.intents.supports import some_classes

POOLS = ("all", "strangers", "few-known", "absent", "unequal", "by-name")
FEW = 5  # classes of `few-known`
LARGEST = 150  # texts of the first class of `unequal`

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Situation:
    """Which classes there are, and which training texts are labelled and unlabelled."""

    classes: Rows  # that are known, ascending
    support: Rows
    unlabelled: Rows

    def codes(self, labels: Rows) -> Rows:
        """Labels as numbers of the known classes; -1 for a class that is not known."""
        found: Rows = np.where(np.isin(labels, self.classes), np.searchsorted(self.classes, labels), -1)
        return found


def situation(pool: str, labels: Rows, support: Rows, index: int, seed: int = 0) -> Situation:
    """The situation of draw number `index`, whose `support` are rows of the training texts with these `labels`."""
    way = int(labels.max()) + 1
    rest = np.setdiff1d(np.arange(len(labels)), support)
    every, order = np.arange(way), np.array(some_classes(way, way, index, seed))
    half = np.sort(order[: way // 2])
    if pool in ("strangers", "few-known"):
        known = half if pool == "strangers" else np.sort(order[:FEW])
        return Situation(known, support[np.isin(labels[support], known)], rest)
    if pool == "by-name":
        return Situation(every, support[np.isin(labels[support], half)], rest)
    if pool == "absent":
        rest = rest[np.isin(labels[rest], half)]
    elif pool == "unequal":
        sizes = np.maximum(LARGEST // np.arange(1, way + 1), 1)
        rest = np.concatenate([rest[labels[rest] == n][:size] for n, size in zip(order, sizes, strict=True)])
    return Situation(every, support, rest)
