"""Checkpoints: one safetensors file, written whole or not at all, with the small numbers in its head. No pickle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from hyperproto.errors import DataError
from hyperproto.files import atomic_write

FORMAT = "hyperproto-tensors/1"
HEAD = "hyperproto"  # the key of our words in the file's head


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors, and `state` as JSON beside them."""
    head = json.dumps({"format": FORMAT, "state": dict(state)})
    copies = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
    content = save(copies, metadata={HEAD: head})  # one key: safetensors writes several in any order
    with atomic_write(path) as file:
        file.write(content)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            head = json.loads((file.metadata() or {}).get(HEAD, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; has this run been trained?") from None
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: not a readable safetensors file ({error}); remove it, and train again") from None
    if head.get("format") != FORMAT:
        raise DataError(f"{path}: format {head.get('format')!r}; this version reads {FORMAT!r}")
    return tensors, head["state"]


def load_model(path: Path, model: nn.Module) -> dict[str, Any]:
    """Fill a model's weights and return the state beside them."""
    tensors, state = load_tensors(path)
    fill(model, tensors, path)
    return state


def fill(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Put weights into a model; `path` is where they came from."""
    wanted = model.state_dict().keys()
    try:
        model.load_state_dict({key if key in wanted else _todays(key): tensor for key, tensor in weights.items()})
    except RuntimeError as error:
        raise DataError(f"{path}: the weights do not fit the model of config.json ({error})") from None


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
