"""An encoder that pickles of classifiers name."""

from typing import Any

import numpy as np


def letters(texts: list[str]) -> Any:
    """Return how often each of the letters a to f occurs in each text (n, 6)."""
    return np.array([[text.count(letter) for letter in "abcdef"] for text in texts], np.float32)
