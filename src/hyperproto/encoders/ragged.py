"""Rows of integers of unequal length, such as the word pieces of sentences: stored flat, padded, and cut to a limit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperproto.data import IntArray
from hyperproto.encoders.base import offsets_of, rows_between


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row `i` is `flat[offsets[i] : offsets[i + 1]]`."""

    flat: NDArray[np.int32]
    offsets: IntArray  # (n_rows + 1,)

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | NDArray[np.int32]]) -> "Ragged":
        """Lay rows one after another."""
        rows = list(rows)
        offsets = offsets_of(np.fromiter(map(len, rows), np.int64, len(rows)))
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1])), offsets)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        """How long each row is."""
        return np.diff(self.offsets)

    def row(self, index: int) -> NDArray[np.int32]:
        """One row, without a copy."""
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    def rows(self) -> Iterator[NDArray[np.int32]]:
        """Every row in turn."""
        return map(self.row, range(len(self)))

    def take(self, index: IntArray) -> "Ragged":
        """The rows at `index`, in that order."""
        starts, ends = self.offsets[index], self.offsets[index + 1]
        return Ragged(self.flat[rows_between(starts, ends)], offsets_of(ends - starts))

    def only(self, stays: NDArray[np.bool_]) -> "Ragged":
        """Leave out the numbers of `flat` that do not stay."""
        return Ragged(self.flat[stays], np.concatenate([[0], np.cumsum(stays)])[self.offsets])

    def padded(self, index: IntArray, fill: int) -> Tensor:
        """Take the rows at `index` as a matrix of int64 (n, longest of them), with `fill` behind the shorter ones."""
        starts, ends = self.offsets[index], self.offsets[index + 1]
        lengths = ends - starts
        matrix = np.full((len(lengths), int(lengths.max(initial=0))), fill, np.int64)
        matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = self.flat[rows_between(starts, ends)]
        return torch.from_numpy(matrix)


def kept_positions(length: int, spans: Sequence[tuple[int, int]], limit: int) -> IntArray:
    """Choose at most `limit` of the positions 0 to `length` - 1, ascending, such that every span stays.

    A span is a half-open range (start, end); spans may overlap, and come in any order. What is kept is, in this order,

    - everything, if it fits;
    - one stretch around all spans, with as much of the context before them as after them;
    - if the spans are too far apart for that, a stretch around each: the middle is cut out;
    - if they are too long even for that, the beginning of each.

    Without any span the beginning of the text is kept.
    """
    if length <= limit:
        return np.arange(length)
    bounds = np.array(spans or [(0, 0)], np.int64)
    first, last = bounds[:, 0].min(), bounds[:, 1].max()
    if not (first >= 0 and last <= length and (bounds[:, 0] <= bounds[:, 1]).all()):
        raise ValueError(f"spans {list(spans)} do not lie within the {length} positions there are")
    if len(np.unique(bounds[:, 0])) > limit:
        raise ValueError(f"{len(spans)} spans need {len(spans)} positions, and {limit} are too few")
    if last - first <= limit:
        bounds = np.array([(first, last)])
    start, end = bounds[:, :1], bounds[:, 1:]  # (n_spans, 1)
    position = np.arange(length)
    outside = np.maximum(start - position, position - end + 1).clip(0).min(0)  # how far from the nearest span
    if np.count_nonzero(outside == 0) <= limit:
        dispensable = outside
    else:
        inside = (start <= position) & (position < end)
        dispensable = np.where(inside, position - start, length).min(0)  # how far behind the start of its span
    return np.sort(np.argsort(dispensable, kind="stable")[:limit])
