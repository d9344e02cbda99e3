"""Entity spans: runs of words with one label, which is all that IO labels say about where an entity ends."""

from dataclasses import dataclass

import numpy as np

from hyperproto.data.pool import IntArray


@dataclass(frozen=True, eq=False)
class Spans:
    """Words `start[i]` to `end[i] - 1` are an entity of type `label[i]`; in the order of the text."""

    start: IntArray
    end: IntArray
    label: IntArray

    def __len__(self) -> int:
        """Count the spans."""
        return len(self.start)


def find_spans(labels: IntArray, offsets: IntArray) -> Spans:
    """Find the runs of equal labels from 0 on; no run crosses an offset, the border of a sentence.

    >>> spans = find_spans(np.array([2, 2, -1, 2, 1, 1, 1]), np.array([0, 5, 7]))
    >>> list(zip(spans.start.tolist(), spans.end.tolist(), spans.label.tolist()))
    [(0, 2, 2), (3, 4, 2), (4, 5, 1), (5, 7, 1)]
    """
    begins = np.zeros(len(labels) + 1, bool)  # one more place: the last offset is the end of the text
    begins[offsets] = True
    begins[1:-1] |= labels[1:] != labels[:-1]
    borders = np.flatnonzero(begins)
    start, end = borders[:-1], borders[1:]
    inside = labels[start] >= 0
    return Spans(start[inside], end[inside], labels[start][inside])
