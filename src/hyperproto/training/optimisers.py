"""Optimisers by name, learning-rate schedules as pure functions of the step, and Adam for tables of rows."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from hyperproto.methods import Group
from hyperproto.recipes import Clipping, Optim, Training


class RowAdam(Optimizer):
    """Adam on a table whose gradient is sparse: a row that was not drawn does not move, and its moments do not fade.

    Each row keeps its own step count, so it moves exactly as under an Adam that saw only the steps that drew it.
    Kingma & Ba, "Adam", 2015.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rows that the last backward drew."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for table in group["params"]:
                if table.grad is None:
                    continue
                rows, grad = _rows_of(table.grad)
                state = self.state[table]
                if not state:
                    shape = (len(table), *[1] * (table.ndim - 1))
                    state["step"] = torch.zeros(shape, dtype=torch.float64)  # torch keeps the type of "step"
                    state["mean"], state["square"] = torch.zeros_like(table), torch.zeros_like(table)
                state["step"] = state["step"].to(table.device)  # torch loads a "step" to the CPU
                steps = state["step"][rows] + 1
                mean = beta1 * state["mean"][rows] + (1 - beta1) * grad
                square = beta2 * state["square"][rows] + (1 - beta2) * grad * grad
                state["step"][rows], state["mean"][rows], state["square"][rows] = steps, mean, square
                bias1, bias2 = (1 - beta1**steps).to(grad), (1 - beta2**steps).to(grad)
                move = (mean / bias1) / ((square / bias2).sqrt() + group["eps"])
                table[rows] -= group["lr"] * move


class TableAdam(Adam):
    """torch's Adam on a whole table: rows that were not drawn go on moving by momentum."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every row; what the last backward did not draw has a gradient of 0."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    table.grad = table.grad.to_dense()
        super().step()


def _rows_of(grad: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that a gradient speaks of, and what it says; a dense one speaks of all."""
    if not grad.is_sparse:
        return torch.arange(len(grad), device=grad.device), grad
    grad = grad.coalesce()
    return grad.indices()[0], grad.values()


def make_optimiser(config: Optim, group: Group) -> Optimizer:
    """Build the optimiser that a recipe names; for tables (one row a class) in its row-wise form unless `dense`."""
    params = group.params
    if group.table and config.dense:
        return TableAdam(params, lr=config.lr, betas=config.betas)
    if group.table:
        return SGD(params, lr=config.lr) if config.name == "sgd" else RowAdam(params, config.lr, config.betas)
    decayed = [p for p in params if p.ndim > 1]  # biases, norms and temperatures do not decay
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.name == "sgd":
        return SGD(groups, lr=config.lr, momentum=config.momentum)
    return (AdamW if config.name == "adamw" else Adam)(groups, lr=config.lr, betas=config.betas)


def clip_gradients(params: list[nn.Parameter], config: Clipping) -> None:
    """Clip the gradients of one optimiser's parameters: their common norm, each coordinate, or each tensor's norm."""
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(params, config.clip_norm)
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(params, config.clip_value)
    if config.clip_each is not None:
        for param in params:
            nn.utils.clip_grad_norm_(param, config.clip_each)


def rate(config: Training, step: int) -> float:
    """Factor on the scheduled learning rates at a step (from 0): warm-up, then the schedule."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    if config.schedule == "linear":
        return 1 - done
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    if config.schedule == "step":
        return float(config.decay_factor ** (step // config.decay_every))
    return 1.0


def set_rates(optimisers: Iterable[Optimizer], factor: float) -> None:
    """Scale the learning rates that a recipe gave by the factor of the schedule."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group.setdefault("full_lr", group["lr"]) * factor
