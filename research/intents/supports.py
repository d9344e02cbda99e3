"""Supports: the labelled texts of each class. Draw `i` of a seed is the same on every machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from hyperproto.episodes.random import raw_words, shuffled
from hyperproto.errors import DataError
from hyperproto.progress import Show

EQUAL = ("1", "2", "5", "10")
UNEQUAL = "unequal"  # 1 to 20 texts a class, k of them with probability proportional to 1 / k
SHOTS = (*EQUAL, UNEQUAL)
MOST = 20
_ORDER, _COUNTS, _CLASSES = 101, 102, 103  # purposes of the random numbers; those of episodes are below 100


@dataclass(frozen=True)
class Draw:
    """Support of one draw: rows of the training texts, ordered by class."""

    rows: NDArray[np.int64]

    @property
    def digest(self) -> str:
        """First sixteen hex digits of the SHA-256 of the rows."""
        return sha256(self.rows.astype(np.int64).tobytes()).hexdigest()[:16]


def draw(labels: NDArray[np.int64], shots: str, index: int, seed: int = 0) -> Draw:
    """Draw number `index`. The supports of more shots contain those of fewer."""
    way = int(labels.max()) + 1
    counts = _unequal(way, index, seed) if shots == UNEQUAL else np.full(way, int(shots))
    rows = []
    for n, count in enumerate(counts.tolist()):
        own = np.flatnonzero(labels == n)
        if len(own) < count:
            raise DataError(f"class {n} has {len(own)} texts, and {count} shots were asked for")
        order = shuffled(seed, _ORDER, index * way + n, len(own))
        rows.append(own[order[:count]])
    return Draw(np.concatenate(rows))


def _unequal(way: int, index: int, seed: int) -> NDArray[np.int64]:
    share = 1 / np.arange(1, MOST + 1)
    edges = np.cumsum(share) / share.sum()
    uniform = raw_words(seed, _COUNTS, index, 1, way)[0] / 2.0**64
    counts: NDArray[np.int64] = np.searchsorted(edges, uniform, side="right") + 1
    return counts


def some_classes(way: int, number: int, index: int, seed: int = 0) -> list[int]:
    """Draw `number` of the classes; larger draws contain smaller ones."""
    return shuffled(seed, _CLASSES, index, way)[:number]


class Supports:
    """Iterator over every draw for every number of shots; `show` reports progress, `hashes` identify the draws."""

    def __init__(
        self,
        labels: NDArray[np.int64],
        shots: Sequence[str],
        draws: int,
        show: Show = lambda done, total, note="": None,
    ) -> None:
        self.labels = labels
        self.shots = shots
        self.draws = draws
        self.show = show
        self.hashes: dict[str, list[str]] = {}
        self.index = 0  # of the latest draw

    def __iter__(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        total = len(self.shots) * self.draws
        for number, shot in enumerate(self.shots):
            self.hashes[shot] = []
            for index in range(self.draws):
                self.show(number * self.draws + index, total, f"shots {shot}: draw {index + 1} of {self.draws}")
                self.index = index
                drawn = draw(self.labels, shot, index)
                self.hashes[shot].append(drawn.digest)
                yield shot, drawn.rows
        self.show(total, total)
