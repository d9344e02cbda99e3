"""What all image encoders share: bytes from the pool to a batch of bytes, and bytes to centred floats."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.base import Encoder
from hyperproto.errors import DataError


class ImageEncoder(Encoder):
    """Base of the encoders of square images (n, S, S) or (n, S, S, C) of bytes; a subclass writes `forward`.

    A batch stays bytes until `forward`, so that augmentation, and the way to a GPU, move a quarter of the memory.
    """

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Read channels and size off the images."""
        shape = np.shape(pool.items)
        if len(shape) not in (3, 4) or shape[1] != shape[2]:
            name = cls.__name__.lower()
            raise DataError(f"{pool}: {name} reads square images (n, S, S) or (n, S, S, C), but the items are {shape}")
        return {"channels": shape[3] if len(shape) == 4 else 1, "size": shape[1]}

    def collate(self, prepared: NDArray[np.uint8], index: IntArray) -> Tensor:
        """Take the images at `index`, channels first."""
        images = torch.from_numpy(np.asarray(prepared[index]))
        return images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)  # (n, C, H, W)

    def centred(self, images: Tensor) -> Tensor:
        """Bytes (or floats from 0 to 255, as augmentation makes them) to floats from -1 to 1."""
        return images.sub(127.5).div_(127.5).contiguous(memory_format=torch.channels_last)
