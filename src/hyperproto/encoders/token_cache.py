"""Tokenised texts on disk: what took seconds to make is read in milliseconds the next time."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.files import atomic_write, cache_dir

Arrays = dict[str, NDArray[Any]]

CACHE_VERSION = 1  # raise it whenever the same texts would be tokenised to other arrays
FEW = 2000  # items: so few are tokenised as fast as they are looked up


def cached_tokens(texts: Sequence[Any], settings: object, tokenizer: Any, make: Callable[[], Arrays]) -> Arrays:
    """Return what `make` returns, from the cache folder where it was made before.

    The key holds all that the arrays follow from: the texts and settings (both as JSON), the tokenizer as it stands,
    and the versions of the code. A damaged file is made again; a folder that cannot be written to costs only the time.
    """
    if len(texts) < FEW:
        return make()
    path = cache_dir() / "tokens" / f"{_key(texts, settings, tokenizer)}.npz"
    arrays = _read(path)
    if arrays is None:
        arrays = make()
        with suppress(OSError), atomic_write(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type] # the stubs mistake a name for allow_pickle
    return arrays


def _key(texts: Sequence[Any], settings: object, tokenizer: Any) -> str:
    code = [CACHE_VERSION, version("tokenizers"), version("transformers")]
    digest = hashlib.sha256(json.dumps([code, settings]).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    encode = json.JSONEncoder().encode
    for text in texts:
        digest.update(encode(text).encode())
    return digest.hexdigest()[:24]


def _read(path: Path) -> Arrays | None:
    """Read a file whole (tokens are small); None where there is none, or where its checksums say that it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception:  # whatever a reader makes of damage
        return None
