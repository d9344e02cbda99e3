from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace

from hyperproto.regions import REGIONS

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"mode": mode}) for name, region in REGIONS.items() for mode in region.modes),
    *(("sphere", {"mode": mode, "squared": False}) for mode in REGIONS["sphere"].modes),
    ("point", {"squared": False}),
    ("sphere", {"mode": "paper", "radius_weight": 0.5}),
    ("gaussian", {"mode": "paper", "sigma": "eq3"}),
    ("sphere", {"known": "names"}),
    ("sphere", {"known": "unlabelled"}),
    ("sphere", {"known": "names and unlabelled"}),
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(params=CASES, ids=[f"{name}-{'-'.join(map(str, options.values()))}" for name, options in CASES])
def fit(request: pytest.FixtureRequest) -> Any:
    """Every region in every mode: a function of (support, labels, way)."""
    name, options = request.param
    plain = {option: value for option, value in options.items() if option != "known"}

    def fitted(support: Any, labels: Any, way: int) -> Any:
        return REGIONS[name].fit(support, labels, way, **plain, **knowledge(options.get("known", ""), support, way))

    return fitted


def knowledge(kind: str, support: Any, way: int) -> dict[str, Any]:
    """Names and unlabelled rows, the same for all episodes, as arrays of the library of `support`; one has no name."""
    xp = array_namespace(support)
    *leading, _, dim = support.shape

    def array(rows: int, seed: int) -> Any:
        values = np.random.default_rng(seed).normal(size=(rows, dim))
        return xp.asarray(np.broadcast_to(values, (*leading, rows, dim)).copy(), dtype=support.dtype)

    named = xp.asarray(np.broadcast_to(np.arange(way) != 1, (*leading, way)).copy())
    names = {"names": array(way, 1), "named": named} if "names" in kind else {}
    return {**names, "unlabelled": array(25, 2)} if "unlabelled" in kind else names
