"""Annotated sentences as users give them: raw texts with spans of characters, or lists of words with tags.

read_sentences   checked sentences, split into words
read_examples    checked sentences with an IO tag for each word
EntitySpan       an entity that was found; `entity_spans` makes them from tags
TypeScores       precision, recall and F1 of a type
"""

from collections import Counter
from collections.abc import Sequence
from operator import index
from pathlib import Path
from typing import Any, NamedTuple
from warnings import warn

import numpy as np

from hyperproto.data import OUTSIDE
from hyperproto.data.conll import SCHEMES, io_pool
from hyperproto.data.formats.tagged import OUTSIDE_NAME, Line, Tagged, find_spans, labels_of_sentences, split_words
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import is_utf8

Sentences = list[list[str]]
Place = tuple[str, int, int]  # type, first word, one past the last word


class EntitySpan(NamedTuple):
    """An entity in a sentence: `text` is characters `start` to `end` - 1, and words `first` to `last` - 1.

    Characters of a sentence given as words are counted in the words joined by spaces. `score` is the probability that
    exactly these words are an entity of `type`, by the words' probabilities and, with `path`, the label transitions.
    """

    type: str
    text: str
    start: int
    end: int
    score: float
    first: int
    last: int


class TypeScores(NamedTuple):
    """Scores of exact spans: F1, precision, recall, and the number of true entities."""

    f1: float
    precision: float
    recall: float
    entities: int


def read_sentences(X: Any, name: str = "X") -> list[Line]:
    """Return sentences split into words; refuse anything that is neither a text nor a list of words."""
    if isinstance(X, str) or not hasattr(X, "__iter__"):
        raise DataError(f"{name} is {X!r:.60}; give a list of sentences, each a text or a list of words")
    return [
        _line_of_text(sentence, f"{name}[{row}]", row)
        if isinstance(sentence, str)
        else _line_of_words(strings(sentence, f"{name}[{row}]", "words"), row)
        for row, sentence in enumerate(X)
    ]


def _line_of_text(text: str, where: str, row: int) -> Line:
    if not is_utf8(text):
        raise DataError(f"{where} is {text!r:.60}, which holds half a character; correct or remove it")
    spans = split_words(text)
    if not spans:
        raise DataError(f"{where} is {text!r:.60}, a text without words; leave it out")
    return Line(row, str(text), spans)


def _line_of_words(words: list[str], row: int) -> Line:
    ends = np.cumsum([len(word) + 1 for word in words])
    spans = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends.tolist(), strict=True)]
    return Line(row, " ".join(words), spans)


def strings(sentence: Any, where: str, kind: str) -> list[str]:
    """Return a sentence's words or tags as a list of strings; messages call them `kind`."""
    if isinstance(sentence, str) or not hasattr(sentence, "__iter__"):
        what = "a text or a list of words" if kind == "words" else f"a list of {kind}"
        raise DataError(f"{where} is {sentence!r:.60}; a sentence is {what}")
    found = list(sentence)
    if not found:
        raise DataError(f"{where} holds no {kind}; leave empty sentences out")
    for place, word in enumerate(found):
        if not isinstance(word, str) or not word:
            raise DataError(f"{where}[{place}] is {word!r:.60}; each of the {kind} is a string, and not empty")
        if not is_utf8(word):
            raise DataError(f"{where}[{place}] is {word!r:.60}, which holds half a character; correct or remove it")
    return [str(word) for word in found]  # NumPy's strings are a subclass of str


def read_examples(X: Any, y: Any, scheme: str) -> tuple[Sentences, Sentences]:
    """Return the words of annotated sentences and their IO tags.

    A text has spans (start, end, type) in characters; a list of words has a tag for each, in the `scheme`.
    """
    if scheme not in ("auto", "io", *SCHEMES):
        raise ConfigError(unknown_name("scheme of tags called", str(scheme), ("auto", "io", *SCHEMES)))
    X = [*X] if hasattr(X, "__iter__") and not isinstance(X, str) else X
    lines = read_sentences(X)
    if isinstance(y, str) or not hasattr(y, "__iter__"):
        raise DataError(f"y is {y!r:.60}; give the tags of each sentence's words, or the spans of each text")
    given, raw = list(y), [isinstance(sentence, str) for sentence in X]
    if len(lines) != len(given):
        raise DataError(f"X has {len(lines)} sentences, but y tags of {len(given)}; give each word a tag")
    tags = [
        _tags_of_spans(line, its, f"y[{line.number}]") if text else _tags_of_words(line, its)
        for line, its, text in zip(lines, given, raw, strict=True)
    ]
    listed = [row for row, text in enumerate(raw) if not text]
    if any(tag != OUTSIDE_NAME for row in listed for tag in tags[row]):  # otherwise they are IO tags already
        tagged = ListedSentences.of([lines[row].words for row in listed], [tags[row] for row in listed], listed)
        pool = io_pool(tagged, scheme, name="examples", split="all")
        for row, its in zip(listed, labels_of_sentences(pool), strict=True):
            tags[row] = its
    return [line.words for line in lines], tags


def _tags_of_words(line: Line, its: Any) -> list[str]:
    found = strings(its, f"y[{line.number}]", "tags")
    if len(found) != len(line.spans):
        raise DataError(
            f"X[{line.number}] has {len(line.spans)} words, but y[{line.number}] {len(found)} tags; "
            "give each word a tag"
        )
    return found


def _tags_of_spans(line: Line, its: Any, where: str) -> list[str]:
    """Return the IO tags of the words of a text, given spans of characters."""
    if isinstance(its, str) or not hasattr(its, "__iter__"):
        raise DataError(f"{where} is {its!r:.60}; of a text, give spans (start, end, type) in characters")
    spans = sorted(_checked_span(span, line.text, f"{where}[{n}]") for n, span in enumerate(its))
    tags, begins, ends = [OUTSIDE_NAME] * len(line.spans), *map(list, zip(*line.spans, strict=True))
    before = -1, "", -1
    for start, end, kind in spans:
        words = [n for n, (begin, stop) in enumerate(line.spans) if begin < end and stop > start]
        if not words or begins[words[0]] < start or ends[words[-1]] > end:
            cut = "no word" if not words else f"a part of {' '.join(line.words[n] for n in words)!r:.60}"
            raise DataError(
                f"{where}: the span {(start, end, kind)} holds {cut}; begin and end a span with whole words"
            )
        if start < before[0]:
            raise DataError(f"{where}: the span {(start, end, kind)} overlaps another; give each word one type")
        if (before[1], before[2]) == (kind, words[0]):
            warn(f"{where}: two spans of {kind!r} without a word between them become one entity", stacklevel=5)
        tags[words[0] : words[-1] + 1] = [kind] * len(words)
        before = end, kind, words[-1] + 1
    return tags


def _checked_span(span: Any, text: str, where: str) -> tuple[int, int, str]:
    wanted = f"{where} is {span!r:.60}; give (start, end, type): characters from 0, the end exclusive, and a name"
    try:
        start, end, kind = span
        start, end = index(start), index(end)
    except (TypeError, ValueError):
        raise DataError(wanted) from None
    if isinstance(span, str) or not isinstance(kind, str) or kind in ("", OUTSIDE_NAME) or not is_utf8(kind):
        raise DataError(wanted)
    if not 0 <= start < end <= len(text):
        raise DataError(f"{where} is {span!r:.60}, not within the {len(text)} characters of the text")
    while text[start].isspace() and start < end - 1:
        start += 1
    while text[end - 1].isspace() and start < end - 1:
        end -= 1
    return start, end, str(kind)


def places_of(tags: Sequence[str]) -> list[Place]:
    """Return (type, first word, one past the last) of the runs of a type in IO tags.

    >>> places_of(["city", "city", "O", "person"])
    [('city', 0, 2), ('person', 3, 4)]
    """
    names = sorted({*tags} - {OUTSIDE_NAME})
    numbers = np.array([names.index(tag) if tag != OUTSIDE_NAME else OUTSIDE for tag in tags])
    spans = find_spans(numbers, np.array([0, len(numbers)]))
    rows = zip(spans.label.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True)
    return [(names[label], start, end) for label, start, end in rows]


def bio_tags(tags: Sequence[str]) -> list[str]:
    """Return IO tags as BIO.

    >>> bio_tags(["city", "city", "O", "person"])
    ['B-city', 'I-city', 'O', 'B-person']
    """
    before = [OUTSIDE_NAME, *tags]
    return [
        tag if tag == OUTSIDE_NAME else f"{'I' if tag == last else 'B'}-{tag}"
        for last, tag in zip(before, tags, strict=False)
    ]


def count_spans(truth: Sentences, found: Sentences) -> dict[str, Counter[str]]:
    """Return the numbers of `gold`, `predicted` and `correct` spans of each type in IO tags, in alphabetical order."""
    counts: dict[str, Counter[str]] = {}
    for its, own in zip(truth, found, strict=True):
        true, predicted = set(places_of(its)), set(places_of(own))
        for name, each in (("gold", true), ("predicted", predicted), ("correct", true & predicted)):
            for kind, _, _ in each:
                counts.setdefault(kind, Counter())[name] += 1
    return dict(sorted(counts.items()))


def scores_of(count: Counter[str]) -> TypeScores:
    """Return the scores of counted spans; 0 where nothing was counted."""
    correct, predicted, gold = count["correct"], count["predicted"], count["gold"]
    return TypeScores(2 * correct / max(1, predicted + gold), correct / max(1, predicted), correct / max(1, gold), gold)


class ListedSentences(Tagged):
    """Sentences given as lists; messages name positions in the lists."""

    @classmethod
    def of(cls, sentences: Sentences, tags: Sentences, rows: Sequence[int] | None = None) -> "ListedSentences":
        """Return tagged sentences with the tags encoded as numbers; `rows` are their positions, if not 0, 1, ..."""
        flat = [tag for row in tags for tag in row]
        names = {name: number for number, name in enumerate(dict.fromkeys(flat))}
        lengths = [len(words) for words in sentences]
        sentence = np.repeat(np.arange(len(sentences)) if rows is None else np.asarray(rows), lengths)
        offsets = np.cumsum([0, *lengths])
        return cls(Path("y"), sentences, np.array([names[tag] for tag in flat]), tuple(names), offsets, sentence)

    def place_of(self, label: int) -> str:
        """Return the position of the first sentence with this label."""
        return f"{self.path}[{self.line_of(label)}]"
