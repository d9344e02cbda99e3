"""Training runs of equal CPU minutes: a step is timed first, and the number of steps follows."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from hyperproto.errors import ConfigError
from hyperproto.files import atomic_write, read_json
from hyperproto.recipes import Recipe, parse
from hyperproto.training import Report, Run, load_recipe, train
from hyperproto.training.checkpoint import load_state

WARM_UP, MEASURED = 3, 20  # steps of the scratch run whose time is not, and is, counted
TIMING = "timing.json"
OnShare = Callable[[float], None]  # the share of a run that is done


class _MeasuredError(Exception):
    """Raised to end the scratch run."""


@dataclass(frozen=True)
class Plan:
    """Plan of a run: its recipe with changes, its folder, the file with its number of steps, its CPU minutes.

    A recipe that starts from another shares the minutes with it: the first stage, in `start_folder`, gets `start_share`
    of them, and `start_changes` in its own recipe.
    """

    recipe: str
    changes: Sequence[str]
    folder: Path
    timing: Path
    minutes: float
    start_folder: Path
    start_share: float
    start_changes: Sequence[str] = ()
    facts: dict[str, Any] = field(default_factory=dict)  # further entries of the file with the steps

    def train(self, on_share: OnShare) -> Run:
        """Train or resume the run; a finished run, or one begun with another number of steps, keeps its recipe."""
        run = Run(self.folder)
        if not is_finished(run):
            with run.lock():
                recipe = parse(run.read_config()["recipe"], str(run.config)) if run.config.exists() else self._recipe()
                clock = _Clock(recipe.training.steps, on_share)
                train(recipe, self.folder, clock)
            if self.timing.parent == self.folder and self.timing.exists() and clock.seconds:
                _write(self.timing, {**read_json(self.timing), "training_seconds_a_step": round(clock.mean(), 6)})
        if not self.timing.exists():  # a run that was begun without a plan
            found = run.read_config()["recipe"]
            seconds = seconds_a_step(parse(found, str(run.config)))
            steps = found["training"]["steps"]
            _write(self.timing, {"minutes": None, "seconds_a_step": round(seconds, 6), "steps": steps})
        return run

    def _recipe(self) -> Recipe:
        """Return the recipe with the number of steps that fits the minutes."""
        changes, minutes = list(self.changes), self.minutes
        recipe = load_recipe(self.recipe, changes)
        first = recipe.stage_before
        if first is not None and not Run(first.recipe).config.exists():
            share = self.minutes * self.start_share
            here = self.start_folder
            Plan(
                recipe=first.recipe,
                changes=self.start_changes,
                folder=here,
                timing=here / TIMING,
                minutes=share,
                start_folder=here.with_name(f"{here.name}-start"),
                start_share=self.start_share,
            ).train(lambda _: None)
            changes.append(f"{'start' if isinstance(recipe.start, str) else 'start.recipe'}={here}")
            minutes -= share
            recipe = load_recipe(self.recipe, changes)
        steps = self._steps(recipe, minutes)
        return load_recipe(self.recipe, [*changes, *of_length(recipe, steps)])

    def _steps(self, recipe: Recipe, minutes: float) -> int:
        """Return the number of steps: timed once, then read from the file."""
        if self.timing.exists():
            kept = read_json(self.timing)
            if abs(kept["minutes"] - minutes) > 1e-6:
                raise ConfigError(
                    f"{self.timing}: planned for {kept['minutes']:g} CPU minutes, not {minutes:g}; ask for the same, "
                    "or remove the folder"
                )
            return int(kept["steps"])
        seconds = seconds_a_step(recipe)
        steps = max(1, round(60 * minutes / seconds))
        found = {"minutes": minutes, "seconds_a_step": round(seconds, 6), "steps": steps}
        _write(self.timing, {**found, **self.facts})
        return steps


class _Clock:
    """Callback that records the CPU time of each step except the last, which includes the validation."""

    def __init__(self, steps: int, on_share: OnShare) -> None:
        self.steps, self.on_share = steps, on_share
        self.last: float | None = None
        self.seconds: list[float] = []

    def __call__(self, report: Report) -> None:
        now = process_time()
        main = report.step < self.steps
        if main and self.last is not None:
            self.seconds.append(now - self.last)
        self.last = now
        self.on_share(report.step / report.steps)

    def mean(self) -> float:
        """Return the mean CPU seconds of a step."""
        return fmean(self.seconds)


def is_finished(run: Run) -> bool:
    """Return whether a run has done all its steps."""
    if not (run.config.exists() and run.checkpoint.exists() and run.model.exists()):
        return False
    return bool(load_state(run.checkpoint)["step"] >= run.read_config()["recipe"]["training"]["steps"])


def of_length(recipe: Recipe, steps: int) -> list[str]:
    """Return overrides for `steps` steps, the schedule in proportion, with one validation at the end."""
    own = recipe.training
    return [
        f"training.steps={steps}",
        f"training.warmup={own.warmup * steps // own.steps}",
        f"training.decay_every={max(1, own.decay_every * steps // own.steps)}",
        f"training.validate_every={steps}",
        f"training.checkpoint_every={max(1, steps // 10)}",
    ]


def seconds_a_step(recipe: Recipe) -> float:
    """Return the mean CPU seconds of a training step, timed in a scratch run without validation."""
    far = 2**31 - 1
    changed = {"steps": far, "validate_every": far, "checkpoint_every": far}
    scratch = recipe.model_copy(update={"training": recipe.training.model_copy(update=changed)})
    times: list[float] = []

    def on_step(report: Report) -> None:
        times.append(process_time())
        if len(times) == WARM_UP + MEASURED:
            raise _MeasuredError

    with TemporaryDirectory() as folder, suppress(_MeasuredError):
        train(scratch, Path(folder) / "run", on_step)
    return (times[-1] - times[WARM_UP - 1]) / MEASURED


def _write(path: Path, content: dict[str, Any]) -> None:
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")
