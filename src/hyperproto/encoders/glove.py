"""Texts as the mean of their word vectors: GloVe's, or others from a file."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperproto.data import IntArray, Pool
from hyperproto.data.formats.relations import item_kind
from hyperproto.encoders.base import Encoder, Units
from hyperproto.encoders.parts.word_vectors import GLOVE, load_word_vectors
from hyperproto.errors import DataError

_WORD = re.compile(r"(?:[^\W_]|')+")  # letters, digits and apostrophes


class GloVe(Encoder):
    """Pennington et al., "GloVe: Global Vectors for Word Representation", 2014: one vector a text, the mean over words.

    A text is lower-cased and split at all characters except letters, digits and apostrophes. Words without a vector are
    skipped; a text without any known word gives the zero vector. `vectors` is "glove" (6B, 50-d) or the path of a file
    or folder, see `word_vectors`. Nothing is trained.
    """

    argument = "vectors"
    pretrained = True

    def __init__(self, *, vectors: str = GLOVE) -> None:
        super().__init__()
        self.known = load_word_vectors(vectors)
        self.feature_shape = (self.known.vectors.shape[1],)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Return no options, but raise a DataError if the items are not texts."""
        first = pool.items[0] if len(pool.items) else None
        if not isinstance(first, str):
            raise DataError(f"{pool}: glove reads texts, each a string, but the items are {item_kind(first)}")
        return {}

    def prepare(self, items: Sequence[str]) -> NDArray[np.float32]:
        """Return the mean word vector of each text, (n, D)."""
        return np.stack([self._mean(text) for text in items])

    def _mean(self, text: str) -> NDArray[np.float32]:
        rows = [self.known.rows[word] for word in _WORD.findall(text.lower()) if word in self.known.rows]
        if not rows:
            return np.zeros(self.feature_shape, np.float32)
        mean: NDArray[np.float32] = self.known.vectors[rows].mean(0)
        return mean

    def collate(self, prepared: NDArray[np.float32], index: IntArray) -> Tensor:
        """Return the vectors at `index`."""
        return torch.from_numpy(prepared[index])

    def forward(self, batch: Tensor) -> Units:
        """Return the vectors unchanged."""
        return Units.one_each(batch)

    def read_texts(self, texts: Sequence[str]) -> Tensor:
        """Return the mean word vector of each text, (n, D)."""
        return torch.from_numpy(self.prepare(texts))
