"""Sentences as windows of word pieces: one for most; a long sentence has several, and each word is read in the best."""

from dataclasses import dataclass

import numpy as np

from hyperproto.data import IntArray
from hyperproto.encoders.base import offsets_of
from hyperproto.encoders.ragged import Ragged
from hyperproto.encoders.spelling import Spelling


@dataclass(frozen=True, eq=False)
class WordWindows:
    """What a model reads, and where in it the words are."""

    pieces: Ragged  # of each window, with what the tokenizer puts before and behind a text
    windows: IntArray  # (n + 1,) which windows are whose
    words: IntArray  # (n + 1,) which words are whose
    window: IntArray  # (n_words,) where a word is read
    first: IntArray  # (n_words,) where in its window it begins
    count: IntArray  # (n_words,) how many of its pieces the window has

    def __len__(self) -> int:
        """Count the sentences."""
        return len(self.words) - 1

    @property
    def lengths(self) -> IntArray:
        """Pieces of each sentence, in all its windows."""
        return np.diff(self.pieces.offsets[self.windows])


def word_windows(spelling: Spelling, room: int, before: list[int], behind: list[int], fill: int) -> WordWindows:
    """Cut sentences of more than `room` pieces into windows that overlap by half; no word is lost.

    A word is read in the window in which the nearer edge is farthest from it. Only of a word that is itself longer than
    half a window the end may be missing. What would be a window of nothing at all holds `fill`.
    """
    rows: list[list[int]] = []
    counts = np.ones(len(spelling.pieces), np.int64)
    starts, ends = spelling.words[:-1], spelling.words[1:]
    owner = np.repeat(np.arange(len(spelling.pieces)), np.diff(spelling.texts))
    first = starts - spelling.pieces.offsets[owner]
    count = ends - starts
    window = np.zeros(len(first), np.int64)  # among those of its sentence
    for n, pieces in enumerate(spelling.pieces.rows()):
        places = window_starts(len(pieces), room)
        counts[n] = len(places)
        rows += [[*before, *pieces[place : place + room].tolist(), *behind] or [fill] for place in places.tolist()]
        if len(places) > 1:
            own = slice(spelling.texts[n], spelling.texts[n + 1])
            window[own] = best_windows(first[own], first[own] + count[own], places, room, len(pieces))
            first[own] -= places[window[own]]
            count[own] = np.minimum(count[own], room - first[own])
    windows = offsets_of(counts)
    return WordWindows(Ragged.of(rows), windows, spelling.texts, windows[owner] + window, first + len(before), count)


def window_starts(length: int, room: int) -> IntArray:
    """Where windows of `room` pieces begin in a text of `length`: every half window; the last ends with the text."""
    last = max(0, length - room)
    return np.append(np.arange(0, last, max(1, room // 2)), last)


def best_windows(start: IntArray, end: IntArray, places: IntArray, room: int, length: int) -> IntArray:
    """Choose for each word (pieces `start` to `end` - 1) the window that shows most on the side where it shows less.

    Where a window begins or ends with the text, that side shows all there is. The first piece is always in the window.
    """
    before = np.where(places == 0, length, start[:, None] - places)  # (n_words, n_windows)
    behind = np.where(places + room >= length, length, places + room - end[:, None])
    has_start = (places <= start[:, None]) & (start[:, None] < places + room)
    best: IntArray = np.argmax(np.where(has_start, np.minimum(before, behind), -2 * length), axis=1)
    return best
