"""Arrays whose first axis grows, and rows of them that are equal."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hyperproto.regions.arrays import Floats, Indices

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


def equal_rows(kept: Floats, row: Floats, among: NDArray[np.bool_]) -> Indices:
    """Where `row` is found in `kept` (n, D), of those `among` (n,), the nearest first."""
    away = kept - row
    distance2 = np.vecdot(away, away)
    same = np.flatnonzero((distance2 <= SAME**2 * (row @ row)) & among)
    return same[np.argsort(distance2[same], kind="stable")]
