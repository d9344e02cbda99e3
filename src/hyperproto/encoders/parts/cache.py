"""Cache of vectors on disk, and a digest of an encoder's code as part of its keys.

The digest covers the encoder's modules, all modules of the same package that they import, and library versions. A
change of an encoder or of any helper therefore invalidates cached vectors and tokens.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import numpy as np
import torch

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.base import Encoder, Units, is_finite
from hyperproto.files import cache_dir, read_arrays, write_arrays

LIBRARIES = ("torch", "transformers", "tokenizers", "efficientnet-lite-pytorch")  # libraries that compute vectors


def code_digest(cls: type[Encoder]) -> str | None:
    """Return a hash of an encoder's code, 24 hex digits; None if some source cannot be read.

    It covers the modules of the class and its bases, and everything they import, directly or not, from their own
    top-level packages. Other imported code is covered by `LIBRARIES` or by the encoder's `version`.
    """
    digest = hashlib.sha256(repr([(c.__qualname__, c.version) for c in encoder_classes(cls)]).encode())
    digest.update(repr([(name, _version(name)) for name in LIBRARIES]).encode())
    try:
        for name, path in sorted(source_files(cls).items()):
            digest.update(f"\n{name}\n".encode() + path.read_bytes())
    except (OSError, ImportError, ValueError, SyntaxError):
        return None
    return digest.hexdigest()[:24]


def encoder_classes(cls: type[Encoder]) -> list[type[Encoder]]:
    """Return an encoder's class and its bases up to `Encoder`."""
    return [base for base in cls.__mro__ if issubclass(base, Encoder)]


def source_files(cls: type[Encoder]) -> dict[str, Path]:
    """Return the source file of every module that an encoder's classes import from their own packages.

    Raise OSError if a module has no source file, as code of an interactive session or compiled code.
    """
    found: dict[str, Path] = {}
    names = [base.__module__ for base in encoder_classes(cls)]
    while names:
        name = names.pop()
        if name not in found:
            found[name] = _source(name)
            names += _imported(name, found[name])
    return found


def _source(name: str) -> Path:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None) if module is not None else getattr(find_spec(name), "origin", None)
    if file is None or not file.endswith(".py"):
        raise FileNotFoundError(f"{name}: no source file")
    return Path(file)


def _imported(name: str, path: Path) -> Iterator[str]:
    """Yield the modules of the same top-level package that a module imports anywhere in its code."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        wanted: list[str] = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            wanted = [base, *(f"{base}.{alias.name}" for alias in node.names)]  # a name may be a submodule
        for module in wanted:
            if module.partition(".")[0] == name.partition(".")[0] and _is_module(module):
                yield module


def _is_module(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # its parent is not a package
        return False


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


CACHE_VERSION = 2  # increase it if the file layout or the parts of the key change
MIN_SECONDS = 10.0  # results of a shorter encoding are not cached


def cached_units(encoder: Encoder, pool: Pool, items: IntArray | None, encode: Callable[[], Units]) -> Units:
    """Return `encode()`, the units of `items` of a pool (None: all), from the cache folder if it is there.

    The key covers items, weights, options, the code of the encoder and all its helpers, and library versions (see
    `code_digest`). A damaged file is written again; if the folder is not writable, nothing is cached. Files may be
    deleted at any time.
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
        if monotonic() - start >= MIN_SECONDS and is_finite(units.x):
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
    """Return the sha256 of an encoder's parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in (*encoder.named_parameters(), *encoder.named_buffers()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path, encoder: Encoder) -> Units | None:
    """Read a cache file; return None if it is missing or damaged, or if a vector is not finite."""
    arrays = read_arrays(path, ("x", "offsets", "mask"))
    if arrays is None:
        return None
    device = encoder.device
    x, mask = (torch.from_numpy(arrays[name]).to(device) for name in ("x", "mask"))
    if not is_finite(x):
        return None
    return Units(x, arrays["offsets"], mask if mask.ndim == 2 else None)
