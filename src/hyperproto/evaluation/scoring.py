"""Encode once, then score thousands of episodes on the embedding matrix, many in one batched call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.encoders import Encoder, Units
from hyperproto.encoders.base import is_finite, offsets_of, rows_between
from hyperproto.encoders.parts.cache import cached_units
from hyperproto.episodes import Episode
from hyperproto.episodes.random import SHUFFLE, shuffled
from hyperproto.errors import ConfigError, NonFiniteError
from hyperproto.evaluation.predictor import Predictor
from hyperproto.methods import Method, Task, TaskItems, gather_task
from hyperproto.problems import Answers, Measurement, Tags, problem_of
from hyperproto.problems.tagging import tags_of
from hyperproto.regions.arrays import largest_square

BLOCK_BYTES = 8 << 20  # vectors gathered at a time: enough to batch, little beside the matrix
UNREAD = 8  # episodes at a time for a method that reads items, which has its own blocks
CENTER_ITEMS = 2000  # training items whose mean is the centre of center-unit
SAMPLE_ITEMS = 5000  # training items whose units say what those of no class look like


@dataclass(frozen=True, eq=False)
class EncodedPool:
    """A pool, its encoder and the vectors it gave: made once, scored by any number of methods."""

    pool: Pool
    encoder: Encoder
    units: Units

    def __post_init__(self) -> None:
        x = self.units.x
        if not is_finite(x):
            unit = int(torch.nonzero(~x.flatten(1).isfinite().all(1))[0])
            item = int(np.searchsorted(self.units.offsets, unit, side="right")) - 1
            raise NonFiniteError(
                f"{self.pool}: {type(self.encoder).__name__} gives NaN or infinity for item {item} (counted from 0); "
                "its weights, or the numbers it is given, are too large"
            )

    @classmethod
    def encode(
        cls, encoder: Encoder, pool: Pool, progress: Progress | None = None, *, cached: bool = False
    ) -> "EncodedPool":
        """Encode every item of the pool, once, in eval mode; `cached`, for an encoder that is ready: once for ever."""

        def encode() -> Units:
            return encoder.encode_all(encoder.prepared(pool), progress)

        return cls(pool, encoder, cached_units(encoder, pool, None, encode) if cached else encode())

    def check_range(self) -> None:
        """Refuse vectors whose squared distances cannot be represented, by row and value."""
        if self._out_of_range is not None:
            row, value = self._out_of_range
            raise NonFiniteError(
                f"{self.pool.name}: row {row} of the vectors holds {value:.3g}; its squared distance cannot be "
                f"represented in {str(self.units.x.dtype).removeprefix('torch.')}: scale the vectors, or use "
                "transform 'unit'"
            )

    @cached_property
    def _out_of_range(self) -> tuple[int, float] | None:
        """The first row that is too long, and its largest number."""
        x = self.units.x.flatten(1)
        size = max(1, BLOCK_BYTES // max(1, x[:1].nbytes))
        most = largest_square(x.dtype, torch)
        for start in range(0, len(x), size):
            rows = x[start : start + size]
            wrong = torch.linalg.vecdot(rows, rows) >= most
            if bool(wrong.any()):
                row = int(wrong.int().argmax())
                return start + row, float(rows[row, rows[row].abs().argmax()])
        return None

    @classmethod
    def unread(cls, encoder: Encoder, pool: Pool) -> "EncodedPool":
        """Encode nothing, for a method that reads items: units without coordinates keep the borders of the items."""
        x = torch.empty(int(pool.unit_offsets[-1]), 0, device=encoder.device)
        return cls(pool, encoder, Units(x, pool.unit_offsets))

    @classmethod
    def of_items(cls, encoder: Encoder, pool: Pool, items: IntArray) -> "EncodedPool":
        """Encode some items only, given in rising order: the others have no units."""
        units = encoder.encode(encoder.prepared(pool), items)
        lengths = np.zeros(len(pool), np.int64)
        lengths[items] = np.diff(units.offsets)
        return cls(pool, encoder, replace(units, offsets=offsets_of(lengths)))


def encoded_for(
    method: Method,
    encoder: Encoder,
    pool: Pool,
    encoded: dict[Encoder, EncodedPool],
    progress: Progress | None = None,
) -> EncodedPool:
    """Return a pool as a method reads it: encoded once for all methods (`encoded` holds it), or not at all."""
    if method.reads == "items":
        return EncodedPool.unread(encoder, pool)
    if encoder not in encoded:
        encoded[encoder] = EncodedPool.encode(encoder, pool, progress, cached=True)
    return encoded[encoder]


def training_center(encoder: Encoder, pool: Pool, *, cached: bool = False) -> Tensor:
    """Mean vector of (a sample of) the training data, for the transform center-unit; `cached` as above."""
    return _sample(encoder, pool, CENTER_ITEMS, cached)[1].x.mean(0)


def training_units(encoder: Encoder, pool: Pool, *, cached: bool = False) -> tuple[Tensor, Tensor]:
    """Vectors (n, *feature_shape) and labels (n,) of all units of (a sample of) the training data."""
    items, units = _sample(encoder, pool, SAMPLE_ITEMS, cached)
    labels = pool.labels[rows_between(pool.unit_offsets[items], pool.unit_offsets[items + 1])]
    return units.x, torch.from_numpy(labels).to(units.x.device)


def _sample(encoder: Encoder, pool: Pool, most: int, cached: bool) -> tuple[IntArray, Units]:
    items = np.array(shuffled(0, SHUFFLE, 1, len(pool))[:most])

    def encode() -> Units:
        return encoder.encode(encoder.prepared(pool), items)

    return items, cached_units(encoder, pool, items, encode) if cached else encode()


@torch.no_grad()
def score_episodes(
    predictor: Predictor, encoded: EncodedPool, episodes: Sequence[Episode], progress: Progress | None = None
) -> Iterator[tuple[Task, Tensor]]:
    """Yield, block by block, tasks of some of the episodes and the scores of their queries, (B, Q, N)."""
    check_shape(predictor.method, episodes)
    if predictor.features.transform.kind == "none":
        encoded.check_range()
    predictor.eval()
    predictor.read_pool(encoded.pool)
    done = 0
    for block in _blocks(episodes, encoded.units):
        task = _task(predictor, encoded, block)
        yield task, predictor.method(task)
        done += len(block)
        if progress is not None:
            progress(done, len(episodes))


@torch.no_grad()
def predict_episodes(
    predictor: Predictor,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
    *,
    doubt: bool = False,
) -> Iterator[Answers]:
    """Yield, block by block, the predicted labels (B, Q) and, with `doubt`, the scores for "none of these"."""
    for task, scores in score_episodes(predictor, encoded, episodes, progress):
        doubts = predictor.doubt(scores, task) if doubt else None
        yield Answers(task, scores, predictor.decide(scores, task), doubts)


def measure_episodes(
    predictor: Predictor,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
    **how: Any,
) -> Measurement:
    """Answer the queries of all episodes and measure the answers as the pool's problem does."""
    answers = predict_episodes(predictor, encoded, episodes, progress, doubt=how.get("threshold") is not None)
    return problem_of(encoded.pool).measure(encoded.pool, episodes, answers, **how)


@torch.no_grad()
def tag_alike(
    predictors: Sequence[Predictor],
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> list[Tags]:
    """Tag the words of episodes by predictors that score alike and decide differently: the first one scores."""
    scored = score_episodes(predictors[0], encoded, episodes, progress)
    answers = ([Answers(task, scores, each.decide(scores, task)) for each in predictors] for task, scores in scored)
    return tags_of(encoded.pool, episodes, answers)


def check_shape(method: Method, episodes: Sequence[Episode]) -> None:
    """Refuse, before any work, episodes of another way or shot than a method without such freedom was trained with."""
    if "any-way" not in method.traits and method.way is not None:
        other = next((episode.way for episode in episodes if episode.way != method.way), None)
        if other is not None:
            raise ConfigError(
                f"{type(method).__name__} was trained with {method.way} classes an episode and serves no other number, "
                f"but these have {other}; evaluate it {method.way}-way, or train it {other}-way"
            )
    if "any-shot" not in method.traits and method.shot is not None:
        for episode in episodes:
            shots = np.bincount(episode.support_y, minlength=episode.way).tolist()
            if shots != (method.shot if isinstance(method.shot, list) else [method.shot] * episode.way):
                raise ConfigError(
                    f"{type(method).__name__} was trained with {method.shot} shots and serves no other number, but "
                    f"these episodes have {', '.join(map(str, sorted(set(shots))))}; evaluate it with its own, or "
                    "train it with these"
                )


def _blocks(episodes: Sequence[Episode], units: Units) -> Iterator[Sequence[Episode]]:
    """Cut the list into blocks of about BLOCK_BYTES of vectors, each of one way."""
    unit_bytes = units.x[:1].numel() * units.x.element_size()
    per_item = max(1.0, len(units.x) / max(1, len(units.offsets) - 1))
    start = 0
    while start < len(episodes):
        first = episodes[start]
        items = len(first.support) + len(first.query) + (0 if first.unlabelled is None else len(first.unlabelled))
        size = int(BLOCK_BYTES / max(1.0, unit_bytes * per_item * items))
        size = size if unit_bytes else UNREAD
        stop = start + 1
        while stop < min(start + max(1, size), len(episodes)) and episodes[stop].way == first.way:
            stop += 1
        yield episodes[start:stop]
        start = stop


def _task(predictor: Predictor, encoded: EncodedPool, episodes: Sequence[Episode]) -> Task:
    """Gather vectors and transform those gathered, so that the matrix itself is never copied; or name the items."""
    if predictor.method.reads == "items":
        items = TaskItems.of(predictor.features, encoded.pool, episodes)
        return predictor.named(gather_task(encoded.units, episodes, items))
    task, evidence = predictor.named(gather_task(encoded.units, episodes)), predictor.evidence
    if evidence.rows is None and task.unlabelled is not None:
        task = task.with_evidence(unlabelled=None)
    task = _transformed(task, predictor)
    if evidence.rows == "queries":
        task = task.with_evidence(unlabelled=task.query)
    return task.with_names_as_examples() if evidence.names == "example" else task


def _transformed(task: Task, predictor: Predictor) -> Task:
    """Transform what a task has of the items' space; names that a method reads by itself have one of their own."""
    transform = predictor.features.transform
    if transform.kind == "none":
        return task
    center = None
    if transform.kind == "center-unit" and not transform.has_center:
        center = _support_center(task)
    rows = {"unlabelled": task.unlabelled}
    if predictor.evidence.names is not None or "names" in predictor.method.uses_evidence:
        rows["names"] = task.names
    found = task.with_evidence(**{name: transform(x, center) for name, x in rows.items() if x is not None})
    return replace(found, support=transform(task.support, center), query=transform(task.query, center))


def _support_center(task: Task) -> Tensor:
    """Mean of the class means, (B, 1, *feature_shape): without training data, and whatever the shots."""
    classes = torch.arange(task.way, device=task.support.device)
    member = (task.support_y[..., None] == classes).to(task.support)  # (B, S, N)
    share = (member / member.sum(1, keepdim=True).clamp(min=1)).mean(-1)  # (B, S)
    return torch.einsum("bs,bs...->b...", share, task.support)[:, None]
