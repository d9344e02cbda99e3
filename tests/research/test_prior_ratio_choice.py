"""Measured, tuned and default prior_ratio on another split, in small."""

import json
from pathlib import Path

import pytest

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
