"""A small encoder of words with weights and dropout, and files of tagged sentences that it can learn."""

from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.encoders import ENCODERS, Encoder, Units
from hyperproto.encoders.base import offsets_of

ROWS = 512


class TinyWords(Encoder):
    """Looks words up, whatever they are, in a table that learns."""

    pretrained = True  # what its random rows mean is for the tests to say

    def __init__(self, *, size: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(ROWS, size))
        self.dropout = nn.Dropout(dropout)
        self.feature_shape = (size,)

    def prepare(self, items: Any) -> list[list[int]]:
        return [[crc32(word.encode()) % ROWS for word in words] for words in items]

    def collate(self, prepared: list[list[int]], index: IntArray) -> tuple[Tensor, IntArray]:
        rows = [prepared[i] for i in index.tolist()]
        return torch.tensor([row for words in rows for row in words], dtype=torch.long), offsets_of(
            np.array([len(words) for words in rows])
        )

    def forward(self, batch: tuple[Tensor, IntArray]) -> Units:
        rows, offsets = batch
        return Units(self.dropout(self.table[rows]), offsets)


def register() -> None:
    if "tiny-words" not in ENCODERS.names():
        ENCODERS.add("tiny-words", TinyWords)


def write_conll(path: Path, pool: Pool) -> Path:
    """Write a pool as a file of words and IO labels."""
    assert pool.offsets is not None
    names = [*pool.class_names, "O"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for i, words in enumerate(pool.items):
            labels = pool.labels[pool.offsets[i] : pool.offsets[i + 1]].tolist()
            file.writelines(f"{word}\t{names[label]}\n" for word, label in zip(words, labels, strict=True))
            file.write("\n")
    return path
