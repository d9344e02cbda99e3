"""The encoder contract: items to vectors, prepared once, collated by index, encoded in one forward."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.encoders.device import moved

BATCH = 64  # items per forward when many are encoded: larger ones outgrow the cache, and are slower on a CPU


@dataclass(frozen=True, eq=False)
class Units:
    """The vectors of some items: unit `offsets[i]` to `offsets[i + 1] - 1` of `x` belong to item `i`."""

    x: Tensor  # (n_units, *feature_shape)
    offsets: IntArray  # (n_items + 1,)

    @cached_property
    def single(self) -> bool:
        """Whether every item is one unit: then items and units have the same numbers."""
        return bool((np.diff(self.offsets) == 1).all())

    @classmethod
    def one_each(cls, x: Tensor) -> "Units":
        """One unit an item: images, sentences, vectors."""
        return cls(x, np.arange(len(x) + 1))

    def rows_of(self, items: IntArray) -> IntArray:
        """Rows of `x` that hold the units of some items, item after item."""
        return items if self.single else rows_between(self.offsets[items], self.offsets[items + 1])

    def of_items(self, items: IntArray) -> "Units":
        """Take the units of some items, in that order."""
        rows = torch.from_numpy(self.rows_of(items)).to(self.x.device)
        return Units(self.x.index_select(0, rows), offsets_of(np.diff(self.offsets)[items]))


def offsets_of(lengths: IntArray) -> IntArray:
    """Where pieces of these lengths begin and end when they lie one after another, (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)])


def rows_between(starts: IntArray, ends: IntArray) -> IntArray:
    """`start, start + 1, ..., end - 1` for each pair in turn."""
    lengths = ends - starts
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


class Encoder(nn.Module):
    """Base of all encoders. A subclass sets `feature_shape` and writes `collate` and `forward`."""

    argument: ClassVar[str | None] = None  # the option that ARGUMENT fills in a spec `NAME:ARGUMENT`
    tables: ClassVar[tuple[str, ...]] = ()  # what `param_groups` may name
    feature_shape: tuple[int, ...]  # the shape of one unit, usually (D,)

    def __init__(self) -> None:
        super().__init__()
        self.made_from: tuple[str, dict[str, Any]] | None = None  # name and options, if `make_encoder` made it
        self._prepared: WeakKeyDictionary[Pool, Any] = WeakKeyDictionary()

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Constructor options that follow from the data, such as the image size."""
        return {}

    def prepare(self, items: Any) -> Any:
        """Do once what every later `collate` would repeat: decode, tokenise."""
        return items

    def prepared(self, pool: Pool) -> Any:
        """Prepare the items of a pool, once; training, validation and a method's `setup` share it."""
        if pool not in self._prepared:
            self._prepared[pool] = self.prepare(pool.items)
        return self._prepared[pool]

    @property
    def device(self) -> torch.device:
        """Where its weights are; an encoder without any is on the CPU."""
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))

    def lengths(self, prepared: Any) -> IntArray | None:
        """How long each item is, where items are padded to the longest of a batch; None where all cost the same."""
        return None

    def param_groups(self) -> dict[str, list[nn.Parameter]]:
        """Tables with a sparse gradient, by the name of their section `[optim.NAME]`: only rows drawn are updated."""
        return {}

    def collate(self, prepared: Any, index: IntArray) -> Any:
        """Make one batch of the items at `index`."""
        raise NotImplementedError

    def forward(self, batch: Any) -> Units:
        """Encode a batch."""
        raise NotImplementedError

    def encode_all(self, prepared: Any, progress: Progress | None = None) -> Units:
        """Encode every item once, in eval mode."""
        return self.encode(prepared, np.arange(len(prepared)), progress)

    @torch.no_grad()
    def encode(self, prepared: Any, items: IntArray, progress: Progress | None = None) -> Units:
        """Encode the items given, batch by batch, in eval mode; items of one length go together, to pad little."""
        lengths = self.lengths(prepared)
        order = None if lengths is None else np.argsort(-lengths[items], kind="stable")  # long ones first: memory shows
        ordered = items if order is None else items[order]
        was_training = self.training
        self.eval()
        vectors, counts = [], []
        for start in range(0, len(items), BATCH):
            units = self(moved(self.collate(prepared, ordered[start : start + BATCH]), self.device))
            vectors.append(units.x)
            counts.append(np.diff(units.offsets))
            if progress is not None:
                progress(min(start + BATCH, len(items)), len(items))
        self.train(was_training)
        units = Units(torch.cat(vectors), offsets_of(np.concatenate(counts)))
        vectors.clear()  # there may be much of it, and another copy follows
        return units if order is None else units.of_items(np.argsort(order))
