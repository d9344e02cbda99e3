"""Checks of the texts and labels that users give; nothing heavy is imported here."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import DataError


def checked_texts(texts: Sequence[Any], name: str = "X") -> list[str]:
    """Return the texts; refuse anything that is not a non-empty string, naming its position."""
    for row, text in enumerate(texts):
        if problem := text_problem(text):
            raise DataError(f"{name}[{row}] {problem}")
    return [str(text) for text in texts]  # NumPy's strings are a subclass of str


def refuse_single_text(X: Any, name: str = "X") -> None:
    """Refuse a string in place of a list of texts, because its letters would be read as texts."""
    if isinstance(X, str):
        raise DataError(f"{name} is a single text; give a list of texts, even if it holds only one")


def text_problem(text: Any) -> str | None:
    """Return what is wrong with a text, or None."""
    if is_missing(text):
        return f"is missing ({text!r}); give every row a text"
    if not isinstance(text, str):
        return f"is {text!r} ({type(text).__name__}); a text is a string"
    if not text.strip():
        return f"is an empty text ({text!r}); leave it out"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"is no valid Unicode ({error}); decode it with the right encoding"
    return None


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, or NA and NaT of pandas."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def label_array(labels: Iterable[Any]) -> NDArray[Any]:
    """Return an array of labels; its dtype is object only if strings, truth values and numbers are mixed."""
    labels = list(labels)
    if len({str if isinstance(label, str) else bool if isinstance(label, bool) else int for label in labels}) > 1:
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
        return array
    return np.array(labels)
