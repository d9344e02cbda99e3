"""Identity encoder for items that are vectors already."""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.encoders.base import Encoder, Units, array_of


class Identity(Encoder):
    """Encoder that returns precomputed vectors without a copy; images of bytes become raw pixels from 0 to 1."""

    data_options = ("shape",)
    pretrained = True

    def __init__(self, *, shape: list[int]) -> None:
        super().__init__()
        self.feature_shape = tuple(shape)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Return the shape of the items; images are flattened."""
        items = array_of(pool, "identity reads vectors or images")
        pixels = items.dtype == np.uint8
        return {"shape": [int(np.prod(items.shape[1:]))] if pixels else list(items.shape[1:])}

    def prepare(self, items: Any) -> NDArray[np.floating[Any]]:
        """Keep float32 and float64, and convert all other types to float32."""
        vectors: NDArray[Any] = np.asanyarray(items)
        if vectors.dtype == np.uint8:
            vectors = vectors.reshape(len(vectors), -1).astype(np.float32) / 255
        return vectors if vectors.dtype in (np.float32, np.float64) else vectors.astype(np.float32)

    def collate(self, prepared: NDArray[np.floating[Any]], index: IntArray) -> Tensor:
        """Return the rows at `index` as float32, the type of trained weights."""
        return torch.from_numpy(prepared[index]).float()

    def forward(self, batch: Tensor) -> Units:
        """Return the vectors unchanged."""
        return Units.one_each(batch)

    def encode_all(self, prepared: NDArray[np.floating[Any]], progress: Progress | None = None) -> Units:
        """Return all vectors without a copy, also of a memory-mapped matrix."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about read-only memory, but nothing here writes to it
            return Units.one_each(torch.from_numpy(prepared))
