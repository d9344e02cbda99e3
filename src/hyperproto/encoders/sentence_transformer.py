"""A language model that reads whole texts: one vector each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.transformer import Batch, TextTransformer, mean_of_real
from hyperproto.errors import DataError


class SentenceTransformer(TextTransformer):
    """Texts (strings), each to the average of the last layer over its pieces.

    Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", 2019. The vectors are those
    of the sentence-transformers package before it scales them to length 1, which is what the transform `unit` is for.
    The beginning of a text of more than `max_length` pieces is kept.
    """

    name = "sentence-transformer"

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Nothing follows from the data, but they must be texts."""
        first = pool.items[0] if len(pool.items) else None
        if not isinstance(first, str):
            kind = type(first).__name__
            raise DataError(f"{pool}: {cls.name} reads texts, each a string, but the items are {kind}")
        return {}

    def read(self, items: Sequence[str]) -> tuple[list[str], IntArray]:
        """The texts as they are; nothing in them matters more than the rest."""
        return list(items), np.empty((len(items), 0, 2), np.int64)

    def vectors(self, states: Tensor, real: Tensor, batch: Batch) -> Tensor:
        """Average each text."""
        return mean_of_real(states, real)
