"""Dropout whose random numbers take less time than torch's own on a CPU."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Set coordinates to 0 with probability `rate` in training, and scale the others by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.keep = 1 - rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop coordinates of x, with a new mask each time."""
        if not self.training or self.keep == 1:
            return x
        return x * torch.rand_like(x).lt_(self.keep).div_(self.keep)
