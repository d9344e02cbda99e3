"""Encoders of texts and images as scikit-learn transformers: what `TextEncoder` and `ImageEncoder` share.

ItemEncoder      transformer from items to vectors
Network          what encodes the items: `CallableNetwork` here, those that need torch in `networks`
identity         name, options and checksum of an encoder, by which two of them are compared
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from hyperproto.data import Progress
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import is_there, read_json
from hyperproto.progress import progress_bar

Vectors = NDArray[np.float32]


class ItemEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Transformer from items to vectors (n, D), float32. There is nothing to fit.

    A network given by name or run folder is loaded once per process: clones share it, and a pickle holds only the
    settings. A module or callable stays the caller's object: it is called each time and pickled with the rest.
    """

    extra: ClassVar[str]  # optional dependencies of this package to install
    chunk: ClassVar[int]  # items that are read at once
    model: Any
    progress: bool
    cache: bool

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the items; nothing is learned."""
        self.check(X)
        return self

    def transform(self, X: Any) -> Vectors:
        """Encode items; vectors of recent items are reused, see `cache`."""
        return self.encode(X)

    def encode(self, X: Any, name: str = "X") -> Vectors:
        """Encode items as `transform` does; messages call them `name`."""
        items = self.check(X, name)
        network = self.network()
        parts: list[Vectors] = []
        with progress_bar("encode") if self.progress else nullcontext() as show:
            for start in range(0, len(items), self.chunk):
                read = items[start : start + self.chunk]
                if not network.decodes:
                    read = self.read(read, start, network.pixels, name)
                move = None if show is None else (lambda done, _, start=start: show(start + done, len(items)))
                parts.append(network.vectors(read, self.cache, move))
        sizes = sorted({part.shape[1] for part in parts})
        if len(sizes) > 1:
            raise DataError(f"{network.identity['name']} returned vectors of {sizes[0]} and of {sizes[-1]} numbers")
        found = np.concatenate(parts) if parts else np.empty((0, network.size or 0), np.float32)
        if not np.isfinite(found).all():
            row = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
            raise DataError(
                f"{network.identity['name']} gives {name}[{row}] a vector that is not finite; its weights are damaged "
                "or too large: get it again, or choose another encoder"
            )
        return found

    @property
    def identity(self) -> dict[str, Any]:
        """Name, options and checksum of the weights, which determine the vectors."""
        return self.network().identity

    def check(self, X: Any, name: str = "X") -> Sequence[Any]:
        """Return a list of items; refuse anything else, and items that cannot be encoded."""
        raise NotImplementedError

    def read(self, items: Sequence[Any], start: int, pixels: tuple[int, int] | None, name: str = "X") -> Any:
        """Return items in the form that networks take.

        `start` is the position of the first in the call; `pixels` are side and channels of the images to return.
        """
        raise NotImplementedError

    def spec(self) -> tuple[str, dict[str, Any]]:
        """Return the registered encoder's name and the options for `model`."""
        raise NotImplementedError

    def module_side(self) -> int | None:
        """Return the side of the images for a torch module; None for texts."""
        return None

    def network(self) -> "Network":
        """Return the network that `model` names, or that wraps it."""
        if self.model is None:
            raise ConfigError(
                "there is no encoder: a callable or a module is not stored with a classifier; give it again by "
                "load(folder, encoder=...) or set_params(encoder=...)"
            )
        named = isinstance(self.model, str | PathLike)
        if not (named or callable(self.model) or has_encode(self.model)):
            raise ConfigError(
                f"encoder {self.model!r} ({type(self.model).__name__}) is not valid; give a name, the folder of a run, "
                "a callable, an object with .encode(items) or a torch module"
            )
        if isinstance(self.model, str) and ".py:" in self.model:
            raise ConfigError(
                f"encoder {self.model!r}: files of Python are not read here; in Python give the callable or the torch "
                "module itself (encoder=OBJECT), or train a run with it and name the run's folder"
            )
        if not named and not is_torch_module(self.model):
            return CallableNetwork(self.model, prefer_encode=self.module_side() is None)
        try:
            from hyperproto.estimators.networks import network_of
        except ImportError as error:
            raise ConfigError(f"encoders run on torch ({error}); pip install 'hyperproto[{self.extra}]'") from error
        folder = run_folder(self.model)
        spec = self.spec() if named and folder is None else ("", {})
        return network_of(self.model, spec, folder, self.module_side())

    @property
    def _n_features_out(self) -> int:
        size = self.network().size
        if size is None:
            raise ConfigError(f"the length of the vectors of {self.identity['name']} is not known before it is called")
        return size

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: there is nothing to fit."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that items are not rows of numbers, and that no fit is needed."""
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        return tags


class Network:
    """Function from items to vectors (n, D), float32. A subclass implements `encode` and `identity`."""

    decodes: ClassVar[bool] = False  # whether it takes images as given, files and arrays
    size: int | None = None  # D, where it is known before anything is encoded
    pixels: tuple[int, int] | None = None  # side and channels of the images it reads, if it requires any

    @property
    def identity(self) -> dict[str, Any]:
        """Name, options and, if there are weights, their checksum."""
        raise NotImplementedError

    def encode(self, items: Any, on_disk: bool, progress: Progress | None) -> Vectors:
        """Encode texts or images; `on_disk` allows the use of vectors stored on disk."""
        raise NotImplementedError

    def vectors(self, items: Any, cache: bool = True, progress: Progress | None = None) -> Vectors:
        """Encode items; `cache` allows the use of stored vectors."""
        return self.encode(items, False, progress)


class CallableNetwork(Network):
    """Callable from a list of items, as given, to an array (n, D), or an object with such a method `encode`.

    `prefer_encode` decides for objects that have both: calling a `SentenceTransformer` runs its network on tokens.
    """

    decodes = True

    def __init__(self, encoder: Any, prefer_encode: bool) -> None:
        self.encoder = encoder
        self.by_encode = has_encode(encoder) and (prefer_encode or not callable(encoder))

    @property
    def identity(self) -> dict[str, Any]:
        """Qualified name; a callable has no options or weights to compare."""
        return {"name": self._name, "options": {}, "sha256": None}

    @property
    def _name(self) -> str:
        kind = "encode of" if self.by_encode else "callable"
        return f"{kind} {qualified_name(type(self.encoder) if self.by_encode else self.encoder)}"

    def encode(self, items: Any, on_disk: bool, progress: Progress | None) -> Vectors:
        """Call it once and check the result."""
        found = self.encoder.encode(items) if self.by_encode else self.encoder(items)
        if hasattr(found, "detach"):  # a tensor, maybe on a graphics card
            found = found.detach().cpu()
        return checked_vectors(found, len(items), f"the {self._name}")


def has_encode(encoder: Any) -> bool:
    """Return whether this is an object with a method `encode`; strings and paths do not count."""
    return not isinstance(encoder, str | PathLike | type) and callable(getattr(encoder, "encode", None))


def is_torch_module(encoder: Any) -> bool:
    """Return whether an object is a torch module, without importing torch."""
    return any(
        (kind.__module__, kind.__name__) == ("torch.nn.modules.module", "Module") for kind in type(encoder).mro()
    )


def checked_vectors(found: Any, expected: int, where: str) -> Vectors:
    """Return the result of a module or callable as vectors (n, D); further axes are flattened."""
    try:
        vectors = np.asarray(found, dtype=np.float32)
    except (OverflowError, TypeError, ValueError):
        raise DataError(f"{where} returned {type(found).__name__}, no array of numbers ({expected}, D)") from None
    if vectors.ndim < 2 or len(vectors) != expected or vectors.size == 0:
        raise DataError(f"{where} returned an array {vectors.shape} for {expected} items; return ({expected}, D)")
    return vectors.reshape(expected, -1)


def qualified_name(named: Any) -> str:
    """Return the module and name of a function or class, or of the class of any other object."""
    owner = named if hasattr(named, "__qualname__") else type(named)
    return f"{owner.__module__}.{owner.__qualname__}"


def run_folder(encoder: Any) -> Path | None:
    """Return the folder of a trained run if `encoder` is one, else None; a checkpoint's config.json has no recipe."""
    if not isinstance(encoder, str | PathLike):
        return None
    folder = Path(encoder).expanduser()
    if not is_there(folder / "config.json"):
        return None
    try:
        config = read_json(folder / "config.json")
        is_run = isinstance(config, dict) and "recipe" in config
    except DataError:  # damaged: loading the run reports it
        is_run = (folder / "metrics.jsonl").exists()
    return folder.resolve() if is_run else None


def same_vectors(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether encoders with these identities give the same vectors; measured ratios are ignored."""
    if _options(one) != _options(other):
        return False
    return all(one.get(key) == other.get(key) for key in ("name", "sha256"))


def _options(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an identity; version 0.1 left out the maximum length of a sentence-transformer in a run.

    >>> _options({"name": "run", "options": {"encoder": "sentence-transformer"}})
    {'max_length': 128, 'encoder': 'sentence-transformer'}
    """
    options = identity.get("options", {})
    texts = {identity.get("name"), options.get("encoder")} & {"sentence-transformer", "SentenceTransformer"}
    return {"max_length": 128, **options} if texts else dict(options)


def combined_transform(identity: Mapping[str, Any], transform: str | None) -> str | None:
    """Return a run's transform followed by `transform`; None if that is "center-unit" of the examples.

    >>> combined_transform({"options": {"transform": "none"}}, "unit")
    'unit'
    """
    own = identity.get("options", {}).get("transform", "none")
    if transform in (None, "none"):
        return str(own)
    return None if transform != "unit" else "unit" if own == "none" else str(own)


def encoder_in_words(identity: Mapping[str, Any]) -> str:
    """Return an identity as text for messages."""
    options = [f"{name}={value!r}" for name, value in sorted(identity["options"].items())]
    weights = [f"weights {identity['sha256'][:12]}"] if identity["sha256"] else []
    details = "; ".join([", ".join(options)] * bool(options) + weights)
    return f"{identity['name']} ({details})" if details else str(identity["name"])


def short_name(encoder: Any) -> str:
    """Return an encoder's name or path, or the type or name of a module or callable, for messages."""
    if isinstance(encoder, str | PathLike):
        return repr(fspath(encoder))
    return f"<{getattr(encoder, '__qualname__', type(encoder).__qualname__)}>"
