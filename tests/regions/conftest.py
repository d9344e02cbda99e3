from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace

from hyperproto.regions import REGIONS, Evidence

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"mode": mode}) for name, region in REGIONS.items() for mode in region.modes),
    *(("sphere", {"mode": mode, "squared": False}) for mode in REGIONS["sphere"].modes),
    ("point", {"squared": False}),
    ("sphere", {"mode": "paper", "radius_weight": 0.5}),
    ("gaussian", {"mode": "paper", "sigma": "eq3"}),
    ("sphere", {"evidence": "names"}),
    ("sphere", {"evidence": "unlabelled"}),
    ("sphere", {"evidence": "names and unlabelled"}),
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(params=CASES, ids=[f"{name}-{'-'.join(map(str, options.values()))}" for name, options in CASES])
def fit(request: pytest.FixtureRequest) -> Any:
    """Every region in every mode: a function of (support, labels, way)."""
    name, options = request.param
    plain = {option: value for option, value in options.items() if option != "evidence"}

    def fitted(support: Any, labels: Any, way: int) -> Any:
        more: dict[str, Any] = (
            {"evidence": evidence(options["evidence"], support, way)} if "evidence" in options else {}
        )
        return REGIONS[name].fit(support, labels, way, **plain, **more)

    return fitted


def evidence(kind: str, support: Any, way: int) -> Evidence:
    """Names and unlabelled rows, the same for all episodes, as arrays of the library of `support`; one has no name."""
    xp = array_namespace(support)
    *leading, _, dim = support.shape

    def array(rows: int, seed: int) -> Any:
        values = np.random.default_rng(seed).normal(size=(rows, dim))
        return xp.asarray(np.broadcast_to(values, (*leading, rows, dim)).copy(), dtype=support.dtype)

    named = xp.asarray(np.broadcast_to(np.arange(way) != 1, (*leading, way)).copy())
    names: dict[str, Any] = {"names": array(way, 1), "named": named} if "names" in kind else {}
    return Evidence(**names, unlabelled=array(25, 2) if "unlabelled" in kind else None)
