"""The study of the loss through the closed form: what is tried, what is chosen, and the whole in small."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hyperproto.training import load_recipe
from research import ablation, closed_loss
from research.closed_loss import ARMS, PLANS, Arm, Plan, Setting

PROTONET, CLOSED = Arm("protonet", (5, 5)), Arm("hyperproto-closed", (1, 10))


@pytest.mark.parametrize("recipe", ["glyphs", "fewrel-cnn"])
def test_every_setting_is_a_recipe(recipe: str) -> None:
    for arm in ARMS:
        own = load_recipe(f"{recipe}:{arm.row}")
        setting = Setting(temperature=3.0, rate=2.0, prior_ratio=1.0)
        changed = load_recipe(f"{recipe}:{arm.row}", setting.changes(recipe, arm))
        assert changed.method.options["temperature"] == 3 * own.method.options["temperature"]
        assert changed.optim["encoder"].lr == 2 * own.optim["encoder"].lr
        assert changed.method.options.get("prior_ratio") == (None if arm.row == "protonet" else 1.0)
        assert changed.episodes is not None
        assert (changed.episodes.shot, changed.episodes.most_shots) == arm.shots


def test_settings_are_chosen_on_classes_that_are_not_reported() -> None:
    for plan in PLANS.values():
        reported = {(data, split) for data, split, *_ in plan.reported.columns}
        assert reported.isdisjoint((data, split) for data, split, *_ in plan.chosen_on.columns)
    assert PLANS["fewrel"].chosen_on.spec == "fewrel:,holdout=16"  # nor trained on


@pytest.mark.parametrize("arm", [PROTONET, CLOSED])
@pytest.mark.parametrize("helps", [True, False])
def test_each_setting_goes_on_from_the_best_so_far(arm: Arm, helps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fourth = Setting(3.0, rate=2.0)
    best = fourth if helps else Setting(3.0)
    reached = {Setting(1 / 3): 0.7, Setting(1.0): 0.8, Setting(3.0): 0.9, fourth: 0.95 if helps else 0.85}
    if arm is CLOSED:
        reached[replace(best, prior_ratio=1.0)] = 0.6
    monkeypatch.setattr(closed_loss, "run", lambda study, arm, setting, steps, seed: setting)
    monkeypatch.setattr(closed_loss, "best_accuracy", lambda study, setting, episodes: (reached[setting], "bayes"))
    chosen, tried = closed_loss.choose(PLANS["glyphs"], arm, 400)
    assert chosen == best
    assert [row["accuracy"] for row in tried] == list(reached.values())
    assert {row["arm"] for row in tried} == {arm.title}


@pytest.mark.slow
def test_the_glyphs_in_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["encoder.filters=4", "validation.episodes=4"]
    monkeypatch.setattr(ablation, "load_recipe", lambda name, overrides: load_recipe(name, [*overrides, *small]))
    monkeypatch.setattr(closed_loss, "ARMS", [PROTONET, CLOSED])
    columns = ablation.Study("glyphs", [("glyphs", "test", 5, 2)], query=3)
    plan = Plan(columns, replace(columns, columns=[("glyphs", "val", 5, 2)]), steps=3, trial_steps=2)
    monkeypatch.setitem(PLANS, "glyphs", plan)
    command = ["glyphs", "--seeds", "0", "1", "--episodes", "6", "--json", "found.json"]
    closed_loss.main(command)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["command"] == "python -m research.closed_loss " + " ".join(command)
    assert len(found["tried"]) == 4 + 5
    assert [(row["trained"], row["closed_form"]) for row in found["results"]] == [
        (arm.title, form) for arm in (PROTONET, CLOSED) for form in ("point", "unbiased", "bayes")
    ]
    base = found["results"][0]
    assert (base["difference"], base["difference_ci95"]) == (0, 0)
    assert len(list((tmp_path / "runs/closed-loss-glyphs").iterdir())) == 9 + 4
    assert "loss through bayes, 1 to 10 shots" in capsys.readouterr().out
    page = (tmp_path / "found.md").read_text()
    assert page.startswith("# A loss through the closed form\n")
    assert "loss through bayes, 1 to 10 shots" in page
