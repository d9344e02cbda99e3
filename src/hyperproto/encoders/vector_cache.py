"""Encoded pools on disk: vectors (or maps) that took long to compute are read the next time, by any command."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

import numpy as np
import torch

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.base import Encoder, Units, is_finite
from hyperproto.encoders.code_digest import code_digest
from hyperproto.files import cache_dir, read_arrays, write_arrays

CACHE_VERSION = 2  # raise it whenever the layout of the files, or what belongs to their keys, changes
WORTH_KEEPING = 10.0  # seconds: what is encoded faster than that is not kept


def cached_units(encoder: Encoder, pool: Pool, items: IntArray | None, encode: Callable[[], Units]) -> Units:
    """Return what `encode` returns for `items` of a pool (None: all), from the cache folder where it is kept.

    The key holds all that vectors follow from: items, weights, options, the code of the encoder and of all its helpers,
    and the versions of the libraries (see `code_digest`). A damaged file is made again; a folder that cannot be written
    to costs only the time. Any file may be deleted.
    """
    known = encoder.made_from is not None and next(encoder.parameters(), None) is not None
    code = code_digest(type(encoder)) if known else None
    if code is None:
        return encode()
    path = cache_dir() / "vectors" / f"{_key(encoder, code, pool, items)}.npz"
    units = _read(path, encoder)
    if units is None:
        start = monotonic()
        units = encode()
        if monotonic() - start >= WORTH_KEEPING and is_finite(units.x):
            mask = np.zeros(0, bool) if units.mask is None else units.mask.cpu().numpy()
            with suppress(OSError):
                write_arrays(path, {"x": units.x.cpu().numpy(), "offsets": units.offsets, "mask": mask})
    return units


def _key(encoder: Encoder, code: str, pool: Pool, items: IntArray | None) -> str:
    parts = [CACHE_VERSION, encoder.made_from, encoder.read_as, code, pool.digest, weights_digest(encoder)]
    digest = hashlib.sha256(json.dumps(parts).encode())
    digest.update(b"all" if items is None else items.tobytes())
    return digest.hexdigest()[:24]


def weights_digest(encoder: Encoder) -> str:
    """A sha256 of everything an encoder has learned, whatever file it came from."""
    digest = hashlib.sha256()
    for name, tensor in (*encoder.named_parameters(), *encoder.named_buffers()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path, encoder: Encoder) -> Units | None:
    """Read a file; None where there is none, or a damaged one, or one of vectors that are not finite."""
    arrays = read_arrays(path, ("x", "offsets", "mask"))
    if arrays is None:
        return None
    x, mask = (torch.from_numpy(arrays[name]).to(encoder.device) for name in ("x", "mask"))
    if not is_finite(x):
        return None
    return Units(x, arrays["offsets"], mask if mask.ndim == 2 else None)
