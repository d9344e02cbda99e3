"""Sufficient statistics (count, mean, M2) per class in float64, and optionally the examples.

This is all that a fitted classifier remembers; everything else is derived from it when it is needed. Adding an example
touches only its own class.

    labels      of any kind: strings, numbers, or both; each class has a slot, in order of its first example
    rows        as they are, at length 1, or at length 1 after a mean is subtracted
    Memory      classes and their statistics, added to, taken from and merged
    Support     the examples themselves, where they are kept
    Snapshot    a memory at one moment; later changes do not touch it

Names of classes and rows without a label are remembered beside them: see `hyperproto.estimators.side`.

A memory is changed by one thread at a time, under its lock. Whoever reads takes a snapshot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hyperproto.errors import DataError
from hyperproto.estimators.appendable import AppendableArray, RowIndex
from hyperproto.estimators.batches import Batch
from hyperproto.estimators.inputs import check_range
from hyperproto.estimators.labels import label_array, sort_order
from hyperproto.estimators.side import SideInformation, SideSnapshot
from hyperproto.regions.arrays import SHORTEST, Doubles, Floats, Indices, means_of, shortest_plain, squares_about
from hyperproto.regions.statistics import Moments, moments_of

LEAST = 1e-9  # a weight below this is none


def unit_rows(X: Floats, out: Floats | None = None, shortest: float = 0.0) -> Floats:
    """Scale each row to length 1, into `out` if given; one without a direction is left as it is.

    That is a row of zeros, or one not longer than `shortest`. A row whose squares are too large or too small for its
    type is first divided by a power of two near its largest number, which loses nothing.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt(np.vecdot(X, X))
        odd = np.flatnonzero(~((length > max(shortest, shortest_plain(X.dtype))) & (length < np.inf)))
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
    """Subtract `mean`, in double precision, then scale to length 1; what is left of `mean` by rounding stays small."""
    return unit_rows(X - mean, shortest=SHORTEST * float(np.abs(mean).max())).astype(X.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Examples:
    """The examples of a memory at one moment, in the order they came."""

    rows: NDArray[Any]  # (n, D)
    slots: Indices  # (n,) the slot of each one's class
    weights: Doubles  # (n,) how often each one counts
    numbers: NDArray[np.int64]  # (n,) which example each one was, counted from 0 over everything ever given


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A memory at one moment, its classes in the order of their labels.

    No later change reaches it, so any number of threads may read it.
    """

    labels: NDArray[Any]  # (N,)
    order: Indices  # (N,) the slot of each class
    moments: Moments
    unit: bool
    examples: Examples | None
    side: SideSnapshot


class Memory:
    """Classes, each with its count, mean and squares in float64, and their examples if `keep`.

    Rows are kept at length 1 if `unit`. Every method takes the lock, so that threads take turns.
    """

    def __init__(self, n_features: int, dtype: DTypeLike, unit: bool, keep: bool) -> None:
        self.lock = RLock()
        self.unit = unit
        self.labels: list[Any] = []  # by slot
        self.slot_of: dict[Any, int] = {}
        self.support = Support(n_features, dtype) if keep else None
        self.side = SideInformation(n_features, dtype)
        self.items: dict[int, str] = {}  # texts or paths of the examples, by their numbers, where they are known
        self._count = AppendableArray((), np.float64)
        self._mean = AppendableArray((n_features,), np.float64)
        self._squares = AppendableArray((), np.float64)
        self._unsquared: tuple[int, Doubles] | None = None  # rows of the first batch, and their means, see `_settle`
        self.model: Any = None  # what is derived from all this; a change drops it
        self.checked: Any = None  # parameters of the classifier that were checked last, and what they come to

    def snapshot(self) -> Snapshot:
        """The memory as it is now. Statistics are copied; examples are shared, as no change writes to their rows."""
        with self.lock:
            self._settle()
            order = sort_order(self.labels)
            labels = label_array(self.labels[slot] for slot in order)
            examples = None if self.support is None else self.support.snapshot()
            side = self.side.snapshot(labels.tolist())
            return Snapshot(labels, order, self._moments(order), self.unit, examples, side)

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return int(self._mean.view.shape[1])

    @property
    def finite(self) -> bool:
        """Whether all means are finite numbers, as they are if all rows are."""
        return bool(np.isfinite(self._mean.view).all())

    def add(self, batch: Batch) -> None:
        """Add examples, names and unlabelled rows, or nothing."""
        with self.lock:
            if batch.unlabelled is not None:
                self.check_unlabelled(batch.unlabelled)
            if batch.labels:
                first = 0 if self.support is None else self.support.given
                self._add(batch.rows, batch.labels, batch.codes, batch.weights)
                if batch.items and self.support is not None:
                    weights = batch.weights
                    for row, item in batch.items.items():
                        if weights is None or weights[row] > 0:
                            self.items[first + row] = item
            if batch.has_evidence:
                self.inform(batch.names, batch.declared, batch.unlabelled)

    def inform(self, names: Mapping[Any, Floats], declared: Iterable[Any], rows: Floats | None) -> None:
        """Name classes, those `declared` also if they have no example, and add rows without a label."""
        with self.lock:
            self.check_unlabelled(rows)
            side = {label: self.as_kept(np.asarray(name, np.float64)[None])[0] for label, name in names.items()}
            self.side.add_names(side, declared)
            self.side.add_rows(None if rows is None else self.as_kept(rows))
            self._slots(sorted(self.side.declared - {*self.labels}, key=str))
            self._changed()

    def check_unlabelled(self, rows: Floats | None) -> None:
        """Refuse rows without a label that cannot be added."""
        self.side.check_open(rows)
        if rows is not None and not self.unit:
            check_range(rows, name="unlabelled")

    def as_kept(self, X: Floats) -> Floats:
        """Rows as they are remembered."""
        return unit_rows(X) if self.unit else X

    def _add(self, X: Floats, labels: list[Any], codes: Indices, weights: Doubles | None) -> None:
        given, numbers = len(X), None
        if weights is not None and not weights.all():
            numbers = np.flatnonzero(weights)
            X, codes, weights = X[numbers], codes[numbers], weights[numbers]
            present = np.unique(codes)
            labels, codes = [labels[i] for i in present], np.searchsorted(present, codes)
        fresh = not self.labels
        if not self.unit:
            check_range(X, numbers, fresh)
        slots = self._slots(labels)
        kept = None
        if self.support is not None:
            counts = np.ones(len(X)) if weights is None else weights
            kept = self.support.room(X.dtype, slots[codes], counts, numbers, given)
            if not self.unit:
                kept[...] = X
        rows = unit_rows(X, out=kept) if self.unit else X
        self._changed()
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

    def forget(self, batch: Batch) -> None:
        """Remove examples and unlabelled rows: all of them or, if one is not there, none."""
        rows, labels, codes, weights, unlabelled = (
            batch.rows,
            batch.labels,
            batch.codes,
            batch.weights,
            batch.unlabelled,
        )
        with self.lock:
            if unlabelled is not None:
                self.side.without_rows(self.as_kept(unlabelled))
            if weights is not None and not weights.all():
                there = np.flatnonzero(weights)
                present, codes = np.unique(codes[there], return_inverse=True)
                rows, weights, labels = rows[there], weights[there], [labels[i] for i in present]
            if labels:
                self._forget(rows, labels, codes, weights)
            if unlabelled is not None:
                self.forget_unlabelled(unlabelled)

    def _forget(self, X: Floats, labels: list[Any], codes: Indices, weights: Doubles | None) -> None:
        for label in labels:
            self.check_known(label)
        self._settle()
        rows = self.as_kept(X)
        slots = self._slots(labels)
        if self.support is None:
            left = self._moments(slots).without(moments_of(rows, codes, weights, len(labels)))
            places = np.empty(0, dtype=np.intp)
        else:
            places, remaining, left = left_after(self.support, slots, rows, codes, weights, labels)
        if len(self.labels) == len(labels) and not left.count.any() and not self.side.declared:
            raise DataError("this would forget every example of every class; fit again instead")
        if self.support is not None:
            self.support.set_weights(places, remaining)
        self._put(slots, left)
        self._changed()
        named = np.array([label in self.side.declared for label in labels])
        self._drop(slots[(left.count <= 0) & ~named])
        self.items = self.named_examples()

    def forget_unlabelled(self, X: Floats) -> None:
        """Take rows without a label away again: all of them or, if one was never there, none."""
        with self.lock:
            self.side.rows.replace(self.side.without_rows(self.as_kept(X)))
            self._changed()

    def remove(self, label: Any) -> None:
        """Take a class away with all its examples."""
        with self.lock:
            self.check_known(label)
            if len(self.labels) == 1:
                raise DataError(f"{label!r} is the only class; a classifier needs one: add another first, or fit again")
            self._drop(np.array([self.slot_of[label]]))
            self.items = self.named_examples()

    def absorb(self, other: "Memory") -> None:
        """Add everything another one remembers."""
        if other is self:
            raise DataError("a classifier cannot be merged with itself: every example would count twice")
        other = other.copy()  # as it is now; two that absorb each other must not wait for each other
        with self.lock:
            self.side.check_mergeable(other.side)
            slots = self._slots(other.labels)
            self._put(slots, self._moments(slots).merged(other._moments(np.arange(len(other.labels)))))
            if self.support is not None and other.support is not None:
                self.items |= {self.support.given + number: item for number, item in other.items.items()}
                theirs = other.support
                parts = slots[theirs.slots], theirs.weights, theirs.numbers, theirs.given
                self.support.room(theirs.rows.dtype, *parts)[...] = theirs.rows
            self.side.absorb(other.side)
            self._changed()

    def named_examples(self) -> dict[int, str]:
        """Texts or paths of the examples that are kept, by their numbers."""
        with self.lock:
            numbers = [] if self.support is None else self.support.numbers.tolist()
            return {number: self.items[number] for number in numbers if number in self.items}

    def copy(self) -> "Memory":
        """Another memory that remembers the same."""
        with self.lock:
            memory = Memory.from_tensors(self.to_tensors(), self.labels, self.unit)
            memory.items = dict(self.items)
            memory.side = self.side.copy()
            memory.checked = self.checked
            return memory

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Classes and examples, without labels and items, as arrays by name."""
        with self.lock:
            self._settle()
            tensors = {"count": self._count.view, "mean": self._mean.view, "squares": self._squares.view}
            if self.support is not None:
                tensors |= self.support.to_tensors()
            return {name: np.array(tensor) for name, tensor in tensors.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], labels: list[Any], unit: bool) -> "Memory":
        """Build it again from what `to_tensors` gave."""
        dtype = tensors["rows"].dtype if "rows" in tensors else float  # that of unlabelled rows, too
        memory = cls(tensors["mean"].shape[1], dtype, unit, keep=False)
        slots = memory._slots(labels)
        memory._put(slots, Moments(tensors["count"], tensors["mean"], tensors["squares"]))
        memory.support = Support.from_tensors(tensors) if "rows" in tensors else None
        return memory

    def check_known(self, label: Any) -> None:
        """Refuse a label that no class has."""
        if label not in self.slot_of:
            known = ", ".join(map(repr, self.labels[:10])) + (", ..." if len(self.labels) > 10 else "")
            raise DataError(f"there is no class {label!r} to take from; known: {known}")

    def _slots(self, labels: list[Any]) -> Indices:
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
            size, mean = self._unsquared
            support = self.support
            squares = squares_about(mean, support.rows[:size], support.slots[:size], support.weights[:size])
            self._squares.view[: len(mean)] += squares
            self._unsquared = None

    def _moments(self, slots: Indices) -> Moments:
        return Moments(self._count.view[slots], self._mean.view[slots], self._squares.view[slots])

    def _put(self, slots: Indices, moments: Moments) -> None:
        self._count.view[slots] = moments.count
        self._mean.view[slots] = moments.mean
        self._squares.view[slots] = moments.squares

    def _drop(self, slots: Indices) -> None:
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
        self.side.drop(label for label, stay in zip(self.labels, stays, strict=True) if not stay)
        self.labels = [label for label, stay in zip(self.labels, stays, strict=True) if stay]
        self.slot_of = {label: slot for slot, label in enumerate(self.labels)}
        self._changed()

    def _changed(self) -> None:
        """Drop what was derived."""
        self.model = None
        self.side.changed()

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self.copy())  # which nobody changes while it is written
        return {name: value for name, value in state.items() if name != "lock"} | {"checked": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=RLock())


class Support:
    """Examples in the order they came. One that is forgotten has weight 0 until its room is needed.

    Arrays are only ever appended to, or replaced whole: what a snapshot holds of them stays as it was.
    """

    def __init__(self, n_features: int, dtype: DTypeLike) -> None:
        self._rows = AppendableArray((n_features,), dtype)
        self._slots = AppendableArray((), np.intp)
        self._weights = AppendableArray((), np.float64)
        self._numbers = AppendableArray((), np.int64)
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
    def slots(self) -> Indices:
        """The slot of each one's class (n,)."""
        self._close_holes()
        return self._slots.view

    @property
    def weights(self) -> Doubles:
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
        slots: Indices,
        weights: Doubles,
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

    def snapshot(self) -> Examples:
        """The examples as they are now."""
        return Examples(self.rows, self.slots, self.weights, self.numbers)

    def of_class(self, slot: int) -> Indices:
        """Positions of the examples of one class; good until the next change."""
        return np.flatnonzero((self._slots.view == slot) & (self._weights.view > 0))

    def at(self, positions: Indices) -> tuple[NDArray[Any], Doubles]:
        """Rows and weights at positions that `of_class` gave."""
        return self._rows.view[positions], self._weights.view[positions]

    def set_weights(self, positions: Indices, weights: Doubles) -> None:
        """Let examples count more or less often, or not at all."""
        changed = self._weights.view.copy()
        changed[positions] = weights
        self._weights.replace(changed)
        self._holes = self._holes or bool((weights <= 0).any())

    def move_slots(self, new: Indices) -> None:
        """Renumber the classes: slot s becomes new[s]; a class that becomes -1 goes with its examples."""
        self._slots.replace(new[self._slots.view])
        gone = self._slots.view < 0
        self._weights.replace(np.where(gone, 0.0, self._weights.view))
        self._holes = self._holes or bool(gone.any())

    def _close_holes(self) -> None:
        if self._holes:
            here = self._weights.view > 0
            for part in (self._rows, self._slots, self._weights, self._numbers):
                part.keep(here)
            self._holes = False


def left_after(
    support: Support,
    slots: Indices,
    rows: Floats,
    codes: Indices,
    weights: Doubles | None,
    labels: list[Any],
) -> tuple[Indices, Doubles, Moments]:
    """Where the examples of the classes `slots` lie, how often each still counts without `rows`, and the statistics.

    Nothing is changed. The statistics come from the examples that are left, so that no rounding adds up.
    """
    counts = np.ones(len(rows)) if weights is None else weights
    places, remaining, moments = [], [], []
    for code, slot in enumerate(slots):
        here = support.of_class(slot)
        kept, left = support.at(here)
        index = RowIndex(kept)
        for row in np.flatnonzero(codes == code):
            _take(index, left, rows[row], counts[row], f"row {row} of X (class {labels[code]!r})")
        left[left < LEAST] = 0.0
        stays = left > 0
        moments.append(moments_of(kept[stays], np.zeros(stays.sum(), dtype=np.intp), left[stays], 1))
        places.append(here)
        remaining.append(left)
    parts = ("count", "mean", "squares")
    joined = Moments(*(np.concatenate([getattr(each, part) for each in moments]) for part in parts))
    return np.concatenate(places), np.concatenate(remaining), joined


def _take(index: RowIndex, left: Doubles, row: Floats, count: float, name: str) -> None:
    """Take `row`, `count` times, off the weights `left` of the rows that are equal to it."""
    for place in index.find(row, left):
        taken = min(left[place], count)
        left[place] -= taken
        count -= taken
        if count < LEAST:
            return
    raise DataError(f"{name} is not among the examples, or not that often; nothing was forgotten")
