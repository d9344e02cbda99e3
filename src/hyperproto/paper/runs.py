"""Train runs: one with its page, or many side by side, where finished ones are skipped and interrupted ones go on."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from hyperproto.data import open_pool
from hyperproto.errors import BusyError, ConfigError, DataError, HyperProtoError
from hyperproto.files import atomic_write, read_json
from hyperproto.paper.jobs import Board, Job, Outcome, run_jobs
from hyperproto.paper.report import run_differences
from hyperproto.progress import Show, noted
from hyperproto.recipes import Recipe, run_name
from hyperproto.training import Report, Run, load_recipe, train

TRAIN = "hyperproto.paper.runs:train_job"
FINISHED = "finished.json"  # in the folder of a run: its best validation, written when all of it is done
PATIENCE = 60.0  # seconds to wait for another process that trains what two runs start from


def train_run(name: str, folder: Path, changes: Sequence[str], show: Show | None = None) -> Run:
    """Train or resume a run, and write its page if matplotlib is installed."""
    checked = load_recipe(name, list(changes))

    def on_step(report: Report) -> None:
        if show is not None:
            show(report.step, report.steps, f"steps of {report.words()}")

    run = train(checked, folder, on_step, noted(show, "items made ready"))
    with suppress(ModuleNotFoundError):  # without matplotlib a run has no page
        from hyperproto.reports.run_page import write_run_page

        said = [part for change in changes for part in ("-o", change)]
        write_run_page(run, checked, shlex.join(["hyperproto", "train", name, "--out", str(folder), *said]))
    return run


def train_job(recipe: str, folder: str, changes: Sequence[str], show: Show) -> dict[str, Any]:
    """Train a run and write its best validation to finished.json: `metric`, `value`, `ci95`, `step`, `seconds`."""
    run, began = Run(folder), monotonic()

    def steps(done: int, total: int, note: str = "") -> None:
        of_steps = note.startswith("steps of")  # items that are made ready are no part of the way
        show(done if of_steps else 0, total, note)

    while True:
        try:
            train_run(recipe, run.folder, changes, steps)
            break
        except BusyError:
            if monotonic() - began > PATIENCE:
                raise
            sleep(1)
    best = run.best_validation()
    metric = next(key for key in best if key not in ("step", "ci95"))
    content = {"metric": metric, "value": best[metric], "ci95": best["ci95"], "step": best["step"]}
    content["seconds"] = round(monotonic() - began, 1)
    with atomic_write(run.folder / FINISHED) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")
    return content


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the content of finished.json; None if it is missing or damaged, since training again is then quick."""
    with suppress(DataError):
        content = read_json(folder / FINISHED)
        if isinstance(content, dict) and {"metric", "value", "ci95", "step", "seconds"} <= content.keys():
            return content if Run(folder).model.exists() else None
    return None


@dataclass(frozen=True)
class GridRun:
    """A run that has ended: `finished`, with its best validation, or `failed`, with the reason."""

    name: str
    folder: Path
    settings: dict[str, Any]  # those in which the runs of the grid differ, as resolved
    status: str
    result: dict[str, Any] | None = None  # metric, value, ci95, step, seconds
    error: str | None = None

    def words(self) -> str:
        """Return the outcome in a few words."""
        if self.result is None:
            return f"failed: {self.error}"
        return f"{self.result['metric']} {100 * self.result['value']:.2f} % at step {self.result['step']}"

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        measured = {} if self.result is None else _validation(self.result)
        error = {} if self.error is None else {"error": self.error}
        own = {"name": self.name, "folder": str(self.folder), "settings": self.settings, "status": self.status}
        return own | measured | error


def _validation(result: dict[str, Any]) -> dict[str, Any]:
    facts = {key: result[key] for key in ("ci95", "step", "seconds")}
    return {result["metric"]: result["value"], **facts}


OnRun = Callable[[GridRun, str], None]  # a run that has ended, and a line about it


@dataclass(frozen=True)
class Planned:
    """A run to train: its name among others, its recipe with changes, as text and as read, and its folder."""

    name: str
    recipe: str
    overrides: list[str]
    checked: Recipe
    folder: Path
    weight: float = 1.0  # how long it takes, beside others
    function: str = TRAIN
    arguments: dict[str, Any] | None = None  # of another function than the training itself
    done: Callable[[Path], dict[str, Any] | None] = finished  # what a finished run keeps

    def job(self) -> Job:
        """Return the run as a job of a worker."""
        own = {"recipe": self.recipe, "folder": str(self.folder), "changes": self.overrides, **(self.arguments or {})}
        return Job(self.name, self.function, own, self.weight)


def run_planned(
    plans: Sequence[Planned],
    settings: Mapping[str, dict[str, Any]],
    workers: int,
    show: Show | None,
    on_run: OnRun,
    data: Sequence[tuple[str, str]] = (),
) -> None:
    """Train runs; changed settings are refused before anything runs, and finished runs are skipped.

    `data`, specs and splits, are needed beside those that the recipes name.
    """
    open_plans, ended_runs = [], 0
    for plan in plans:
        _check_settings(plan)
    for plan in plans:
        kept = plan.done(plan.folder)
        if kept is None:
            open_plans.append(plan)
            continue
        ended_runs += 1
        run = GridRun(plan.name, plan.folder, settings[plan.name], "finished", result=kept)
        on_run(run, f"[{ended_runs}/{len(plans)}] {plan.name}: {run.words()}, finished before")
    check_data(open_plans, show, data if open_plans else ())
    jobs = [*_stages(open_plans), *(plan.job() for plan in open_plans)]
    board = Board(jobs, workers, show)
    by_name = {plan.name: plan for plan in open_plans}

    def ended(outcome: Outcome) -> None:
        nonlocal ended_runs
        plan = by_name.get(outcome.name)
        if plan is None:  # a stage: an error there occurs again in the runs that start from it
            return
        ended_runs += 1
        status = "failed" if outcome.result is None else "finished"
        run = GridRun(plan.name, plan.folder, settings[plan.name], status, outcome.result, outcome.error)
        left = len(plans) - ended_runs
        words = f"[{ended_runs}/{len(plans)}] {plan.name}: {run.words()}, {duration(outcome.seconds)}"
        seconds = board.seconds_left()
        rest = "" if seconds is None else f", about {duration(seconds)}"
        on_run(run, f"{words}; {left} to go{rest}" if left else words)

    run_jobs(board, ended)


def _check_settings(plan: Planned) -> None:
    """Refuse a run that was started with other settings: its recipe, or a file that it names, was changed."""
    run = Run(plan.folder)
    if not run.config.exists():
        return
    different = run_differences(run, plan.checked)
    if different:
        raise ConfigError(
            f"{plan.folder} holds a run with other settings ({', '.join(different)}); name another folder with --out, "
            "or remove this one"
        )


def _stages(plans: Sequence[Planned]) -> list[Job]:
    """Return jobs for the runs that others start from, which are trained before them and only once."""
    found: dict[Path, Job] = {}
    for plan in plans:
        stage = plan.checked.stage_before
        if stage is None or Run(stage.recipe).config.exists() or Run(plan.folder).checkpoint.exists():
            continue
        folder = plan.folder.parent / run_name(stage.recipe)
        arguments = {"recipe": stage.recipe, "folder": str(folder), "changes": []}
        if finished(folder) is None:
            found.setdefault(folder, Job(f"{stage.recipe}, a first stage", TRAIN, arguments, plan.weight, first=True))
    return list(found.values())


def check_data(plans: Sequence[Planned], show: Show | None, more: Sequence[tuple[str, str]] = ()) -> None:
    """Raise an error for missing data before anything runs."""
    for error in data_problems(plans, show, more):
        raise type(error)(f"nothing was run: {error}")


def data_problems(
    plans: Sequence[Planned], show: Show | None, more: Sequence[tuple[str, str]] = ()
) -> Iterator[HyperProtoError]:
    """Open all data that runs train and validate on, and `more` (specs and splits); yield an error for each problem."""
    wanted: dict[tuple[str, str], str] = {}
    for plan in plans:
        recipe = plan.checked
        for data in ((recipe.data.spec, recipe.data.split), (recipe.validation_spec, recipe.validation.split)):
            wanted.setdefault(data, plan.name)
    for data in more:
        wanted.setdefault(data, "the table")
    for (spec, split), name in wanted.items():
        try:
            open_pool(spec, split, noted(show, f"items of {spec} {split}"))
        except HyperProtoError as error:
            yield type(error)(f"{name} needs {spec} ({split}): {error}{_fetched(spec, str(error))}")


def _fetched(spec: str, said: str) -> str:
    """Return a hint how to download a data set, unless the error has one."""
    name = spec.partition(":")[0]
    with suppress(ModuleNotFoundError):
        from hyperproto.data.get import DOWNLOADS

        if name == spec and name in DOWNLOADS and "hyperproto data get" not in said:
            return f"; hyperproto data get {name} fetches it"
    return ""


def duration(seconds: float) -> str:
    """Return a time in at most two units: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
