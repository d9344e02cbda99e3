"""Encoders that are ready to use, each loaded once a process; the vectors they gave lately are kept."""

from collections import OrderedDict
from functools import cached_property, lru_cache
from hashlib import sha256
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import Pool, Progress
from hyperproto.encoders import ENCODERS, Units, default_device, make_encoder
from hyperproto.encoders.vector_cache import cached_units, weights_digest
from hyperproto.errors import ConfigError
from hyperproto.registry import check_options

Floats = NDArray[np.float32]

LOADED = 4  # networks in memory at once
RECENT = 1 << 26  # bytes of vectors that are kept in memory
MANY = 200  # items: for fewer, nobody looks on disk


class Ready:
    """A network, and the vectors it gave lately."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        check_options("encoder", name, ENCODERS.get(name), options)
        self.encoder = make_encoder(name, options)
        if any(parameter.requires_grad for parameter in self.encoder.parameters()):
            raise ConfigError(
                f"encoder {name!r} has to be trained before its vectors mean anything; take one that is ready-made, "
                "such as minilm for texts or efficientnet-lite0 for images"
            )
        self.encoder.to(default_device())
        [self.size] = self.encoder.feature_shape
        self._recent: OrderedDict[str | bytes, Floats] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the vectors follow from."""
        name, options = self.encoder.made_from or ("", {})
        return {"name": name, "options": options, "sha256": weights_digest(self.encoder)}

    def vectors(self, items: Any, cache: bool = True, progress: Progress | None = None) -> Floats:
        """Encode texts, or an array of images, (n, D); with `cache`, none that was encoded lately or is on disk."""
        if not cache:
            return self._encode(items, False, progress)
        keys = [item if isinstance(item, str) else sha256(item).digest() for item in items]
        known = self._lookup(keys)
        new = {key: row for row, key in enumerate(keys) if key not in known}
        if new:
            rows = list(new.values())
            needed = items[rows] if isinstance(items, np.ndarray) else [items[row] for row in rows]
            fresh = dict(zip(new, self._encode(needed, len(needed) >= MANY, progress), strict=True))
            self._keep(fresh)
            known |= fresh
        return np.stack([known[key] for key in keys])

    def _encode(self, items: Any, cached: bool, progress: Progress | None) -> Floats:
        def encode() -> Units:
            return self.encoder.encode_all(self.encoder.prepare(items), progress)

        if cached:
            pool = Pool(items, np.zeros(len(items), np.int64), ("",), name="items")
            units = cached_units(self.encoder, pool, None, encode)
        else:
            units = encode()
        found: Floats = units.x.cpu().numpy()
        return found

    def _lookup(self, keys: list[Any]) -> dict[Any, Floats]:
        with self._lock:
            for key in keys:
                if key in self._recent:
                    self._recent.move_to_end(key)
            return {key: self._recent[key] for key in keys if key in self._recent}

    def _keep(self, fresh: dict[Any, Floats]) -> None:
        with self._lock:
            self._recent |= {key: vector.copy() for key, vector in fresh.items()}
            while len(self._recent) * self.size * 4 > RECENT:
                self._recent.popitem(last=False)


@lru_cache(maxsize=LOADED)
def ready(name: str, options: tuple[tuple[str, Any], ...]) -> Ready:
    """The encoder of that name with those options, loaded the first time."""
    return Ready(name, dict(options))
