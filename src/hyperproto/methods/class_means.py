"""Mean vectors of all training classes, for methods that store them."""

import numpy as np
import torch
from torch import Tensor

from hyperproto.data import OUTSIDE, Pool
from hyperproto.encoders import Features, Units
from hyperproto.encoders.parts.cache import cached_units
from hyperproto.regions import ClassStatistics


@torch.no_grad()
def class_means(pool: Pool, features: Features) -> Tensor:
    """Return the mean over all units of each class, (n_labels, D), encoded in eval mode and transformed.

    Where items have many units, those of no class form the class O, the last row. A class without units has mean 0.
    """
    encoder = features.encoder

    def encode() -> Units:
        return encoder.encode_all(features.prepared(pool))

    # training stores the same vectors of a frozen encoder, so they are read from its cache
    x = features.transform((cached_units(encoder, pool, None, encode) if encoder.frozen else encode()).x)
    outside = OUTSIDE if pool.outside_row is None else pool.outside_row
    labels = torch.from_numpy(np.where(pool.labels == OUTSIDE, outside, pool.labels)).to(x.device)
    means: Tensor = ClassStatistics.of(x, labels, pool.n_labels).mean
    return means
