"""Devices: $HYPERPROTO_DEVICE, or a GPU if there is one, or the CPU; and moving batches to them."""

import os
from typing import Any

import torch
from torch import Tensor

from hyperproto.errors import ConfigError


def default_device() -> torch.device:
    """Return what $HYPERPROTO_DEVICE names (cpu, cuda, cuda:1, mps), or a CUDA device if there is one, or the CPU."""
    name = os.environ.get("HYPERPROTO_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"HYPERPROTO_DEVICE={name}: no such device here ({reason}); use cpu") from None
    return device


def moved(batch: Any, device: torch.device) -> Any:
    """Bring a batch to a device: a tensor, or tensors in a dict, list or tuple; whatever else it holds stays."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: moved(part, device) for key, part in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(moved(part, device) for part in batch)
    return batch
