"""A run that is killed at any instant, and goes on, ends with the very same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import TINY, recipe_file

SCRIPT = f"""
{TINY}
import sys, time
torch.set_num_threads(1)
from hyperproto.training import load_recipe, train
recipe, folder, pause = sys.argv[1:]
train(load_recipe(recipe), folder, lambda report: (print(report.step, flush=True), time.sleep(float(pause))))
"""


def start(recipe: Path, folder: Path, pause: float = 0.0) -> subprocess.Popen[str]:
    """Train in a process of its own; it prints every step and then pauses."""
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(recipe), str(folder), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def finished(process: subprocess.Popen[str], timeout: float = 120) -> list[int]:
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0
    return [int(line) for line in output.split()]


@pytest.mark.slow
@pytest.mark.parametrize("often", [False, True])
def test_a_killed_run_ends_with_the_same_bytes(often: bool, vectors_file: Path, tmp_path: Path) -> None:
    """Once with pauses between steps, once in the thick of it: a checkpoint every step, and kills at start-up too."""
    recipe = recipe_file(vectors_file, transform="center-unit" if often else "none")
    if often:
        text = recipe.read_text().replace("checkpoint_every = 7", "checkpoint_every = 1")
        recipe.write_text(
            text.replace('method = { name = "hyperproto"', 'method = { name = "hyperproto", centers = "episode"')
        )
    assert finished(start(recipe, tmp_path / "whole")) == list(range(1, 31))

    moments = random.Random(0)
    kills = 0
    while kills < 4:
        process = start(recipe, tmp_path / "killed", pause=0.0 if often else 0.01)
        assert process.stdout is not None
        if not (often and kills == 1):
            process.stdout.readline()  # the first step is done: it really trains
        time.sleep(moments.uniform(0, 0.05 if often else 0.12))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        if process.returncode == 0:
            break
    assert kills >= 2
    finished(start(recipe, tmp_path / "killed"))

    for name in ("model.safetensors", "metrics.jsonl", "checkpoint/last.safetensors", "config.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_it_goes_on_from_the_checkpoint_and_cuts_the_log_back(vectors_file: Path, tmp_path: Path) -> None:
    recipe = recipe_file(vectors_file)
    process = start(recipe, tmp_path / "run", pause=0.05)
    assert process.stdout is not None
    for _ in range(17):
        process.stdout.readline()
    process.kill()
    process.communicate()
    with (tmp_path / "run" / "metrics.jsonl").open("a") as log:
        log.write('{"step": 16, "torn')
    steps = finished(start(recipe, tmp_path / "run"))
    assert steps[0] == 15  # checkpoints at 7 and 14
    assert "torn" not in (tmp_path / "run" / "metrics.jsonl").read_text()
