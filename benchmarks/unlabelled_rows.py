"""A fit with class names and unlabelled rows, against the matrix products it needs, in single precision.

These are: the rows whitened once and their covariance; then, in each round of expectation-maximisation, the rows times
the centres, and the shares times the rows.
"""

import numpy as np

from benchmarks.measure import Measurement, in_turns
from hyperproto.regions import Evidence, Sphere
from hyperproto.regions.evidence import ROUNDS

TARGET = 1.5


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
    return [times.measurement(name, "its products alone, in single precision", "<=", TARGET, **detail)]
