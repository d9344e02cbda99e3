"""Softmax, mean and maximum over positions of which some are padding."""

import torch
from torch import Tensor


def masked_softmax(x: Tensor, real: Tensor, dim: int = -1) -> Tensor:
    """Softmax over the real entries of an axis; the others get 0, and so does a row without any."""
    share = x.masked_fill(~real, -torch.inf).softmax(dim)
    return share.masked_fill(~real.any(dim, keepdim=True), 0.0)


def masked_mean(x: Tensor, real: Tensor, dim: int) -> Tensor:
    """Mean of the real entries of an axis; 0 where there are none."""
    return x.masked_fill(~real, 0.0).sum(dim) / real.sum(dim).clamp(min=1)


def masked_max(x: Tensor, real: Tensor, dim: int) -> Tensor:
    """Maximum of the real entries of an axis; 0 where there are none."""
    return x.masked_fill(~real, -torch.inf).amax(dim).masked_fill(~real.any(dim), 0.0)
