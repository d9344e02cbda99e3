"""Train one run with its page, as `hyperproto train` does; and as a job of many."""

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from hyperproto.errors import BusyError, DataError
from hyperproto.files import atomic_write, read_json
from hyperproto.progress import Show, noted
from hyperproto.training import Report, Run, load_recipe, train

FINISHED = "finished.json"  # in the folder of a run: its best validation, written when all of it is done
PATIENCE = 60.0  # seconds to wait for another process that trains what two runs start from


def train_run(name: str, folder: Path, changes: Sequence[str], show: Show | None = None) -> Run:
    """Train, or go on, and write the run's page if matplotlib is installed."""
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
    """Train a run, and keep in its folder that it is finished: `metric`, `value`, `ci95`, `step`, `seconds`."""
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
    """What a finished run keeps; None where it is not there, or damaged: training again then takes a moment."""
    with suppress(DataError):
        content = read_json(folder / FINISHED)
        if isinstance(content, dict) and {"metric", "value", "ci95", "step", "seconds"} <= content.keys():
            return content if Run(folder).model.exists() else None
    return None
