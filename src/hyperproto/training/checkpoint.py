"""Checkpoints: one safetensors file, written atomically, with the run's numbers as JSON in its header.

The header also has a sha256 of these numbers and of every tensor with its name, type and shape. A file whose content
does not match is refused.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.optim import Optimizer

from hyperproto.errors import DataError, NonFiniteError
from hyperproto.files import atomic_write
from hyperproto.training.learner import Learner

FORMAT = "hyperproto-tensors/2"
NO_CHECKSUM = "hyperproto-tensors/1"  # format of version 0.1
MODEL = "model/"  # prefix of the learner's weights in a checkpoint
HEAD = "hyperproto"  # key of our JSON in the header
WAY_OUT = "take it from a copy, or train again into another folder: hyperproto train RECIPE --out FOLDER"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors to a safetensors file, with `state` as JSON in its header."""
    copies = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
    head = json.dumps({"format": FORMAT, "state": dict(state), "sha256": _digest(copies, state)})
    content = save(copies, metadata={HEAD: head})  # one key: safetensors does not keep the order of several
    with atomic_write(path) as file:
        file.write(content)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the state that `save_tensors` wrote; raise a DataError if the file was changed."""
    with _opened(path) as file:
        head = _head(file, path)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if head["format"] == FORMAT and head.get("sha256") != _digest(tensors, head["state"]):
        raise DataError(f"{path}: damaged, or changed after it was saved (its checksum does not match); {WAY_OUT}")
    return tensors, head["state"]


def load_state(path: Path) -> dict[str, Any]:
    """Read only the state in the header; the checksum is not checked."""
    with _opened(path) as file:
        state: dict[str, Any] = _head(file, path)["state"]
        return state


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.exists():
        raise DataError(f"{path}: no such file; has this run been trained?")
    try:
        if not path.is_file():
            raise OSError("no regular file")
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a readable safetensors file of a run ({error}); {WAY_OUT}") from None


def _head(file: Any, path: Path) -> dict[str, Any]:
    head = json.loads((file.metadata() or {}).get(HEAD, "{}"))
    form = head.get("format") if isinstance(head, dict) else None
    if form not in (FORMAT, NO_CHECKSUM):
        raise DataError(f"{path}: format {form!r}; this version reads {FORMAT!r} and {NO_CHECKSUM!r}; {WAY_OUT}")
    state = head.get("state")
    if not isinstance(state, dict) or any(type(number) not in (int, float) for number in state.values()):
        raise DataError(f"{path}: not the step and the numbers of a run beside its weights; {WAY_OUT}")
    found: dict[str, Any] = head
    return found


def _digest(tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> str:
    """Return a sha256 of the state and of all tensors with their names, types and shapes."""
    named = sorted(tensors.items())
    digest = sha256(json.dumps([state, [[name, str(t.dtype), list(t.shape)] for name, t in named]]).encode())
    for _, tensor in named:
        digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_model(path: Path, learner: Learner) -> dict[str, Any]:
    """Load weights into a learner; return the state saved with them."""
    tensors, state = load_tensors(path)
    fill(learner, tensors, path)
    return state


def model_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the learner's weights among the tensors of a checkpoint."""
    return {key.removeprefix(MODEL): tensor for key, tensor in tensors.items() if key.startswith(MODEL)}


def fill(learner: Learner, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights into a learner; errors name `path`, the file they came from."""
    wanted = learner.state_dict().keys()
    try:
        learner.load_state_dict({key if key in wanted else _renamed(key): tensor for key, tensor in weights.items()})
        learner.check_finite()
    except RuntimeError as error:
        raise DataError(f"{path}: the weights do not fit the model of config.json ({error}); {WAY_OUT}") from None
    except NonFiniteError as error:
        raise DataError(f"{path}: {error}, so its predictions would be meaningless; {WAY_OUT}") from None


def _renamed(key: str) -> str:
    """Return the current name of a tensor: in version 0.1 the decision was part of the method."""
    for part in ("path.", "outside."):
        if key.startswith(f"method.{part}"):
            return key.replace("method.", "decision.", 1)
    return key


def optimiser_tensors(optimisers: Mapping[str, Optimizer]) -> dict[str, Tensor]:
    """Return the state tensors of all optimisers by name; their settings follow from the recipe."""
    return {
        f"optim/{name}/{number}/{key}": value
        for name, optimiser in optimisers.items()
        for number, state in optimiser.state_dict()["state"].items()
        for key, value in state.items()
    }


def restore_optimisers(optimisers: Mapping[str, Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors of `optimiser_tensors` back into the optimisers."""
    for name, optimiser in optimisers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            kind, *rest = key.split("/")
            if kind == "optim" and rest[0] == name:
                state.setdefault(int(rest[1]), {})[rest[2]] = value
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
