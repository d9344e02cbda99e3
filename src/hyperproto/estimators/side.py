"""Side information of a classifier: names of classes, and rows without a label.

    SideInformation   as it is remembered: added to, taken from and merged with the examples
    SideSnapshot      the same at one moment, for classes in a given order
    Learned           what unlabelled rows came to, where the rows themselves were not stored

A class may be known by its name alone. One that was *declared*, by a name that was given for it, is a class without any
example; one whose name was read off its label goes with its last example.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hyperproto.errors import DataError
from hyperproto.estimators.appendable import AppendableArray, RowIndex
from hyperproto.regions.arrays import Doubles, Floats
from hyperproto.regions.evidence import Clusters
from hyperproto.regions.left_out import Folds

FIXED = (
    "the unlabelled rows of this classifier were not saved with it, so there is nothing to add to or take from; "
    "fit again, or save with unlabelled=True"
)


@dataclass(eq=False)
class Learned:
    """What unlabelled rows came to. Clusters stay; head, folds and temperature hold until an example changes."""

    clusters: dict[Any, tuple[Doubles, float]]  # by label: mean (D,) and worth
    spread: float
    dim: float
    head: tuple[Doubles, Doubles] | None = None  # center (N, D), bias_radius (N,), in the order of the labels
    folds: Folds | None = None
    temperature: float | None = None  # where the rows decide it


@dataclass(frozen=True, eq=False)
class SideSnapshot:
    """Side information of classes in the order of their labels."""

    names: Doubles | None  # (N, D)
    named: NDArray[np.bool_] | None  # (N,)
    unlabelled: Floats | None  # (U, D)
    learned: Learned | None

    def clusters(self, labels: Sequence[Any], n_features: int) -> Clusters | None:
        """Clusters of the classes, where their rows were not stored; a class that came later has none."""
        if self.learned is None:
            return None
        found, none = self.learned.clusters, (np.zeros(n_features), 0.0)
        mean, worth = zip(*(found.get(label, none) for label in labels), strict=True)
        return Clusters(np.stack(mean), np.array(worth), np.array(self.learned.spread), np.array(self.learned.dim))


class SideInformation:
    """Names by label, and unlabelled rows; both as the memory keeps vectors."""

    def __init__(self, n_features: int, dtype: DTypeLike) -> None:
        self.names: dict[Any, Doubles] = {}
        self.declared: set[Any] = set()
        self.rows = AppendableArray((n_features,), dtype)
        self.learned: Learned | None = None

    def add_names(self, names: Mapping[Any, Doubles], declared: Iterable[Any]) -> None:
        """Name classes; a new name replaces the old one."""
        self.names |= names
        self.declared |= set(declared)

    def check_open(self, rows: Floats | None) -> None:
        """Refuse rows where earlier ones are known by their clusters only."""
        if rows is not None and len(rows) and self.learned is not None:
            raise DataError(FIXED)

    def add_rows(self, rows: Floats | None) -> None:
        """Add unlabelled rows."""
        self.check_open(rows)
        if rows is not None and len(rows):
            self.rows.widen(rows.dtype)
            self.rows.append(rows)

    def without_rows(self, rows: Floats) -> Floats:
        """The rows that are left without these; each must be one of them."""
        self.check_open(rows)
        kept, left = self.rows.view, np.ones(len(self.rows.view), dtype=bool)
        index = RowIndex(kept)
        for number, row in enumerate(rows):
            place = next(index.find(row, left), None)
            if place is None:
                raise DataError(f"unlabelled row {number} is not among the unlabelled rows; nothing was forgotten")
            left[place] = False
        return kept[left]

    def drop(self, labels: Iterable[Any]) -> None:
        """Forget all that is known of classes."""
        for label in labels:
            self.names.pop(label, None)
            self.declared.discard(label)
            if self.learned is not None:
                self.learned.clusters.pop(label, None)

    def changed(self) -> None:
        """An example came or went: a head that was stored without its rows holds no more."""
        if self.learned is not None:
            self.learned.head = self.learned.folds = self.learned.temperature = None

    def check_mergeable(self, other: "SideInformation") -> None:
        """Refuse to join clusters whose rows are not known with rows or other clusters."""
        fixed = [side for side in (self, other) if side.learned is not None]
        if len(fixed) == 2 or other.learned is not None or (fixed and len(other.rows.view)):
            raise DataError(
                "the unlabelled rows of one of the two were not saved with it, and their clusters cannot be merged; "
                "fit it again, or save it with unlabelled=True"
            )

    def absorb(self, other: "SideInformation") -> None:
        """Add what another one knows; where both name a class, this name stays."""
        self.names = {**other.names, **self.names}
        self.declared |= other.declared
        self.add_rows(other.rows.view)

    def copy(self) -> "SideInformation":
        """Another one that knows the same."""
        copied = SideInformation(self.rows.view.shape[1], self.rows.dtype)
        copied.add_names(self.names, self.declared)
        copied.rows.append(self.rows.view)
        if self.learned is not None:
            parts = vars(self.learned)
            copied.learned = Learned(**{**parts, "clusters": dict(self.learned.clusters)})
        return copied

    def snapshot(self, labels: Sequence[Any]) -> SideSnapshot:
        """What is known now, for classes in this order."""
        names = named = None
        if self.names:
            named = np.array([label in self.names for label in labels])
            nothing = np.zeros(self.rows.view.shape[1])
            names = np.stack([self.names.get(label, nothing) for label in labels])
        learned = self.learned
        if learned is not None:
            learned = Learned(**{**vars(learned), "clusters": dict(learned.clusters)})
        return SideSnapshot(names, named, self.rows.view if len(self.rows.view) else None, learned)

    def to_tensors(self, labels: Sequence[Any], rows: bool, learned: Learned | None) -> dict[str, NDArray[Any]]:
        """Everything, as arrays by name, for classes in this order: with the `rows`, or with what they came to."""
        tensors: dict[str, NDArray[Any]] = {}
        if self.names:
            slots = [slot for slot, label in enumerate(labels) if label in self.names]
            tensors["names"] = np.stack([self.names[labels[slot]] for slot in slots])
            tensors["named"] = np.array(slots, dtype=np.int64)
            tensors["declared"] = np.array([labels[slot] in self.declared for slot in slots], dtype=np.int64)
        if rows and len(self.rows.view):
            return {**tensors, "unlabelled": self.rows.view}
        if learned is not None:
            found = SideSnapshot(None, None, None, learned).clusters(labels, self.rows.view.shape[1])
            assert found is not None
            tensors |= {"cluster_mean": found.mean, "cluster_worth": found.weight}
            tensors["cluster_rows"] = np.array([learned.spread, learned.dim])
            if learned.head is not None:
                tensors |= {"head_center": learned.head[0], "head_radius": learned.head[1]}
            if learned.folds is not None:
                tensors |= {f"fold_{name}": part for name, part in vars(learned.folds).items()}
            if learned.temperature is not None:
                tensors["row_temperature"] = np.array([learned.temperature])
        return tensors

    def take_tensors(self, tensors: Mapping[str, NDArray[Any]], labels: Sequence[Any]) -> None:
        """Take back what `to_tensors` gave."""
        if "names" in tensors:
            of = [labels[slot] for slot in tensors["named"]]
            declared = [label for label, given in zip(of, tensors["declared"], strict=True) if given]
            self.add_names(dict(zip(of, tensors["names"], strict=True)), declared)
        self.add_rows(tensors.get("unlabelled"))
        if "cluster_mean" in tensors:
            each = zip(tensors["cluster_mean"], tensors["cluster_worth"].tolist(), strict=True)
            spread, dim = tensors["cluster_rows"].tolist()
            self.learned = Learned(dict(zip(labels, each, strict=True)), spread, dim)
            if "head_center" in tensors:
                self.learned.head = tensors["head_center"], tensors["head_radius"]
            if "fold_fold" in tensors:
                self.learned.folds = Folds(*(tensors[f"fold_{name}"] for name in ("fold", "weights", "bias")))
            if "row_temperature" in tensors:
                self.learned.temperature = float(tensors["row_temperature"][0])
