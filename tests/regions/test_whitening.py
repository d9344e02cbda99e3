"""The inverse square root that whitens, where LAPACK gives up."""

from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.regions.whitening import root_slope


def slope(matrix: Any) -> Any:
    """g(P) from the definition."""
    value, vector = np.linalg.eigh(np.asarray(matrix, np.float64))
    u = np.sqrt(1 + value)
    return vector @ np.diag(-1 / (u * (1 + u))) @ vector.T


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_decomposition_that_fails_in_float32_is_made_in_float64(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    linalg: Any = np.linalg if library == "numpy" else torch.linalg
    single, true = np.float32 if library == "numpy" else torch.float32, linalg.eigh

    def fails(matrix: Any) -> Any:
        if matrix.dtype == single:
            raise linalg.LinAlgError("the algorithm failed to converge")
        return true(matrix)

    rows = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    gram = rows @ rows.T
    monkeypatch.setattr(linalg, "eigh", fails)
    found = root_slope(gram if library == "numpy" else torch.from_numpy(gram))
    assert found.dtype == single
    monkeypatch.undo()
    np.testing.assert_allclose(np.asarray(found), slope(gram), atol=1e-5)


def test_what_fails_in_float64_too_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Any:
        raise np.linalg.LinAlgError("the algorithm failed to converge")

    monkeypatch.setattr(np.linalg, "eigh", fails)
    with pytest.raises(np.linalg.LinAlgError, match="converge"):
        root_slope(np.eye(2))
