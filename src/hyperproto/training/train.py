"""Algorithm 1 of the paper: initialise a region for every training class, then learn from episodes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from hyperproto.data import Pool, Progress, open_pool
from hyperproto.data.formats.relations import with_blanks
from hyperproto.encoders import default_device
from hyperproto.episodes import BatchSampler, Episode, PairSampler
from hyperproto.episodes.random import TRAINING, raw_words
from hyperproto.errors import ConfigError, DataError, NonFiniteError
from hyperproto.methods import Group, Task
from hyperproto.problems import Measurement, make_sampler
from hyperproto.recipes import Recipe, Start, run_name
from hyperproto.training.checkpoint import (
    MODEL,
    WAY_OUT,
    fill,
    load_model,
    load_tensors,
    model_tensors,
    optimiser_tensors,
    restore_optimisers,
    save_tensors,
)
from hyperproto.training.learner import Learner
from hyperproto.training.optimisers import clip_gradients, make_optimiser, rate, set_rates
from hyperproto.training.prior_ratio import PriorRatio
from hyperproto.training.resolve import load_recipe, resolve
from hyperproto.training.run import Run
from hyperproto.training.unlabelled import UnlabelledItems
from hyperproto.training.validation import Validator


@dataclass(frozen=True)
class State:
    """Where a run stands: with the weights and the optimisers' memory, all that a checkpoint holds."""

    step: int = 0
    best: float = -1.0  # validation, whatever it measures
    best_step: int = 0
    stale: int = 0  # validations since the best one
    metrics_length: int = 0  # bytes of metrics.jsonl that belong to it

    def finished(self, recipe: Recipe) -> bool:
        """Whether all steps are done, or patience is at an end."""
        patience = recipe.training.patience
        return self.step >= recipe.training.steps or (patience is not None and self.stale >= patience)


@dataclass(frozen=True)
class Report:
    """What a progress display gets after every step."""

    recipe: str  # the one at work: a run may train another first, to start from it
    step: int
    steps: int
    loss: float
    measured: Measurement | None  # by the last validation
    monitor: dict[str, Any]
    speed: float  # episodes (batches, sets of pairs) a second, since this process began to learn

    def words(self) -> str:
        """Say it in a few words."""
        last = self.measured
        metric = "" if last is None else f"  {last.metric} {100 * last.value:.1f} %"
        spread = self.monitor.get("radius_spread")
        radii = "" if spread is None else f"  radius spread {spread:.3g}"
        return f"{self.recipe}: loss {self.loss:.3f}{metric}{radii}  {self.speed:.3g} a second"


OnStep = Callable[[Report], None]


class Sampling(Protocol):
    """Episodes that are chosen while the learner learns, in place of those that the recipe draws.

    To resume to the same result, all that it remembers must follow from the step, the learner and the rows of the log.
    """

    def draw(self, step: int) -> list[Episode]:
        """Return the episodes of a step (from 0)."""

    def log(self) -> dict[str, float]:
        """Return what a row of the log holds beside the rest."""


MakeSampling = Callable[[Recipe, Pool, Learner, list[dict[str, Any]]], Sampling]  # the rows logged so far come last


def train(
    recipe: Recipe,
    folder: str | Path,
    on_step: OnStep | None = None,
    on_data: Progress | None = None,
    sampling: MakeSampling | None = None,
) -> Run:
    """Train as the recipe says, or go on where a killed run stopped: the result is the same to the last bit (on CPU).

    The global random state of torch is left as it was. `on_data(done, total)` counts items while data are made ready.
    A folder that another process trains in is refused, a new one as soon as both have made it.
    """
    run = Run(folder)
    with ExitStack() as locks, torch.random.fork_rng(devices=[]):
        if run.config.exists():
            locks.enter_context(run.lock())
        start = _start(recipe, run, on_step, on_data)
        pool = open_pool(recipe.data.spec, recipe.data.split, on_data)
        if recipe.pairs is not None:
            pool = with_blanks(pool)
        unlabelled = UnlabelledItems.of(recipe, on_data)
        validation = Validator(recipe, pool, on_data)
        _train(resolve(recipe, pool), pool, unlabelled, validation, run, start, on_step, on_data, locks, sampling)
    return run


def _start(recipe: Recipe, run: Run, on_step: OnStep | None, on_data: Progress | None) -> tuple[Run, Start] | None:
    """Find, or train, the run that this one starts from; a run that has a checkpoint has started already."""
    stage = recipe.stage_before
    if stage is None or run.checkpoint.exists():
        return None
    if Run(stage.recipe).config.exists():
        return Run(stage.recipe), stage
    first = load_recipe(stage.recipe)
    return train(first, run.folder.parent / run_name(stage.recipe), on_step, on_data), stage


def _train(
    recipe: Recipe,
    pool: Pool,
    unlabelled: UnlabelledItems | None,
    validation: Validator,
    run: Run,
    start: tuple[Run, Start] | None,
    on_step: OnStep | None,
    on_data: Progress | None,
    locks: ExitStack,
    sampling: MakeSampling | None,
) -> None:
    config = recipe.training
    learner = Learner.build(recipe, pool.n_labels).to(default_device())
    draw = _drawer(recipe, pool)
    groups = {name: group for name, group in learner.parameter_groups(list(recipe.optim)).items() if group.params}
    if not groups:
        raise ConfigError(f"{recipe.encoder.name} with {recipe.method.name} has nothing to learn; evaluate it as it is")
    locks.enter_context(run.lock())  # only now: what cannot be drawn or built leaves no folder behind
    run.claim(recipe, pool)
    optimisers = {name: make_optimiser(recipe.optimiser(name), group) for name, group in groups.items()}
    scheduled = [optimiser for name, optimiser in optimisers.items() if recipe.optimiser(name).scheduled]

    # Initialisation phase: z_n and eps_n of all N_total classes, from K random instances each
    state = State()
    if run.checkpoint.exists():
        state = _resume(run, learner, optimisers)
    else:
        _initialise(learner, pool, config.seed, start)
    run.cut_metrics(state.metrics_length)
    learner.store(pool, on_data)
    if unlabelled is not None:
        learner.store(unlabelled.pool, on_data)
    chosen = None if sampling is None else sampling(recipe, pool, learner, run.read_metrics())

    # Learning phase
    rows: list[dict[str, Any]] = []
    measured: Measurement | None = None
    began, first, drawn_a_step = monotonic(), state.step, 1 if recipe.episodes is None else recipe.episodes.batch
    while not state.finished(recipe):
        step = state.step
        torch.manual_seed(int(raw_words(config.seed, TRAINING, step, 1, 1)[0, 0] >> 1))  # dropout, augmentation
        episodes = draw(step) if chosen is None else chosen.draw(step)  # V, then Q_n (and S_n)
        learner.train()
        with _told_at_step(step + 1, run):
            drawn = learner.collate(pool, episodes)
            task = learner.task(*drawn)
            if unlabelled is not None:
                task = learner.with_unlabelled(task, unlabelled.pool, unlabelled.draw(step, episodes))
            set_rates(scheduled, rate(config, step))
            told = _opponent_step(learner, task, optimisers, groups, recipe)
            with _held_constant(groups):
                losses = {**learner.method.loss(task), **learner.encoder_loss(drawn[0])}  # L_cls (and L_dis)
                loss = torch.stack(list(losses.values())).sum()
                players = {name: group for name, group in groups.items() if not group.opponent}
                _update(optimisers, loss, players, recipe)  # z, eps and f
            losses |= told
            state = replace(state, step=step + 1)

            row: dict[str, Any] = {"step": state.step, **{name: part.item() for name, part in losses.items()}}
            validates = state.step % config.validate_every == 0 or state.step == config.steps
            saves = state.step % config.checkpoint_every == 0
            if validates or saves:
                learner.check_finite()
            if validates:
                state, measured = _validate(validation, learner, run, state, config.steps)
                row |= measured.row()
        if len(row) > 1 + len(losses) or state.step % config.log_every == 0:
            rows.append({**row, **learner.method.monitor(), **({} if chosen is None else chosen.log())})
        if saves or state.finished(recipe):
            state = replace(state, metrics_length=run.append_metrics(rows))
            rows = []
            save_tensors(run.checkpoint, {**_named(learner), **optimiser_tensors(optimisers)}, vars(state))
        if on_step is not None:
            speed = (state.step - first) * drawn_a_step / (monotonic() - began)
            seen = learner.method.monitor()
            on_step(Report(recipe.name, state.step, config.steps, loss.item(), measured, seen, speed))
    if PriorRatio.can_measure(learner, validation.pool, pool) and not run.prior_ratio.exists():
        load_model(run.model, learner)  # the best weights
        PriorRatio.measure(learner.eval(), validation.encoded(learner, last=True)).write(run.prior_ratio)


def _initialise(learner: Learner, pool: Pool, seed: int, start: tuple[Run, Start] | None) -> None:
    """Fill the parameters: the encoder's from the stage before, the method's from the data, then from that stage."""
    before = None
    if start is not None:
        run, stage = start
        before = run.load(stage.weights)[0]
        learner.take_encoder(before, run.folder)
    torch.manual_seed(seed)
    learner.setup(pool)
    if before is not None:
        learner.take_heads(before, stage.heads, run.folder)


def _drawer(recipe: Recipe, pool: Pool) -> Callable[[int], list[Episode]]:
    """Return the function from a step (from 0) to the episodes, batch of items, or pairs that it trains on."""
    task, seed = recipe.episodes, recipe.training.seed
    if recipe.batches is not None:
        batches = BatchSampler(pool, size=recipe.batches.size, seed=seed)
        return lambda step: batches.draw(1, start=step)
    if (pairs := recipe.pairs) is not None:
        drawn = PairSampler(pool, source=pairs.source, blanks=pairs.blanks, seed=seed)
        return lambda step: drawn.draw(pairs.size, start=step * pairs.size)
    assert task is not None  # the schema sees to it
    shape = {"way": task.way, "shot": task.shot, "query": task.query, "seed": seed, **task.k2k()}
    shape |= {"noise_rate": task.noise_rate or 0.0, "most_shots": task.most_shots}
    sampler = make_sampler(pool, **shape)
    return lambda step: sampler.draw(task.batch, start=step * task.batch)


@contextmanager
def _told_at_step(step: int, run: Run) -> Iterator[None]:
    """Say of numbers that are not finite at which step they came up, what to do, and what is left of the run."""
    try:
        yield
    except NonFiniteError as error:
        kept = "keeps its last checkpoint" if run.checkpoint.exists() else "has no checkpoint yet"
        raise ConfigError(
            f"step {step}: {error}. Lower the learning rates ([optim.*]), add a warm-up or clip gradients "
            f"(training.clip_norm), and name another folder with --out; {run.folder} {kept}"
        ) from None


def _opponent_step(
    learner: Learner, task: Task, optimisers: dict[str, Optimizer], groups: dict[str, Group], recipe: Recipe
) -> dict[str, Tensor]:
    """Let the second player of a game move first, on features that are constants to it; return its loss by parts."""
    opponents = {name: group for name, group in groups.items() if group.opponent}
    losses = learner.method.opponent_loss(task.detached()) if opponents else {}
    if losses:
        _update(optimisers, torch.stack(list(losses.values())).sum(), opponents, recipe)
    return losses


@contextmanager
def _held_constant(groups: dict[str, Group]) -> Iterator[None]:
    """Let no gradient reach the second player's parameters."""
    params = [param for group in groups.values() if group.opponent for param in group.params]
    for param in params:
        param.requires_grad_(False)
    try:
        yield
    finally:
        for param in params:
            param.requires_grad_(True)


def _update(optimisers: dict[str, Optimizer], loss: Tensor, groups: dict[str, Group], recipe: Recipe) -> None:
    """Move the parameters of some groups down the gradient of a loss."""
    if not loss.isfinite():
        raise NonFiniteError(f"the loss is {loss.item()}")
    for name in groups:
        optimisers[name].zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for name, group in groups.items():
        clip_gradients(group.params, recipe.clipping(name))
    try:
        for name in groups:
            optimisers[name].step()
    except RuntimeError as error:
        if "overflow" not in str(error):  # of a learning rate that float32 cannot hold
            raise
        raise NonFiniteError(f"a learning rate is too large ({error})") from None


def _validate(validation: Validator, learner: Learner, run: Run, state: State, steps: int) -> tuple[State, Measurement]:
    """Measure the learner; keep its weights as the run's model if they are the best so far."""
    found = validation.measure(learner, last=state.step == steps)
    if found.value <= state.best:
        return replace(state, stale=state.stale + 1), found
    save_tensors(run.model, learner.state_dict(), {"step": state.step, found.metric: found.value})
    return replace(state, best=found.value, best_step=state.step, stale=0), found


def _named(learner: Learner) -> dict[str, Tensor]:
    return {f"{MODEL}{name}": tensor for name, tensor in learner.state_dict().items()}


def _resume(run: Run, learner: Learner, optimisers: dict[str, Optimizer]) -> State:
    tensors, state = load_tensors(run.checkpoint)
    fill(learner, model_tensors(tensors), run.checkpoint)
    try:
        restore_optimisers(optimisers, tensors)
        return State(**state)
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{run.checkpoint}: not the checkpoint of this training ({error!r}); {WAY_OUT}") from None
