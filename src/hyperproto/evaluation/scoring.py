"""Encode once, then score thousands of episodes on the embedding matrix, many in one batched call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.encoders import Encoder, FeatureTransform, Units
from hyperproto.encoders.base import offsets_of, rows_between
from hyperproto.encoders.vector_cache import cached_units
from hyperproto.episodes import Episode
from hyperproto.episodes.random import SHUFFLE, shuffled
from hyperproto.errors import EpisodeError
from hyperproto.methods import Method, Task, TaskItems, gather_task

BLOCK_BYTES = 8 << 20  # vectors gathered at a time: enough to batch, little beside the matrix
CENTER_ITEMS = 2000  # training items whose mean is the centre of center-unit
SAMPLE_ITEMS = 5000  # training items whose units say what those of no class look like


@dataclass(frozen=True, eq=False)
class EncodedPool:
    """A pool, its encoder and the vectors it gave: made once, scored by any number of methods."""

    pool: Pool
    encoder: Encoder
    units: Units

    @classmethod
    def encode(
        cls, encoder: Encoder, pool: Pool, progress: Progress | None = None, *, cached: bool = False
    ) -> "EncodedPool":
        """Encode every item of the pool, once, in eval mode; `cached`, for an encoder that is ready: once for ever."""

        def encode() -> Units:
            return encoder.encode_all(encoder.prepared(pool), progress)

        return cls(pool, encoder, cached_units(encoder, pool, None, encode) if cached else encode())

    @classmethod
    def of_items(cls, encoder: Encoder, pool: Pool, items: IntArray) -> "EncodedPool":
        """Encode some items only, given in rising order: the others have no units."""
        units = encoder.encode(encoder.prepared(pool), items)
        lengths = np.zeros(len(pool), np.int64)
        lengths[items] = np.diff(units.offsets)
        return cls(pool, encoder, replace(units, offsets=offsets_of(lengths)))


def training_center(encoder: Encoder, pool: Pool, *, cached: bool = False) -> Tensor:
    """Mean vector of (a sample of) the training data, for the transform center-unit; `cached` as above."""
    return _sample(encoder, pool, CENTER_ITEMS, cached)[1].x.mean(0)


def training_units(encoder: Encoder, pool: Pool, *, cached: bool = False) -> tuple[Tensor, Tensor]:
    """Vectors (n, *feature_shape) and labels (n,) of all units of (a sample of) the training data."""
    items, units = _sample(encoder, pool, SAMPLE_ITEMS, cached)
    offsets = np.arange(len(pool) + 1) if pool.offsets is None else pool.offsets
    labels = pool.labels[rows_between(offsets[items], offsets[items + 1])]
    return units.x, torch.from_numpy(labels).to(units.x.device)


def _sample(encoder: Encoder, pool: Pool, most: int, cached: bool) -> tuple[IntArray, Units]:
    items = np.array(shuffled(0, SHUFFLE, 1, len(pool))[:most])

    def encode() -> Units:
        return encoder.encode(encoder.prepared(pool), items)

    return items, cached_units(encoder, pool, items, encode) if cached else encode()


@torch.no_grad()
def score_episodes(
    method: Method,
    transform: FeatureTransform,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> Iterator[tuple[Sequence[Episode], Tensor, Task]]:
    """Yield, block by block, some episodes, the scores of their queries (B, Q, N) and the task they were made from."""
    method.eval()
    transform.eval()
    done = 0
    for block in _blocks(episodes, encoded.units):
        task = _transformed(transform, _task(method, encoded, block))
        yield block, method.scores(task), task
        done += len(block)
        if progress is not None:
            progress(done, len(episodes))


@torch.no_grad()
def predict_episodes(
    method: Method,
    transform: FeatureTransform,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> Iterator[tuple[Sequence[Episode], Tensor, Task]]:
    """Yield, block by block, some episodes, the predicted labels (B, Q) and the task they were made from."""
    for block, scores, task in score_episodes(method, transform, encoded, episodes, progress):
        yield block, method.decode(scores, task), task


def episode_accuracies(
    method: Method,
    transform: FeatureTransform,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> tuple[IntArray, IntArray]:
    """Count correct and scored queries for each local class of each episode: two arrays (E, N)."""
    correct: list[IntArray] = []
    total: list[IntArray] = []
    for _, predicted, task in predict_episodes(method, transform, encoded, episodes, progress):
        if task.query_y is None:
            raise EpisodeError("these episodes hide the labels of their queries; there is nothing to count")
        real = task.query_y >= 0  # OUTSIDE and PAD are no class
        episode = torch.arange(len(real), device=real.device)[:, None]
        place = task.query_y + task.way * episode  # (B, Q) into (B, N), flat
        for mask, counts in ((real & (predicted == task.query_y), correct), (real, total)):
            found = torch.bincount(place[mask], minlength=task.classes.numel())
            counts.append(found.view_as(task.classes).cpu().numpy())
    return np.concatenate(correct), np.concatenate(total)


def _blocks(episodes: Sequence[Episode], units: Units) -> Iterator[Sequence[Episode]]:
    """Cut the list into blocks of about BLOCK_BYTES of vectors, each of one way."""
    unit_bytes = units.x[:1].numel() * units.x.element_size()
    per_item = max(1.0, len(units.x) / max(1, len(units.offsets) - 1))
    start = 0
    while start < len(episodes):
        first = episodes[start]
        size = int(BLOCK_BYTES / max(1.0, unit_bytes * per_item * (len(first.support) + len(first.query))))
        stop = start + 1
        while stop < min(start + max(1, size), len(episodes)) and episodes[stop].way == first.way:
            stop += 1
        yield episodes[start:stop]
        start = stop


def _task(method: Method, encoded: EncodedPool, episodes: Sequence[Episode]) -> Task:
    items = None
    if method.needs == "items":
        items = TaskItems.of(encoded.encoder, encoded.encoder.prepared(encoded.pool), episodes)
    return gather_task(encoded.units, episodes, items)


def _transformed(transform: FeatureTransform, task: Task) -> Task:
    """Apply the transform to gathered vectors, so that the matrix itself is never copied."""
    if transform.kind == "none":
        return task
    center = None
    if transform.kind == "center-unit" and not transform.has_center:
        center = _support_center(task)
    return replace(task, support=transform(task.support, center), query=transform(task.query, center))


def _support_center(task: Task) -> Tensor:
    """Mean of the class means, (B, 1, *feature_shape): without training data, and whatever the shots."""
    classes = torch.arange(task.way, device=task.support.device)
    member = (task.support_y[..., None] == classes).to(task.support)  # (B, S, N)
    share = (member / member.sum(1, keepdim=True).clamp(min=1)).mean(-1)  # (B, S)
    return torch.einsum("bs,bs...->b...", share, task.support)[:, None]
