"""The ablation in small: every way to train and to score, paired with ProtoNet."""

import json
from pathlib import Path

import numpy as np
import pytest

from hyperproto.training import load_recipe
from research import ablation

SMALL = ["encoder.filters=4", "training.steps=2", "training.validate_every=2", "validation.episodes=4"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ablation, "load_recipe", lambda name, overrides: load_recipe(name, [*overrides, *SMALL]))
    monkeypatch.setitem(ablation.STUDIES, "glyphs", ablation.Study("glyphs", [("glyphs", "test", 5, 2)], query=3))


def test_every_variant_is_a_recipe() -> None:
    for study in ablation.STUDIES.values():
        for row, changes in ablation.TRAINED.values():
            for temperature in ablation.TEMPERATURES.values():
                load_recipe(f"{study.recipe}:{row}", [*changes, *temperature])


@pytest.mark.slow
def test_the_glyphs_in_small(small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["glyphs", "--seeds", "0", "1", "--variants", "0", "2", "--episodes", "6", "--json", "found.json"]
    ablation.main(command)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["command"] == "python -m research.ablation " + " ".join(command)
    trained = {(row["trained"], row["temperature"]) for row in found["results"]}
    assert len(trained) == 3  # the plain start is not trained at temperature 1
    assert len(found["results"]) == 3 * len(ablation.CLOSED_FORMS)
    for row in found["results"]:
        assert row["accuracy"] == pytest.approx(np.mean(list(row["seeds"].values())), abs=1e-5)
    base = next(r for r in found["results"] if (r["trained"], r["temperature"], r["closed_form"]) == ablation.BASELINE)
    assert (base["difference"], base["difference_ci95"]) == (0, 0)
    other = next(r for r in found["results"] if r["trained"] == list(ablation.TRAINED)[2])
    assert other["difference"] == pytest.approx(other["accuracy"] - base["accuracy"], abs=2e-5)
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(runs) == 6
    assert "eq. 3, plain" in capsys.readouterr().out
