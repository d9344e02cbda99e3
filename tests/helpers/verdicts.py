"""Random verdicts on queries of some class and of none, and their accuracy by a plain loop."""

import numpy as np
from hypothesis import strategies as st

from hyperproto.data import OUTSIDE
from hyperproto.problems import Verdicts

COARSE = st.integers(-4, 4).map(float)  # so that ties are common


@st.composite
def judged(draw: st.DrawFn, episodes: int = 4) -> Verdicts:
    """Verdicts on episodes of unequal size, each with queries of both kinds, in any order."""
    sizes = draw(st.lists(st.integers(2, 9), min_size=1, max_size=episodes))
    parts: list[tuple[int, int, int, float]] = []
    for number, size in enumerate(sizes):
        outside = draw(st.integers(1, size - 1))
        label = [OUTSIDE] * outside + draw(
            st.lists(st.integers(0, 2), min_size=size - outside, max_size=size - outside)
        )
        predicted = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
        novelty = draw(st.lists(COARSE, min_size=size, max_size=size))
        parts += zip([number] * size, label, predicted, novelty, strict=True)
    columns = list(zip(*draw(st.permutations(parts)), strict=True))
    return Verdicts(*(np.array(column) for column in columns))


def accuracy(verdicts: Verdicts, threshold: float) -> float:
    right = 0
    for novelty, label, predicted in zip(verdicts.novelty, verdicts.label, verdicts.predicted, strict=True):
        answer = OUTSIDE if novelty > threshold else predicted
        right += answer == label
    return right / len(verdicts.novelty)
