"""A fit with class names and unlabelled rows, against the matrix products it needs, in single precision.

These are: the rows whitened once and their covariance; then, in each round of expectation-maximisation, the rows times
the centres, and the shares times the rows.

Then everything up to the first probabilities, with and without refinement, against one softmax regression of as many
rows by 20 steps of scipy's L-BFGS; and the first predictions after a fit against later ones.
"""

from typing import Any

import numpy as np

from benchmarks.measure import Measurement, Times, in_turns, seconds
from hyperproto import HypersphereClassifier
from hyperproto.heads.softmax import solve
from hyperproto.regions import Evidence, Sphere
from hyperproto.regions.evidence import ROUNDS

TARGET = 1.5
EVERYTHING, FIRST = 3.0, 3.0  # targets


def unlabelled_rows(quick: bool) -> list[Measurement]:
    """Time 100,000 rows of 384 numbers and 150 classes of five examples."""
    size, dim, way, shot = (2_000, 32, 10, 3) if quick else (100_000, 384, 150, 5)
    random = np.random.default_rng(0)
    center = random.normal(size=(way, dim))
    labels = np.repeat(np.arange(way), shot)
    support = center[labels] + random.normal(size=(len(labels), dim))
    names = center + random.normal(size=center.shape)
    rows = (center[random.integers(way, size=size)] + random.normal(size=(size, dim))).astype(np.float32)
    weights, share = center.T.astype(np.float32), np.full((size, way), 1 / way, np.float32)
    rank = min(len(labels), dim)
    left, right = np.ones((dim, rank), np.float32), np.ones((rank, dim), np.float32)

    def ours() -> None:
        Sphere.fit(support, labels, way, evidence=Evidence(names=names, unlabelled=rows))

    def products() -> None:
        whitened = rows + (rows @ left) @ right
        whitened.T @ whitened
        for _ in range(ROUNDS):
            rows @ weights
            share.T @ rows

    times = in_turns(ours, products, 2 if quick else 5)
    name = f"fit with names and {size:,} unlabelled rows, D = {dim}, {way} classes"
    detail = {"rows": size, "classes": way, "rounds": ROUNDS}
    found = [times.measurement(name, "its products alone, in single precision", "<=", TARGET, **detail)]
    return found + probabilities(quick)


def probabilities(quick: bool) -> list[Measurement]:
    """Time 9,000 rows of 384 numbers and 77 classes of five examples, as many as BANKING77 has."""
    size, dim, way = (500, 32, 10) if quick else (9_000, 384, 77)
    random = np.random.default_rng(0)
    center = random.normal(size=(way, dim))
    drawn = np.concatenate([np.repeat(np.arange(way), 5), random.integers(way, size=size)])
    rows = (center[drawn] + 2 * random.normal(size=(len(drawn), dim))).astype(np.float32)
    x, y, unlabelled = rows[: 5 * way], drawn[: 5 * way], rows[5 * way :]
    target, start = np.eye(way, dtype=np.float32)[drawn], np.zeros((dim, way))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found, sizes = [], {"rows": size, "classes": way, "dimension": dim}
    for refine in (False, True):
        model = HypersphereClassifier(refine=refine)

        def everything(model: Any = model) -> None:
            model.fit(x, y, unlabelled=unlabelled).predict_proba(x[:1])

        times = in_turns(everything, lambda: solve(unit, target, start, 0.01), 2 if quick else 3)
        words = f"fit and predict_proba with {size:,} unlabelled rows, refine={refine}"
        found.append(times.measurement(words, "one softmax regression", "<=", EVERYTHING, **sizes))
        for name in ("predict", "predict_proba"):
            first, later = [], []
            for _ in range(2 if quick else 3):
                model.fit(x, y, unlabelled=unlabelled)
                first.append(seconds(lambda: getattr(model, name)(unlabelled)))  # noqa: B023
                later.append(seconds(lambda: getattr(model, name)(unlabelled)))  # noqa: B023
            words = f"first {name} of {size:,} rows, refine={refine}"
            found.append(Times(first, later).measurement(words, "the second", "<=", FIRST, **sizes))
    return found
