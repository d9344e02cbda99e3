"""Which pieces of a long text to keep: the window moves so that what matters stays in it."""

from collections.abc import Sequence

import numpy as np

from hyperproto.data import IntArray


def window(length: int, spans: Sequence[tuple[int, int]], limit: int) -> IntArray:
    """Choose at most `limit` of the positions 0 to `length` - 1, ascending, such that every span stays.

    A span is a half-open range (start, end); spans may overlap, and come in any order. What is kept is, in this order,

    - everything, if it fits;
    - one stretch around all spans, with as much of the context before them as after them;
    - if the spans are too far apart for that, a stretch around each: the middle is cut out;
    - if they are too long even for that, the beginning of each.

    Without any span the beginning of the text is kept.
    """
    if length <= limit:
        return np.arange(length)
    bounds = np.array(spans or [(0, 0)], np.int64)
    first, last = bounds[:, 0].min(), bounds[:, 1].max()
    if not (first >= 0 and last <= length and (bounds[:, 0] <= bounds[:, 1]).all()):
        raise ValueError(f"spans {list(spans)} do not lie within the {length} positions there are")
    if len(np.unique(bounds[:, 0])) > limit:
        raise ValueError(f"{len(spans)} spans need {len(spans)} positions, and {limit} are too few")
    if last - first <= limit:
        bounds = np.array([(first, last)])
    start, end = bounds[:, :1], bounds[:, 1:]  # (n_spans, 1)
    position = np.arange(length)
    outside = np.maximum(start - position, position - end + 1).clip(0).min(0)  # how far from the nearest span
    if np.count_nonzero(outside == 0) <= limit:
        dispensable = outside
    else:
        inside = (start <= position) & (position < end)
        dispensable = np.where(inside, position - start, length).min(0)  # how far behind the start of its span
    return np.sort(np.argsort(dispensable, kind="stable")[:limit])
