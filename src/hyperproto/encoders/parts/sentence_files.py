"""Configuration files of sentence-transformers in a checkpoint: how a text becomes a vector.

    modules.json                         the parts in order: Transformer, Pooling, then any of Dense, Normalize, Dropout
    sentence_bert_config.json            longest text in tokens, and whether texts are lower-cased
    1_Pooling/config.json                pooling of the token states
    2_Dense/config.json, its weights     a linear layer and an activation
    config_sentence_transformers.json    prompts to put before a text, and the name of the default one

A setting that this library does not support raises a ConfigError that names it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError, DataError, HyperProtoError
from hyperproto.files import open_file, read_json

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
POOLINGS = {  # names in older files, in the order of concatenation
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
ACTIVATIONS = ("ELU", "GELU", "Identity", "LeakyReLU", "ReLU", "Sigmoid", "SiLU", "Softplus", "Tanh")  # of torch.nn
WITHOUT_EFFECT: dict[str, Any] = {  # settings of a Transformer at values without effect
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    **{f"{part}_{kind}": {} for part in ("model", "config", "tokenizer") for kind in ("args", "kwargs")},
    **{f"{part}_kwargs": {} for part in ("processor", "processing")},
}


class Dense(nn.Module):
    """Linear layer and activation: (n, inputs) to (n, outputs)."""

    def __init__(self, inputs: int, outputs: int, bias: bool, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = getattr(nn, activation)()
        self.said = f"dense {activation}"

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer and the activation."""
        return cast(Tensor, self.activation(self.linear(x)))


class Normalize(nn.Module):
    """Layer that scales each vector to length 1."""

    said = "normalize"

    def forward(self, x: Tensor) -> Tensor:
        """Divide by the length."""
        return F.normalize(x, dim=-1)


@dataclass(frozen=True, eq=False)
class Reading:
    """Settings for turning a text into a vector; the defaults are for a checkpoint without such files."""

    folder: Path  # of the network and the tokenizer
    poolings: tuple[str, ...] = ("mean",)
    include_prompt: bool = True  # True if the tokens of the prompt are pooled, too
    layers: tuple[nn.Module, ...] = ()  # Dense and Normalize, in order
    max_length: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    default_prompt: str = ""
    state_size: int | None = None  # size of the network's states according to the pooling file


def module_parts(folder: Path) -> list[tuple[str, str]]:
    """Return type and folder of each part of a checkpoint; [] without a readable modules.json.

    >>> module_parts(Path("no such folder"))
    []
    """
    try:
        return _modules(folder)
    except HyperProtoError:
        return []


def read_files(folder: Path) -> Reading:
    """Read the settings in a checkpoint's folder."""
    if not (folder / MODULES).is_file():
        for part in (SETTINGS, "1_Pooling/config.json"):
            if (folder / part).exists():
                raise DataError(
                    f"{folder}: there is {part}, but no {MODULES}, which names the parts of a sentence-transformers "
                    "checkpoint; copy the whole folder, or set pooling='plain' for the mean of the last layer"
                )
        return Reading(folder)
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or {"Transformer", "Pooling"} & {*kinds[2:]}:
        raise _not_read(folder / MODULES, f"the order {', '.join(kinds) or 'of no parts'}")
    main = folder / modules[0][1]
    max_length, lower_case = _transformer(main)
    state_size, poolings, include_prompt = _pooling(folder / modules[1][1] / "config.json")
    layers: list[nn.Module] = []
    for kind, path in modules[2:]:
        if kind == "Dense":
            layers.append(_dense(folder / path))
        elif kind == "Normalize":
            _normalize(folder / path)
            layers.append(Normalize())
    prompts, default = _prompts(folder / SETTINGS)
    return Reading(main, poolings, include_prompt, tuple(layers), max_length, lower_case, prompts, default, state_size)


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Return type and folder of each part in order; refuse a folder outside of the checkpoint."""
    path = folder / MODULES
    listed = _json(path)
    if not isinstance(listed, list) or not all(isinstance(part, dict) for part in listed):
        raise _damaged(path, "it is no list of parts")
    found = []
    for part in listed:
        kind, own = part.get("type"), part.get("path", "")
        if not isinstance(kind, str) or not isinstance(own, str):
            raise _damaged(path, f"a part has type {kind!r} and path {own!r}")
        package, _, name = kind.rpartition(".")
        if package.partition(".")[0] != "sentence_transformers" or name not in KINDS:
            raise _not_read(path, f"a part of type {kind!r}")
        place = PurePosixPath(own.replace("\\", "/"))
        if place.is_absolute() or ".." in place.parts or ":" in own:
            raise _damaged(path, f"{own!r} is not a folder inside of the checkpoint")
        found.append((name, "" if own in ("", ".") else str(place)))
    return found


KINDS = ("Transformer", "Pooling", "Dense", "Normalize", "Dropout")  # dropout has no effect outside training


def _transformer(folder: Path) -> tuple[int | None, bool]:
    """Return the longest text in tokens (None if not given), and whether texts are lower-cased."""
    path = folder / "sentence_bert_config.json"
    config = _table(path) if path.is_file() else {}
    for key, value in config.items():
        without_effect = value in (None, WITHOUT_EFFECT.get(key)) or key == "unpad_inputs"
        if key not in ("max_seq_length", "do_lower_case") and not without_effect:
            raise _not_read(path, f"{key} = {value!r}")
    length, lower = config.get("max_seq_length"), config.get("do_lower_case", False)
    if not (length is None or (type(length) is int and length > 0)):
        raise _damaged(path, f"max_seq_length is {length!r}, not a number of word pieces")
    return length, _flag(path, "do_lower_case", lower)


def _pooling(path: Path) -> tuple[int | None, tuple[str, ...], bool]:
    """Return the size of the states, the poolings in order, and whether the prompt is pooled, too."""
    config = _table(path)
    size = config.pop("embedding_dimension", config.pop("word_embedding_dimension", None))
    include_prompt = _flag(path, "include_prompt", config.pop("include_prompt", True))
    modes = config.pop("pooling_mode", None)
    older = {key: _flag(path, key, config.pop(key)) for key in list(config) if key.startswith("pooling_mode_")}
    for key, value in config.items():
        raise _not_read(path, f"{key} = {value!r}")
    if modes is None:
        unknown = [key for key, value in older.items() if value and key not in POOLINGS.values()]
        if unknown:
            raise _not_read(path, f"{unknown[0]} = true")
        modes = [mode for mode, key in POOLINGS.items() if older.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes:
        raise _damaged(path, f"pooling_mode is {modes!r}")
    for mode in modes:
        if mode not in POOLINGS:
            raise _not_read(path, f"pooling_mode = {mode!r}", POOLINGS)
    if not (size is None or (type(size) is int and size > 0)):
        raise _damaged(path, f"the size of the states is {size!r}")
    return size, tuple(modes), include_prompt


def _dense(folder: Path) -> Dense:
    """Return a linear layer with its weights."""
    from safetensors.torch import load_file

    path, weights = folder / "config.json", folder / "model.safetensors"
    config = _table(path)
    _only_vectors(path, config)
    bias = _flag(path, "bias", config.pop("bias", True))
    sizes = [config.pop(key, None) for key in ("in_features", "out_features")]
    if not all(type(size) is int and size > 0 for size in sizes):
        raise _damaged(path, f"in_features and out_features are {sizes[0]!r} and {sizes[1]!r}")
    package, _, activation = str(config.pop("activation_function", "torch.nn.Tanh")).rpartition(".")
    if not package.startswith("torch.nn") or activation not in ACTIVATIONS:
        raise _not_read(path, f"activation_function = '{package}.{activation}'", ACTIVATIONS)
    if config.pop("use_residual", False):
        raise _not_read(path, "use_residual = true")
    for key, value in config.items():
        raise _not_read(path, f"{key} = {value!r}")
    layer = Dense(sizes[0], sizes[1], bias, activation)
    if not weights.is_file() and (folder / "pytorch_model.bin").is_file():
        raise _not_read(folder / "pytorch_model.bin", "a pickle, which may run code,")
    try:
        open_file(weights).close()  # refuses a FIFO, which would block
        layer.load_state_dict(load_file(weights))
    except Exception as error:  # any error of a damaged or foreign file
        raise _damaged(weights, str(error).strip().partition("\n")[0] or type(error).__name__) from error
    return layer


def _normalize(folder: Path) -> None:
    """Raise a ConfigError if a Normalize part scales anything but the vectors."""
    path = folder / "config.json"
    if path.is_file():
        config = _table(path)
        _only_vectors(path, config)
        for key, value in config.items():
            raise _not_read(path, f"{key} = {value!r}")


def _only_vectors(path: Path, config: dict[str, Any]) -> None:
    """Raise a ConfigError if a part reads token states instead of vectors."""
    for key in ("module_input_name", "module_output_name"):
        if (value := config.pop(key, None)) not in (None, "sentence_embedding"):
            raise _not_read(path, f"{key} = {value!r}")


def _prompts(path: Path) -> tuple[Mapping[str, str], str]:
    """Return the prompts by name, and the default prompt."""
    config = _table(path) if path.is_file() else {}
    kind, size = config.get("model_type"), config.get("truncate_dim")
    if kind not in (None, "SentenceTransformer"):
        raise _not_read(path, f"model_type = {kind!r}")
    if size is not None:
        raise _not_read(path, f"truncate_dim = {size!r}")
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise _damaged(path, "prompts is no table of texts")
    prompts = {"query": "", "document": "", **prompts}  # as in the package
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise _damaged(path, f"default_prompt_name is {default!r}, which is none of the prompts")
    return MappingProxyType(prompts), "" if default is None else prompts[default]


def _flag(path: Path, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _damaged(path, f"{key} is {value!r}, neither true nor false")
    return value


def _table(path: Path) -> dict[str, Any]:
    found = _json(path)
    if not isinstance(found, dict):
        raise _damaged(path, "it is no table of settings")
    return found


def _json(path: Path) -> Any:
    try:
        return read_json(path)
    except DataError as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, what: str) -> DataError:
    return DataError(
        f"{path}: cannot be read ({what}), but is needed to read texts as the checkpoint does; get the "
        "checkpoint again, or set pooling='plain' for the mean of the last layer"
    )


def _not_read(path: Path, what: str, known: Collection[str] = ()) -> ConfigError:
    instead = f" (known: {', '.join(known)})" if known else ""
    return ConfigError(
        f"{path}: {what} is not supported{instead}; choose another checkpoint, give "
        "SentenceTransformer(...).encode of sentence-transformers as the encoder, or set pooling='plain' for the mean "
        "of the last layer and nothing else"
    )
