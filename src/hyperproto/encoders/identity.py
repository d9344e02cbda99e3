"""Identity: the items are vectors already."""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.encoders.base import Encoder, Units, array_of


class Identity(Encoder):
    """Ready-made vectors, passed through without a copy. Images of bytes become raw pixels between 0 and 1."""

    data_options = ("shape",)
    pretrained = True

    def __init__(self, *, shape: list[int]) -> None:
        super().__init__()
        self.feature_shape = tuple(shape)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Read the size off the items; images are flattened."""
        items = array_of(pool, "identity reads vectors or images")
        pixels = items.dtype == np.uint8
        return {"shape": [int(np.prod(items.shape[1:]))] if pixels else list(items.shape[1:])}

    def prepare(self, items: Any) -> NDArray[np.floating[Any]]:
        """Keep float32 and float64 as they are; make float32 of the rest."""
        vectors: NDArray[Any] = np.asanyarray(items)
        if vectors.dtype == np.uint8:
            vectors = vectors.reshape(len(vectors), -1).astype(np.float32) / 255
        return vectors if vectors.dtype in (np.float32, np.float64) else vectors.astype(np.float32)

    def collate(self, prepared: NDArray[np.floating[Any]], index: IntArray) -> Tensor:
        """Take the rows at `index`, as float32: what is trained behind them is."""
        return torch.from_numpy(prepared[index]).float()

    def forward(self, batch: Tensor) -> Units:
        """Pass through."""
        return Units.one_each(batch)

    def encode_all(self, prepared: NDArray[np.floating[Any]], progress: Progress | None = None) -> Units:
        """Share the memory of the matrix, however large (or memory-mapped) it is."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of read-only memory; nothing here writes to it
            return Units.one_each(torch.from_numpy(prepared))
