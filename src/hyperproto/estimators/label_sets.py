"""Labels of rows that may carry several: reading them in any form, and the examples that carry them.

read_label_sets   lists or sets of labels, or an indicator matrix, to a boolean matrix
LabelledRows      examples, names and unlabelled rows of a multi-label classifier; never changed, only replaced
write_labelled, read_labelled   the folder of a saved classifier
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import storage
from hyperproto.estimators.inputs import RowIndex, column_values, is_frame, refuse_mapping, unmasked
from hyperproto.estimators.labels import LABEL_TYPES, plain_label, sorted_labels
from hyperproto.heads.label_regions import LabelRegions, Members
from hyperproto.regions.arrays import Doubles, Floats

SINGLE = "give the labels of each row as a list or a set"


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Labels that rows carry."""

    member: Members  # (n, L)
    labels: tuple[Any, ...]  # (L,)
    indicator: bool = False  # whether they were given as a matrix
    missing: NDArray[np.bool_] | None = None  # (n,) rows whose labels are not known; None: none

    def aligned(self, labels: Sequence[Any]) -> Members:
        """Return the memberships in the order of `labels`, which hold all of these."""
        found = np.zeros((len(self.member), len(labels)), dtype=bool)
        place = {label: number for number, label in enumerate(labels)}
        found[:, [place[label] for label in self.labels]] = self.member
        return found


def read_label_sets(y: Any, known: Sequence[Any]) -> LabelSets:
    """Read the labels of rows; an indicator matrix has a column for each `known` label, if there are any.

    A nested list of numbers 0 and 1, two or more in each row and equally many, is a matrix, as scikit-learn reads it.
    """
    if y is None:  # in the words that scikit-learn's checks look for
        raise ValueError("a multi-label classifier requires y to be passed, but the target y is None")
    refuse_mapping(y, "y")
    y = y.toarray() if issparse(y) else unmasked(y, "y")
    if is_frame(y):
        if y.shape[1] > 1 or (hasattr(y, "to_numpy") and y.shape[1] == 1 and _is_binary(y.to_numpy())):
            columns = [plain_label(name) for name in getattr(y, "column_names", y.columns)]
            matrix = (
                y.to_numpy() if hasattr(y, "to_numpy") else np.column_stack([each.to_numpy() for each in y.columns])
            )
            return _from_matrix(matrix, known, columns)
        y = column_values(y)
    elif hasattr(y, "to_pylist") or (hasattr(y, "tolist") and not isinstance(y, np.ndarray)):
        y = column_values(y)
    elif not isinstance(y, np.ndarray) and hasattr(y, "__array__"):
        y = np.asarray(y)
    if isinstance(y, np.ndarray) and y.ndim == 2:
        return _from_matrix(y, known, None)
    try:
        rows = list(y)
    except TypeError:
        raise DataError(f"y is {y!r:.60} ({type(y).__name__}); {SINGLE}, or an indicator matrix") from None
    if _is_nested_matrix(rows):
        return _from_matrix(np.array(rows), known, None)
    return _from_lists(rows)


def _is_binary(matrix: NDArray[Any]) -> bool:
    return matrix.dtype.kind in "biuf" and bool(((matrix == 0) | (matrix == 1)).all())


def _is_nested_matrix(rows: list[Any]) -> bool:
    """Return whether lists are rows of an indicator matrix."""
    if not rows or not all(isinstance(row, list | tuple | np.ndarray) and len(row) > 1 for row in rows):
        return False
    if len({len(row) for row in rows}) > 1:
        return False
    return all(isinstance(plain_label(each), int | float) and each in (0, 1) for row in rows for each in row)


def _from_matrix(matrix: NDArray[Any], known: Sequence[Any], columns: Sequence[Any] | None) -> LabelSets:
    if matrix.dtype == object:
        matrix = np.array([[plain_label(each) for each in row] for row in matrix])
    if not _is_binary(matrix):
        if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
            raise ValueError("y contains NaN or infinity; an indicator matrix holds 0 and 1")
        shown = short(matrix.ravel()[:5].tolist())
        raise ValueError(
            f"y is a matrix of shape {matrix.shape} that holds {shown}; an indicator matrix holds 0 and 1: {SINGLE}, "
            "or a column for each label"
        )
    labels = tuple(columns) if columns is not None else tuple(known) or tuple(range(matrix.shape[1]))
    for label in labels:
        _check_label(label, "y has a column")
    if len({*labels}) < len(labels):
        raise DataError("two columns of y have one name; give each label one column")
    if len(labels) != matrix.shape[1]:
        raise DataError(
            f"y has {matrix.shape[1]} columns, and there are {len(labels)} labels; give a column for each label, in "
            "the order of classes_, or lists of labels"
        )
    return LabelSets(matrix.astype(bool), labels, True)


def _from_lists(rows: list[Any]) -> LabelSets:
    missing = np.array([row is None for row in rows], dtype=bool)
    slots: dict[Any, int] = {}
    pairs = []
    for number, row in enumerate(rows):
        if row is None:
            continue
        if isinstance(row, str) or not isinstance(row, Collection) or isinstance(row, Mapping):
            single = plain_label(row)
            raise DataError(
                f"y[{number}] is {single!r:.60} ({type(single).__name__}); {SINGLE}, such as [{single!r:.60}], and [] "
                "for no label"
            )
        for each in row:
            label = plain_label(each)
            _check_label(label, f"y[{number}] holds")
            pairs.append((number, slots.setdefault(label, len(slots))))
    order, labels = sorted_labels([*slots])
    place = np.argsort(order)
    member = np.zeros((len(rows), len(slots)), dtype=bool)
    for number, slot in pairs:
        member[number, place[slot]] = True
    return LabelSets(member, tuple(labels.tolist()), False, missing if missing.any() else None)


def _check_label(label: Any, where: str) -> None:
    if not isinstance(label, LABEL_TYPES) or label != label:
        raise DataError(f"{where} {label!r:.60} ({type(label).__name__}); a label is a string or a number")


def check_separator(separator: Any) -> None:
    """Refuse a separator that cannot stand between labels."""
    if not isinstance(separator, str) or not separator.strip() or separator.strip() != separator:
        raise ConfigError(f"separator={separator!r}: give a text between two labels, such as '|', without spaces")


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Everything that a multi-label classifier remembers."""

    rows: Floats  # (n, D)
    member: Members  # (n, L)
    labels: tuple[Any, ...]  # (L,) sorted, or in the order of the indicator matrix
    indicator: bool
    names: Mapping[Any, Doubles] = field(default_factory=dict)  # vectors (D,) of names, by label
    declared: frozenset[Any] = frozenset()  # labels that need no example, because a name was given
    unlabelled: Floats | None = None  # (U, D)

    def fitted(self) -> LabelRegions:
        """Fit the regions."""
        names, named = None, None
        if not len(self.rows):
            raise DataError("there are no examples; give at least one row and its labels ([] for none)")
        if not self.labels:
            raise DataError("no row has a label, and no label has a name; give one row a label, or names")
        if self.names:
            named = np.array([label in self.names for label in self.labels])
            zeros = np.zeros(self.rows.shape[1])
            names = np.stack([self.names.get(label, zeros) for label in self.labels])
        with np.errstate(over="ignore", invalid="ignore"):
            return LabelRegions.fit(self.rows, self.member, names, named, self.unlabelled)

    def added(
        self,
        rows: Floats,
        sets: LabelSets,
        names: Mapping[Any, Doubles],
        declared: Collection[Any],
        unlabelled: Floats | None,
    ) -> "LabelledRows":
        """Return it with more examples, names and unlabelled rows; new labels are sorted in, or put last."""
        known = {*self.labels}
        labels: list[Any] = [*self.labels, *(label for label in sets.labels if label not in known)]
        labels += sorted({*declared} - {*labels}, key=str)
        if not self.indicator:
            labels = sorted_labels(labels)[1].tolist()
        before, more = LabelSets(self.member, self.labels).aligned(labels), sets.aligned(labels)
        others = [part for part in (self.unlabelled, unlabelled) if part is not None and len(part)]
        return LabelledRows(
            np.concatenate([self.rows, rows]),
            np.concatenate([before, more]),
            tuple(labels),
            self.indicator,
            {**self.names, **names},
            self.declared | {*declared},
            np.concatenate(others) if others else None,
        )

    def without(self, rows: Floats, sets: LabelSets, unlabelled: Floats | None) -> "LabelledRows":
        """Return it without some examples and unlabelled rows, and without labels that no example carries then."""
        member = sets.aligned(self.labels)
        stays = ~_found(self.rows, self.member, rows, member, "X")
        rest = replace(self, rows=self.rows[stays], member=self.member[stays])
        if unlabelled is not None:
            kept = self.rows[:0] if self.unlabelled is None else self.unlabelled
            none = np.zeros((max(len(kept), len(unlabelled)), 0), dtype=bool)
            left = kept[~_found(kept, none[: len(kept)], unlabelled, none[: len(unlabelled)], "the unlabelled rows")]
            rest = replace(rest, unlabelled=left if len(left) else None)
        gone: NDArray[np.bool_] = np.any(self.member, axis=0) & ~np.any(rest.member, axis=0)
        return rest.selected([kept or label in self.declared for label, kept in zip(self.labels, ~gone, strict=True)])

    def selected(self, stays: Sequence[bool]) -> "LabelledRows":
        """Return it with some of the labels only."""
        labels = tuple(label for label, kept in zip(self.labels, stays, strict=True) if kept)
        if not labels:
            raise DataError("this would remove the only label; fit again instead")
        names = {label: name for label, name in self.names.items() if label in labels}
        member = self.member[:, np.array(stays, dtype=bool)]
        return replace(self, member=member, labels=labels, names=names, declared=self.declared & {*labels})


def _found(kept: Floats, member: Members, rows: Floats, wanted: Members, name: str) -> NDArray[np.bool_]:
    """Return which of `kept` (n,) equal one of `rows` and carry the same labels, each once."""
    left = np.ones(len(kept))
    index = RowIndex(kept) if len(kept) else None
    for number, row in enumerate(rows):
        for place in (
            [] if index is None else list(index.find(row, np.where((member == wanted[number]).all(1), left, 0)))
        ):
            left[place] = 0.0
            break
        else:
            raise DataError(
                f"row {number} of {name} is not among the examples with these labels, or not that often; nothing was "
                "forgotten"
            )
    found: NDArray[np.bool_] = left == 0
    return found


def write_labelled(folder: Path, state: LabelledRows, head: Mapping[str, Any]) -> None:
    """Write a state, and the other fields of model.json, to the folder of a model."""
    slots = [slot for slot, label in enumerate(state.labels) if label in state.names]
    tensors: dict[str, NDArray[Any]] = {"rows": state.rows, "member": state.member.astype(np.uint8)}
    if slots:
        tensors["names"] = np.stack([state.names[state.labels[slot]] for slot in slots])
    if state.unlabelled is not None:
        tensors["unlabelled"] = state.unlabelled
    declared = [slot for slot, label in enumerate(state.labels) if label in state.declared]
    fields = {"classes": list(state.labels), "indicator": state.indicator, "named": slots, "declared": declared}
    storage.write_files(folder, storage.LABELS_FORMAT, {**head, **fields}, storage.tensor_bytes(tensors))


def read_labelled(folder: Path) -> tuple[dict[str, Any], LabelledRows]:
    """Read and check what `write_labelled` wrote."""
    head, tensors = storage.read_files(folder, _read_head)
    path = folder / head["tensors"]["file"]
    storage.refuse(path, _tensors_problems(head, tensors))
    labels = head["classes"]
    names = dict(zip((labels[slot] for slot in head["named"]), tensors.get("names", ()), strict=True))
    state = LabelledRows(
        tensors["rows"],
        tensors["member"].astype(bool),
        tuple(labels),
        head["indicator"],
        names,
        frozenset(labels[slot] for slot in head["declared"]),
        tensors.get("unlabelled"),
    )
    return head, state


def _read_head(folder: Path) -> dict[str, Any]:
    head = storage.read_checked(folder / storage.HEAD, storage.LABELS_FORMAT, "multi-label classifier")
    storage.refuse(folder / storage.HEAD, _head_problems(head))
    return head


def _head_problems(head: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with single fields of model.json."""
    kinds = {"kind": str, "parameters": dict, "classes": list, "indicator": bool, "unit": bool, "tensors": dict}
    for name, kind in (kinds | {"named": list, "declared": list}).items():
        if not isinstance(head.get(name), kind):
            yield f"its {name!r} is {head.get(name)!r:.60}"
    if missing := sorted({"feature_names", "encoder", "item_encoder"} - {*head}):
        yield f"it has no {missing[0]!r}"
    yield from storage.common_problems(head)
    for name in ("named", "declared"):
        slots = head[name]
        if not all(type(slot) is int and 0 <= slot < len(head["classes"]) for slot in slots) or slots != sorted(
            {*slots}
        ):
            yield f"its {name!r} are no places of labels"
    if not {*head["declared"]} <= {*head["named"]}:
        yield "a label without a name is there because of its name"
    own = head["item_encoder"]
    if own is not None and not (isinstance(own, dict) and isinstance(own.get("kind"), str)):
        yield f"its 'item_encoder' is {own!r:.60}"


def _tensors_problems(head: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Yield contradictions between the tensors and model.json."""
    wanted = {"rows", "member"} | ({"names"} if head["named"] else set())
    if not wanted <= {*tensors} <= wanted | {"unlabelled"}:
        yield f"holds {', '.join(sorted(tensors)) or 'nothing'} where {', '.join(sorted(wanted))} belong"
    number, size = tensors["rows"].shape if tensors["rows"].ndim == 2 else (0, 0)
    others = len(tensors["unlabelled"]) if "unlabelled" in tensors else 0
    shapes = {"rows": (number, size), "member": (number, len(head["classes"])), "names": (len(head["named"]), size)}
    for name, tensor in tensors.items():
        kinds = ("u1",) if name == "member" else ("f8",) if name == "names" else ("f4", "f8")
        shape = {**shapes, "unlabelled": (others, size)}[name]
        if tensor.shape != shape or not tensor.size or tensor.dtype.str[1:] not in kinds:
            yield f"{name!r} is of type {tensor.dtype} and shape {tensor.shape}, not {shape}, or nothing in it"
        if not np.isfinite(tensor).all():
            yield f"{name!r} holds numbers that are not finite"
        if name == "member" and (tensor > 1).any():
            yield "an example carries a label more than once"
        if head["unit"] and name != "member" and not storage.has_unit_rows(tensor):
            yield f"{name!r} are not of length 1"
    carried: NDArray[np.bool_] = np.any(tensors["member"], axis=0)
    carried[head["declared"]] = True
    if not (carried.all() or head["indicator"]):
        yield "a label has no examples"
    names = head["feature_names"]
    if names is not None and len(names) != size:
        yield f"there are {len(names)} names for {size} features"
