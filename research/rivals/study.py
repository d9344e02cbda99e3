"""Measures of one classifier on one draw: answers, rejection, growth and time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import normalize

from hyperproto.estimators.text import label_words
from research.intents.calibration import confidence_gap
from research.intents.evidence import SELF_TRAINING_STRENGTH, STRENGTH, STRENGTH_NAMED
from research.intents.supports import some_classes
from research.intents.texts import Intents
from research.journal import Measured
from research.rivals.methods import Learn, Ours
from research.rivals.worker import PACKAGES, run_steps

NAMED = ", name as example"  # ends the names of methods that read the name of a class as one more example
OURS, OURS_NAMED = "ours", "ours, names"
ONCE = ("SetFit",)  # cannot take new classes without a new fit
NO_NAMES = (f"SetFit{NAMED}",)  # not measured: it takes long

Rows = NDArray[Any]
Run = Callable[[Sequence[Mapping[str, Any]], Sequence[str], Rows], list[dict[str, Any]]]  # as `worker.run_steps`


@dataclass(frozen=True, eq=False)
class Draw:
    """Texts and unit vectors of one draw: examples first, then names of the classes, then test texts.

    `old` are the classes that the second fit has; the others, a quarter, are out of class, and are added afterwards.
    """

    shot: str
    texts: list[str]
    x: Rows  # (S + N + T, D)
    y: Rows  # (S + N + T,)
    examples: int  # S
    old: Rows  # classes, ascending
    unlabelled: Rows  # (U, D)

    @classmethod
    def of(cls, data: Intents, shot: str, support: Rows, index: int) -> "Draw":
        """Return the draw with this number and support."""
        way = len(data.classes)
        old = np.sort(some_classes(way, way - max(way // 4, 1), index))
        names = [label_words(label) or label for label in data.classes]
        texts = [data.train_texts[row] for row in support.tolist()] if len(data.train_texts) else ["?"] * len(support)
        x = normalize(np.concatenate([data.train[support], data.names, data.test]))
        y = np.concatenate([data.train_y[support], np.arange(way), data.test_y])
        rest = np.setdiff1d(np.arange(len(data.train)), support)
        everything = [*texts, *names, *(data.test_texts or ["?"] * len(data.test))]
        return cls(shot, everything, x, y, len(support), old, normalize(data.train[rest]))

    @property
    def names(self) -> Rows:
        """Vectors of the names of the classes (N, D)."""
        return self.x[self.examples : self.test[0]]

    @property
    def test(self) -> Rows:
        """Rows of the test texts."""
        return np.arange(self.examples + self.way, len(self.y))

    @property
    def way(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    def steps(self, named: bool, updates: bool) -> Iterator[dict[str, Any]]:
        """Yield the steps of `worker.run_steps`; `named`: names are examples, `updates`: classes are added at last."""
        learnt = np.arange(self.examples + (self.way if named else 0))
        is_old = np.isin(self.y[learnt], self.old)
        parts = [("fit", learnt), ("fit", learnt[is_old]), ("add", learnt[~is_old])]
        for call, rows in parts if updates else parts[:2]:
            yield {"call": call, "rows": rows.tolist(), "labels": self.y[rows].tolist()}
            yield {"call": "answer", "rows": self.test.tolist()}


HERE: dict[str, Callable[[Draw], Any]] = {
    "logistic regression": lambda now: Learn(STRENGTH[now.shot]),
    f"logistic regression{NAMED}": lambda now: Learn(STRENGTH_NAMED[now.shot]),
    "self-training": lambda now: Learn(SELF_TRAINING_STRENGTH, now.unlabelled),
    f"self-training{NAMED}": lambda now: Learn(SELF_TRAINING_STRENGTH, now.unlabelled),
    OURS: lambda _: Ours(),
    f"{OURS}, refined": lambda _: Ours(refine=True),
    OURS_NAMED: lambda now: Ours(names=now.names),
    f"{OURS_NAMED}, refined": lambda now: Ours(refine=True, names=now.names),
    f"{OURS_NAMED} + texts": lambda now: Ours(names=now.names, unlabelled=now.unlabelled),
    f"{OURS_NAMED} + texts, refined": lambda now: Ours(True, now.names, now.unlabelled),
}
METHODS = [*(name for package in PACKAGES for name in (package, f"{package}{NAMED}") if name not in NO_NAMES), *HERE]


def measure_method(name: str, draw: Draw, packages: Mapping[str, Run]) -> Measured:
    """Return the measures of a method on a draw; `packages` are there by name."""
    named = name.endswith(NAMED)
    if name in HERE:
        model = HERE[name](draw)
        return measure(draw, partial(run_steps, model), named, updates=isinstance(model, Ours))
    package = name.removesuffix(NAMED)
    return measure(draw, packages[package], named, updates=package not in ONCE)


def measure(draw: Draw, run: Run, named: bool, updates: bool) -> Measured:
    """Return the measures of one method, as `page` explains them."""
    fit, answer, _, partly, *added = run([*draw.steps(named, updates)], draw.texts, draw.x)
    y = draw.y[draw.test]
    right, known = answer["labels"] == y, np.isin(y, draw.old)
    found = {
        "accuracy": float(right.mean()),
        **separation(partly, ~known),
        "old_joint": float(right[known].mean()),
        "fit_seconds": float(fit["seconds"]),
        "predict_seconds": float(answer["seconds"]) * 1000 / len(y),  # of 1,000 texts
    }
    if "confidence" in answer:
        found["ece"] = confidence_gap(answer["confidence"], right)
    if updates:
        after = added[1]["labels"] == y
        found |= {"old_after": float(after[known].mean()), "accuracy_after": float(after.mean())}
    return {name: round(value, 5) for name, value in found.items()}  # as a file of results holds them


def separation(answer: Mapping[str, Rows], outside: Rows) -> Measured:
    """Return AUROC of the own out-of-class score, and of 1 - confidence; `outside` marks out-of-class texts."""
    found = {}
    if "confidence" in answer:
        found["auroc_confidence"] = found["auroc"] = float(roc_auc_score(outside, -answer["confidence"]))
    if "novelty" in answer:
        found["auroc"] = float(roc_auc_score(outside, answer["novelty"]))
    return found
