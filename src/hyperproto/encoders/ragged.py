"""Rows of integers of unequal length, such as the word pieces of sentences, without a Python object for each."""

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
