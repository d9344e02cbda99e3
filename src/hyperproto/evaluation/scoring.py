"""Predictors, and episodes scored by them: a pool is encoded once, then episodes are scored in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.decisions import Decision, choose_threshold, make_decision
from hyperproto.encoders import Encoder, Features, FeatureTransform, Units
from hyperproto.encoders.base import is_finite, offsets_of, rows_between
from hyperproto.encoders.class_names import ClassNames, NameEncoder
from hyperproto.encoders.parts.cache import cached_units
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.episodes.random import SHUFFLE, shuffled
from hyperproto.errors import ConfigError, NonFiniteError, unknown_name
from hyperproto.methods import Method, Task, TaskItems, gather_task, with_names
from hyperproto.problems import Answers, Measurement, Tags, Verdicts, problem_of
from hyperproto.problems.tagging import tags_of
from hyperproto.regions.arrays import largest_square

EVIDENCE = ("nothing", "names", "example", "unlabelled", "queries")
BLOCK_BYTES = 8 << 20  # vectors gathered at a time: a good batch size, small compared with the matrix
UNREAD = 8  # episodes at a time for a method that reads items and batches them itself
CENTER_ITEMS = 2000  # training items whose mean is the centre of center-unit
SAMPLE_ITEMS = 5000  # training items whose units the O discriminant is fitted to


@dataclass(frozen=True)
class EvidenceChoice:
    """Choice of evidence that a method gets besides the support of an episode, and how it is used.

    `names` are prior means of the method's own ("prior"), or one more example of each class ("example"), which any
    method can use. `rows` without a label are other items of the pool ("unlabelled") or the episode's own queries
    ("queries": transductive answers).
    """

    names: Literal["prior", "example"] | None = None
    rows: Literal["unlabelled", "queries"] | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read words joined by +, such as `names+unlabelled`."""
        words = text.split("+")
        for word in words:
            if word not in EVIDENCE:
                raise ConfigError(f"--evidence {text}: {unknown_name('word', word, EVIDENCE)}")
        if len(set(words)) < len(words) or {"names", "example"} <= {*words} or {"unlabelled", "queries"} <= {*words}:
            raise ConfigError(
                f"--evidence {text}: names are a prior (names) or an example, and rows unlabelled items or the "
                "queries, each named once; repeat --evidence to compare several"
            )
        if "nothing" in words and len(words) > 1:
            raise ConfigError(f"--evidence {text}: nothing stands alone; repeat --evidence to compare several")
        names: Literal["prior", "example"] | None = "prior" if "names" in words else None
        if "example" in words:
            names = "example"
        rows: Literal["unlabelled", "queries"] | None = "unlabelled" if "unlabelled" in words else None
        return cls(names, "queries" if "queries" in words else rows)

    def __str__(self) -> str:
        """Return the words that `parse` reads."""
        words = [{"prior": "names", "example": "example"}[self.names]] if self.names else []
        return "+".join([*words, *([self.rows] if self.rows else [])]) or "nothing"

    def settings(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """Return the settings that a result records; `drawn` holds the numbers of unlabelled items."""
        chosen: dict[str, Any] = {} if self == EvidenceChoice() else {"knows": str(self)}
        return chosen | (drawn if self.rows == "unlabelled" else {})

    def serves(self, method: Method) -> bool:
        """Return whether a method can use all of this evidence."""
        needed = ({"names"} if self.names == "prior" else set()) | ({"unlabelled"} if self.rows else set())
        return needed <= method.uses_evidence and (self.names != "example" or method.reads == "vectors")


class Predictor(nn.Module):
    """Features, method and decision: the steps from items to answers. The learner of a training is a predictor.

    `names` encodes class names, if a recipe has `[names]` or if they are part of the `evidence`.
    """

    evidence = EvidenceChoice()

    def __init__(
        self, features: Features, method: Method, decision: Decision, names: NameEncoder | None = None
    ) -> None:
        super().__init__()
        self.features = features
        self.method = method
        self.decision = decision
        self.names = names
        self.class_names: ClassNames | None = None  # of the last pool given to `read_pool`

    @classmethod
    def of(
        cls,
        method: Method,
        encoder: Encoder,
        transform: str = "none",
        center: Tensor | None = None,
        decision: Decision | None = None,
        names: NameEncoder | None = None,
        evidence: EvidenceChoice | None = None,
    ) -> Self:
        """Combine parts on the encoder's device; `center` is the mean of the training data, for center-unit."""
        device = encoder.device
        after = FeatureTransform(transform, encoder.feature_shape).to(device)
        if center is not None:
            after.set_center(center)
        decision = make_decision(method, {}) if decision is None else decision
        made = cls(Features(encoder, after), method.to(device), decision.to(device), names)
        made.evidence = EvidenceChoice() if evidence is None else evidence
        return made

    def read_pool(self, pool: Pool, *, training: bool = False) -> None:
        """Give the method a pool and its class names, before episodes of the pool are trained on or scored.

        A method that reads names only in training gets none at evaluation, unless they are evidence.
        """
        check_names(self.method, self.names)
        given = self.evidence.names is not None
        names = self.names if training or self.method.names_at_evaluation or given else None
        self.class_names = None if names is None else names.of(pool, self.features.encoder)
        self.method.read_pool(pool, self.class_names)

    def named(self, task: Task) -> Task:
        """Add the class names of the last pool given to `read_pool` to a task."""
        task = with_names(task, self.class_names)
        if self.evidence.names is None or task.names is None:
            return task
        if task.names.shape[2:] != task.support.shape[2:]:
            raise ConfigError(
                f"names of classes are vectors of {task.names.shape[-1]} numbers, but the items of shape "
                f"{tuple(task.support.shape[2:])}; names used as evidence must be vectors of the same space"
            )
        return task

    def decide(self, scores: Tensor, task: Task) -> Tensor:
        """Return the predicted labels (B, Q) for scores (B, Q, N)."""
        return self.decision.decide(self.method.logits(scores), task)

    def doubt(self, scores: Tensor, task: Task) -> Tensor:
        """Return the score (B, Q) for "none of these": the method's own, or else the decision's."""
        own = self.method.doubt(task, scores)
        return self.decision.doubt(self.method.logits(scores), task) if own is None else own


def check_names(method: Method, names: NameEncoder | None) -> None:
    """Raise a ConfigError for a method that needs class names at evaluation, if none are given."""
    if method.needs_names and method.names_at_evaluation and names is None:
        raise ConfigError(
            f"{type(method).__name__} reads the names of classes, and there are none here; train it with a recipe that "
            "has [names], and evaluate the run"
        )


@dataclass(frozen=True, eq=False)
class EncodedPool:
    """A pool with the vectors of all its items, encoded once and scored by any number of methods."""

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
                "its weights or its inputs are too large"
            )

    @classmethod
    def encode(
        cls, encoder: Encoder, pool: Pool, progress: Progress | None = None, *, cached: bool = False
    ) -> "EncodedPool":
        """Encode every item of the pool in eval mode; `cached` also stores the vectors on disk."""

        def encode() -> Units:
            return encoder.encode_all(encoder.prepared(pool), progress)

        return cls(pool, encoder, cached_units(encoder, pool, None, encode) if cached else encode())

    def check_range(self) -> None:
        """Raise a NonFiniteError if squared distances of the vectors would overflow; it names a row and a value."""
        if self._out_of_range is not None:
            row, value = self._out_of_range
            raise NonFiniteError(
                f"{self.pool.name}: row {row} of the vectors holds {value:.3g}; its squared distance cannot be "
                f"represented in {str(self.units.x.dtype).removeprefix('torch.')}: scale the vectors, or use "
                "transform 'unit'"
            )

    @cached_property
    def _out_of_range(self) -> tuple[int, float] | None:
        """First row whose squared length overflows, and its largest number."""
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
        """Return a pool without vectors, for a method that reads items: it has only the borders of the items."""
        x = torch.empty(int(pool.unit_offsets[-1]), 0, device=encoder.device)
        return cls(pool, encoder, Units(x, pool.unit_offsets))

    @classmethod
    def of_items(cls, encoder: Encoder, pool: Pool, items: IntArray) -> "EncodedPool":
        """Encode some items only, given in ascending order; the others have no units."""
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
    """Return the pool in the form a method reads: encoded (once an encoder, kept in `encoded`) or without vectors."""
    if method.reads == "items":
        return EncodedPool.unread(encoder, pool)
    if encoder not in encoded:
        encoded[encoder] = EncodedPool.encode(encoder, pool, progress, cached=True)
    return encoded[encoder]


def training_center(encoder: Encoder, pool: Pool, *, cached: bool = False) -> Tensor:
    """Return the mean vector of a sample of the training data, for the transform center-unit."""
    return _sample(encoder, pool, CENTER_ITEMS, cached)[1].x.mean(0)


def training_units(encoder: Encoder, pool: Pool, *, cached: bool = False) -> tuple[Tensor, Tensor]:
    """Return vectors (n, *feature_shape) and labels (n,) of all units in a sample of the training data."""
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
    """Yield tasks, each a block of B episodes, with the scores of their queries, (B, Q, N)."""
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
    """Yield, for each block of episodes, predicted labels (B, Q) and, with `doubt`, scores for "none of these"."""
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
    """Predict the queries of all episodes and compute the metrics of the pool's problem."""
    answers = predict_episodes(predictor, encoded, episodes, progress, doubt=how.get("threshold") is not None)
    return problem_of(encoded.pool).measure(encoded.pool, episodes, answers, **how)


@torch.no_grad()
def tag_alike(
    predictors: Sequence[Predictor],
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> list[Tags]:
    """Tag words with predictors that share a method and differ in their decisions; the scores are computed once."""
    scored = score_episodes(predictors[0], encoded, episodes, progress)
    answers = ([Answers(task, scores, each.decide(scores, task)) for each in predictors] for task, scores in scored)
    return tags_of(encoded.pool, episodes, answers)


@dataclass(frozen=True, eq=False)
class Rejection:
    """Episodes on which rejection thresholds are chosen, with queries of none of the classes; not those reported."""

    pool: Pool
    episodes: Sequence[Episode]
    encoded: dict[Encoder, EncodedPool] = field(default_factory=dict)  # the pool's vectors by encoder

    def threshold(self, predictor: Predictor) -> float:
        """Return the threshold on "none of these" that is best for a predictor on these episodes."""
        encoded = encoded_for(predictor.method, predictor.features.encoder, self.pool, self.encoded)
        verdicts = judge_episodes(predictor, encoded, self.episodes)
        return choose_threshold(verdicts.novelty, verdicts.correct, verdicts.outside)

    def settings(self) -> dict[str, Any]:
        """Return the data, split and episode hash of the threshold, for a result."""
        drawn = episodes_hash(self.pool, self.episodes)
        return {"threshold_data": self.pool.name, "threshold_split": self.pool.split, "threshold_hash": drawn}


def judge_episodes(
    predictor: Predictor, encoded: EncodedPool, episodes: Sequence[Episode], progress: Progress | None = None
) -> Verdicts:
    """Predict the class of every query, and its score for "none of these"."""
    return Verdicts.of(predict_episodes(predictor, encoded, episodes, progress, doubt=True))


def check_shape(method: Method, episodes: Sequence[Episode]) -> None:
    """Raise a ConfigError if a method that is limited to its training way or shot gets other episodes."""
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
    """Split the episodes into blocks of one way and of about BLOCK_BYTES of vectors."""
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
    """Build the task of a block of episodes: its transformed vectors, or the items for a method that reads items."""
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
    """Apply the feature transform to items, and to class names if they are vectors of the same space."""
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
    """Return the mean of the class means, (B, 1, *feature_shape): the centre if there is no training data."""
    classes = torch.arange(task.way, device=task.support.device)
    member = (task.support_y[..., None] == classes).to(task.support)  # (B, S, N)
    share = (member / member.sum(1, keepdim=True).clamp(min=1)).mean(-1)  # (B, S)
    return torch.einsum("bs,bs...->b...", share, task.support)[:, None]
