"""Task: a padded batch of episodes, as vectors; the only input of a method."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hyperproto.data import IntArray, Pool
from hyperproto.encoders import Features, Units, moved
from hyperproto.encoders.base import offsets_of
from hyperproto.encoders.class_names import ClassNames
from hyperproto.episodes import Episode
from hyperproto.errors import ConfigError
from hyperproto.regions.evidence import NO_EVIDENCE, Evidence

PAD = -2  # label of padding; OUTSIDE = -1 is a real unit of none of the classes


@dataclass(frozen=True, eq=False)
class TaskItems:
    """Items of the episodes, for a method that reads items: pairs of texts, gradient adaptation.

    `features` is the same object in training and evaluation; in training `batch` augments images by the recipe.
    """

    features: Features
    prepared: Any  # return value of the encoder's `prepare`
    support: list[IntArray]  # the items of each episode, as indices of `prepared`
    query: list[IntArray]
    offsets: IntArray  # (n_items + 1,) the units of each item of the pool

    @classmethod
    def of(cls, features: Features, pool: Pool, episodes: Sequence[Episode]) -> "TaskItems":
        """Collect the items of some episodes."""
        support, query = [e.support for e in episodes], [e.query for e in episodes]
        return cls(features, features.prepared(pool), support, query, pool.unit_offsets)

    @property
    def units(self) -> Units:
        """Units of the pool without coordinates: a task of items has labels and borders, but no vectors."""
        return Units(torch.empty(int(self.offsets[-1]), 0, device=self.features.device), self.offsets)

    def batch(self, index: IntArray) -> Any:
        """Collate some items into a raw batch, which `features(batch)` encodes with gradients."""
        return self.features.batch(self.prepared, index)

    def pairs(self, first: IntArray, second: IntArray) -> Any:
        """Collate pairs of texts, one of each list, as one input each."""
        return moved(self.features.encoder.collate_pairs(self.prepared, first, second), self.features.device)


@dataclass(frozen=True, eq=False)
class Task:
    """B episodes of N classes, padded to S support and Q query units."""

    support: Tensor  # (B, S, *feature_shape)
    support_y: Tensor  # (B, S) 0 to N - 1, or PAD
    query: Tensor  # (B, Q, *feature_shape)
    query_y: Tensor | None  # (B, Q) 0 to N - 1, OUTSIDE or PAD; None in a hidden test
    classes: Tensor  # (B, N) indices of the pool's classes
    query_offsets: Tensor  # (B, n_query_items + 1) first unit of each query item: sentence borders
    items: TaskItems | None = None
    support_offsets: Tensor | None = None  # (B, n_support_items + 1); None: every unit is an item of its own
    support_mask: Tensor | None = None  # (B, S, L) bool, the real positions of token states; None: all are
    query_mask: Tensor | None = None  # (B, Q, L)
    evidence: Evidence = NO_EVIDENCE  # class names and unlabelled units, where an episode has any

    @property
    def names(self) -> Tensor | None:
        """Vectors of the class names, (B, N, D')."""
        names: Tensor | None = self.evidence.names
        return names

    @property
    def unlabelled(self) -> Tensor | None:
        """Units without a label, (B, U, *feature_shape)."""
        unlabelled: Tensor | None = self.evidence.unlabelled
        return unlabelled

    def with_evidence(self, **parts: Any) -> "Task":
        """Return the task with other `names`, `named` or `unlabelled`."""
        return replace(self, evidence=replace(self.evidence, **parts))

    @property
    def way(self) -> int:
        """Number of classes."""
        return self.classes.shape[1]

    def counts(self) -> Tensor:
        """Count the support units of each class, (B, N)."""
        return self.members().sum(-2).long()

    def members(self) -> Tensor:
        """Return class memberships of the support units, (B, S, N), 1.0 or 0.0; padding belongs to no class."""
        classes = torch.arange(self.way, device=self.support_y.device)
        return (self.support_y[..., None] == classes).to(self.support)

    def by_class(self) -> Tensor:
        """Arrange the support by class, (B, N, K, *feature_shape), in its order; all classes must have K examples."""
        counts = self.counts()
        shot = int(counts[0, 0])
        if not bool((counts == shot).all()) or not shot:
            found = ", ".join(map(str, sorted(set(counts.flatten().tolist()))))
            raise ConfigError(f"classes with different numbers of examples ({found}); this method needs equal shots")
        last = self.support_y.masked_fill(self.support_y < 0, self.way)
        order = last.argsort(dim=1, stable=True)[:, : self.way * shot]  # (B, N K)
        rows = torch.arange(len(order), device=order.device)[:, None]
        return self.support[rows, order].reshape(len(order), self.way, shot, *self.support.shape[2:])

    def support_items(self) -> Tensor:
        """Return the item of its episode for each support unit, (B, S); padding gets a number above all items."""
        places = torch.arange(self.support.shape[1], device=self.support.device).expand(self.support_y.shape)
        if self.support_offsets is None:
            return places
        ends = self.support_offsets[:, 1:].to(self.support.device).contiguous()
        return torch.searchsorted(ends, places.contiguous(), right=True)

    def middle(self) -> Tensor:
        """Return the mean of the support, (B, 1, *feature_shape)."""
        real = (self.support_y >= 0).to(self.support)
        share = real / real.sum(1, keepdim=True).clamp(min=1)  # (B, S)
        return torch.einsum("bs,bs...->b...", share, self.support)[:, None]

    def detached(self) -> "Task":
        """Return the same vectors as constants: no gradient reaches the encoder."""
        rows = {"names": self.names, "unlabelled": self.unlabelled}
        task = self.with_evidence(**{name: x.detach() for name, x in rows.items() if x is not None})
        return replace(task, support=self.support.detach(), query=self.query.detach())

    def centred(self) -> "Task":
        """Subtract the mean of the support, which no Euclidean measure depends on: single precision keeps its digits.

        Class names keep their own origin.
        """
        middle = self.middle()
        evidence = self.evidence.shifted(middle)
        return replace(self, support=self.support - middle, query=self.query - middle, evidence=evidence)

    def with_names_as_examples(self) -> "Task":
        """Return the task with the name of each class, where it has one, as one more support unit."""
        assert self.names is not None
        classes = torch.arange(self.way, device=self.support_y.device).expand(len(self.support_y), -1)
        labels = torch.where(self.evidence.named, classes, PAD)
        offsets = self.support_offsets
        if offsets is not None:
            offsets = torch.cat([offsets, offsets[:, -1:] + torch.arange(1, self.way + 1)], 1)
        return replace(
            self,
            support=torch.cat([self.support, self.names.to(self.support)], 1),
            support_y=torch.cat([self.support_y, labels], 1),
            support_offsets=offsets,
            evidence=replace(self.evidence, names=None, named=None),
        )


def with_names(task: Task, names: ClassNames | None) -> Task:
    """Add the names of its classes to the evidence of a task, if there are any."""
    if names is None:
        return task
    vectors, has_name = names.of(task.classes)
    return task.with_evidence(names=vectors, named=has_name)


def gather_task(units: Units, episodes: Sequence[Episode], items: TaskItems | None = None) -> Task:
    """Gather the units of the episodes' items; all episodes must have the same number of classes."""
    hidden = any(episode.query_y is None for episode in episodes)
    device = units.x.device
    if units.mask is not None:
        units = _cut(units, np.concatenate([part for e in episodes for part in (e.support, e.query)]))
    return Task(
        support=_vectors(units, [episode.support for episode in episodes]),
        support_y=_padded([episode.support_y for episode in episodes], PAD).to(device),
        query=_vectors(units, [episode.query for episode in episodes]),
        query_y=None if hidden else _padded([e.query_y for e in episodes if e.query_y is not None], PAD).to(device),
        classes=_padded([episode.classes for episode in episodes], PAD).to(device),
        query_offsets=_offsets(units, [episode.query for episode in episodes]),
        items=items,
        support_offsets=_offsets(units, [episode.support for episode in episodes]),
        support_mask=_mask(units, [episode.support for episode in episodes]),
        query_mask=_mask(units, [episode.query for episode in episodes]),
        evidence=Evidence(unlabelled=_unlabelled(units, episodes)),
    )


def _cut(units: Units, items: IntArray) -> Units:
    """Cut token states to the longest of these items: a view, without a copy."""
    assert units.mask is not None
    rows = torch.from_numpy(units.rows_of(items)).to(units.mask.device)
    longest = int(units.mask.index_select(0, rows).sum(1).max()) if len(rows) else 0
    return Units(units.x[:, :longest], units.offsets, units.mask[:, :longest])


def _vectors(units: Units, items: Sequence[IntArray]) -> Tensor:
    """Gather the units of some items of each episode, (B, units, *feature_shape)."""
    index = _padded([units.rows_of(episode_items) for episode_items in items], 0).to(units.x.device)
    return units.x.index_select(0, index.flatten()).view(*index.shape, *units.x.shape[1:])


def _unlabelled(units: Units, episodes: Sequence[Episode]) -> Tensor | None:
    """Gather the units without a label of each episode, (B, U, *feature_shape); None if an episode has none."""
    items = [episode.unlabelled for episode in episodes if episode.unlabelled is not None]
    if len(items) < len(episodes):
        return None
    if len({len(units.rows_of(row)) for row in items}) > 1:
        raise ConfigError("episodes have different numbers of units without a label; draw the same number for each")
    return _vectors(units, items)


def _mask(units: Units, items: Sequence[IntArray]) -> Tensor | None:
    """Gather the mask of real positions of those units, (B, units, L)."""
    return None if units.mask is None else _vectors(Units(units.mask, units.offsets), items)


def _offsets(units: Units, items: Sequence[IntArray]) -> Tensor:
    """Return the first unit of each item within its episode, (B, items + 1)."""
    if units.single and all(len(row) == len(items[0]) for row in items):
        return torch.arange(len(items[0]) + 1).expand(len(items), -1)
    lengths = np.diff(units.offsets)
    return _padded([offsets_of(lengths[row]) for row in items], None)


def _padded(rows: Sequence[IntArray], fill: int | None) -> Tensor:
    """Stack rows of unequal length; `fill=None` repeats the last value of each row (an item without units)."""
    width = max(len(row) for row in rows)
    if all(len(row) == width for row in rows):
        return torch.from_numpy(np.concatenate(rows).reshape(len(rows), width))
    padded = np.empty((len(rows), width), np.int64)
    for out, row in zip(padded, rows, strict=True):
        out[: len(row)] = row
        out[len(row) :] = row[-1] if fill is None else fill
    return torch.from_numpy(padded)
