"""The examples themselves, where they are kept: rows, and the class, the weight and the number of each."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hyperproto.estimators.growing import Growing
from hyperproto.estimators.labels import IntArray


class Support:
    """Examples in the order they came. One that is forgotten has weight 0 until its room is needed."""

    def __init__(self, n_features: int, dtype: DTypeLike) -> None:
        self._rows = Growing((n_features,), dtype)
        self._slots = Growing((), np.intp)
        self._weights = Growing((), np.float64)
        self._numbers = Growing((), np.int64)
        self.given = 0  # examples ever: the number of the next one
        self._holes = False

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def rows(self) -> NDArray[Any]:
        """The vectors (n, D)."""
        self._close_holes()
        return self._rows.view

    @property
    def slots(self) -> IntArray:
        """The slot of each one's class (n,)."""
        self._close_holes()
        return self._slots.view

    @property
    def weights(self) -> NDArray[np.float64]:
        """How often each one counts (n,)."""
        self._close_holes()
        return self._weights.view

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Which example each one was, counted from 0 over everything ever given (n,)."""
        self._close_holes()
        return self._numbers.view

    def room(
        self,
        dtype: DTypeLike,
        slots: IntArray,
        weights: NDArray[np.float64],
        numbers: NDArray[Any] | None = None,
        given: int | None = None,
    ) -> NDArray[Any]:
        """Add examples, and return the room for their rows, to be written to.

        If they are only some of `given`, `numbers` say which of those.
        """
        size = len(slots)
        self._rows.widen(dtype)
        self._slots.append(slots)
        self._weights.append(weights)
        self._numbers.append(self.given + (np.arange(size) if numbers is None else numbers))
        self.given += size if given is None else given
        return self._rows.room(size)

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Everything, as arrays by name."""
        given = np.array([self.given])
        return {
            "rows": self.rows,
            "slots": self.slots,
            "weights": self.weights,
            "numbers": self.numbers,
            "given": given,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]]) -> "Support":
        """Build it again from what `to_tensors` gave."""
        support = cls(tensors["rows"].shape[1], tensors["rows"].dtype)
        parts = tensors["slots"], tensors["weights"], tensors["numbers"], int(tensors["given"][0])
        support.room(tensors["rows"].dtype, *parts)[...] = tensors["rows"]
        return support

    def of_class(self, slot: int) -> IntArray:
        """Positions of the examples of one class; good until the next change."""
        return np.flatnonzero((self._slots.view == slot) & (self._weights.view > 0))

    def at(self, positions: IntArray) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Rows and weights at positions that `of_class` gave."""
        return self._rows.view[positions], self._weights.view[positions]

    def set_weights(self, positions: IntArray, weights: NDArray[np.float64]) -> None:
        """Let examples count more or less often, or not at all."""
        self._weights.view[positions] = weights
        self._holes = self._holes or bool((weights <= 0).any())

    def move_slots(self, new: IntArray) -> None:
        """Renumber the classes: slot s becomes new[s]; a class that becomes -1 goes with its examples."""
        self._slots.view[...] = new[self._slots.view]
        gone = self._slots.view < 0
        self._weights.view[gone] = 0.0
        self._holes = self._holes or bool(gone.any())

    def _close_holes(self) -> None:
        if self._holes:
            here = self._weights.view > 0
            for part in (self._rows, self._slots, self._weights, self._numbers):
                part.keep(here)
            self._holes = False
