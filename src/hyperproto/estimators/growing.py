"""Arrays that grow: appending a row costs the same however many there are already."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

SLACK = 0.25  # room kept for more rows; untouched memory costs nothing


class Growing:
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
        kept = self.view[which]
        self._buffer, self.size = kept, len(kept)

    def widen(self, dtype: DTypeLike) -> None:
        """Change the type of the rows if `dtype` needs more room than theirs."""
        wider = np.promote_types(self.dtype, dtype)
        if wider != self.dtype:
            self._buffer = self.view.astype(wider)

    def __getstate__(self) -> NDArray[Any]:
        return self.view.copy()  # without the room

    def __setstate__(self, state: NDArray[Any]) -> None:
        self._buffer = state if state.flags.writeable else state.copy()  # joblib may give a file to be read only
        self.size = len(state)
