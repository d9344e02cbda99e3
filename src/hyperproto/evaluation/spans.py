"""Exact spans, as named entities are scored: micro precision, recall and F1, in two conventions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from hyperproto.data import OUTSIDE, IntArray
from hyperproto.data.tagged_text import Spans, find_spans
from hyperproto.errors import ConfigError, DataError, unknown_name

Convention = Literal["sentence", "toolkit"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
O_NAME = "O"


@dataclass(frozen=True, eq=False)
class SpanCounts:
    """Spans predicted, spans there are, and spans predicted right, in each episode."""

    predicted: IntArray  # (E,)
    gold: IntArray
    correct: IntArray

    @property
    def precision(self) -> float:
        """Correct spans of all those predicted, over all episodes; 0 where none is."""
        return _share(self.correct.sum(), self.predicted.sum())

    @property
    def recall(self) -> float:
        """Correct spans of all there are."""
        return _share(self.correct.sum(), self.gold.sum())

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall: 2 correct / (predicted + gold)."""
        return _share(2 * self.correct.sum(), self.predicted.sum() + self.gold.sum())

    def to_json(self) -> dict[str, float]:
        """Return the three numbers by name."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1}


@dataclass(frozen=True, eq=False)
class Tags:
    """The labels of the query words of some episodes, true and predicted, one episode after another."""

    gold: IntArray  # (n_words,) class of the pool, or OUTSIDE for O
    predicted: IntArray
    sentences: IntArray  # (S + 1,) where the words of each sentence begin and end
    episodes: IntArray  # (E + 1,) where the words of each episode begin and end

    def borders(self, convention: Convention) -> IntArray:
        """Return what no span crosses.

        `sentence`: the borders of sentences, which is what an entity is. `toolkit`: those of episodes, since the
        Few-NERD toolkit concatenates the queries it scores together, so that an entity which ends a sentence and one of
        the same type which opens the next are one span; published Few-NERD numbers are counted so. (The toolkit also
        concatenates the episodes of a batch; a number that depends on the size of batches is not repeated here.)
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
        """Count in which episodes some words are, (E,)."""
        episode = self.episodes.searchsorted(words, side="right") - 1
        return np.bincount(episode, minlength=len(self.episodes) - 1)


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


def _share(part: np.integer[Any], whole: np.integer[Any]) -> float:
    return float(part / whole) if whole else 0.0
