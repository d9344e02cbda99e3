"""A fitted classifier on disk: model.json, and a safetensors file that it names with its checksum. No pickle.

The tensors are written first, under a name of their own; the folder is the new model from the moment model.json is
replaced, and the old one until then.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hyperproto
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.memory import Memory
from hyperproto.files import atomic_write

FORMAT = "hyperproto-estimator/1"
HEAD = "model.json"
Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Saved:
    """What is written of a classifier, and read again."""

    kind: str  # the name of its class
    parameters: Mapping[str, Any]
    memory: Memory
    feature_names: list[str] | None  # if the features have any
    encoder: Mapping[str, Any] | None = None  # what made the vectors, if that is known
    items: Mapping[int, str] | None = None  # what the examples were before, by their numbers


def write(folder: Path, saved: Saved) -> None:
    """Write a model."""
    memory = saved.memory
    content = _safetensors().save(dict(memory.to_tensors()))
    digest = sha256(content).hexdigest()
    file_name = f"tensors-{digest[:16]}.safetensors"
    head = {
        "format": FORMAT,
        "hyperproto": hyperproto.__version__,
        "kind": saved.kind,
        "parameters": {name: v.item() if isinstance(v, np.generic) else v for name, v in saved.parameters.items()},
        "classes": memory.labels,
        "unit": memory.unit,
        "feature_names": saved.feature_names,
        "encoder": saved.encoder,
        "items": None if saved.items is None else [[number, item] for number, item in saved.items.items()],
        "tensors": {"file": file_name, "sha256": digest, "bytes": len(content)},
    }
    try:
        text = json.dumps({**head, "checksum": checksum(head)}, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"a parameter or a label cannot be written as JSON ({error}); use strings and numbers"
        ) from None
    with atomic_write(folder / file_name) as file:
        file.write(content)
    with atomic_write(folder / HEAD) as file:
        file.write(text.encode() + b"\n")
    for old in folder.glob("tensors-*.safetensors"):
        if old.name != file_name:
            old.unlink(missing_ok=True)


def read_kind(folder: Path) -> str:
    """Read which class a model is of."""
    return str(read_checked(folder / HEAD, FORMAT, "classifier")["kind"])


def read(folder: Path) -> Saved:
    """Read and check a model."""
    head = read_checked(folder / HEAD, FORMAT, "classifier")
    path = folder / Path(head["tensors"]["file"]).name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: {HEAD} names this file, and it cannot be read ({error}); save the model again"
        ) from None
    if len(content) != head["tensors"]["bytes"] or sha256(content).hexdigest() != head["tensors"]["sha256"]:
        raise DataError(
            f"{path}: not the {head['tensors']['bytes']} bytes that were saved, but {len(content)}, or others; "
            "the file was cut or changed: take it from a copy, or fit and save again"
        )
    memory = Memory.from_tensors(_safetensors().load(content), head["classes"], head["unit"])
    items = None if head["items"] is None else dict(head["items"])
    return Saved(head["kind"], head["parameters"], memory, head["feature_names"], head["encoder"], items)


def read_checked(path: Path, form: str, kind: str) -> dict[str, Any]:
    """Read a JSON file of this format whose checksum is right; `kind` is what the folder holds, in words."""
    try:
        head = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; a saved {kind} is a folder with a {path.name} in it") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable as JSON ({error}); take it from a copy, or fit and save again") from None
    found = head.get("format") if isinstance(head, dict) else None
    if found != form:
        raise DataError(f"{path}: format {found!r}; this version of hyperproto reads {form!r}")
    if head.pop("checksum", None) != checksum(head):
        raise DataError(f"{path}: was changed after it was saved; take it from a copy, or fit and save again")
    return head  # type: ignore[no-any-return]


def checksum(head: Mapping[str, Any]) -> str:
    """A sha256 of the content of a JSON file."""
    return sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ConfigError(f"models are saved with safetensors ({error}); pip install safetensors") from error
    return safetensors.numpy
