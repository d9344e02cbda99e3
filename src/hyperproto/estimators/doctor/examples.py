"""Examples that look wrong: far from their class, or likelier under another label."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.estimators.doctor.report import MislabelledExample, OutlyingExample
from hyperproto.estimators.snapshot import Snapshot, blocks
from hyperproto.regions.arrays import Doubles
from hyperproto.regions.left_out import left_out_measures

LEAST_ODDS = 10.0  # of another label against the given one, from which an example counts as mislabelled
MOST_COMPARED = 50_000_000  # examples times classes that are compared to find wrong labels
OUTLYING = 3.5  # robust standard deviations above the median from which a score is an outlier


def example_numbers(model: Snapshot) -> NDArray[np.int64]:
    """Return the numbers of the stored examples (n,)."""
    assert model.numbers is not None  # else `model.stats` has raised an error
    return model.numbers


def left_out_probabilities(model: Snapshot) -> Doubles:
    """Return class probabilities of the stored examples by leave-one-out (n, N); NaN if alone in the class."""
    out, way = model.left_out, len(model.classes)
    found = np.full((len(out.rest), way), np.nan)
    judged = np.flatnonzero(out.has_siblings)
    for part in blocks(len(judged), way):
        index = judged[part]
        power = -left_out_measures(out, model.region, model.form, index, fair=True) / model.temperature
        power = np.exp(power - power.max(axis=1, keepdims=True))
        found[index] = power / power.sum(axis=1, keepdims=True)
    return found


def outlying_examples(model: Snapshot, labels: list[Any]) -> tuple[OutlyingExample, ...]:
    """Return examples whose conformal score is an outlier, farthest first."""
    scores = model.conformal.scores
    known = scores[np.isfinite(scores)]
    if not len(known):
        return ()
    middle = np.median(known)
    limit = middle + OUTLYING * 1.4826 * np.median(np.abs(known - middle))
    far = np.flatnonzero(np.isfinite(scores) & (scores > limit))
    numbers = example_numbers(model)
    return tuple(
        OutlyingExample(int(numbers[i]), labels[model.stats.labels[i]], float(scores[i]))
        for i in far[np.argsort(-scores[far], kind="stable")]
    )


def mislabelled_examples(model: Snapshot, labels: list[Any]) -> tuple[MislabelledExample, ...]:
    """Return examples with a likelier label; of very many, those farthest from their class are checked."""
    stats, numbers, found = model.stats, example_numbers(model), []
    judged = np.flatnonzero(model.left_out.has_siblings)
    if len(labels) == 1 or not len(judged):
        return ()
    most = MOST_COMPARED // len(labels)
    if len(judged) > most:
        judged = np.sort(judged[np.argsort(-model.conformal.scores[judged], kind="stable")[:most]])
    for part in blocks(len(judged), len(labels)):
        index = judged[part]
        measures = left_out_measures(model.left_out, model.region, model.form, index, fair=True)
        best = measures.argmin(axis=1)
        at, own = np.arange(len(index)), stats.labels[index]
        odds = np.exp(np.minimum((measures[at, own] - measures[at, best]) / model.temperature, math.log(1e6)))
        for row in np.flatnonzero(odds >= LEAST_ODDS):
            example = int(numbers[index[row]])
            found.append(MislabelledExample(example, labels[own[row]], labels[best[row]], float(odds[row])))
    return tuple(sorted(found, key=lambda report: -report.odds))
