"""HypersphereClassifier against scikit-learn's NearestCentroid, and an update against a fit of everything."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestCentroid

from benchmarks.measure import Measurement, in_turns
from hyperproto import HypersphereClassifier

DIMENSION = 384
UPDATES = 100  # of one example each, timed together
FIT, PREDICT, UPDATE, UPDATE_AND_USE, ONE = 10.0, 2.0, 1000.0, 1.0, 1.0  # targets
Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


def estimators(quick: bool) -> list[Measurement]:
    """Measure fit, predict, partial_fit and the latency of one row, at 1,000 classes and 100,000 rows of float32."""
    rows, way, repeats = (2_000, 50, 3) if quick else (100_000, 1_000, 5)
    x, y = _vectors(rows, way)
    sizes = {"rows": rows, "classes": way, "dimension": DIMENSION}
    centroid, point, lean = NearestCentroid(), _point(), _point(store_support=False)
    measured = []
    for name, model in (("fit, nearest mean", lean), ("fit, nearest mean, examples kept", point)):
        times = in_turns(lambda model=model: model.fit(x, y), lambda: centroid.fit(x, y), repeats)  # type: ignore[misc]
        measured.append(times.measurement(name, "NearestCentroid (keeps none)", ">=", FIT, **sizes))
    bayes = HypersphereClassifier(feature_transform=None).fit(x, y)
    for name, model in (("nearest mean", point), ("bayes", bayes)):
        times = in_turns(lambda model=model: model.predict(x), lambda: centroid.predict(x), repeats)  # type: ignore[misc]
        detail = {"agreement": _agreement(model, centroid, x)} if model is point else {}
        measured.append(times.measurement(f"predict, {name}", "NearestCentroid", ">=", PREDICT, **sizes, **detail))
    measured += [_update(mode, x, y, repeats, sizes) for mode in ("point", "unbiased", "bayes")]
    measured += [_update_and_use(mode, x, y, repeats, sizes) for mode in ("unbiased", "bayes")]
    times = in_turns(lambda: point.predict(x[:1]), lambda: centroid.predict(x[:1]), 50 if quick else 500)
    measured.append(times.measurement("predict one row", "NearestCentroid", ">=", ONE, **sizes))
    return measured


def _update(mode: str, x: Floats, y: Labels, repeats: int, sizes: dict[str, int]) -> Measurement:
    """Time `partial_fit` with one example, of many in sequence; derived state is not computed."""
    model = HypersphereClassifier(fit_mode=mode).fit(x, y)
    again = HypersphereClassifier(fit_mode=mode)

    def update() -> None:
        for row in range(UPDATES):
            model.partial_fit(x[row : row + 1], y[row : row + 1])

    times = in_turns(update, lambda: again.fit(x, y), repeats, parts=(UPDATES, 1))
    return times.measurement(f"partial_fit of one example, {mode}", "fit of all", ">=", UPDATE, **sizes)


def _update_and_use(mode: str, x: Floats, y: Labels, repeats: int, sizes: dict[str, int]) -> Measurement:
    """Time `partial_fit` with one example and a prediction, which computes the derived state."""
    model = HypersphereClassifier(fit_mode=mode).fit(x, y)
    again = HypersphereClassifier(fit_mode=mode)
    update: Callable[[], object] = lambda: model.partial_fit(x[:1], y[:1]).predict(x[:1])  # noqa: E731
    times = in_turns(update, lambda: again.fit(x, y).predict(x[:1]), repeats)
    name = f"partial_fit of one example, then predict, {mode}"
    return times.measurement(name, "fit of all, then predict", ">=", UPDATE_AND_USE, **sizes)


def _point(**settings: Any) -> HypersphereClassifier:
    """Build a classifier that computes the same as NearestCentroid."""
    return HypersphereClassifier(fit_mode="point", feature_transform=None, **settings)


def _agreement(ours: HypersphereClassifier, theirs: NearestCentroid, x: Floats) -> float:
    return float((ours.predict(x) == theirs.predict(x)).mean())


def _vectors(rows: int, way: int) -> tuple[Floats, Labels]:
    """Draw classes about as separable as real ones; every class has an example."""
    random = np.random.default_rng(0)
    y = np.concatenate([np.arange(way), random.integers(0, way, rows - way)])
    centers = random.standard_normal((way, DIMENSION), np.float32)
    return 0.3 * centers[y] + random.standard_normal((rows, DIMENSION), np.float32), y
