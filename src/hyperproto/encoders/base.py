"""Base class of encoders, their output (`Units`), and devices."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.data.formats.relations import item_kind
from hyperproto.errors import ConfigError, DataError

BATCH = 64  # items per forward pass; larger batches exceed the CPU cache and are slower


@dataclass(frozen=True, eq=False)
class Units:
    """Vectors or maps of items: rows `offsets[i]` to `offsets[i + 1] - 1` of `x` are the units of item `i`.

    Token states (`feature_shape = (-1, C)`) are padded with zeros to the longest of the batch. `mask` is True at real
    positions, which come first.
    """

    x: Tensor  # (n_units, *feature_shape); token states: (n_units, L, C)
    offsets: IntArray  # (n_items + 1,)
    mask: Tensor | None = None  # (n_units, L) bool, or None if all positions are real

    @cached_property
    def single(self) -> bool:
        """True if every item has one unit, so that items and units have the same indices."""
        return bool((np.diff(self.offsets) == 1).all())

    @classmethod
    def one_each(cls, x: Tensor, mask: Tensor | None = None) -> "Units":
        """Return units of items with one unit each: images, sentences, vectors."""
        return cls(x, np.arange(len(x) + 1), mask)

    @classmethod
    def concatenated(cls, blocks: "Sequence[Units]") -> "Units":
        """Concatenate blocks; token states of shorter blocks are padded to the longest."""
        offsets = offsets_of(np.concatenate([np.diff(block.offsets) for block in blocks]))
        if any(block.mask is None for block in blocks):
            return cls(torch.cat([block.x for block in blocks]), offsets)
        longest = max(block.x.shape[1] for block in blocks)
        x = blocks[0].x.new_zeros(sum(len(block.x) for block in blocks), longest, *blocks[0].x.shape[2:])
        mask = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        start = 0
        for block in blocks:
            rows, length = slice(start, start + len(block.x)), block.x.shape[1]
            x[rows, :length], mask[rows, :length] = block.x, cast(Tensor, block.mask)
            start = rows.stop
        return cls(x, offsets, mask)

    def rows_of(self, items: IntArray) -> IntArray:
        """Return the rows of `x` of the given items, item by item."""
        return items if self.single else rows_between(self.offsets[items], self.offsets[items + 1])

    def of_items(self, items: IntArray) -> "Units":
        """Return the units of the given items, in that order; token states are cut to the longest of them."""
        rows = torch.from_numpy(self.rows_of(items)).to(self.x.device)
        offsets = offsets_of(np.diff(self.offsets)[items])
        if self.mask is None:
            return Units(self.x.index_select(0, rows), offsets)
        mask = self.mask.index_select(0, rows)
        longest = int(mask.sum(1).max()) if len(mask) else 0
        return Units(self.x[:, :longest].index_select(0, rows), offsets, mask[:, :longest])


def is_finite(x: Tensor) -> bool:
    """Return True if a tensor has neither NaN nor infinity; one pass without a copy."""
    if not x.is_floating_point() or not x.numel():
        return True
    return bool(torch.stack(x.aminmax()).isfinite().all())


def array_of(pool: Pool, wanted: str) -> NDArray[Any]:
    """Return the items of a pool as one array; raise a DataError that begins with `wanted` if they are not numbers."""
    try:
        items: NDArray[Any] = np.asanyarray(pool.items)
    except ValueError:  # lists of different lengths
        items = np.empty(0, object)
    if items.dtype.kind not in "biuf":
        first = pool.items[0] if len(pool.items) else None
        raise DataError(
            f"{pool}: {wanted}, but the items are {item_kind(first)}; choose an encoder that reads them (for "
            "sentences minilm, or a run that was trained on such data)"
        )
    return items


def offsets_of(lengths: IntArray) -> IntArray:
    """Return the boundaries of consecutive pieces of the given lengths, (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)])


def rows_between(starts: IntArray, ends: IntArray) -> IntArray:
    """Return `start, start + 1, ..., end - 1` of each pair, concatenated."""
    lengths = ends - starts
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


class Encoder(nn.Module):
    """Base class of encoders. A subclass sets `feature_shape` and implements `collate` and `forward`."""

    version: ClassVar[int] = 1  # increase it if vectors change for a reason outside the source code
    argument: ClassVar[str | None] = None  # the option that ARGUMENT sets in a spec `NAME:ARGUMENT`
    data_options: ClassVar[tuple[str, ...]] = ()  # options that `options_for` derives from the data
    pretrained: ClassVar[bool] = False  # True if its vectors are useful without training
    tables: ClassVar[tuple[str, ...]] = ()  # possible keys of `param_groups`
    frozen: bool = False  # True if no weight is trained: a pool is then encoded once, in training too
    feature_shape: tuple[int, ...]  # of one unit: (D,); maps (C, H, W); token states (-1, C) of any length

    def __init__(self) -> None:
        super().__init__()
        self.made_from: tuple[str, dict[str, Any]] | None = None  # name and options, if `make_encoder` made it
        self._prepared: WeakKeyDictionary[Pool, Any] = WeakKeyDictionary()

    def freeze(self, frozen: bool = True) -> None:
        """Freeze all parameters and stay in eval mode; called by constructors when all parameters exist."""
        self.frozen = frozen
        if frozen:
            self.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Set training mode; a frozen encoder stays in eval mode, with the stored batch norm statistics."""
        return super().train(mode and not self.frozen)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Return constructor options derived from the data (those in `data_options`), such as the image size.

        Raise a DataError if the encoder cannot read such items.
        """
        return {}

    @property
    def read_as(self) -> dict[str, Any]:
        """Options that determine the vectors, apart from the weights.

        A subclass replaces an option such as "auto" by the value found in files.
        """
        return {} if self.made_from is None else dict(self.made_from[1])

    def differences(self, pool: Pool) -> list[str]:
        """Describe the differences between `options_for(pool)` and the options of this encoder."""
        made = {} if self.made_from is None else self.made_from[1]
        return [
            f"{key} {value!r}, not {made[key]!r}"
            for key, value in type(self).options_for(pool).items()
            if key in made and made[key] != value
        ]

    def prepare(self, items: Any) -> Any:
        """Do the work that every `collate` would repeat, such as tokenising; by default return the items."""
        return items

    def prepared(self, pool: Pool) -> Any:
        """Return the prepared items of a pool, cached for training, validation and a method's `setup`."""
        if pool not in self._prepared:
            self._prepared[pool] = self.prepare(pool.items)
        return self._prepared[pool]

    @property
    def device(self) -> torch.device:
        """Device of the weights; the CPU for an encoder without weights."""
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))

    def lengths(self, prepared: Any) -> IntArray | None:
        """Return the length of each item if batches are padded to the longest; None if all cost the same."""
        return None

    def param_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return tables with sparse gradients by the name of their section `[optim.NAME]`.

        Only rows used in a step are updated.
        """
        return {}

    def collate(self, prepared: Any, index: IntArray) -> Any:
        """Return one batch of the items at `index`."""
        raise NotImplementedError

    def collate_pairs(self, prepared: Any, first: IntArray, second: IntArray) -> Any:
        """Return one batch of pairs of items, each pair one input; only for transformers of text."""
        raise ConfigError(f"{type(self).__name__} reads items one by one, not in pairs; choose a text transformer")

    def read_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode plain texts such as class names to one vector each, (n, D'), with gradients."""
        raise ConfigError(
            f"{type(self).__name__} does not read plain texts; name a sentence encoder: "
            'encoder = "minilm" or "glove" in [names]'
        )

    def forward(self, batch: Any) -> Units:
        """Encode a batch returned by `collate`."""
        raise NotImplementedError

    def loss(self, batch: Any) -> dict[str, Tensor]:
        """Return parts of the training loss that belong to the encoder, such as masked-language modelling."""
        return {}

    def centred(self, batch: Any) -> Any:
        """Return the input of the first of `stages`: for images, bytes as floats around 0."""
        return batch

    def stages(self) -> list[nn.Module]:
        """Return modules that, applied in sequence to a `centred` batch, compute `forward(...).x`.

        The last one follows the last block (average, flatten). Manifold mix-up mixes inputs between two stages. Only
        trainable image encoders have stages.
        """
        raise ConfigError(f"{type(self).__name__} cannot be run stage by stage; choose an image encoder such as conv4")

    def encode_all(self, prepared: Any, progress: Progress | None = None) -> Units:
        """Encode every item once, in eval mode."""
        return self.encode(prepared, np.arange(len(prepared)), progress)

    @torch.no_grad()
    def encode(self, prepared: Any, items: IntArray, progress: Progress | None = None) -> Units:
        """Encode the given items in batches, in eval mode; items are sorted by length to reduce padding."""
        lengths = self.lengths(prepared)
        order = None if lengths is None else np.argsort(-lengths[items], kind="stable")  # longest first: fails early
        ordered = items if order is None else items[order]
        was_training = self.training
        self.eval()
        blocks: list[Units] = []
        states: Units | None = None
        for start in range(0, len(items), BATCH):
            block = self(moved(self.collate(prepared, ordered[start : start + BATCH]), self.device))
            if block.mask is not None and block.single:
                states = _with_states(states, block, np.arange(len(items)) if order is None else order, start)
            else:
                blocks.append(block)
            if progress is not None:
                progress(min(start + BATCH, len(items)), len(items))
        self.train(was_training)
        if states is not None:
            return states
        units = Units.concatenated(blocks)
        blocks.clear()  # free memory before the next copy
        return units if order is None else units.of_items(np.argsort(order))


def _with_states(states: Units | None, block: Units, order: IntArray, start: int) -> Units:
    """Write the token states of a block to rows `order[start:]` of the states of all items, in place."""
    assert block.mask is not None
    longest, size = block.x.shape[1], block.x.shape[2:]
    if states is None:
        mask = block.mask.new_zeros(len(order), longest)
        states = Units.one_each(block.x.new_zeros(len(order), longest, *size), mask)
    assert states.mask is not None
    if longest > states.x.shape[1]:  # for encoders without `lengths`
        more = longest - states.x.shape[1]
        x = torch.cat([states.x, states.x.new_zeros(len(order), more, *size)], 1)
        states = Units.one_each(x, torch.cat([states.mask, states.mask.new_zeros(len(order), more)], 1))
    rows = torch.from_numpy(order[start : start + len(block.x)]).to(block.x.device)
    states.x[rows, :longest] = block.x
    assert states.mask is not None
    states.mask[rows, :longest] = block.mask
    return states


def default_device() -> torch.device:
    """Return the device $HYPERPROTO_DEVICE (cpu, cuda, cuda:1, mps) if it is set, else CUDA if available, else CPU."""
    name = os.environ.get("HYPERPROTO_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"HYPERPROTO_DEVICE={name}: no such device here ({reason}); use cpu") from None
    return device


def moved(batch: Any, device: torch.device) -> Any:
    """Move a batch to a device: a tensor, or the tensors in a dict, list or tuple."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: moved(part, device) for key, part in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(moved(part, device) for part in batch)
    return batch
