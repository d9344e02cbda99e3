"""Label the words of raw text by the example of a few annotated sentences."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyperproto.data import OUTSIDE, Pool, Progress, open_pool
from hyperproto.data.tagged_text import Line, find_spans
from hyperproto.encoders.base import offsets_of
from hyperproto.episodes import Episode
from hyperproto.episodes.word_labels import token_classes, token_labels
from hyperproto.errors import DataError
from hyperproto.evaluation import Contender, EncodedPool, predict_episodes
from hyperproto.progress import Show, noted
from hyperproto.studies.measure import Selection

TOGETHER = 64  # sentences that are labelled at once
O_NAME = "O"
# What vectors are used with if nobody says: of what needs no training data, among the best that we found on Few-NERD's
# validation types, with MiniLM as it comes and trained (results/fewnerd-minilm-*-choices.json).
READY = Selection(methods=["cosine"], transforms=["unit"], options={"path": [True], "temperature": [0.05]})


@dataclass(frozen=True, eq=False)
class TaggedLine:
    """A line of text with a label for each word."""

    line: Line
    labels: list[str]

    def entities(self) -> Iterator[dict[str, Any]]:
        """Runs of one label, with their places in the text."""
        names = sorted({*self.labels} - {O_NAME})
        numbers = np.array([names.index(label) if label != O_NAME else OUTSIDE for label in self.labels])
        spans = find_spans(numbers, np.array([0, len(numbers)]))
        for first, end, label in zip(spans.start, spans.end, spans.label, strict=True):
            start, stop = self.line.spans[first][0], self.line.spans[end - 1][1]
            yield {"type": names[label], "text": self.line.text[start:stop], "start": start, "end": stop}

    def to_json(self) -> str:
        """One line of JSON: places are counted in characters, from 0, the end being one past the last."""
        words = [
            {"text": self.line.text[start:end], "start": start, "end": end, "label": label}
            for (start, end), label in zip(self.line.spans, self.labels, strict=True)
        ]
        content = {"line": self.line.number, "text": self.line.text, "entities": list(self.entities()), "words": words}
        return json.dumps(content, ensure_ascii=False) + "\n"

    def to_conll(self) -> str:
        """Word, tab, label, and a blank line behind the last."""
        pairs = zip(self.line.words, self.labels, strict=True)
        return "".join(f"{word}\t{label}\n" for word, label in pairs) + "\n"


def tag_text(
    selection: Selection, support: str, lines: Sequence[Line], progress: Show | None = None
) -> list[TaggedLine]:
    """Label lines with one contender; without a method, with the one that is best on words as they come."""
    examples = open_support(support)
    if not selection.methods and (selection.encoders or not selection.fits):
        selection = replace(
            selection,
            methods=READY.methods,
            transforms=selection.transforms or READY.transforms,
            options={**READY.options, **selection.options},
        )
    [contender] = selection.contenders(examples, train_data=(examples.name, examples.split))
    return tag_lines(contender, examples, lines, noted(progress, "sentences encoded"))


def open_support(support: str) -> Pool:
    """Read annotated sentences: a file, with options as in `conll:FILE,scheme=io`."""
    pool = open_pool(f"conll:{support}", "all")
    if not pool.n_classes:
        raise DataError(f"{support}: every word is {O_NAME}; mark at least one entity")
    return pool


def tag_lines(
    contender: Contender, examples: Pool, lines: Sequence[Line], progress: Progress | None = None
) -> list[TaggedLine]:
    """Label lines of text by the example of annotated sentences: each type, and O, gets a region from them."""
    pool = _with_lines(examples, lines)
    encoded = EncodedPool.encode(contender.encoder, pool, progress)
    parts = *contender.on(encoded.units.x.device), encoded, _episodes(pool, len(examples))
    names = [O_NAME, *examples.class_names]
    labels: list[str] = []
    for _, predicted, task in predict_episodes(*parts):
        ends = task.query_offsets[:, -1].tolist()
        for row, end in zip(predicted.cpu(), ends, strict=True):
            labels += [names[label] for label in row[:end].tolist()]
    ends = np.cumsum([len(line.spans) for line in lines]).tolist()
    starts = [0, *ends[:-1]]
    return [TaggedLine(line, labels[a:b]) for line, a, b in zip(lines, starts, ends, strict=True)]


def _with_lines(examples: Pool, lines: Sequence[Line]) -> Pool:
    """Put text behind annotated sentences, its words of no class yet."""
    words = [line.words for line in lines]
    unknown = np.full(sum(map(len, words)), OUTSIDE)
    items = [*examples.items, *words]
    offsets = offsets_of(np.array([len(item) for item in items]))
    labels = np.concatenate([examples.labels, unknown])
    return replace(examples, items=items, labels=labels, offsets=offsets)


def _episodes(pool: Pool, n_examples: int) -> list[Episode]:
    """All examples are the support of every episode; the queries are the other sentences, some at a time."""
    types = list(range(pool.n_classes))
    support = np.arange(n_examples)
    examples = token_classes(pool, types), support, token_labels(pool, types, support)
    starts = range(n_examples, len(pool), TOGETHER)
    return [Episode(*examples, np.arange(start, min(start + TOGETHER, len(pool))), None) for start in starts]
