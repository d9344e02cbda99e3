"""Optimisers by parameter group, learning-rate schedules as pure functions of the step, and Adam for tables of rows."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from hyperproto.errors import ConfigError, NonFiniteError
from hyperproto.methods import Group, Method, Task
from hyperproto.recipes import Clipping, Optim, Recipe, Training
from hyperproto.training.learner import Learner


class Optimisers:
    """The optimisers of a run, one for each parameter group: encoder, radii, centres, an opponent, ...

    Each has the learning rate, clipping and schedule of its own section `[optim.NAME]`.
    """

    def __init__(self, recipe: Recipe, learner: Learner) -> None:
        found = learner.parameter_groups(list(recipe.optim))
        self.groups = {name: group for name, group in found.items() if group.params}
        if not self.groups:
            encoder, method = recipe.encoder.name, recipe.method.name
            raise ConfigError(f"{encoder} with {method} has nothing to learn; evaluate it as it is")
        self.recipe = recipe
        self.by_group = {name: make_optimiser(recipe.optimiser(name), group) for name, group in self.groups.items()}
        self.opponents = [name for name, group in self.groups.items() if group.opponent]
        self.players = [name for name in self.groups if name not in self.opponents]

    def schedule(self, step: int) -> None:
        """Set the learning rates of a step, counted from 0."""
        scheduled = (each for name, each in self.by_group.items() if self.recipe.optimiser(name).scheduled)
        set_rates(scheduled, rate(self.recipe.training, step))

    def step(self, losses: Mapping[str, Tensor]) -> Tensor:
        """Take a gradient step on the sum of named losses; the opponent's parameters do not move. Return the sum."""
        return self._update(losses, self.players)

    def step_opponent(self, method: Method, task: Task) -> dict[str, Tensor]:
        """Take a step of the opponent of an adversarial method, on constant features; return its losses by name."""
        losses = method.opponent_loss(task.detached()) if self.opponents else {}
        if losses:
            self._update(losses, self.opponents)
        return losses

    @contextmanager
    def opponent_fixed(self) -> Iterator[None]:
        """Stop gradients to the opponent's parameters."""
        params = [param for name in self.opponents for param in self.groups[name].params]
        for param in params:
            param.requires_grad_(False)
        try:
            yield
        finally:
            for param in params:
                param.requires_grad_(True)

    def _update(self, losses: Mapping[str, Tensor], names: list[str]) -> Tensor:
        loss = torch.stack(list(losses.values())).sum()
        if not loss.isfinite():
            raise NonFiniteError(f"the loss is {loss.item()}")
        for name in names:
            self.by_group[name].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for name in names:
            clip_gradients(self.groups[name].params, self.recipe.clipping(name))
        try:
            for name in names:
                self.by_group[name].step()
        except RuntimeError as error:
            if "overflow" not in str(error):  # the learning rate does not fit into float32
                raise
            raise NonFiniteError(f"a learning rate is too large ({error})") from None
        return loss


class RowAdam(Optimizer):
    """Adam for a table with sparse gradients: rows without a gradient keep their values and their moments.

    Each row counts its own steps, so it moves exactly as under an Adam that saw only the steps in which it was drawn.
    Kingma & Ba, "Adam", 2015.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rows that have a gradient."""
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
    """torch's Adam on a whole table: momentum also moves the rows that were not drawn."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every row; rows that were not drawn have a gradient of 0."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    table.grad = table.grad.to_dense()
        super().step()


def _rows_of(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row indices (R,) of a gradient and its values (R, ...); a dense gradient has all rows."""
    if not grad.is_sparse:
        return torch.arange(len(grad), device=grad.device), grad
    grad = grad.coalesce()
    return grad.indices()[0], grad.values()


def make_optimiser(config: Optim, group: Group) -> Optimizer:
    """Build the optimiser of a parameter group; tables (one row a class) get a row-wise one unless `dense` is set."""
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
    """Clip the gradients of one parameter group: their joint norm, each coordinate, or the norm of each tensor."""
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(params, config.clip_norm)
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(params, config.clip_value)
    if config.clip_each is not None:
        for param in params:
            nn.utils.clip_grad_norm_(param, config.clip_each)


def rate(config: Training, step: int) -> float:
    """Return the factor on scheduled learning rates at a step, counted from 0: warm-up, then the schedule."""
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
    """Multiply the learning rates of the recipe by the factor of the schedule."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group.setdefault("full_lr", group["lr"]) * factor
