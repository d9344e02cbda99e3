"""`Pool`: the items, labels and class names of one split of a data set."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.formats.cached_images import CachedImages
from hyperproto.errors import DataError
from hyperproto.files import is_utf8

IntArray = NDArray[np.int64]
Progress = Callable[[int, int], None]  # called with (done, total) during a long computation

OUTSIDE = -1  # label of a unit of no class: an `O` word, or a "none of the above" query


@dataclass(frozen=True, eq=False)
class Pool:
    """Items of a split, with a class label for each *unit*.

    An item is one input of an encoder: an image, a sentence, a vector. In classification each item is one unit. In
    tagging a sentence has one unit a word, and item i owns the units offsets[i] to offsets[i + 1].
    """

    items: Any  # input of the encoder's `prepare`: an array of images or vectors, a list of sentences
    labels: IntArray  # (n_units,) index into class_names, or OUTSIDE
    class_names: tuple[str, ...]
    name: str = "pool"  # the data spec
    split: str = "all"
    offsets: IntArray | None = None  # (n_items + 1,), or None if each item is one unit
    problem: str = ""  # a name in `problems`; by default "tagging" with offsets, "classification" without

    def __post_init__(self) -> None:
        if not self.problem:
            object.__setattr__(self, "problem", "classification" if self.offsets is None else "tagging")
        labels = np.ascontiguousarray(self.labels, dtype=np.int64)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "class_names", tuple(self.class_names))
        for class_name in self.class_names:
            if not is_utf8(class_name):
                raise DataError(f"{self}: the name of class {class_name!r} holds half a character; rename it")
        n_units = len(self.items)
        if self.offsets is not None:
            offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
            object.__setattr__(self, "offsets", offsets)
            if len(offsets) != n_units + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
                raise DataError(f"{self}: offsets must rise from 0, one more than the {n_units} items")
            n_units = int(offsets[-1])
        if labels.shape != (n_units,):
            raise DataError(f"{self}: {n_units} units but labels of shape {labels.shape}; give one label a unit")
        if len(labels) and not (labels.min() >= OUTSIDE and labels.max() < len(self.class_names)):
            wrong = int(np.flatnonzero((labels < OUTSIDE) | (labels >= len(self.class_names)))[0])
            raise DataError(
                f"{self}: unit {wrong} has label {labels[wrong]}, but there are {len(self.class_names)} classes "
                f"(labels are 0 to {len(self.class_names) - 1}, or {OUTSIDE} for none)"
            )

    def __str__(self) -> str:
        return f"{self.name} ({self.split})"

    def __len__(self) -> int:
        """Count the items."""
        return len(self.items)

    @property
    def n_classes(self) -> int:
        """Number of named classes."""
        return len(self.class_names)

    @property
    def many_units(self) -> bool:
        """True if an item may have several units, as a sentence has words."""
        return self.offsets is not None

    @property
    def outside_row(self) -> int | None:
        """Row of the class O in a table of all classes: after the named ones. None if each item is one unit."""
        return self.n_classes if self.many_units else None

    @property
    def n_labels(self) -> int:
        """Number of rows of a table of all training classes: the named ones, and O in tagging."""
        return self.n_classes + (self.outside_row is not None)

    @cached_property
    def unit_offsets(self) -> IntArray:
        """Boundaries of the units of each item, (n_items + 1,)."""
        return np.arange(len(self) + 1) if self.offsets is None else self.offsets

    def items_of(self, units: IntArray) -> IntArray:
        """Return the item of each of the given units."""
        return units if self.offsets is None else np.searchsorted(self.offsets, units, side="right") - 1

    @cached_property
    def counts(self) -> IntArray:
        """Number of units of each class, (n_classes,)."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.n_classes).astype(np.int64)

    @cached_property
    def members(self) -> list[IntArray]:
        """Units of each class; cached, so that drawing an episode does not scan the labels."""
        order = np.argsort(self.labels, kind="stable")
        ends = np.cumsum(self.counts) + np.count_nonzero(self.labels == OUTSIDE)
        return [order[end - count : end] for end, count in zip(ends.tolist(), self.counts.tolist(), strict=True)]

    def with_at_least(self, count: int) -> "Pool":
        """Return a pool of the classes that have at least `count` items."""
        if self.offsets is not None:
            raise DataError(f"{self}: classes cannot be selected by size in tagging, where an item has many labels")
        large = np.flatnonzero(self.counts >= count)
        new_label = np.full(self.n_classes + 1, OUTSIDE)  # the last entry is for the label OUTSIDE = -1
        new_label[large] = np.arange(len(large))
        rows = np.flatnonzero(new_label[self.labels] >= 0)
        items = (
            self.items[rows] if isinstance(self.items, np.ndarray | CachedImages) else [self.items[row] for row in rows]
        )
        names = tuple(self.class_names[n] for n in large)
        return Pool(items, new_label[self.labels[rows]], names, name=self.name, split=self.split, problem=self.problem)

    @cached_property
    def digest(self) -> str:
        """Hash of the items, labels and class names: 16 hex digits."""
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        digest.update(self.labels.tobytes())
        if self.offsets is not None:
            digest.update(self.offsets.tobytes())
        if isinstance(self.items, np.ndarray | CachedImages):
            digest.update(f"{self.items.dtype.str}{self.items.shape}".encode())
            digest.update(np.ascontiguousarray(self.items).reshape(-1).view(np.uint8).data)
        else:
            for item in self.items:
                digest.update(json.dumps(item, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:16]
