"""What earlier versions wrote: every later one reads it, and means the same by it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.errors import ConfigError
from hyperproto.estimators import load_classifier
from hyperproto.recipes import Recipe
from hyperproto.training import Learner, Run, load_recipe, train
from hyperproto.training.checkpoint import load_tensors
from hyperproto.training.tasks import Validator
from tests.helpers.tiny_words import register

FIXTURES = Path(__file__).parent / "fixtures"
FIRST = FIXTURES / "0.1"
SMALL = [  # what the runs of glyphs were made with
    "training.steps=20",
    "training.validate_every=10",
    "training.checkpoint_every=10",
    "validation.episodes=5",
]


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs name their data by paths from the root of the checkout."""
    monkeypatch.chdir(FIXTURES.parent.parent)
    register()


@pytest.fixture
def expected() -> Any:
    return json.loads((FIRST / "expected.json").read_text())


def probabilities(folder: Path, expected: Any) -> Any:
    model = load_classifier(folder)
    if folder.name == "model-text":
        return model.predict_proba(expected["texts"])
    if folder.name == "model-image":
        return model.predict_proba([np.full((32, 32, 3), colour, np.uint8) for colour in expected["pictures"]])
    return model.predict_proba(expected["queries"])


@pytest.mark.parametrize("folder", sorted(FIRST.glob("model-*")), ids=lambda folder: folder.name)
def test_models_answer_as_they_did(folder: Path, expected: Any) -> None:
    found = probabilities(folder, expected)
    np.testing.assert_allclose(found, expected["probabilities"][folder.name], rtol=1e-3, atol=1e-5)


def measured(learner: Learner, recipe: Recipe) -> float:
    from hyperproto.data import open_pool

    return Validator(recipe, open_pool(recipe.data.spec, recipe.data.split)).measure(learner).value


@pytest.mark.parametrize(("name", "metric"), [("run-finished", "accuracy"), ("run-words", "f1")])
def test_runs_validate_as_they_did(name: str, metric: str) -> None:
    run = Run(FIRST / name)
    assert measured(*run.load()) == pytest.approx(load_tensors(run.model)[1][metric], abs=0.01)


def test_a_killed_run_goes_on_with_the_settings_it_began_with(tmp_path: Path, expected: Any) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIRST / "run-killed", folder)
    run = Run(folder)
    rows = train(run.load()[1], folder).read_metrics()
    assert rows[-1]["step"] == 20
    assert rows[-1]["radii"] == pytest.approx(expected["run-killed"]["radii"], rel=1e-3)
    assert rows[-1]["cls"] == pytest.approx(expected["run-killed"]["cls"], rel=1e-3)


def test_a_run_of_the_first_version_says_what_differs_today(tmp_path: Path) -> None:
    """Its regions started from 5 instances, and its schedule scaled the radius' rate: defaults then, settings now."""
    folder = tmp_path / "run"
    shutil.copytree(FIRST / "run-finished", folder)
    recipe = Run(folder).load()[1]
    assert recipe.method.options["init_shot"] == 5
    assert recipe.optim["radius"].scheduled is True
    today = load_recipe("glyphs:hyperproto", ["encoder.filters=4", *SMALL])
    with pytest.raises(ConfigError, match=r"other settings \(optim\.radius\.scheduled\); name another"):
        train(today, folder)
    train(load_recipe("glyphs:hyperproto", ["encoder.filters=4", "optim.radius.scheduled=true", *SMALL]), folder)
