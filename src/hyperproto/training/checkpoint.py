"""Checkpoints: one safetensors file, written whole or not at all, with the small numbers in its head. No pickle.

The head also has a sha256 of the numbers and of every tensor, its name, type and shape: a changed file is refused.
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
NO_CHECKSUM = "hyperproto-tensors/1"  # what version 0.1 wrote
MODEL = "model/"  # before the names of the learner's own weights in a checkpoint
HEAD = "hyperproto"  # the key of our words in the file's head
WAY_OUT = "take it from a copy, or train again into another folder: hyperproto train RECIPE --out FOLDER"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors, and `state` as JSON beside them."""
    copies = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
    head = json.dumps({"format": FORMAT, "state": dict(state), "sha256": _digest(copies, state)})
    content = save(copies, metadata={HEAD: head})  # one key: safetensors writes several in any order
    with atomic_write(path) as file:
        file.write(content)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote; refuse what was changed since."""
    with _opened(path) as file:
        head = _head(file, path)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if head["format"] == FORMAT and head.get("sha256") != _digest(tensors, head["state"]):
        raise DataError(f"{path}: damaged, or changed after it was saved (its checksum is another); {WAY_OUT}")
    return tensors, head["state"]


def load_state(path: Path) -> dict[str, Any]:
    """Read the numbers beside the tensors without reading those; their checksum is not looked at."""
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
    """A sha256 of all that a file says."""
    named = sorted(tensors.items())
    digest = sha256(json.dumps([state, [[name, str(t.dtype), list(t.shape)] for name, t in named]]).encode())
    for _, tensor in named:
        digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_model(path: Path, learner: Learner) -> dict[str, Any]:
    """Fill a learner's weights and return the state beside them."""
    tensors, state = load_tensors(path)
    fill(learner, tensors, path)
    return state


def model_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The learner's own weights among the tensors of a checkpoint."""
    return {key.removeprefix(MODEL): tensor for key, tensor in tensors.items() if key.startswith(MODEL)}


def fill(learner: Learner, weights: Mapping[str, Tensor], path: Path) -> None:
    """Put weights into a learner; `path` is where they came from."""
    wanted = learner.state_dict().keys()
    try:
        learner.load_state_dict({key if key in wanted else _todays(key): tensor for key, tensor in weights.items()})
        learner.check_finite()
    except RuntimeError as error:
        raise DataError(f"{path}: the weights do not fit the model of config.json ({error}); {WAY_OUT}") from None
    except NonFiniteError as error:
        raise DataError(f"{path}: {error}, so no answer of it means anything; {WAY_OUT}") from None


def _todays(key: str) -> str:
    """Today's name of a tensor: in version 0.1 the decision was part of the method."""
    for part in ("path.", "outside."):
        if key.startswith(f"method.{part}"):
            return key.replace("method.", "decision.", 1)
    return key


def optimiser_tensors(optimisers: Mapping[str, Optimizer]) -> dict[str, Tensor]:
    """Name every tensor of the optimisers' memory; settings follow from the recipe and are not kept."""
    return {
        f"optim/{name}/{number}/{key}": value
        for name, optimiser in optimisers.items()
        for number, memory in optimiser.state_dict()["state"].items()
        for key, value in memory.items()
    }


def restore_optimisers(optimisers: Mapping[str, Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimiser_tensors` took."""
    for name, optimiser in optimisers.items():
        memory: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            kind, *rest = key.split("/")
            if kind == "optim" and rest[0] == name:
                memory.setdefault(int(rest[1]), {})[rest[2]] = value
        optimiser.load_state_dict({"state": memory, "param_groups": optimiser.state_dict()["param_groups"]})
