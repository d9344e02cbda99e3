"""Sentences with a label for each word: file format, entity spans, and plain text to tag."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np

from hyperproto.data.formats.relations import item_kind
from hyperproto.data.pool import OUTSIDE, IntArray, Pool
from hyperproto.errors import DataError
from hyperproto.files import decode_utf8, read_bytes, read_utf8

OUTSIDE_NAME = "O"  # label of words that belong to no entity
DOCUMENT = "-DOCSTART-"  # first line of each document in CoNLL-2003


@dataclass(frozen=True, eq=False)
class Tagged:
    """Sentences of a file, with the label of each word as written there."""

    path: Path
    sentences: list[list[str]]
    labels: IntArray  # (n_words,) index into names
    names: tuple[str, ...]  # labels of the file, in order of first occurrence
    offsets: IntArray  # (n_sentences + 1,) boundaries of the sentences
    lines: IntArray  # (n_words,) line number of each word, from 1

    def line_of(self, label: int) -> int:
        """Return the line of the first word with this label."""
        return int(self.lines[np.argmax(self.labels == label)])

    def place_of(self, label: int) -> str:
        """Return the file and line of the first word with this label, for messages."""
        return f"{self.path}, line {self.line_of(label)}"


def read_tagged(path: Path, *, word: int = 0, label: int = -1, comments: bool = False) -> Tagged:
    """Read a file; `word` and `label` are columns, separated by tabs or, in a line without tabs, by spaces.

    With `comments`, a line that begins with "# " is skipped; otherwise "#" is a word.
    """
    sentences: list[list[str]] = []
    names: dict[str, int] = {}
    labels: list[int] = []
    lines: list[int] = []
    open_sentence: list[str] = []
    for number, line in enumerate(text_lines(path), start=1):
        columns = line.split("\t") if "\t" in line else [column for column in line.split(" ") if column]
        if not columns or line.isspace() or line.startswith(DOCUMENT):
            open_sentence = []
            continue
        if comments and line.startswith("# "):
            continue
        try:
            text, name = columns[word], columns[label].strip()
        except IndexError:
            text = name = ""
        if not text or not name or len(columns) < 2:
            raise DataError(
                f"{path}, line {number}: {line!r} has no word and label in the columns asked for; "
                "write a word, a tab and a label (and a blank line between sentences)"
            )
        if not open_sentence:
            sentences.append(open_sentence)
        open_sentence.append(intern(text))  # one copy of each word
        labels.append(names.setdefault(name, len(names)))
        lines.append(number)
    if not sentences:
        raise DataError(f"{path}: no sentences in it; write a word, a tab and a label on each line")
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tagged(path, sentences, np.array(labels), tuple(names), offsets, np.array(lines))


def text_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, split at newlines only: `splitlines` would also split inside words."""
    return read_utf8(path).replace("\r\n", "\n").split("\n")


@dataclass(frozen=True, eq=False)
class Spans:
    """Entity spans in text order: words `start[i]` to `end[i] - 1` are an entity of type `label[i]`."""

    start: IntArray
    end: IntArray
    label: IntArray

    def __len__(self) -> int:
        """Count the spans."""
        return len(self.start)


def find_spans(labels: IntArray, offsets: IntArray) -> Spans:
    """Return the runs of equal labels >= 0; a run ends at the end of its sentence.

    >>> spans = find_spans(np.array([2, 2, -1, 2, 1, 1, 1]), np.array([0, 5, 7]))
    >>> list(zip(spans.start.tolist(), spans.end.tolist(), spans.label.tolist()))
    [(0, 2, 2), (3, 4, 2), (4, 5, 1), (5, 7, 1)]
    """
    begins = np.zeros(len(labels) + 1, bool)  # one more entry, for the end of the text
    begins[offsets] = True
    begins[1:-1] |= labels[1:] != labels[:-1]
    borders = np.flatnonzero(begins)
    start, end = borders[:-1], borders[1:]
    inside = labels[start] >= 0
    return Spans(start[inside], end[inside], labels[start][inside])


def check_sentences(pool: Pool, reader: str) -> None:
    """Raise a DataError if the items are not tagged sentences; `reader` is the name of the encoder."""
    first = pool.items[0] if len(pool.items) else None
    if not pool.many_units or not isinstance(first, list):
        raise DataError(
            f"{pool}: {reader} reads sentences with a label for each word, but the items are {item_kind(first)}"
        )


_WORD = re.compile(r"\w+|[^\w\s]")  # a run of letters and digits, or one punctuation mark


def labels_of_sentences(pool: Pool) -> list[list[str]]:
    """Return the label names of the words of each sentence."""
    names = [*pool.class_names, OUTSIDE_NAME]  # OUTSIDE = -1 indexes the last
    offsets: Any = pool.offsets
    return [[names[n] for n in pool.labels[a:b]] for a, b in pairwise(offsets.tolist())]


@dataclass(frozen=True)
class Line:
    """A line of a file, split into words: word `i` is `text[spans[i][0] : spans[i][1]]`."""

    number: int  # in the file, from 1
    text: str
    spans: list[tuple[int, int]]
    problem: str | None = None  # why the line cannot be read; it has no text then

    @property
    def words(self) -> list[str]:
        """Words of the line."""
        return [self.text[start:end] for start, end in self.spans]


def split_words(text: str) -> list[tuple[int, int]]:
    """Return start and end of each word: a run of letters, digits and underscores, or one punctuation mark.

    >>> split_words("It's 5 km.")
    [(0, 2), (2, 3), (3, 4), (5, 6), (7, 9), (9, 10)]
    """
    return [match.span() for match in _WORD.finditer(text)]


def read_plain(path: Path, keep_bad: bool = False) -> list[Line]:
    """Read a file of plain text and split it into words; see `cut_text`."""
    return cut_text(read_bytes(path), str(path), keep_bad)


def cut_text(content: bytes, where: str, keep_bad: bool = False) -> list[Line]:
    """Split a UTF-8 text into lines and words; lines without words are skipped.

    With `keep_bad`, a line that is not UTF-8 has no words but a `problem`; otherwise it raises a DataError.
    """
    if not keep_bad:
        return cut_lines(decode_utf8(content, where).replace("\r\n", "\n").split("\n"), where)
    texts, problems = [], {}
    for number, line in enumerate(content.replace(b"\r\n", b"\n").split(b"\n"), start=1):
        try:
            texts.append(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            texts.append("")
            problems[number] = f"not UTF-8 text ({error.reason} at byte {error.start})"
    if problems and not any(split_words(text) for text in texts):
        return [Line(number, "", [], problem) for number, problem in problems.items()]
    bad = [Line(number, "", [], problem) for number, problem in problems.items()]
    return sorted([*cut_lines(texts, where), *bad], key=lambda line: line.number)


def cut_lines(texts: Iterable[str], where: str) -> list[Line]:
    """Split lines into words; skip lines without words, and raise a DataError that names `where` if none is left."""
    lines = [Line(number, text, split_words(text)) for number, text in enumerate(texts, start=1)]
    lines = [line for line in lines if line.spans]
    if not lines:
        raise DataError(f"{where}: no words in it; write plain text, a sentence a line")
    return lines


@dataclass(frozen=True, eq=False)
class TaggedLine:
    """A line of text with a label for each word, and a score for each entity."""

    line: Line
    labels: list[str]
    scores: list[float]  # of the entities, in the order of the text

    @classmethod
    def of(cls, line: Line, entities: Sequence[tuple[str, int, int, float]]) -> "TaggedLine":
        """Return a line with entities: type, first word, one past the last, and score."""
        labels = [OUTSIDE_NAME] * len(line.spans)
        for kind, first, last, _ in entities:
            labels[first:last] = [kind] * (last - first)
        return cls(line, labels, [score for *_, score in entities])

    @property
    def problem(self) -> str | None:
        """Reason why the line cannot be read, or None."""
        return self.line.problem

    def entities(self) -> Iterator[dict[str, Any]]:
        """Yield the entities with their positions in the text and their scores."""
        names = sorted({*self.labels} - {OUTSIDE_NAME})
        numbers = np.array([names.index(label) if label != OUTSIDE_NAME else OUTSIDE for label in self.labels], int)
        spans = find_spans(numbers, np.array([0, len(numbers)]))
        for first, end, label, score in zip(spans.start, spans.end, spans.label, self.scores, strict=True):
            start, stop = self.line.spans[first][0], self.line.spans[end - 1][1]
            place = {"start": start, "end": stop, "score": round(score, 4)}
            yield {"type": names[label], "text": self.line.text[start:stop], **place}

    def to_json(self) -> str:
        """Return one line of JSON; positions count characters from 0, the end is exclusive."""
        words = [
            {"text": self.line.text[start:end], "start": start, "end": end, "label": label}
            for (start, end), label in zip(self.line.spans, self.labels, strict=True)
        ]
        content = {"line": self.line.number, "text": self.line.text, "entities": list(self.entities()), "words": words}
        reason = {} if self.problem is None else {"error": self.problem}
        return json.dumps({**content, **reason}, ensure_ascii=False) + "\n"

    def to_conll(self) -> str:
        """Return lines of word, tab, label, and a blank line at the end; nothing for a line that cannot be read."""
        pairs = zip(self.line.words, self.labels, strict=True)
        return "".join(f"{word}\t{label}\n" for word, label in pairs) + "\n" if self.labels else ""
