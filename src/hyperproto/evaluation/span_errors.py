"""What goes wrong with entities, taken apart as the Few-NERD toolkit does."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hyperproto.data import OUTSIDE
from hyperproto.data.tagged_text import find_spans
from hyperproto.evaluation.spans import Convention, Tags, matching


@dataclass(frozen=True)
class SpanErrors:
    """Counts over all episodes; `rates` are what the toolkit prints, and the shares of O, true and predicted."""

    words: int
    false_positive: int  # words of O that were given a type
    false_negative: int  # words of an entity that were called O
    boundaries: int  # true spans for which a span with the same first and last word was predicted, of whatever type
    within: int  # ... of the same coarse type, but another fine one
    outer: int  # ... of another coarse type
    outside: int  # words that are O
    outside_predicted: int  # words that were called O

    @property
    def rates(self) -> dict[str, float]:
        """Errors of words as shares of all words, errors of types as shares of the spans with right boundaries."""
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
    """Take the errors apart; the coarse type is what a class name has before its first hyphen (`person-actor`)."""
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
