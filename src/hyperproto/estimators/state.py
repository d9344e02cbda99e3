"""State of a fitted classifier: everything that it remembers, and the operations that change it.

- Classes: label, count, mean and sum of squares (count, mean, M2) in float64. Each class has a slot, in order of its
  first example.
- Examples, if they are stored: rows at length 1 or unchanged, the slot of their class, weight and number.
- Evidence: vectors of class names, and unlabelled rows or a summary of rows that are no longer stored.

Everything else is derived from the state by a `Snapshot`. A `State` is changed by one thread at a time, under its lock;
readers take a snapshot.
"""

from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.batches import Batch
from hyperproto.estimators.inputs import RowIndex, check_range, unit_rows
from hyperproto.estimators.labels import sorted_labels
from hyperproto.regions.arrays import Doubles, Floats, Indices, means_of, squares_about
from hyperproto.regions.evidence import NO_EVIDENCE, Evidence
from hyperproto.regions.statistics import Moments, moments_of

if TYPE_CHECKING:
    from hyperproto.estimators.snapshot import UnlabelledSummary

LEAST = 1e-9  # a smaller weight is 0
SLACK = 0.25  # share of spare room for more rows; untouched memory costs nothing
NO_ROWS_STORED = (
    "the unlabelled rows of this classifier were not saved with it, so no rows can be added or removed; "
    "fit again, or save with unlabelled=True"
)


class AppendableArray:
    """Array whose first axis grows. `view` is its content; appending may move it, so read `view` again afterwards.

    Rows that a view shows are never overwritten by `append`, `keep` or `replace`.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._buffer: NDArray[Any] = np.empty((0, *shape), dtype)
        self.size = 0

    @property
    def view(self) -> NDArray[Any]:
        """Rows so far; writing to them changes the array."""
        return self._buffer[: self.size]

    def room(self, rows: int) -> NDArray[Any]:
        """Append `rows` uninitialised rows and return them."""
        needed = self.size + rows
        if needed > len(self._buffer):
            larger = np.empty((needed + int(SLACK * needed) + 8, *self._buffer.shape[1:]), self._buffer.dtype)
            larger[: self.size] = self._buffer[: self.size]
            self._buffer = larger
        start, self.size = self.size, needed
        return self._buffer[start:needed]

    def append(self, values: NDArray[Any]) -> None:
        """Append rows, and widen the type if theirs needs it."""
        self.widen(values.dtype)
        self.room(len(values))[...] = values

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Keep only these rows, in their order."""
        self.replace(self.view[which])

    def replace(self, values: NDArray[Any]) -> None:
        """Hold other rows in another buffer; views of the old one stay unchanged."""
        self._buffer, self.size = values, len(values)

    def widen(self, dtype: DTypeLike) -> None:
        """Change the type of the rows if `dtype` is wider."""
        wider = np.promote_types(self._buffer.dtype, dtype)
        if wider != self._buffer.dtype:
            self._buffer = self.view.astype(wider)

    def __getstate__(self) -> dict[str, NDArray[Any]]:
        return {"rows": self.view.copy()}  # a dictionary, because skops reads no other state

    def __setstate__(self, state: dict[str, NDArray[Any]] | NDArray[Any]) -> None:
        rows = state["rows"] if isinstance(state, dict) else state  # pickles of 0.1 hold the array itself
        self._buffer = rows if rows.flags.writeable else rows.copy()  # joblib may give a file that is read only
        self.size = len(rows)


class State:
    """Classes, their examples and evidence; every method that changes them takes the lock.

    `unit` says that rows are kept at length 1, `store` that examples are stored.
    """

    def __init__(self, n_features: int, dtype: DTypeLike, unit: bool, store: bool) -> None:
        self.lock = RLock()
        self.unit = unit
        self.store = store
        self.labels: list[Any] = []  # by slot
        self.slot_of: dict[Any, int] = {}
        self.count = AppendableArray((), np.float64)
        self.mean = AppendableArray((n_features,), np.float64)
        self.squares = AppendableArray((), np.float64)
        self.pending: tuple[int, Doubles] | None = None  # size and means of a first batch without squares yet
        self.rows = AppendableArray((n_features,), dtype)  # examples, by position
        self.slots = AppendableArray((), np.intp)
        self.weights = AppendableArray((), np.float64)  # 0: removed, until `_compact` closes the hole
        self.numbers = AppendableArray((), np.int64)  # of each example, counted over everything ever given
        self.given = 0  # number of the next example
        self.holes = False
        self.items: dict[int, str] = {}  # texts or paths of examples, by number
        self.names: dict[Any, Doubles] = {}  # vectors by label
        self.declared: set[Any] = set()  # labels that are classes without any example, because they were given a name
        self.unlabelled = AppendableArray((n_features,), dtype)
        self.outside = AppendableArray((n_features,), dtype)  # labelled out-of-class rows
        self.summary: UnlabelledSummary | None = None
        self.snapshot: Any = None  # (parameter values, Snapshot); a change drops it
        self.checked: Any = None  # (parameter values, closed form) that were checked last

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return int(self.mean.view.shape[1])

    @property
    def finite(self) -> bool:
        """True if all class means are finite, as they are if all rows are."""
        return bool(np.isfinite(self.mean.view).all())

    def add(self, batch: Batch) -> None:
        """Add examples, names and unlabelled rows; nothing changes if that fails."""
        with self.lock:
            if batch.unlabelled is not None:
                self._check_unlabelled(batch.unlabelled)
            if batch.outside is not None:
                _check_outside(self, batch.outside)
            if batch.labels:
                first = self.given
                self._add_examples(batch)
                if batch.items and self.store:
                    weights = batch.weights
                    kept = (row for row in batch.items if weights is None or weights[row] > 0)
                    self.items |= {first + row: batch.items[row] for row in kept}
            if batch.outside is not None and len(batch.outside):
                self.outside.append(self._as_kept(batch.outside))
                self._changed()
            if batch.has_evidence:
                self.names |= {
                    label: self._as_kept(np.asarray(name, np.float64)[None])[0] for label, name in batch.names.items()
                }
                self.declared |= set(batch.declared)
                if batch.unlabelled is not None and len(batch.unlabelled):
                    self.unlabelled.append(self._as_kept(batch.unlabelled))
                self._slots_of(sorted(self.declared - {*self.labels}, key=str))
                self._changed()

    def _add_examples(self, batch: Batch) -> None:
        X, labels, codes, weights, numbers = batch.rows, batch.labels, batch.codes, batch.weights, None
        if weights is not None and not weights.all():
            numbers = np.flatnonzero(weights)
            X, codes, weights = X[numbers], codes[numbers], weights[numbers]
            present = np.unique(codes)
            labels, codes = [labels[i] for i in present], np.searchsorted(present, codes)
        first = not self.labels
        if not self.unit:
            check_range(X, numbers, first)
        slots = self._slots_of(labels)
        rows: Floats = X
        if self.store:
            positions = np.arange(len(X)) if numbers is None else numbers
            ones = np.ones(len(X)) if weights is None else weights
            room = self._room(X.dtype, slots[codes], ones, self.given + positions, len(batch.rows))
            if self.unit:
                rows = unit_rows(X, out=room)
            else:
                room[...] = X
        elif self.unit:
            rows = unit_rows(X)
        self._changed()
        if len(rows) == 1:  # the usual update, by Welford's formula
            slot, weight = int(slots[0]), 1.0 if weights is None else float(weights[0])
            count, mean = self.count.view, self.mean.view[slot]
            before = count[slot]
            count[slot] += weight
            share = weight / count[slot]
            step = rows[0] - mean
            mean += share * step
            self.squares.view[slot] += before * share * (step @ step)
        elif first and self.store:
            count, means = means_of(rows, codes, weights, len(labels))
            self._put(slots, Moments(count, means, np.zeros(len(labels))))
            self.pending = len(rows), means
        else:
            self._put(slots, self._moments(slots).merged(moments_of(rows, codes, weights, len(labels))))

    def forget(self, batch: Batch) -> None:
        """Remove examples and unlabelled rows; nothing changes if one is not there."""
        X, labels, codes, weights = batch.rows, batch.labels, batch.codes, batch.weights
        if weights is not None and not weights.all():
            there = np.flatnonzero(weights)
            present, codes = np.unique(codes[there], return_inverse=True)
            X, weights, labels = X[there], weights[there], [labels[i] for i in present]
        with self.lock:
            unlabelled, outside = batch.unlabelled, batch.outside
            if unlabelled is not None:
                self._check_stored(unlabelled)
                unlabelled = rows_without(self.unlabelled.view, self._as_kept(unlabelled), "unlabelled")
            if outside is not None:
                outside = rows_without(self.outside.view, self._as_kept(outside), "outside")
            if labels:
                self._forget_examples(self._as_kept(X), labels, codes, weights)
            if outside is not None:
                self.outside.replace(outside)
                self._changed()
            if unlabelled is not None:
                self.unlabelled.replace(unlabelled)
                self._changed()

    def _forget_examples(self, rows: Floats, labels: list[Any], codes: Indices, weights: Doubles | None) -> None:
        for label in labels:
            self._check_class(label)
        self._settle()
        slots = self._slots_of(labels)
        remaining = self.weights.view.copy()
        if self.store:
            left = _remove_weights(self, remaining, slots, rows, codes, weights, labels)
        else:
            left = self._moments(slots).without(moments_of(rows, codes, weights, len(labels)))
        if len(self.labels) == len(labels) and not left.count.any() and not self.declared:
            raise DataError("this would forget every example of every class; fit again instead")
        self.weights.replace(remaining)
        self.holes = self.holes or bool((remaining <= 0).any())
        self._put(slots, left)
        self._changed()
        named = np.array([label in self.declared for label in labels])
        self._drop(slots[(left.count <= 0) & ~named])
        self.items = self.named_examples()

    def remove(self, label: Any) -> None:
        """Remove a class with all its examples."""
        with self.lock:
            self._check_class(label)
            if len(self.labels) == 1:
                raise DataError(f"{label!r} is the only class; a classifier needs one: add another first, or fit again")
            self._drop(np.array([self.slot_of[label]]))
            self.items = self.named_examples()

    def absorb(self, other: "State") -> None:
        """Add everything that another state holds; of two names of a class, this one's is kept."""
        if other is self:
            raise DataError("a classifier cannot be merged with itself: every example would count twice")
        other = other.copy()  # as it is now; two that absorb each other must not wait for each other
        with self.lock:
            if other.summary is not None or (self.summary is not None and other.unlabelled.size):
                raise DataError(
                    "the unlabelled rows of one of the two were not saved with it, and their clusters cannot be "
                    "merged; fit it again, or save it with unlabelled=True"
                )
            slots = self._slots_of(other.labels)
            self._put(slots, self._moments(slots).merged(other._moments(np.arange(len(other.labels)))))
            if self.store and other.store:
                self.items |= {self.given + number: item for number, item in other.items.items()}
                numbers, theirs = self.given + other.numbers.view, other.rows.view
                room = self._room(theirs.dtype, slots[other.slots.view], other.weights.view, numbers, other.given)
                room[...] = theirs
            self.names = {**other.names, **self.names}
            self.declared |= other.declared
            if other.unlabelled.size:
                self.unlabelled.append(other.unlabelled.view)
            self.outside.append(other.outside.view)
            self._changed()

    def named_examples(self) -> dict[int, str]:
        """Return texts or paths of the stored examples, by number."""
        with self.lock:
            self._compact()
            return {number: self.items[number] for number in self.numbers.view.tolist() if number in self.items}

    def frozen(self) -> dict[str, Any]:
        """Return the fields of a `Snapshot`: classes sorted by label, statistics copied, examples shared."""
        with self.lock:
            self._compact()
            self._settle()
            order, labels = sorted_labels(self.labels)
            evidence, names, named, clusters = NO_EVIDENCE, None, None, None
            if self.names:
                nothing = np.zeros(self.n_features)
                named = np.array([label in self.names for label in labels.tolist()])
                names = np.stack([self.names.get(label, nothing) for label in labels.tolist()])
            unlabelled = self.unlabelled.view if self.unlabelled.size else None
            if unlabelled is None and self.summary is not None:
                clusters = self.summary.clusters_of(labels.tolist(), self.n_features)
            if self.names or unlabelled is not None or clusters is not None:
                evidence = Evidence(names, named, unlabelled, clusters)
            return {
                "classes": labels,
                "class_moments": self._moments(order),
                "unit": self.unit,
                "rows": self.rows.view if self.store else None,
                "labels": np.argsort(order)[self.slots.view] if self.store else None,
                "weights": self.weights.view if self.store else None,
                "numbers": self.numbers.view if self.store else None,
                "outside": self.outside.view if self.outside.size else None,
                "evidence": evidence,
                "summary": self.summary,
            }

    def copy(self) -> "State":
        """Return an independent state with the same content."""
        with self.lock:
            self._settle()
            self._compact()
            copied = State(self.n_features, self.rows.view.dtype, self.unit, self.store)
            for name, value in vars(self).items():
                if isinstance(value, AppendableArray):
                    array = AppendableArray(value.view.shape[1:], value.view.dtype)
                    array.append(value.view)
                    setattr(copied, name, array)
                elif isinstance(value, list | dict | set):
                    setattr(copied, name, value.copy())
            copied.given, copied.summary, copied.checked = self.given, self.summary, self.checked
            return copied

    def _check_class(self, label: Any) -> None:
        if label not in self.slot_of:
            known = ", ".join(map(repr, self.labels[:10])) + (", ..." if len(self.labels) > 10 else "")
            raise DataError(f"there is no class {label!r} to take from; known: {known}")

    def _check_unlabelled(self, rows: Floats) -> None:
        self._check_stored(rows)
        if not self.unit:
            check_range(rows, name="unlabelled")

    def _check_stored(self, rows: Floats) -> None:
        if len(rows) and self.summary is not None:
            raise DataError(NO_ROWS_STORED)

    def _as_kept(self, X: Floats) -> Floats:
        return unit_rows(X) if self.unit else X

    def _slots_of(self, labels: list[Any]) -> Indices:
        """Return the slots of classes; new ones get the next."""
        new = [label for label in labels if label not in self.slot_of]
        if new:
            self.slot_of.update(zip(new, range(len(self.labels), len(self.labels) + len(new)), strict=True))
            self.labels += new
            for part in (self.count, self.mean, self.squares):
                part.room(len(new))[...] = 0.0
        return np.array([self.slot_of[label] for label in labels], dtype=np.intp)

    def _room(self, dtype: DTypeLike, slots: Indices, weights: Doubles, numbers: Any, given: int) -> NDArray[Any]:
        """Append examples and return the uninitialised room for their rows; `given` of them count as given."""
        self.rows.widen(dtype)
        self.slots.append(slots)
        self.weights.append(weights)
        self.numbers.append(numbers)
        self.given += given
        return self.rows.room(len(slots))

    def _moments(self, slots: Indices) -> Moments:
        return Moments(self.count.view[slots], self.mean.view[slots], self.squares.view[slots])

    def _put(self, slots: Indices, moments: Moments) -> None:
        self.count.view[slots] = moments.count
        self.mean.view[slots] = moments.mean
        self.squares.view[slots] = moments.squares

    def _settle(self) -> None:
        """Compute the squares of the first batch; `fit` leaves them to the first reader."""
        if self.pending is not None:
            size, mean = self.pending
            first = self.rows.view[:size], self.slots.view[:size], self.weights.view[:size]
            self.squares.view[: len(mean)] += squares_about(mean, *first)
            self.pending = None

    def _compact(self) -> None:
        """Drop the rows of removed examples."""
        if self.holes:
            here = self.weights.view > 0
            for part in (self.rows, self.slots, self.weights, self.numbers):
                part.keep(here)
            self.holes = False

    def _drop(self, slots: Indices) -> None:
        """Remove classes; those after them move up."""
        if not len(slots):
            return
        self._settle()
        stays = np.ones(len(self.labels), dtype=bool)
        stays[slots] = False
        for part in (self.count, self.mean, self.squares):
            part.keep(stays)
        new = np.where(stays, np.cumsum(stays) - 1, -1)[self.slots.view]
        self.slots.replace(new)
        self.weights.replace(np.where(new < 0, 0.0, self.weights.view))
        self.holes = self.holes or bool((new < 0).any())
        gone = {self.labels[slot] for slot in slots}
        self.labels = [label for label in self.labels if label not in gone]
        self.slot_of = {label: slot for slot, label in enumerate(self.labels)}
        self.names = {label: name for label, name in self.names.items() if label not in gone}
        self.declared -= gone
        if self.summary is not None:
            clusters = {label: part for label, part in self.summary.clusters.items() if label not in gone}
            self.summary = replace(self.summary, clusters=clusters)
        self._changed()

    def _changed(self) -> None:
        """Drop everything that was derived from the examples."""
        self.snapshot = None
        if self.summary is not None:
            self.summary = self.summary.of_clusters

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self.copy())  # which no other thread changes while it is written
        return {name: value for name, value in state.items() if name not in ("lock", "snapshot", "checked")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "support" in state:  # a pickle of 0.1
            from hyperproto.estimators.first_version import converted

            state = converted(state)
        if "outside" not in state:  # a pickle of 0.2
            rows = state["rows"].view
            state = {**state, "outside": AppendableArray(rows.shape[1:], rows.dtype)}
        vars(self).update({**state, "lock": RLock(), "snapshot": None, "checked": None})


def _remove_weights(
    state: State, remaining: Doubles, slots: Indices, rows: Floats, codes: Indices, weights: Doubles | None, labels: Any
) -> Moments:
    """Subtract the weights of `rows` from `remaining` (n,); compute the statistics of what is left anew."""
    counts, parts = np.ones(len(rows)) if weights is None else weights, []
    for code, slot in enumerate(slots):
        here = np.flatnonzero((state.slots.view == slot) & (remaining > 0))
        kept, left = state.rows.view[here], remaining[here]
        index = RowIndex(kept)
        for row in np.flatnonzero(codes == code):
            count = counts[row]
            for place in index.find(rows[row], left):
                taken = min(left[place], count)
                left[place] -= taken
                count -= taken
                if count < LEAST:
                    break
            else:
                raise DataError(
                    f"row {row} of X (class {labels[code]!r}) is not among the examples, or not that often; "
                    "nothing was forgotten"
                )
        left[left < LEAST] = 0.0
        stays = left > 0
        remaining[here] = left
        parts.append(moments_of(kept[stays], np.zeros(stays.sum(), dtype=np.intp), left[stays], 1))
    return Moments(*(np.concatenate([vars(each)[part] for each in parts]) for part in ("count", "mean", "squares")))


def _check_outside(state: State, rows: Floats) -> None:
    """Refuse out-of-class rows where no examples are stored, and rows whose squares overflow."""
    if not state.store:
        raise ConfigError(
            "store_support=False keeps no examples, but outside items are compared with each of them; set "
            "store_support=True"
        )
    if not state.unit:
        check_range(rows, name="outside")


def rows_without(kept: Floats, rows: Floats, name: str) -> Floats:
    """Return the rows `kept` except `rows`, each of which must be one of them; messages call them `name`."""
    left, index = np.ones(len(kept), dtype=bool), RowIndex(kept)
    for number, row in enumerate(rows):
        place = next(index.find(row, left), None)
        if place is None:
            raise DataError(f"{name} row {number} is not among the {name} rows; nothing was forgotten")
        left[place] = False
    return kept[left]
