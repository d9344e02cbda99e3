"""Algorithm 1 of the paper: initialise a region for every training class, then learn from a task a step."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from hyperproto.data import Pool, Progress
from hyperproto.encoders import default_device
from hyperproto.episodes.random import TRAINING, raw_words
from hyperproto.errors import ConfigError, DataError, NonFiniteError
from hyperproto.problems import Measurement
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
from hyperproto.training.optimisers import Optimisers
from hyperproto.training.resolve import load_recipe, resolve
from hyperproto.training.run import Run
from hyperproto.training.tasks import MakeSource, SampledTasks, TaskSource, Validator, training_pool


@dataclass(frozen=True)
class RunState:
    """Position of a run; a checkpoint holds it beside the weights and the optimisers' tensors."""

    step: int = 0
    best: float = -1.0  # best validation metric so far
    best_step: int = 0
    stale: int = 0  # validations since the best one
    metrics_length: int = 0  # bytes of metrics.jsonl at the checkpoint

    def finished(self, recipe: Recipe) -> bool:
        """Return whether all steps are done, or validations stopped improving (`training.patience`)."""
        patience = recipe.training.patience
        return self.step >= recipe.training.steps or (patience is not None and self.stale >= patience)


@dataclass(frozen=True)
class Report:
    """Progress of a run after a step."""

    recipe: str  # name of the recipe, which may be that of an earlier stage
    step: int
    steps: int
    loss: float
    measured: Measurement | None  # last validation
    monitor: dict[str, Any]
    speed: float  # episodes (batches, sets of pairs) a second since this process began to train

    def words(self) -> str:
        """Return one line for a progress display."""
        last = self.measured
        metric = "" if last is None else f"  {last.metric} {100 * last.value:.1f} %"
        spread = self.monitor.get("radius_spread")
        radii = "" if spread is None else f"  radius spread {spread:.3g}"
        return f"{self.recipe}: loss {self.loss:.3f}{metric}{radii}  {self.speed:.3g} a second"


OnStep = Callable[[Report], None]


@dataclass(frozen=True, eq=False)
class _Parts:
    """Everything that Algorithm 1 works with."""

    recipe: Recipe
    pool: Pool
    learner: Learner
    source: TaskSource
    optimisers: Optimisers
    validator: Validator
    run: Run
    start: tuple[Run, Start] | None  # finished run of the stage before


def train(
    recipe: Recipe,
    folder: str | Path,
    on_step: OnStep | None = None,
    on_data: Progress | None = None,
    source: MakeSource = SampledTasks,
) -> Run:
    """Train a recipe in a folder, or resume a run that was interrupted there.

    On CPU a resumed run ends with the same bits as an uninterrupted one. The global random state of torch is restored.
    `on_data(done, total)` reports items while data are prepared. `source` replaces the tasks that the recipe describes.
    A folder in which another process trains is refused with a BusyError.
    """
    run = Run(folder)
    with ExitStack() as locks, torch.random.fork_rng(devices=[]):
        if run.config.exists():
            locks.enter_context(run.lock())
        start = _stage_before(recipe, run, on_step, on_data)
        pool = training_pool(recipe, on_data)
        validator = Validator(recipe, pool, on_data)
        recipe = resolve(recipe, pool)
        learner = Learner.build(recipe, pool.n_labels).to(default_device())
        tasks = source(recipe, pool, learner, on_data)
        parts = _Parts(recipe, pool, learner, tasks, Optimisers(recipe, learner), validator, run, start)
        locks.enter_context(run.lock())  # only now: a recipe that cannot be trained leaves no folder behind
        run.claim(recipe, pool)
        _train(parts, on_step, on_data)
    return run


def _train(parts: _Parts, on_step: OnStep | None, on_data: Progress | None) -> None:
    """Run Algorithm 1, validating and saving checkpoints on the way."""
    recipe, learner, source, optimisers = parts.recipe, parts.learner, parts.source, parts.optimisers
    config, run, validator = recipe.training, parts.run, parts.validator

    # Initialisation phase: z_n and eps_n of all N_total classes, from K random instances each
    state = _resumed(parts) if run.checkpoint.exists() else _initialised(parts)
    source.begin(run.cut_metrics(state.metrics_length), on_data)

    # Learning phase
    rows: list[dict[str, Any]] = []
    measured: Measurement | None = None
    report = _reporter(recipe, learner, state.step, on_step)
    while not state.finished(recipe):
        _seed(config.seed, state.step)
        with _explained(state.step + 1, run):
            task, batch = source.task(state.step)  # V, Q_n (and S_n), as vectors f(x)
            optimisers.schedule(state.step)
            opponent = optimisers.step_opponent(learner.method, task)
            with optimisers.opponent_fixed():
                losses = {**learner.method.loss(task), **learner.encoder_loss(batch)}  # "cls" is L_cls, eq. 5
                loss = optimisers.step(losses)  # update z, eps and f
            state = replace(state, step=state.step + 1)

            validates = state.step % config.validate_every == 0 or state.step == config.steps
            saves = state.step % config.checkpoint_every == 0
            if validates or saves:
                learner.check_finite()
            row = {"step": state.step, **{name: part.item() for name, part in {**losses, **opponent}.items()}}
            if validates:
                state, measured = _validate(validator, learner, run, state, config.steps)
                row |= measured.row()
        if validates or state.step % config.log_every == 0:
            rows.append({**row, **learner.method.monitor(), **source.log()})
        if saves or state.finished(recipe):
            state = replace(state, metrics_length=run.append_metrics(rows))
            rows = []
            _save(parts, state)
        report(state.step, loss, measured)
    _measure_prior_ratio(parts)


def _stage_before(
    recipe: Recipe, run: Run, on_step: OnStep | None, on_data: Progress | None
) -> tuple[Run, Start] | None:
    """Find or train the run that this one starts from; a run with a checkpoint has already started."""
    stage = recipe.stage_before
    if stage is None or run.checkpoint.exists():
        return None
    if Run(stage.recipe).config.exists():
        return Run(stage.recipe), stage
    first = load_recipe(stage.recipe)
    return train(first, run.folder.parent / run_name(stage.recipe), on_step, on_data), stage


def _initialised(parts: _Parts) -> RunState:
    """Initialise the encoder from the stage before, the method from the data, then its heads from that stage."""
    learner, before = parts.learner, None
    if parts.start is not None:
        run, stage = parts.start
        before = run.load(stage.weights)[0]
        learner.take_encoder(before, run.folder)
    torch.manual_seed(parts.recipe.training.seed)
    learner.setup(parts.pool)
    if before is not None:
        learner.take_heads(before, stage.heads, run.folder)
    return RunState()


def _resumed(parts: _Parts) -> RunState:
    """Load weights, optimisers and position from the checkpoint."""
    path = parts.run.checkpoint
    tensors, state = load_tensors(path)
    fill(parts.learner, model_tensors(tensors), path)
    try:
        restore_optimisers(parts.optimisers.by_group, tensors)
        return RunState(**state)
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not the checkpoint of this training ({error!r}); {WAY_OUT}") from None


def _save(parts: _Parts, state: RunState) -> None:
    """Write a checkpoint."""
    weights = {f"{MODEL}{name}": tensor for name, tensor in parts.learner.state_dict().items()}
    save_tensors(parts.run.checkpoint, {**weights, **optimiser_tensors(parts.optimisers.by_group)}, vars(state))


def _seed(seed: int, step: int) -> None:
    """Seed torch for the dropout and augmentation of a step, so that a resumed run repeats it."""
    torch.manual_seed(int(raw_words(seed, TRAINING, step, 1, 1)[0, 0] >> 1))


@contextmanager
def _explained(step: int, run: Run) -> Iterator[None]:
    """Turn a NonFiniteError into a ConfigError with the step, the remedy and the state of the run."""
    try:
        yield
    except NonFiniteError as error:
        kept = "keeps its last checkpoint" if run.checkpoint.exists() else "has no checkpoint yet"
        raise ConfigError(
            f"step {step}: {error}. Lower the learning rates ([optim.*]), add a warm-up or clip gradients "
            f"(training.clip_norm), and name another folder with --out; {run.folder} {kept}"
        ) from None


def _reporter(
    recipe: Recipe, learner: Learner, first: int, on_step: OnStep | None
) -> Callable[[int, Tensor, Measurement | None], None]:
    """Return a function that reports a step to `on_step`, with the speed since step `first`."""
    began, drawn_a_step = monotonic(), 1 if recipe.episodes is None else recipe.episodes.batch

    def report(step: int, loss: Tensor, measured: Measurement | None) -> None:
        if on_step is not None:
            speed = (step - first) * drawn_a_step / (monotonic() - began)
            monitor = learner.method.monitor()
            on_step(Report(recipe.name, step, recipe.training.steps, loss.item(), measured, monitor, speed))

    return report


def _validate(
    validator: Validator, learner: Learner, run: Run, state: RunState, steps: int
) -> tuple[RunState, Measurement]:
    """Measure the learner on the validation episodes; save its weights as the run's model if they are the best."""
    found = validator.measure(learner, last=state.step == steps)
    if found.value <= state.best:
        return replace(state, stale=state.stale + 1), found
    save_tensors(run.model, learner.state_dict(), {"step": state.step, found.metric: found.value})
    return replace(state, best=found.value, best_step=state.step, stale=0), found


def _measure_prior_ratio(parts: _Parts) -> None:
    """Measure the prior ratio of a finished run with its best weights, once."""
    run, learner, validator = parts.run, parts.learner, parts.validator
    if validator.can_measure_ratio(learner) and not run.prior_ratio.exists():
        load_model(run.model, learner)
        validator.prior_ratio(learner.eval()).write(run.prior_ratio)
