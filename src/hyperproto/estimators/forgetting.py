"""Which of the examples that are kept a user means by `forget`, and what is left without them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import DataError
from hyperproto.estimators.labels import IntArray
from hyperproto.estimators.sums import moments_of
from hyperproto.estimators.support import Support
from hyperproto.estimators.vectors import Floats
from hyperproto.regions import Moments

SAME = 1e-5  # two rows that differ by less than this share of their length are one example
LEAST = 1e-9  # a weight below this is none


def left_after(
    support: Support,
    slots: IntArray,
    rows: Floats,
    codes: IntArray,
    weights: NDArray[np.float64] | None,
    labels: list[Any],
) -> tuple[IntArray, NDArray[np.float64], Moments]:
    """Where the examples of the classes `slots` lie, how often each still counts without `rows`, and the statistics.

    Nothing is changed. The statistics come from the examples that are left, so that no rounding adds up.
    """
    counts = np.ones(len(rows)) if weights is None else weights
    places, remaining, moments = [], [], []
    for code, slot in enumerate(slots):
        here = support.of_class(slot)
        kept, left = support.at(here)
        for row in np.flatnonzero(codes == code):
            _take(kept, left, rows[row], counts[row], f"row {row} of X (class {labels[code]!r})")
        left[left < LEAST] = 0.0
        stays = left > 0
        moments.append(moments_of(kept[stays], np.zeros(stays.sum(), dtype=np.intp), left[stays], 1))
        places.append(here)
        remaining.append(left)
    parts = ("count", "mean", "squares")
    joined = Moments(*(np.concatenate([getattr(each, part) for each in moments]) for part in parts))
    return np.concatenate(places), np.concatenate(remaining), joined


def _take(kept: Floats, left: NDArray[np.float64], row: Floats, count: float, name: str) -> None:
    """Take `row`, `count` times, off the weights `left` of the rows that are equal to it."""
    away = kept - row
    distance2 = np.einsum("ij,ij->i", away, away)
    same = np.flatnonzero((distance2 <= SAME**2 * (row @ row)) & (left > 0))
    for place in same[np.argsort(distance2[same], kind="stable")]:
        taken = min(left[place], count)
        left[place] -= taken
        count -= taken
        if count < LEAST:
            return
    raise DataError(f"{name} is not among the examples, or not that often; nothing was forgotten")
