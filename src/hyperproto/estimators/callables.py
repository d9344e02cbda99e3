"""Encoders that need no torch: any function, or any object with `.encode(items)`, from items to an array (n, D)."""

from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import Progress
from hyperproto.errors import DataError

Floats = NDArray[np.float32]


class Network:
    """Items to vectors (n, D), float32. A subclass writes `encode` and `identity`."""

    decodes: ClassVar[bool] = False  # whether it takes images as they were given, files and arrays
    size: int | None = None  # D, where it is known before anything is encoded
    pixels: tuple[int, int] | None = None  # side and channels of the images it reads, where it says so

    @property
    def identity(self) -> dict[str, Any]:
        """All that vectors follow from: a name, options, and a checksum of weights where there are any."""
        raise NotImplementedError

    def encode(self, items: Any, on_disk: bool, progress: Progress | None) -> Floats:
        """Encode texts, or images; `on_disk` allows a look into the folder of stored vectors."""
        raise NotImplementedError

    def vectors(self, items: Any, cache: bool = True, progress: Progress | None = None) -> Floats:
        """Encode items; with `cache`, none that was encoded lately or is on disk."""
        return self.encode(items, False, progress)


class CallableNetwork(Network):
    """Any function from a list of items, as they were given, to an array (n, D); or an object with such an `encode`.

    Of an object that has both, `encode` is called if `prefer_encode`: calling a `SentenceTransformer` runs its network
    on word pieces, not on texts.
    """

    decodes = True

    def __init__(self, encoder: Any, prefer_encode: bool) -> None:
        self.encoder = encoder
        self.by_encode = has_encode(encoder) and (prefer_encode or not callable(encoder))

    @property
    def identity(self) -> dict[str, Any]:
        """Its name: nothing else is known of it."""
        return {"name": self._name, "options": {}, "sha256": None}

    @property
    def _name(self) -> str:
        kind = "encode of" if self.by_encode else "callable"
        return f"{kind} {qualified_name(type(self.encoder) if self.by_encode else self.encoder)}"

    def encode(self, items: Any, on_disk: bool, progress: Progress | None) -> Floats:
        """Call it once, and check what it returns."""
        found = self.encoder.encode(items) if self.by_encode else self.encoder(items)
        if hasattr(found, "detach"):  # a tensor, maybe on a graphics card
            found = found.detach().cpu()
        return checked_vectors(found, len(items), f"the {self._name}")


def has_encode(encoder: Any) -> bool:
    """Return whether this is an object with a method `encode`; a string has one too, and is no encoder."""
    return not isinstance(encoder, str | PathLike | type) and callable(getattr(encoder, "encode", None))


def is_torch_module(encoder: Any) -> bool:
    """Return whether an object is a torch module, without importing torch."""
    return any(
        (kind.__module__, kind.__name__) == ("torch.nn.modules.module", "Module") for kind in type(encoder).mro()
    )


def checked_vectors(found: Any, expected: int, where: str) -> Floats:
    """Check what a module or a callable returned: one vector an item, (n, D); further axes are flattened."""
    try:
        vectors = np.asarray(found, dtype=np.float32)
    except (OverflowError, TypeError, ValueError):
        raise DataError(f"{where} returned {type(found).__name__}, no array of numbers ({expected}, D)") from None
    if vectors.ndim < 2 or len(vectors) != expected or vectors.size == 0:
        raise DataError(f"{where} returned an array {vectors.shape} for {expected} items; return ({expected}, D)")
    return vectors.reshape(expected, -1)


def qualified_name(named: Any) -> str:
    """Return the module and the name of a function or a class, or of the class of any other object."""
    owner = named if hasattr(named, "__qualname__") else type(named)
    return f"{owner.__module__}.{owner.__qualname__}"
