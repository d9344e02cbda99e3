"""The encoder contract: items to vectors or maps, prepared once, collated by index, encoded in one forward."""

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

BATCH = 64  # items per forward when many are encoded: larger ones outgrow the cache, and are slower on a CPU


@dataclass(frozen=True, eq=False)
class Units:
    """The vectors or maps of some items: unit `offsets[i]` to `offsets[i + 1] - 1` of `x` belong to item `i`.

    Maps of unequal length (token states, `feature_shape = (-1, C)`) are padded with zeros to the longest at hand, and
    `mask` says which positions are real. Real positions come first.
    """

    x: Tensor  # (n_units, *feature_shape); token states: (n_units, L, C)
    offsets: IntArray  # (n_items + 1,)
    mask: Tensor | None = None  # (n_units, L) bool; None: all positions are real

    @cached_property
    def single(self) -> bool:
        """Whether every item is one unit: then items and units have the same numbers."""
        return bool((np.diff(self.offsets) == 1).all())

    @classmethod
    def one_each(cls, x: Tensor, mask: Tensor | None = None) -> "Units":
        """One unit an item: images, sentences, vectors."""
        return cls(x, np.arange(len(x) + 1), mask)

    @classmethod
    def concatenated(cls, blocks: "Sequence[Units]") -> "Units":
        """Put blocks one after another; token states of shorter blocks are padded to the longest."""
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
        """Rows of `x` that hold the units of some items, item after item."""
        return items if self.single else rows_between(self.offsets[items], self.offsets[items + 1])

    def of_items(self, items: IntArray) -> "Units":
        """Take the units of some items, in that order; token states are cut to the longest of these."""
        rows = torch.from_numpy(self.rows_of(items)).to(self.x.device)
        offsets = offsets_of(np.diff(self.offsets)[items])
        if self.mask is None:
            return Units(self.x.index_select(0, rows), offsets)
        mask = self.mask.index_select(0, rows)
        longest = int(mask.sum(1).max()) if len(mask) else 0
        return Units(self.x[:, :longest].index_select(0, rows), offsets, mask[:, :longest])


def is_finite(x: Tensor) -> bool:
    """Whether there is neither NaN nor infinity in a tensor; one pass, and no copy of it."""
    if not x.is_floating_point() or not x.numel():
        return True
    return bool(torch.stack(x.aminmax()).isfinite().all())


def array_of(pool: Pool, wanted: str) -> NDArray[Any]:
    """Return the items of a pool as one array; `wanted` says which encoder reads what, where they are words, or odd."""
    try:
        items: NDArray[Any] = np.asanyarray(pool.items)
    except ValueError:  # lists of different lengths
        items = np.empty(0, object)
    if items.dtype.kind not in "biuf":
        first = pool.items[0] if len(pool.items) else None
        raise DataError(
            f"{pool}: {wanted}, but the items are {item_kind(first)}; choose an encoder that reads those (for "
            "sentences minilm, or a run that was trained on such data)"
        )
    return items


def offsets_of(lengths: IntArray) -> IntArray:
    """Where pieces of these lengths begin and end when they lie one after another, (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)])


def rows_between(starts: IntArray, ends: IntArray) -> IntArray:
    """`start, start + 1, ..., end - 1` for each pair in turn."""
    lengths = ends - starts
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


class Encoder(nn.Module):
    """Base of all encoders. A subclass sets `feature_shape` and writes `collate` and `forward`."""

    version: ClassVar[int] = 1  # raise it where the same items get other vectors for a reason that no source shows
    argument: ClassVar[str | None] = None  # the option that ARGUMENT fills in a spec `NAME:ARGUMENT`
    data_options: ClassVar[tuple[str, ...]] = ()  # the options that `options_for` reads off the data
    pretrained: ClassVar[bool] = False  # whether its vectors mean something before any training
    tables: ClassVar[tuple[str, ...]] = ()  # what `param_groups` may name
    frozen: bool = False  # whether it learns nothing: then a pool is encoded once, in training too
    feature_shape: tuple[int, ...]  # of one unit: (D,); maps (C, H, W); token states (-1, C), of any length

    def __init__(self) -> None:
        super().__init__()
        self.made_from: tuple[str, dict[str, Any]] | None = None  # name and options, if `make_encoder` made it
        self._prepared: WeakKeyDictionary[Pool, Any] = WeakKeyDictionary()

    def freeze(self, frozen: bool = True) -> None:
        """Learn nothing from now on and stay in eval mode; a constructor calls it when all parameters exist."""
        self.frozen = frozen
        if frozen:
            self.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode where the weights are frozen: they go with the statistics that they were learned with."""
        return super().train(mode and not self.frozen)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Constructor options that follow from the data, such as the image size: those that `data_options` names.

        An encoder that cannot read such items raises a DataError.
        """
        return {}

    @property
    def read_as(self) -> dict[str, Any]:
        """The options that vectors follow from, beside the weights: those it was made with.

        A subclass puts what it found in files in place of an option such as "auto".
        """
        return {} if self.made_from is None else dict(self.made_from[1])

    def differences(self, pool: Pool) -> list[str]:
        """Compare what `options_for` reads off a pool with what this encoder was made with; each one in words."""
        made = {} if self.made_from is None else self.made_from[1]
        return [
            f"{key} {value!r}, not {made[key]!r}"
            for key, value in type(self).options_for(pool).items()
            if key in made and made[key] != value
        ]

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

    def collate_pairs(self, prepared: Any, first: IntArray, second: IntArray) -> Any:
        """Make one batch of pairs of items, each pair one input, for encoders that can read two texts as one."""
        raise ConfigError(f"{type(self).__name__} reads items one by one, not in pairs; choose a text transformer")

    def read_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode plain texts such as names of classes, one vector each, (n, D'), with gradients."""
        raise ConfigError(
            f"{type(self).__name__} does not read plain texts; name a sentence encoder: "
            'encoder = "minilm" or "glove" in [names]'
        )

    def forward(self, batch: Any) -> Units:
        """Encode a batch."""
        raise NotImplementedError

    def loss(self, batch: Any) -> dict[str, Tensor]:
        """Parts of the training loss that are the encoder's own, such as those of masked pieces."""
        return {}

    def centred(self, batch: Any) -> Any:
        """What the first of `stages` reads: of images, bytes as floats around 0."""
        return batch

    def stages(self) -> list[nn.Module]:
        """Split the network: these modules, one after another on a `centred` batch, compute `forward(...).x`.

        The last one is what follows the last block (average, flatten). Mixing inputs between two stages is manifold
        mix-up. Only image encoders that are trained here have stages.
        """
        raise ConfigError(f"{type(self).__name__} cannot be run stage by stage; choose an image encoder such as conv4")

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
        blocks.clear()  # there may be much of it, and another copy follows
        return units if order is None else units.of_items(np.argsort(order))


def _with_states(states: Units | None, block: Units, order: IntArray, start: int) -> Units:
    """Put the token states of a block into the rows `order[start:]` of those of all items: there is no other copy."""
    assert block.mask is not None
    longest, size = block.x.shape[1], block.x.shape[2:]
    if states is None:
        mask = block.mask.new_zeros(len(order), longest)
        states = Units.one_each(block.x.new_zeros(len(order), longest, *size), mask)
    assert states.mask is not None
    if longest > states.x.shape[1]:  # of an encoder that does not say how long items are
        more = longest - states.x.shape[1]
        x = torch.cat([states.x, states.x.new_zeros(len(order), more, *size)], 1)
        states = Units.one_each(x, torch.cat([states.mask, states.mask.new_zeros(len(order), more)], 1))
    rows = torch.from_numpy(order[start : start + len(block.x)]).to(block.x.device)
    states.x[rows, :longest] = block.x
    assert states.mask is not None
    states.mask[rows, :longest] = block.mask
    return states


def default_device() -> torch.device:
    """Return what $HYPERPROTO_DEVICE names (cpu, cuda, cuda:1, mps), or a CUDA device if there is one, or the CPU."""
    name = os.environ.get("HYPERPROTO_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"HYPERPROTO_DEVICE={name}: no such device here ({reason}); use cpu") from None
    return device


def moved(batch: Any, device: torch.device) -> Any:
    """Bring a batch to a device: a tensor, or tensors in a dict, list or tuple; whatever else it holds stays."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: moved(part, device) for key, part in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(moved(part, device) for part in batch)
    return batch
