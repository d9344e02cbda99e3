"""Measured, tuned and default prior_ratio on another split, in small."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hyperproto.regions import ClassStatistics
from hyperproto.regions.bayes import measured_ratio
from hyperproto.training import load_recipe, train
from research import prior_ratio_choice

SMALL = ["encoder.filters=4", "training.steps=2", "training.validate_every=2", "validation.episodes=4"]


@pytest.mark.slow
def test_ratios_are_measured_and_tuned_on_validation_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(load_recipe("glyphs:protonet", SMALL), "run")
    command = ["run", "--split", "test", "--episodes", "5", "--choice-episodes", "4", "--json", "found.json"]
    prior_ratio_choice.main(command)
    found = json.loads(Path("found.json").read_text())
    assert found["command"] == "python -m research.prior_ratio_choice " + " ".join(command)
    assert (found["split"], found["chosen_on"]) == ("test", "glyphs (val)")
    means = found["validation_accuracy"]
    assert {"measured", "measured, whitened"} < set(means)
    grid = {key: value for key, value in means.items() if not key.startswith("measured")}
    values = {row["prior_ratio"]: row["value"] for row in found["results"]}
    assert values["measured"] == json.loads(run.prior_ratio.read_text())["ratio"]["none"]
    assert grid[str(values["tuned"])] == max(grid.values())
    assert values["default"] == 4
    assert len(found["results"]) == 4 * 5
    assert all(row["over_default"] == 0 for row in found["results"] if row["prior_ratio"] == "default")
    assert "measured, whitened" in capsys.readouterr().out


def statistics(x: np.ndarray, labels: np.ndarray, way: int) -> ClassStatistics:
    return ClassStatistics.of(torch.from_numpy(x), torch.from_numpy(labels), way)


@pytest.mark.parametrize("true", [0.1, 1.0, 30.0])
def test_the_whitened_ratio_is_that_of_round_classes(true: float) -> None:
    """Classes of variance 1 about centres of variance 1 / true."""
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(150), 40)
    x = rng.normal(size=(150, 12))[labels] / np.sqrt(true) + rng.normal(size=(len(labels), 12))
    found = float(prior_ratio_choice.whitened_ratio(statistics(x, labels, 150)))
    assert found == pytest.approx(true, rel=0.15)


def test_whitening_lowers_the_ratio_of_long_classes() -> None:
    """One direction of large scatter, in which classes do not differ, dominates the ratio without whitening."""
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(40), 30)
    x = rng.normal(size=(40, 8))[labels] * [0, 1, 1, 1, 1, 1, 1, 1] + rng.normal(size=(len(labels), 8)) * [9, *[1] * 7]
    stats = statistics(x, labels, 40)
    assert float(prior_ratio_choice.whitened_ratio(stats)) < 0.5 * float(measured_ratio(stats))
