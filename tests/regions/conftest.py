from typing import Any

import numpy as np
import pytest

from hyperproto.regions import REGIONS

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"mode": mode}) for name, region in REGIONS.items() for mode in region.modes),
    *(("sphere", {"mode": mode, "squared": False}) for mode in REGIONS["sphere"].modes),
    ("point", {"squared": False}),
    ("sphere", {"mode": "paper", "radius_weight": 0.5}),
    ("gaussian", {"mode": "paper", "sigma": "eq3"}),
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(params=CASES, ids=[f"{name}-{'-'.join(map(str, options.values()))}" for name, options in CASES])
def fit(request: pytest.FixtureRequest) -> Any:
    """Every region in every mode: a function of (support, labels, way)."""
    name, options = request.param
    return lambda support, labels, way: REGIONS[name].fit(support, labels, way, **options)
