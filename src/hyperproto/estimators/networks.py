"""Networks that encode items by torch: registered encoders, encoders of trained runs, and torch modules.

Registered encoders and those of runs are loaded once per process and never change, so recent vectors are cached.
Classifiers import this module when there are items to encode.
"""

import logging
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import Pool, Progress
from hyperproto.encoders import ENCODERS, Encoder, FeatureTransform, Units, default_device, make_encoder
from hyperproto.encoders.base import offsets_of
from hyperproto.encoders.parts.cache import cached_units, weights_digest
from hyperproto.encoders.sentence_transformer import SentenceTransformer
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.items import (
    CallableNetwork,
    Network,
    Vectors,
    checked_vectors,
    has_encode,
    qualified_name,
)
from hyperproto.registry import check_options
from hyperproto.training.run import PriorRatio, Run
from hyperproto.windows import pooled_windows, text_windows

Options = tuple[tuple[str, Any], ...]

LOADED = 4  # networks in memory at once
RECENT = 1 << 26  # bytes of cached vectors
MANY = 200  # items from which the disk cache is used
BATCH = 64  # items per call of a module


class EncoderNetwork(Network):
    """Encoder of this package, given as an object: its weights may change between calls."""

    def __init__(self, encoder: Encoder, where: str, transform: FeatureTransform | None = None) -> None:
        self.encoder = encoder
        self.where = where  # its name in messages
        self.transform = transform
        self._checked: set[str] = set()
        if len(encoder.feature_shape) != 1:
            raise ConfigError(f"{where} gives feature maps {encoder.feature_shape}; a classifier takes vectors (D,)")
        [self.size] = encoder.feature_shape
        options = self._made[1]
        if "size" in options:
            self.pixels = options["size"], options.get("channels", 3)

    @property
    def identity(self) -> dict[str, Any]:
        """Name, options and checksum of the weights."""
        name, options = self._made
        return {"name": name, "options": options, "sha256": digest_of(self.encoder)}

    @property
    def _made(self) -> tuple[str, dict[str, Any]]:
        made = self.encoder.made_from
        return type(self.encoder).__qualname__ if made is None else made[0], self.encoder.read_as

    def encode(self, items: Any, on_disk: bool, progress: Progress | None) -> Vectors:
        """Encode in eval mode, then transform."""
        pool = Pool(items, np.zeros(len(items), np.int64), ("",), name="items")
        self._check(pool)

        def run() -> Units:
            return self.encoder.encode_all(self.encoder.prepare(items), progress)

        units = cached_units(self.encoder, pool, None, run) if on_disk else run()
        if not units.single:
            raise ConfigError(f"{self.where} gives a vector for each word, not one an item; EntityTagger uses such")
        x = units.x if self.transform is None else self.transform(units.x)
        found: Vectors = x.detach().cpu().numpy()
        return found

    def _check(self, pool: Pool) -> None:
        """Refuse items that the encoder does not read; checked once for texts and once for images."""
        kind = "texts" if isinstance(pool.items[0], str) else "these images"
        if kind in self._checked:
            return
        _, made = self._made
        try:
            needed = type(self.encoder).options_for(pool)
        except DataError as error:
            raise ConfigError(f"{self.where} does not read {kind} ({error})") from None
        different = [f"{key} {value!r}" for key, value in needed.items() if made.get(key, value) != value]
        if different:
            raise ConfigError(f"{self.where} does not read {kind}, which have {', '.join(different)}")
        self._checked.add(kind)


class FrozenNetwork(EncoderNetwork):
    """Encoder that never changes: its identity is computed once, and recent vectors are cached."""

    def __init__(self, encoder: Encoder, where: str, transform: FeatureTransform | None = None) -> None:
        super().__init__(encoder.to(default_device()).eval(), where, transform)
        if isinstance(encoder, SentenceTransformer):
            encoder.keeps = f"{type(encoder).keeps}; long='windows' reads whole texts"  # part of the warning
        self._recent: OrderedDict[str | bytes, Vectors] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Name, options and checksum of the weights."""
        return super().identity

    def vectors(self, items: Any, cache: bool = True, progress: Progress | None = None) -> Vectors:
        """Encode texts or an array of images; `cache` allows the use of recent vectors and of those on disk."""
        if not cache:
            return self.encode(items, False, progress)
        keys = [item if isinstance(item, str) else sha256(item).digest() for item in items]
        known = self._lookup(keys)
        new = {key: row for row, key in enumerate(keys) if key not in known}
        if new:
            rows = list(new.values())
            needed = items[rows] if isinstance(items, np.ndarray) else [items[row] for row in rows]
            fresh = dict(zip(new, self.encode(needed, len(needed) >= MANY, progress), strict=True))
            self._keep(fresh)
            known |= fresh
        return np.stack([known[key] for key in keys])

    def _lookup(self, keys: list[Any]) -> dict[Any, Vectors]:
        with self._lock:
            for key in keys:
                if key in self._recent:
                    self._recent.move_to_end(key)
            return {key: self._recent[key] for key in keys if key in self._recent}

    def _keep(self, fresh: dict[Any, Vectors]) -> None:
        size = self.size or 1
        with self._lock:
            self._recent |= {key: vector.copy() for key, vector in fresh.items()}
            while len(self._recent) * size * 4 > RECENT:
                self._recent.popitem(last=False)


class RunNetwork(FrozenNetwork):
    """Encoder of a trained run, followed by its transform, with the prior ratios that the run measured."""

    def __init__(self, folder: Path) -> None:
        run = Run(folder)
        learner, recipe = run.load()
        features = learner.features
        where = f"{folder}: its encoder {recipe.encoder.name!r}"
        super().__init__(features.encoder, where, features.transform.to(default_device()).eval())
        self.prior_ratio = PriorRatio.read(run.prior_ratio).ratio if run.prior_ratio.exists() else {}

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Encoder, options, transform and checksum, which determine the vectors, and the measured ratios."""
        name, options = self._made
        transform: Any = self.transform
        digest = sha256((digest_of(self.encoder) + digest_of(transform)).encode()).hexdigest()
        options = {"encoder": name, **options, "transform": transform.kind}
        return {"name": "run", "options": options, "sha256": digest, "prior_ratio": self.prior_ratio}


class LongTextNetwork(Network):
    """Network that reads a text longer than its limit as overlapping windows, and pools their vectors.

    A window holds at most the tokens that the network reads, begins and ends at a word, and overlaps the next by half.
    `how` is "windows" (the mean of the vectors of all windows) or "typical" (the vector of the window closest to that
    mean, by cosine). The result has length 1 if the vectors of all windows have. Shorter texts are not changed.
    """

    def __init__(self, inner: FrozenNetwork, how: str) -> None:
        self.inner, self.how = inner, how
        self.size = inner.size

    @classmethod
    def of(cls, network: Network, how: str) -> Self:
        """Wrap the network of a language model of this package; refuse any other."""
        if isinstance(network, FrozenNetwork) and isinstance(network.encoder, SentenceTransformer):
            return cls(network, how)
        raise ConfigError(
            f"long={how!r} needs the number of tokens that a language model reads, which {network.identity['name']} "
            "does not say; give a language model by its name, folder or run, or leave long='truncate'"
        )

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the network, with the way in which long texts are read among its options."""
        found = self.inner.identity
        return {**found, "options": {**found["options"], "long": self.how}}

    def vectors(self, items: Any, cache: bool = True, progress: Progress | None = None) -> Vectors:
        """Encode the windows of all texts in one call, then pool those of each text."""
        encoder = cast(SentenceTransformer, self.inner.encoder)
        tokenizer = encoder.tokenizer.backend_tokenizer
        parts = text_windows(tokenizer, items, encoder.room, encoder.prompt, encoder.lower_case)
        windows = [window for each in parts for window in each]

        def show(done: int, total: int) -> None:
            if progress is not None:
                progress(done * len(items) // max(1, total), len(items))

        x = self.inner.vectors(windows, cache, show)
        offsets = offsets_of(np.array([len(each) for each in parts]))
        found = x[offsets[:-1]]
        for row in np.flatnonzero(np.diff(offsets) > 1).tolist():
            found[row] = pooled_windows(x[offsets[row] : offsets[row + 1]], self.how)
        return found


class TextGraph(nn.Module):
    """Encoder of texts, and its transform, from padded tokens (n, L) and their numbers (n,) to vectors (n, D)."""

    def __init__(self, network: EncoderNetwork) -> None:
        super().__init__()
        self.encoder: Any = network.encoder
        self.transform = network.transform

    def forward(self, pieces: Tensor, lengths: Tensor) -> Tensor:
        """Encode texts."""
        batch = {"pieces": pieces, "lengths": lengths}
        states, real = self.encoder.hidden(batch)
        vectors: Tensor = self.encoder.vectors(states, real, batch)
        return vectors if self.transform is None else self.transform(vectors)


def export_text_network(network: Network, graph: Path, tokenizer: Path) -> dict[str, Any]:
    """Write an encoder of texts as an ONNX graph, and its tokenizer; return what its texts need before both.

    The graph takes `pieces` (n, L) and `lengths` (n,), int64, and returns `vectors` (n, D).
    """
    long = network.how if isinstance(network, LongTextNetwork) else "truncate"
    network = network.inner if isinstance(network, LongTextNetwork) else network
    encoder = network.encoder if isinstance(network, EncoderNetwork) else None
    if not isinstance(encoder, SentenceTransformer):
        raise ConfigError(
            f"{network.identity['name']}: only language models of whole texts are exported, named (minilm, mpnet, a "
            "folder, a name on the hub) or in a run; export the head alone, with --onnx FILE or export_onnx(path)"
        )
    assert isinstance(network, EncoderNetwork)
    with _quiet_export() as export:
        pieces, lengths = torch.ones((3, 12), dtype=torch.int64), torch.tensor([12, 7, 5])
        axes = ({0: "n", 1: "length"}, {0: "n"})
        module = TextGraph(network).to("cpu").eval()
        export(module, (pieces, lengths), graph, ["pieces", "lengths"], ["vectors"], axes)
    tokenizer.write_text(encoder.tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    return {
        **encoder.settings(),
        "before": encoder.before,
        "after": encoder.after,
        "fill": encoder.fill,
        "max_length": encoder.max_length,
        "long": long,
    }


@contextmanager
def _quiet_export() -> Iterator[Any]:
    """Yield a function that writes a graph, without the messages of torch's exporter."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"encoders are exported with onnxscript ({error}); pip install 'hyperproto[onnx]'") from error

    def export(module: nn.Module, given: Any, path: Path, inputs: list[str], outputs: list[str], axes: Any) -> None:
        with torch.no_grad():
            program = torch.onnx.export(
                module, given, input_names=inputs, output_names=outputs, dynamic_shapes=axes, opset_version=18,
                dynamo=True, verbose=False,
            )  # fmt: skip
        assert program is not None
        program.save(path, external_data=False)

    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield export
    finally:
        log.setLevel(level)


class ModuleNetwork(Network):
    """Torch module from float images (n, 3, R, R) in 0..1, or a list of texts, to a tensor (n, D)."""

    def __init__(self, module: nn.Module, resolution: int | None) -> None:
        self.module = module
        self.pixels = None if resolution is None else (resolution, 3)

    @property
    def identity(self) -> dict[str, Any]:
        """Class of the module, and checksum of its current weights."""
        options = {} if self.pixels is None else {"resolution": self.pixels[0]}
        return {
            "name": f"module {qualified_name(type(self.module))}",
            "options": options,
            "sha256": digest_of(self.module),
        }

    @torch.no_grad()
    def encode(self, items: Any, on_disk: bool, progress: Progress | None) -> Vectors:
        """Apply the module in eval mode, batch by batch."""
        device = next((tensor.device for tensor in self.module.parameters()), torch.device("cpu"))
        parts = []
        with _eval_mode(self.module):
            for start in range(0, len(items), BATCH):
                batch = items[start : start + BATCH]
                if self.pixels is not None:
                    batch = torch.from_numpy(np.ascontiguousarray(batch)).to(device).permute(0, 3, 1, 2).float() / 255
                found = self.module(batch)
                if isinstance(found, Tensor):
                    found = found.detach().cpu()
                parts.append(checked_vectors(found, len(batch), f"the module {qualified_name(type(self.module))}"))
                if progress is not None:
                    progress(min(start + BATCH, len(items)), len(items))
        return np.concatenate(parts)


class ModuleWithEncode(CallableNetwork):
    """Torch module with a method `encode` for texts, such as a `SentenceTransformer`."""

    @property
    def identity(self) -> dict[str, Any]:
        """Class of the module, and checksum of its current weights."""
        return {**super().identity, "sha256": digest_of(self.encoder)}

    @torch.no_grad()
    def encode(self, items: Any, on_disk: bool, progress: Progress | None) -> Vectors:
        """Call `encode` in eval mode."""
        with _eval_mode(self.encoder):
            return super().encode(items, on_disk, progress)


def network_of(encoder: Any, spec: tuple[str, dict[str, Any]], folder: Path | None, resolution: int | None) -> Network:
    """Return the network of an encoder object, of a run in `folder`, or of the registered name and options in `spec`.

    `resolution` is the side of images for a module; None for texts.
    """
    if isinstance(encoder, Encoder):
        return EncoderNetwork(encoder, f"the encoder {type(encoder).__qualname__}")
    if isinstance(encoder, nn.Module):
        if resolution is None and has_encode(encoder):
            return ModuleWithEncode(encoder, prefer_encode=True)
        return ModuleNetwork(encoder, resolution)
    if folder is not None:
        return _run(folder, _stamp(folder))
    name, options = spec
    if any(isinstance(value, list | dict | set) for value in options.values()):  # no cache key
        check_options("encoder", name, ENCODERS.get(name), options)
    return named(name, tuple(sorted(options.items())))


@lru_cache(maxsize=LOADED)
def named(name: str, options: Options) -> FrozenNetwork:
    """Load a registered encoder; refuse one that has to be trained first."""
    check_options("encoder", name, ENCODERS.get(name), dict(options))
    encoder = make_encoder(name, dict(options))
    if any(parameter.requires_grad for parameter in encoder.parameters()):
        raise ConfigError(
            f"encoder {name!r} has to be trained first; use a pretrained one, "
            "such as minilm for texts or efficientnet-lite0 for images, or the folder of a run"
        )
    return FrozenNetwork(encoder, f"encoder {name!r}")


@lru_cache(maxsize=LOADED)
def _run(folder: Path, stamp: tuple[int, ...]) -> RunNetwork:
    """Load the encoder of a run; `stamp` changes with its files."""
    return RunNetwork(folder)


def forget_networks() -> None:
    """Drop all loaded networks and their cached vectors."""
    named.cache_clear()
    _run.cache_clear()


def _stamp(folder: Path) -> tuple[int, ...]:
    """Return sizes and times of the files that determine a run's vectors."""
    run = Run(folder)
    found = [path.stat() for path in (run.config, run.model, run.prior_ratio) if path.exists()]
    return tuple(number for stat in found for number in (stat.st_size, stat.st_mtime_ns))


@contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    """Switch to eval mode, and each submodule back to its mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


_DIGESTS: WeakKeyDictionary[nn.Module, tuple[Any, str]] = WeakKeyDictionary()


def digest_of(module: nn.Module) -> str:
    """Return the sha256 of all weights; cached until one of them is written to."""
    tensors = [*module.parameters(), *module.buffers()]
    state = tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)
    if _DIGESTS.get(module, (None, ""))[0] != state:
        hashed: Any = weights_digest  # which takes any module
        _DIGESTS[module] = state, hashed(module)
    return _DIGESTS[module][1]
