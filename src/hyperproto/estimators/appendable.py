"""Arrays whose first axis grows, and rows of them that are equal."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hyperproto.regions.arrays import Floats, Indices
from hyperproto.regions.left_out import projection

SLACK = 0.25  # room kept for more rows; untouched memory costs nothing
SAME = 1e-5  # two rows that differ by less than this share of their length are one example


class AppendableArray:
    """An array whose first axis grows. `view` is what it holds now; appending may move it, so take it afresh."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._buffer: NDArray[Any] = np.empty((0, *shape), dtype)
        self.size = 0

    @property
    def view(self) -> NDArray[Any]:
        """The rows so far; writing to them writes here."""
        return self._buffer[: self.size]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the rows."""
        return self._buffer.dtype

    def room(self, rows: int) -> NDArray[Any]:
        """Append `rows` rows that hold anything, and return them to be written to."""
        needed = self.size + rows
        if needed > len(self._buffer):
            larger = np.empty((needed + int(SLACK * needed) + 8, *self._buffer.shape[1:]), self.dtype)
            larger[: self.size] = self.view
            self._buffer = larger
        start, self.size = self.size, needed
        return self._buffer[start:needed]

    def append(self, values: NDArray[Any]) -> None:
        """Append rows."""
        self.room(len(values))[...] = values

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Keep only these rows, in their order."""
        self.replace(self.view[which])

    def replace(self, values: NDArray[Any]) -> None:
        """Hold other rows, in another buffer; views of the old one stay as they were."""
        self._buffer, self.size = values, len(values)

    def widen(self, dtype: DTypeLike) -> None:
        """Change the type of the rows if `dtype` needs more room than theirs."""
        wider = np.promote_types(self.dtype, dtype)
        if wider != self.dtype:
            self._buffer = self.view.astype(wider)

    def __getstate__(self) -> dict[str, NDArray[Any]]:
        return {"rows": self.view.copy()}  # without the room; a dictionary, as skops reads no other state

    def __setstate__(self, state: dict[str, NDArray[Any]] | NDArray[Any]) -> None:
        rows = state["rows"] if isinstance(state, dict) else state  # pickles of 0.1 hold the array itself
        self._buffer = rows if rows.flags.writeable else rows.copy()  # joblib may give a file to be read only
        self.size = len(rows)


class RowIndex:
    """Places of rows in `kept` (n, D), found by their projection on one direction: no look at all rows for each."""

    def __init__(self, kept: Floats) -> None:
        self.kept = kept
        place = projection(kept)
        self._order = np.argsort(place, kind="stable")
        self._sorted = place[self._order]
        self._used: dict[int, int] = {}  # of a run of equal rows, by where it begins: how many were found used up

    def find(self, row: Floats, left: NDArray[Any]) -> Iterator[int]:
        """Yield where `row` is found, the nearest first, while `left` (n,) is above 0 there.

        Whoever goes on to the next place has set `left` to 0 at this one.
        """
        yield from self._same(row, left)
        [place] = projection(row[None].astype(np.float64))
        reach = 2 * SAME * float(np.linalg.norm(row.astype(np.float64))) * np.sqrt(len(row))  # no direction is longer
        low, high = np.searchsorted(self._sorted, [place - reach, place + reach])
        near = np.sort(self._order[low:high])
        near = near[left[near] > 0]
        yield from near[equal_rows(self.kept[near], row)].tolist()

    def _same(self, row: Floats, left: NDArray[Any]) -> Iterator[int]:
        """Yield the places of rows with the very same numbers, of which there may be many."""
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
    """Return the places of `row` in `kept` (n, D), the nearest first."""
    away = kept - row
    distance2 = np.vecdot(away, away)
    same = np.flatnonzero(distance2 <= SAME**2 * (row @ row))
    return same[np.argsort(distance2[same], kind="stable")]
