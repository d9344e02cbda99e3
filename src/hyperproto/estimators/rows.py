"""Rows of vectors: scaling to length 1, and the search for equal rows by which `forget` finds examples."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.regions.arrays import SHORTEST, Doubles, Floats, Indices, shortest_plain
from hyperproto.regions.left_out import projection

SAME = 1e-5  # rows whose difference is below this share of their length are equal
PLAIN_LENGTH = {np.dtype(kind): shortest_plain(kind) for kind in (np.float32, np.float64)}  # squares keep all digits


def unit_rows(X: Floats, out: Floats | None = None, shortest: float = 0.0) -> Floats:
    """Scale each row to length 1, into `out` if given; rows of length at most `shortest`, or 0, stay unchanged.

    A row whose squares overflow or vanish is first divided by a power of two near its largest number, which is exact.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt(np.vecdot(X, X))
        odd = np.flatnonzero(~((length > max(shortest, PLAIN_LENGTH[X.dtype])) & (length < np.inf)))
        if len(odd):
            peak = np.abs(X[odd]).max(axis=1)
            length[odd] = 1.0
            odd, peak = odd[peak > shortest], peak[peak > shortest]
            X = X.copy()
            X[odd] = np.ldexp(X[odd], -np.frexp(peak)[1][:, None])
            length[odd] = np.sqrt(np.vecdot(X[odd], X[odd]))
        scaled: Floats = np.divide(X, length[:, None], out=out)
    return scaled


def centered_unit_rows(X: Floats, mean: Doubles) -> Floats:
    """Subtract `mean` in double precision, then scale to length 1; remainders of rounding stay small."""
    return unit_rows(X - mean, shortest=SHORTEST * float(np.abs(mean).max())).astype(X.dtype, copy=False)


class RowIndex:
    """Index of rows (n, D), sorted by their projection on one direction, so that a search reads few of them."""

    def __init__(self, kept: Floats) -> None:
        self.kept = kept
        place = projection(kept)
        self._order = np.argsort(place, kind="stable")
        self._sorted = place[self._order]
        self._used: dict[int, int] = {}  # used-up rows at the start of a run of equal ones, by where the run begins

    def find(self, row: Floats, left: NDArray[Any]) -> Iterator[int]:
        """Yield the positions of rows equal to `row`, the nearest first, where `left` (n,) is above 0.

        A caller that asks for the next position must have set `left` to 0 at this one.
        """
        yield from self._identical(row, left)
        [place] = projection(row[None].astype(np.float64))
        reach = 2 * SAME * float(np.linalg.norm(row.astype(np.float64))) * np.sqrt(len(row))  # no direction is longer
        low, high = np.searchsorted(self._sorted, [place - reach, place + reach])
        near = np.sort(self._order[low:high])
        near = near[left[near] > 0]
        yield from near[equal_rows(self.kept[near], row)].tolist()

    def _identical(self, row: Floats, left: NDArray[Any]) -> Iterator[int]:
        """Yield the positions of rows with exactly the same numbers; there may be many."""
        with np.errstate(over="ignore"):
            row = row.astype(self.kept.dtype)
        [place] = projection(row[None])
        start = int(np.searchsorted(self._sorted, place))
        at = start + self._used.get(start, 0)
        while at < len(self._sorted) and self._sorted[at] == place:
            found = int(self._order[at])
            if left[found] > 0:
                if (self.kept[found] == row).all():
                    yield found
            elif at == start + self._used.get(start, 0):
                self._used[start] = at + 1 - start
            at += 1


def equal_rows(kept: Floats, row: Floats) -> Indices:
    """Return the positions of rows of `kept` (n, D) that equal `row`, the nearest first."""
    away = kept - row
    distance2 = np.vecdot(away, away)
    same = np.flatnonzero(distance2 <= SAME**2 * (row @ row))
    return same[np.argsort(distance2[same], kind="stable")]
