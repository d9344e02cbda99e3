"""What every test shares: a cache of its own (one for all workers), and small pools."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hyperproto.data import Pool


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the user's cache out of it; the workers of one session share one, as two processes of a user would."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    os.environ["HYPERPROTO_CACHE"] = str(root / "hyperproto-cache")


@pytest.fixture(autouse=True, scope="session")
def no_terminal() -> None:
    """Workers inherit the width of the terminal that started them; what a pipe gets does not depend on it."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Two workers share two cores; and matrices this small are slower when cores must meet for each."""
    torch.set_num_threads(1)


def blobs(n_classes: int = 8, per_class: int = 30, dim: int = 6, noise: float = 1.0, seed: int = 0) -> Pool:
    """Vectors of round classes."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), per_class)
    vectors = random.normal(size=(n_classes, dim))[labels] * 2 + noise * random.normal(size=(len(labels), dim))
    return Pool(vectors.astype(np.float32), labels, tuple(f"class {n}" for n in range(n_classes)), name="blobs")


@pytest.fixture
def make_blobs() -> Callable[..., Pool]:
    return blobs


@pytest.fixture
def vectors_file(tmp_path: Path) -> Path:
    """An .npz file with a train, a val and a test split of different classes."""
    return write_vectors(tmp_path / "vectors.npz")


def write_vectors(path: Path) -> Path:
    """Write such a file."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 30)
    vectors = (2 * random.normal(size=(24, 8))[labels] + random.normal(size=(720, 8))).astype(np.float32)
    split = np.array(["train", "val", "test"])[labels // 8]
    np.savez(path, x=vectors, y=np.array([f"class {n:02d}" for n in labels]), split=split)
    return path
