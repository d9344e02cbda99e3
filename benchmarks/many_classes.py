"""Ten times as many classes: time and memory of the first answers, of the thresholds and of the doctor."""

import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Measurement, in_turns
from hyperproto import HypersphereClassifier

DIMENSION = 64
TIME, MEMORY = 15.0, 15.0  # targets: of ten times as many classes
Step = Callable[[HypersphereClassifier, NDArray[np.float32]], object]
STEPS: dict[str, Step] = {
    "first predict": lambda model, x: model.predict(x[:1]),
    "first predict_proba": lambda model, x: model.predict_proba(x[:1]),
    "thresholds and novelty": lambda model, x: (model.set_params(coverage=0.9).predict_set(x[:1]), model.novelty(x)),
    "diagnose": lambda model, x: model.diagnose(),
}


def many_classes(quick: bool) -> list[Measurement]:
    """Measure 50,000 classes against 5,000, of one and of three examples each; fitting counts."""
    few, repeats = (50, 1) if quick else (5_000, 3)
    measured = []
    for shot in (1, 3):
        small, large = _data(few, shot), _data(10 * few, shot)
        sizes = {"classes": 10 * few, "shot": shot, "dimension": DIMENSION}
        for name, step in STEPS.items():
            times = in_turns(partial(_run, step, *large), partial(_run, step, *small), repeats)
            peak, peak_of_few = (_peak(step, *data) for data in (large, small))
            detail = {**sizes, "peak_bytes": peak, "peak_bytes_of_few": peak_of_few}
            told = f"fit, {name}, {shot} a class"
            timed = times.measurement(told, "a tenth of the classes", "<=", TIME, **detail)
            ratio = peak / peak_of_few
            memory = replace(timed, name=f"memory, {told}", ratio=ratio, spread=(ratio, ratio), target=MEMORY)
            measured += [timed, memory]
    return measured


def _data(way: int, shot: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    random = np.random.default_rng(0)
    y = np.tile(np.arange(way), shot)
    centers = random.standard_normal((way, DIMENSION), np.float32)
    return 0.5 * centers[y] + random.standard_normal((len(y), DIMENSION), np.float32), y


def _run(step: Step, x: NDArray[np.float32], y: NDArray[np.int64]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a coverage of single examples means nothing
        step(HypersphereClassifier().fit(x, y), x[:100])


def _peak(step: Step, x: NDArray[np.float32], y: NDArray[np.int64]) -> int:
    tracemalloc.start()
    _run(step, x, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
