"""Tagging: a label a word, K~2K episodes of sentences, micro F1 of exact spans in two conventions."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal, Unpack, get_args

import numpy as np
from torch import Tensor

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.data.formats.tagged import Spans, find_spans
from hyperproto.encoders.base import offsets_of
from hyperproto.episodes import Episode, GreedySampler
from hyperproto.errors import ConfigError, DataError, EpisodeError, unknown_name
from hyperproto.methods import PAD, Task
from hyperproto.options import TrainingSamplerOptions
from hyperproto.problems.base import (
    Answers,
    FloatArray,
    Measurement,
    Problem,
    mean_interval,
    or_none,
    paired_difference,
)

Convention = Literal["sentence", "toolkit"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
O_NAME = "O"


@dataclass(frozen=True, eq=False)
class SpanCounts:
    """Numbers of predicted, true and correctly predicted spans in each episode."""

    predicted: IntArray  # (E,)
    gold: IntArray
    correct: IntArray

    @property
    def precision(self) -> float:
        """Share of predicted spans that are correct, over all episodes; 0 if none is predicted."""
        return _share(self.correct.sum(), self.predicted.sum())

    @property
    def recall(self) -> float:
        """Share of true spans that are predicted correctly."""
        return _share(self.correct.sum(), self.gold.sum())

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall: 2 correct / (predicted + gold)."""
        return _share(2 * self.correct.sum(), self.predicted.sum() + self.gold.sum())

    def to_json(self) -> dict[str, float]:
        """Return precision, recall and F1."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1}


@dataclass(frozen=True, eq=False)
class Tags:
    """True and predicted labels of the query words of all episodes, one episode after another."""

    gold: IntArray  # (n_words,) class of the pool, or OUTSIDE for O
    predicted: IntArray
    sentences: IntArray  # (S + 1,) borders of sentences
    episodes: IntArray  # (E + 1,) borders of episodes

    def borders(self, convention: Convention) -> IntArray:
        """Return the borders that no span crosses: those of sentences (`sentence`) or of episodes (`toolkit`).

        The Few-NERD toolkit concatenates the query sentences of an episode, so that an entity at the end of a sentence
        and one of the same type at the start of the next are one span. Published Few-NERD numbers are counted so. (The
        toolkit also concatenates the episodes of a batch; numbers that depend on the batch size are not reproduced.)
        """
        if convention not in CONVENTIONS:
            raise ConfigError(unknown_name("convention", convention, CONVENTIONS))
        return self.sentences if convention == "sentence" else self.episodes

    def counts(self, convention: Convention) -> SpanCounts:
        """Count the spans of each episode."""
        spans = [find_spans(labels, self.borders(convention)) for labels in (self.predicted, self.gold)]
        predicted, gold = spans
        right = matching(gold, predicted, len(self.gold)) == gold.label
        return SpanCounts(*(self.per_episode(start) for start in (predicted.start, gold.start, gold.start[right])))

    def per_episode(self, words: IntArray) -> IntArray:
        """Count how many of the given word positions are in each episode, (E,)."""
        episode = self.episodes.searchsorted(words, side="right") - 1
        return np.bincount(episode, minlength=len(self.episodes) - 1)


class Tagging(Problem):
    """K~2K episodes of sentences and the micro F1 of their entities."""

    name = "tagging"
    metric = "f1"
    few_items = True

    def sampler(self, pool: Pool, **settings: Unpack[TrainingSamplerOptions]) -> GreedySampler:
        """Build a sampler of K~2K episodes."""
        return GreedySampler(pool, **settings)

    def measure(
        self,
        pool: Pool,
        episodes: Sequence[Episode],
        answers: Iterable[Answers],
        *,
        convention: Convention = "sentence",
        **how: Any,
    ) -> Measurement:
        """Compute F1, precision and recall in both conventions, and the types of errors."""
        [tags] = tags_of(pool, episodes, ([block] for block in answers))
        values, metrics = tagged_metrics(tags, pool.class_names)
        others: dict[str, FloatArray] = {name: each for name, each in values.items() if name != convention}
        log = {name: metrics[convention][name] for name in ("precision", "recall")}
        return Measurement(self.metric, metrics[convention]["f1"], values[convention], metrics, others, log)

    def settings(self, *, convention: Convention = "sentence", **how: Any) -> dict[str, Any]:
        """Return the convention by which spans were counted."""
        return {"convention": convention}


def tags_of(pool: Pool, episodes: Sequence[Episode], answers: Iterable[Sequence[Answers]]) -> list[Tags]:
    """Collect the labels of all query words as classes of the pool, O as OUTSIDE.

    Each block holds the answers of one or several decisions on the same task; a `Tags` is returned for each decision.
    """
    if pool.outside_row is None:
        raise EpisodeError(f"{pool}: its items are not sentences; only tagged sentences can be tagged")
    gold: list[IntArray] = []
    predicted: list[list[IntArray]] = []
    for block in answers:
        gold.append(_classes(block[0].truth, block[0].task, pool))
        predicted.append([_classes(each.labels, each.task, pool) for each in block])
    lengths = np.diff(pool.unit_offsets)
    sentences = [lengths[episode.query] for episode in episodes]
    borders = offsets_of(np.concatenate(sentences)), offsets_of(np.array([each.sum() for each in sentences]))
    truth = np.concatenate(gold)
    return [Tags(truth, np.concatenate(found), *borders) for found in zip(*predicted, strict=True)]


def _classes(local: Tensor, task: Task, pool: Pool) -> IntArray:
    """Convert local labels (B, Q) to classes of the pool, (n_words,), without padding."""
    real = task.query_y != PAD
    classes: IntArray = task.classes.gather(1, local.clamp(min=0))[real].cpu().numpy()
    return np.where(classes == pool.outside_row, OUTSIDE, classes)


def span_counts(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], convention: Convention = "sentence"
) -> tuple[int, int, int]:
    """Count predicted, true and correct spans of sentences, each a list of IO labels ("O" outside).

    A span is a run of one label; it is correct if there is one of the same label with the same first and last word. In
    the convention `toolkit` all sentences given are concatenated first.

    >>> gold, predicted = [["person", "person"], ["person", "O"]], [["person", "O"], ["person", "O"]]
    >>> span_counts(gold, predicted, "sentence")
    (2, 2, 1)
    >>> span_counts(gold, predicted, "toolkit")
    (2, 1, 0)
    """
    if len(gold) != len(predicted):
        raise DataError(f"{len(gold)} sentences with true labels but {len(predicted)} with predicted ones")
    for number, (true, found) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(found):
            raise DataError(f"sentence {number} has {len(true)} true labels but {len(found)} predicted ones")
    names: dict[str, int] = {O_NAME: OUTSIDE}
    labels = [
        np.array([names.setdefault(label, len(names) - 1) for label in chain(*sentences)], np.int64)
        for sentences in (gold, predicted)
    ]
    sentences = np.cumsum([0, *map(len, gold)])
    counts = Tags(labels[0], labels[1], sentences, sentences[[0, -1]]).counts(convention)
    return int(counts.predicted.sum()), int(counts.gold.sum()), int(counts.correct.sum())


def matching(gold: Spans, predicted: Spans, n_words: int) -> IntArray:
    """Return the label of the predicted span with the same first and last word as each true one; OUTSIDE if none."""
    place = np.full(n_words, len(predicted))  # the predicted span that begins at each word
    place[predicted.start] = np.arange(len(predicted))
    end, label = (np.append(part, OUTSIDE) for part in (predicted.end, predicted.label))  # the last: no span
    found = place[gold.start]
    return np.where(end[found] == gold.end, label[found], OUTSIDE)


def f1_values(counts: SpanCounts) -> FloatArray:
    """Return jackknife pseudo-values of the micro F1, (E,), shifted so that their mean is F1 itself.

    Micro F1 is a ratio of sums over episodes, not a mean. The pseudo-values give its interval, paired differences of
    two methods and averages of runs in the same way as accuracies do.
    """
    correct = 2 * (counts.correct.sum() - counts.correct)
    total = (counts.predicted + counts.gold).sum() - counts.predicted - counts.gold
    without = correct / np.maximum(total, 1)  # F1 of all episodes but one
    return np.asarray(counts.f1 + (len(without) - 1) * (without.mean() - without), np.float64)


def f1_interval(counts: SpanCounts) -> tuple[float, float]:
    """Return micro F1 and half the width of its 95 % interval, NaN for one episode."""
    return counts.f1, mean_interval(f1_values(counts))[1]


def f1_difference(a: SpanCounts, b: SpanCounts) -> tuple[float, float]:
    """Return F1 of `a` minus F1 of `b` on the same episodes, and half the width of its 95 % interval."""
    if a.gold.shape != b.gold.shape:
        raise ValueError(f"paired counts must be of the same episodes, not of {len(a.gold)} and {len(b.gold)}")
    return paired_difference(f1_values(a), f1_values(b))


@dataclass(frozen=True)
class SpanErrors:
    """Counts of words and spans by type of error, over all episodes."""

    words: int
    false_positive: int  # words of O that were given a type
    false_negative: int  # words of an entity that were called O
    boundaries: int  # true spans with a predicted span of the same first and last word, of any type
    within: int  # ... of the same coarse type, but another fine one
    outer: int  # ... of another coarse type
    outside: int  # words that are O
    outside_predicted: int  # words that were called O

    @property
    def rates(self) -> dict[str, float]:
        """Errors of words as shares of all words, errors of types as shares of spans with correct boundaries."""
        words, boundaries = max(1, self.words), max(1, self.boundaries)
        return {
            "false_positive": self.false_positive / words,
            "false_negative": self.false_negative / words,
            "within": self.within / boundaries,
            "outer": self.outer / boundaries,
            "outside": self.outside / words,
            "outside_predicted": self.outside_predicted / words,
        }

    def to_json(self) -> dict[str, Any]:
        """Return counts and rates."""
        return {"counts": asdict(self), "rates": self.rates}


def span_errors(tags: Tags, class_names: Sequence[str], convention: Convention = "sentence") -> SpanErrors:
    """Count errors by type; the coarse type of a class name stands before its first hyphen (`person-actor`)."""
    _, coarse = np.unique([name.partition("-")[0] for name in class_names], return_inverse=True)
    borders = tags.borders(convention)
    gold, predicted = find_spans(tags.gold, borders), find_spans(tags.predicted, borders)
    found = matching(gold, predicted, len(tags.gold))
    label, found = gold.label[found != OUTSIDE], found[found != OUTSIDE]
    wrong, same_coarse = label != found, coarse[label] == coarse[found]
    is_o, called_o = tags.gold == OUTSIDE, tags.predicted == OUTSIDE
    return SpanErrors(
        words=len(is_o),
        false_positive=int((is_o & ~called_o).sum()),
        false_negative=int((~is_o & called_o).sum()),
        boundaries=len(found),
        within=int((wrong & same_coarse).sum()),
        outer=int((wrong & ~same_coarse).sum()),
        outside=int(is_o.sum()),
        outside_predicted=int(called_o.sum()),
    )


def tagged_metrics(tags: Tags, class_names: Sequence[str]) -> tuple[dict[Convention, FloatArray], dict[str, Any]]:
    """Return the values of each convention, whose mean is F1, and all metrics as `--json` prints them.

    `errors` counts spans within sentences.
    """
    counts = {convention: tags.counts(convention) for convention in CONVENTIONS}
    values = {convention: f1_values(found) for convention, found in counts.items()}
    metrics: dict[str, Any] = {
        convention: _numbers(counts[convention], values[convention]) for convention in CONVENTIONS
    }
    return values, {**metrics, "errors": span_errors(tags, class_names).to_json()}


def _numbers(counts: SpanCounts, values: FloatArray) -> dict[str, Any]:
    spans = {name: int(getattr(counts, name).sum()) for name in ("predicted", "gold", "correct")}
    return {**counts.to_json(), "ci95": or_none(mean_interval(values)[1]), "spans": spans}


def _share(part: np.integer[Any], whole: np.integer[Any]) -> float:
    return float(part / whole) if whole else 0.0
