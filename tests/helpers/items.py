"""A language model that is soon loaded, and texts whose classes even it can tell apart."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.estimators import networks
from tests.helpers.tiny_models import tiny_bert

TEXTS = [
    "the king met the queen",
    "a king was born",
    "the queen of the king",
    "paris city in a river",
    "the river of london",
    "a city in the river",
    "bob met anna",
    "anna was born",
    "anna, bob, anna",
]
LABELS = ["court"] * 3 + ["place"] * 3 + ["people"] * 3


def names_of(labels: list[str], encode: Callable[[list[str]], Any]) -> dict[str, Any]:
    """Labels that are words, and their vectors."""
    words = sorted(set(labels))
    return dict(zip(words, np.asarray(encode(words), np.float64), strict=True))


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny model."""
    return str(tiny_bert(tmp_path_factory.mktemp("bert")))


@pytest.fixture(autouse=True)
def nothing_loaded() -> Iterator[None]:
    """Each test loads encoders of its own."""
    networks.forget_networks()
    yield
    networks.forget_networks()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Six images of two classes, as files."""
    from PIL import Image

    made = []
    for n in range(6):
        colour = (200 + 5 * n, 30, 30) if n % 2 else (20, 40, 190 + 5 * n)
        path = tmp_path / "images" / f"{n}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (40, 32), colour).save(path)
        made.append(path)
    return made
