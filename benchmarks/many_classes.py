"""Time and memory of fit, first predictions, thresholds and doctor with ten times as many classes."""

import tracemalloc
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Measurement, in_turns
from hyperproto import HypersphereClassifier

DIMENSION = 64
TIME, MEMORY = 15.0, 12.0  # targets: of ten times as many classes


def many_classes(quick: bool) -> list[Measurement]:
    """Measure 50,000 classes against 5,000, of one and of three examples each."""
    few, repeats = (50, 1) if quick else (5_000, 3)
    measured = []
    for shot in (1, 3):
        small, large = _data(few, shot), _data(10 * few, shot)
        times = in_turns(partial(_all_answers, *large), partial(_all_answers, *small), repeats)
        peak, peak_of_few = _peak(*large), _peak(*small)
        detail = {"classes": 10 * few, "shot": shot, "dimension": DIMENSION}
        detail |= {"peak_bytes": peak, "peak_bytes_of_few": peak_of_few, "vectors_bytes": large[0].nbytes}
        name = f"{10 * few:,} classes, {shot} a class: fit and every answer"
        timed = times.measurement(name, "a tenth of the classes", "<=", TIME, **detail)
        ratio = peak / peak_of_few
        memory = replace(timed, name=f"memory, {name}", ratio=ratio, spread=(ratio, ratio), target=MEMORY)
        measured += [timed, memory]
    return measured


def _all_answers(x: NDArray[np.float32], y: NDArray[np.int64]) -> None:
    asked = x[:20]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a coverage of single examples means nothing
        model = HypersphereClassifier(coverage=0.9).fit(x, y)
        model.predict(asked), model.predict_proba(asked), model.predict_set(asked), model.novelty(asked)
        model.diagnose()


def _peak(x: NDArray[np.float32], y: NDArray[np.int64]) -> int:
    tracemalloc.start()
    _all_answers(x, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _data(way: int, shot: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    random = np.random.default_rng(0)
    y = np.tile(np.arange(way), shot)
    centers = random.standard_normal((way, DIMENSION), np.float32)
    return 0.5 * centers[y] + random.standard_normal((len(y), DIMENSION), np.float32), y
