"""What a fitted classifier remembers: three numbers a class, and, if asked to, the examples.

Everything else is derived from it when it is needed. Adding an example touches only its own class.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hyperproto.errors import DataError
from hyperproto.estimators.forgetting import left_after
from hyperproto.estimators.growing import Growing
from hyperproto.estimators.labels import IntArray
from hyperproto.estimators.settings import Settings
from hyperproto.estimators.sums import means_of, moments_of, squares_about
from hyperproto.estimators.support import Support
from hyperproto.estimators.vectors import Doubles, Floats, unit_rows
from hyperproto.regions import Moments


class Memory:
    """Classes, each with its count, mean and squares in float64, and their examples if `keep`.

    Rows are kept at length 1 if `unit`. `cache` is for whatever is derived from all this; a change empties it.
    """

    def __init__(self, n_features: int, dtype: DTypeLike, unit: bool, keep: bool) -> None:
        self.unit = unit
        self.labels: list[Any] = []  # by slot
        self.slot_of: dict[Any, int] = {}
        self.support = Support(n_features, dtype) if keep else None
        self._count = Growing((), np.float64)
        self._mean = Growing((n_features,), np.float64)
        self._squares = Growing((), np.float64)
        self._unsquared: tuple[int, Doubles] | None = None  # rows of the first batch, and their means, see `_settle`
        self.cache: dict[Any, Any] = {}
        self.last_settings: tuple[Any, Settings] | None = None  # as they were read, and checked

    @property
    def moments(self) -> Moments:
        """Of each slot."""
        self._settle()
        return Moments(self._count.view, self._mean.view, self._squares.view)

    @property
    def finite(self) -> bool:
        """Whether all means are finite numbers, as they are if all rows are."""
        return bool(np.isfinite(self._mean.view).all())

    def add(self, X: Floats, labels: list[Any], codes: IntArray, weights: NDArray[np.float64] | None) -> None:
        """Add rows with labels[codes], each counting `weights` times."""
        given, numbers = len(X), None
        if weights is not None and not weights.all():
            numbers = np.flatnonzero(weights)
            X, codes, weights = X[numbers], codes[numbers], weights[numbers]
            present = np.unique(codes)
            labels, codes = [labels[i] for i in present], np.searchsorted(present, codes)
        fresh = not self.labels
        slots = self._slots(labels)
        kept = None
        if self.support is not None:
            counts = np.ones(len(X)) if weights is None else weights
            kept = self.support.room(X.dtype, slots[codes], counts, numbers, given)
            if not self.unit:
                kept[...] = X
        rows = unit_rows(X, out=kept) if self.unit else X
        self.cache = {}
        if len(rows) == 1:
            self._add_one(int(slots[0]), rows[0], 1.0 if weights is None else float(weights[0]))
        elif fresh and kept is not None:
            count, mean = means_of(rows, codes, weights, len(labels))
            self._put(slots, Moments(count, mean, np.zeros(len(labels))))
            self._unsquared = (len(rows), mean)
        else:
            self._put(slots, self._moments(slots).merged(moments_of(rows, codes, weights, len(labels))))

    def _add_one(self, slot: int, row: Floats, weight: float) -> None:
        """The usual update, for a tenth of the time that `merged` takes; Welford's own formula."""
        count, mean = self._count.view, self._mean.view[slot]
        before = count[slot]
        count[slot] += weight
        share = weight / count[slot]
        step = row - mean
        mean += share * step
        self._squares.view[slot] += before * share * (step @ step)

    def forget(self, X: Floats, labels: list[Any], codes: IntArray, weights: NDArray[np.float64] | None) -> None:
        """Take rows away again: all of them or, if one was never there, none."""
        for label in labels:
            self.check_known(label)
        self._settle()
        rows = unit_rows(X) if self.unit else X
        slots = self._slots(labels)
        if self.support is None:
            left = self._moments(slots).without(moments_of(rows, codes, weights, len(labels)))
            places = np.empty(0, dtype=np.intp)
        else:
            places, remaining, left = left_after(self.support, slots, rows, codes, weights, labels)
        if len(self.labels) == len(labels) and not left.count.any():
            raise DataError("this would forget every example of every class; fit again instead")
        if self.support is not None:
            self.support.set_weights(places, remaining)
        self._put(slots, left)
        self.cache = {}
        self._drop(slots[left.count <= 0])

    def remove(self, label: Any) -> None:
        """Take a class away with all its examples."""
        self.check_known(label)
        if len(self.labels) == 1:
            raise DataError(f"{label!r} is the only class; a classifier needs one: add another first, or fit again")
        self._drop(np.array([self.slot_of[label]]))

    def absorb(self, other: "Memory") -> None:
        """Add everything another one remembers."""
        if other is self:
            raise DataError("a classifier cannot be merged with itself: every example would count twice")
        slots = self._slots(other.labels)
        self._put(slots, self._moments(slots).merged(other.moments))
        if self.support is not None and other.support is not None:
            theirs = other.support
            parts = slots[theirs.slots], theirs.weights, theirs.numbers, theirs.given
            self.support.room(theirs.rows.dtype, *parts)[...] = theirs.rows
        self.cache = {}

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Everything but the labels, as arrays by name."""
        self._settle()
        tensors = {"count": self._count.view, "mean": self._mean.view, "squares": self._squares.view}
        if self.support is not None:
            tensors |= self.support.to_tensors()
        return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], labels: list[Any], unit: bool) -> "Memory":
        """Build it again from what `to_tensors` gave."""
        memory = cls(tensors["mean"].shape[1], float, unit, keep=False)
        slots = memory._slots(labels)
        memory._put(slots, Moments(tensors["count"], tensors["mean"], tensors["squares"]))
        memory.support = Support.from_tensors(tensors) if "rows" in tensors else None
        return memory

    def check_known(self, label: Any) -> None:
        """Refuse a label that no class has."""
        if label not in self.slot_of:
            known = ", ".join(map(repr, self.labels[:10])) + (", ..." if len(self.labels) > 10 else "")
            raise DataError(f"there is no class {label!r} to take from; known: {known}")

    def _slots(self, labels: list[Any]) -> IntArray:
        """The slots of classes; one that is new gets the next."""
        new = [label for label in labels if label not in self.slot_of]
        if new:
            self.slot_of.update(zip(new, range(len(self.labels), len(self.labels) + len(new)), strict=True))
            self.labels += new
            for part in (self._count, self._mean, self._squares):
                part.room(len(new))[...] = 0.0
        return np.array([self.slot_of[label] for label in labels], dtype=np.intp)

    def _settle(self) -> None:
        """Add up the squares of the first batch, which only now are needed; what came later has been added already."""
        if self._unsquared is not None and self.support is not None:
            (size, mean), self._unsquared = self._unsquared, None
            support = self.support
            squares = squares_about(mean, support.rows[:size], support.slots[:size], support.weights[:size])
            self._squares.view[: len(mean)] += squares

    def _moments(self, slots: IntArray) -> Moments:
        return Moments(self._count.view[slots], self._mean.view[slots], self._squares.view[slots])

    def _put(self, slots: IntArray, moments: Moments) -> None:
        self._count.view[slots] = moments.count
        self._mean.view[slots] = moments.mean
        self._squares.view[slots] = moments.squares

    def _drop(self, slots: IntArray) -> None:
        """Forget classes; those after them move up."""
        if not len(slots):
            return
        self._settle()
        stays = np.ones(len(self.labels), dtype=bool)
        stays[slots] = False
        for part in (self._count, self._mean, self._squares):
            part.keep(stays)
        if self.support is not None:
            self.support.move_slots(np.where(stays, np.cumsum(stays) - 1, -1))
        self.labels = [label for label, stay in zip(self.labels, stays, strict=True) if stay]
        self.slot_of = {label: slot for slot, label in enumerate(self.labels)}
        self.cache = {}

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return {**vars(self), "cache": {}, "last_settings": None}
