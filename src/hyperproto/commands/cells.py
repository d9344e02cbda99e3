"""What a cell must hold: a text, the path of an image, a vector, or a label. What is wrong is said as a ValueError."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto.estimators import HypersphereClassifier
from hyperproto.estimators.kinds import kind_of
from hyperproto.estimators.text import text_problem

CellReader = Callable[[Any], Any]


def reader_for(model: HypersphereClassifier) -> CellReader:
    """What reads the cells that a classifier takes."""
    items = kind_of(model).items
    if items != "vector":
        return read_text if items == "text" else read_image
    return VectorReader(getattr(model, "n_features_in_", None))


def read_text(cell: Any) -> str:
    """A string with something in it."""
    if problem := text_problem(cell):
        raise ValueError(problem)
    return str(cell)


def read_image(cell: Any) -> str:
    """The path of a file."""
    path = read_text(cell)
    if not Path(path).is_file():
        raise ValueError(f"is {path!r}, where there is no file")
    return path


class VectorReader:
    """A list of numbers, or a text that holds them, separated by spaces or commas; all are as long as the first."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size

    def __call__(self, cell: Any) -> list[float]:
        """Read a vector."""
        try:
            numbers = cell.strip("[] ").replace(",", " ").split() if isinstance(cell, str) else list(cell)
            vector = [float(number) for number in numbers]
        except (TypeError, ValueError):
            raise ValueError(f"is {cell!r}; a vector is a list of numbers") from None
        if not vector:
            raise ValueError(f"is an empty vector ({cell!r})")
        if not all(map(math.isfinite, vector)):
            place = next(n for n, number in enumerate(vector) if not math.isfinite(number))
            raise ValueError(f"holds {vector[place]} at position {place}; every number must be finite")
        self.size = self.size or len(vector)
        if len(vector) != self.size:
            raise ValueError(f"has {len(vector)} numbers where {self.size} belong")
        return vector


def read_label(cell: Any) -> str | int:
    """A string, or a whole number."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if cell is None or cell != cell:
        raise ValueError(f"is missing ({cell!r})")
    if isinstance(cell, bool) or not isinstance(cell, str | int):
        raise ValueError(f"is {cell!r} ({type(cell).__name__}); a label is a string or a whole number")
    if isinstance(cell, str) and not cell.strip():
        raise ValueError(f"is empty ({cell!r})")
    return cell
