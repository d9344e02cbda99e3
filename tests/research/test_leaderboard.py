"""The leaderboard in small: choices, the same time for every run, scores that stay."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hyperproto.errors import ConfigError
from hyperproto.training import Run, load_recipe
from hyperproto.training.sources import Candidate
from research import equal_time, leaderboard, leaderboard_scores
from research.equal_time import Plan, is_finished, of_length, seconds_a_step
from research.leaderboard_scores import Column, board, entries, saw, serves

RECIPE = """
[encoder]
name = "identity"
[data]
spec = "vectors:{data}"
[episodes]
way = 4
shot = 2
query = 2
[optim.encoder]
lr = 0.01
[training]
steps = 100
warmup = 10
[validation]
way = 3
shot = 2
query = 2
[[row]]
name = "protonet"
method = {{ name = "protonet", temperature = 2.0, learn_temperature = true }}
[[row]]
name = "hyperproto"
method = {{ name = "hyperproto", centers = "episode", learn_temperature = true }}
optim.radius = {{ name = "adam", lr = 0.1 }}
[[row]]
name = "hyperproto-1shot"
episodes = {{ shot = 1 }}
method = {{ name = "hyperproto", centers = "episode", learn_temperature = true }}
optim.radius = {{ name = "adam", lr = 0.1 }}
[[row]]
name = "hyperproto-5shot"
episodes = {{ shot = 5 }}
method = {{ name = "hyperproto", centers = "episode", learn_temperature = true }}
optim.radius = {{ name = "adam", lr = 0.1 }}
"""


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vectors_file: Path) -> leaderboard.Study:
    """Rows of a small recipe file on vectors; a step takes half a second, whatever the clock says."""
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE.format(data=vectors_file))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(equal_time, "seconds_a_step", lambda recipe: 0.5)
    monkeypatch.setattr(leaderboard, "TUNED_ON", 10)
    monkeypatch.setattr(leaderboard, "REPORTED_AFTER", 10)
    data = f"vectors:{vectors_file}"
    columns: list[Column] = [("val", 3, 1), ("val", 3, [1, 2, 4]), ("test", 5, 2)]
    track = leaderboard.Track("CNN with GloVe", str(recipe), data, data, columns, 8.0)
    own = replace(leaderboard.STUDIES["relations"], tracks={"cnn": track})
    monkeypatch.setitem(leaderboard.STUDIES, "relations", own)
    return own


def test_every_pair_is_a_recipe() -> None:
    tracks = [track for study in leaderboard.STUDIES.values() for track in study.tracks.values()]
    for file in (track.recipes for track in tracks):
        recipe = load_recipe(f"{file}:hyperproto")
        for pair in leaderboard.pairs_of(recipe):
            changed = load_recipe(f"{file}:hyperproto", leaderboard.pair_changes(recipe, *pair))
            assert changed.optim["encoder"].lr == pytest.approx(pair[0] * recipe.optim["encoder"].lr)
            assert changed.optim["radius"].lr == pytest.approx(pair[0] * recipe.optim["radius"].lr)
            start = recipe.method.options["temperature"]
            assert changed.method.options["temperature"] == pytest.approx(pair[1] * start), file


def test_schedules_keep_their_proportions() -> None:
    recipe = load_recipe("fewrel-minilm:protonet")  # 600 steps, 60 of them warm-up
    longer = load_recipe("fewrel-minilm:protonet", of_length(recipe, 900)).training
    assert (longer.steps, longer.warmup, longer.validate_every) == (900, 90, 900)
    assert of_length(load_recipe("fewrel-minilm:protonet", of_length(recipe, 900)), 600)[1] == "training.warmup=60"


def test_a_step_is_timed_without_leaving_a_run(study: leaderboard.Study, tmp_path: Path) -> None:
    recipe = load_recipe(f"{study.tracks['cnn'].recipes}:protonet")
    assert 0 < seconds_a_step(recipe) < 0.5
    assert not (tmp_path / "runs").exists()


def test_tune_then_train(study: leaderboard.Study, capsys: pytest.CaptureFixture[str]) -> None:
    leaderboard.main(["relations", "tune", "protonet", "hyperproto", "--minutes", "0.1"])
    found = {row["row"]: row for row in json.loads(study.choices.read_text())["results"]}
    assert list(found) == ["hyperproto", "protonet"]
    for row in found.values():
        assert len(row["tried"]) == 4
        assert row["steps"] == 12
        best = max(row["tried"], key=lambda pair: pair["accuracy"])
        assert (row["rate"], row["temperature"]) == (best["rate"], best["temperature"])
    pair = found["protonet"]["rate"], found["protonet"]["temperature"]

    leaderboard.main(["relations", "train", "protonet", "--minutes", "0.2"])
    folder = study.folder("cnn", "protonet", 0)
    recipe = Run(folder).read_config()["recipe"]
    assert recipe["training"]["steps"] == recipe["training"]["validate_every"] == 24
    assert recipe["training"]["warmup"] == 2
    assert recipe["optim"]["encoder"]["lr"] == pytest.approx(0.01 * pair[0])
    assert recipe["method"]["temperature"] == pytest.approx(2.0 * pair[1])
    timing = json.loads((folder / "timing.json").read_text())
    assert (timing["steps"], timing["minutes"], timing["chosen_on"]) == (24, 0.2, study.tracks["cnn"].held_out)
    assert "24 steps of 0.500 s" in capsys.readouterr().out


def test_rows_of_one_method_share_a_choice(study: leaderboard.Study) -> None:
    study.choices.parent.mkdir(parents=True)
    rows = [{"track": "cnn", "row": "hyperproto"}, {"track": "cnn", "row": "hyperproto-5shot"}]
    study.choices.write_text(json.dumps({"results": [*rows, {"track": "minilm", "row": "protonet"}]}))
    assert leaderboard.choice_of(study, "cnn", "hyperproto") == rows[0]
    assert leaderboard.choice_of(study, "cnn", "hyperproto-1shot") == rows[1]
    assert leaderboard.choice_of(study, "cnn", "protonet") is None


def test_what_a_run_saw_is_said() -> None:
    assert saw(load_recipe("fewrel-cnn:protonet")) == "nothing else"
    assert saw(load_recipe("fewrel-cnn:proto-adv")) == "unlabelled (data fewrel2, split unlabelled)"
    start = saw(load_recipe("fewrel-cnn:protonet", ["start=runs/first"]))
    assert start == "a first stage (first)"


def test_finished_runs_stay_and_steps_are_not_decided_anew(
    study: leaderboard.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaderboard.main(["relations", "train", "protonet", "--minutes", "0.1"])
    folder = study.folder("cnn", "protonet", 0)
    before = (folder / "config.json").stat().st_mtime_ns, (folder / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(equal_time, "seconds_a_step", lambda recipe: 0.1)
    leaderboard.main(["relations", "train", "protonet", "--minutes", "5"])
    assert before == ((folder / "config.json").stat().st_mtime_ns, (folder / "model.safetensors").stat().st_mtime_ns)

    other = study.folder("cnn", "hyperproto", 1)  # killed between the plan and the first checkpoint
    other.mkdir()
    (other / "timing.json").write_text(json.dumps({"minutes": 0.1, "seconds_a_step": 1.0, "steps": 7}))
    with pytest.raises(SystemExit, match=r"planned for 0.1 CPU minutes, not 5; ask for the same, or remove"):
        leaderboard.main(["relations", "train", "hyperproto", "--seed", "1", "--minutes", "5"])
    leaderboard.main(["relations", "train", "hyperproto", "--seed", "1", "--minutes", "0.1"])
    assert Run(other).read_config()["recipe"]["training"]["steps"] == 7


def test_a_run_that_was_begun_by_hand_is_taken_as_it_is(study: leaderboard.Study) -> None:
    from hyperproto.training import train

    folder = study.folder("cnn", "protonet", 0)
    train(load_recipe(f"{study.tracks['cnn'].recipes}:protonet", ["training.steps=5", "validation.episodes=4"]), folder)
    leaderboard.main(["relations", "train", "protonet", "--minutes", "1"])
    assert is_finished(Run(folder))
    timing = json.loads((folder / "timing.json").read_text())
    assert timing == {"minutes": None, "seconds_a_step": 0.5, "steps": 5}


def test_a_first_stage_has_its_share_of_the_minutes(study: leaderboard.Study, tmp_path: Path) -> None:
    text = Path(study.tracks["cnn"].recipes).read_text()
    first = tmp_path / "first.toml"
    first.write_text(text.split("[[row]]")[0] + '[method]\nname = "protonet"\nlearn_temperature = true\n')
    second = tmp_path / "second.toml"
    second.write_text(f'start = "{first}"\n' + first.read_text())
    folder = tmp_path / "run"
    Plan(
        recipe=str(second),
        changes=["validation.episodes=4"],
        folder=folder,
        timing=folder / "timing.json",
        minutes=0.3,
        start_folder=tmp_path / "run-start",
        start_share=1 / 3,
        start_changes=["validation.episodes=4"],
    ).train(lambda share: None)
    steps = [Run(tmp_path / name).read_config()["recipe"]["training"]["steps"] for name in ("run-start", "run")]
    assert steps == [12, 24]


def test_a_row_that_fails_does_not_cost_the_others(study: leaderboard.Study) -> None:
    with pytest.raises(SystemExit, match=r"1 of 2 rows failed: nonesuch: .*there is no row 'nonesuch'"):
        leaderboard.main(["relations", "train", "nonesuch", "protonet", "--minutes", "0.1"])
    assert is_finished(Run(study.folder("cnn", "protonet", 0)))


def test_an_unplanned_length_is_refused(study: leaderboard.Study, tmp_path: Path) -> None:
    (tmp_path / "timing.json").write_text(json.dumps({"minutes": 1.0, "seconds_a_step": 1.0, "steps": 7}))
    plan = Plan(
        f"{study.tracks['cnn'].recipes}:protonet", [], tmp_path / "x", tmp_path / "timing.json", 2.0, tmp_path, 0.5
    )
    with pytest.raises(ConfigError, match="planned for 1 CPU minutes, not 2"):
        plan.train(lambda share: None)
    assert not (tmp_path / "x").exists()


def test_scores_are_paired_with_protonet_and_stay(
    study: leaderboard.Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["relations", "score", "--episodes", "8", "--few", "hyperproto=5", "--few", "mlman=2"]
    command += ["--json", "results/found.json"]
    with pytest.raises(SystemExit, match="no finished run; begin with train"):
        leaderboard.main(command)
    leaderboard.main(["relations", "train", "protonet", "--minutes", "0.1"])
    leaderboard.main(command)
    rows = json.loads(Path("results/found.json").read_text())["results"]
    assert {row["scored_by"] for row in rows} == {"protonet", *leaderboard_scores.BASELINES}
    assert len(rows) == 5 * 3

    leaderboard.main(["relations", "train", "hyperproto", "--minutes", "0.1"])
    measured: list[Candidate] = []
    score = leaderboard_scores._measured

    def counted(candidate: Candidate, *rest: Any) -> dict[str, Any]:
        measured.append(candidate)
        return score(candidate, *rest)

    monkeypatch.setattr(leaderboard_scores, "_measured", counted)
    leaderboard.main(command)
    assert {candidate.method_name for candidate in measured} == {"hyperproto"}  # the others are not scored again
    assert len(measured) == 3 * 3
    found = json.loads(Path("results/found.json").read_text())
    assert found["command"] == "python -m research.leaderboard " + " ".join(command)
    own = {(row["scored_by"], row["column"]): row for row in found["results"]}
    base, other = own["protonet", "test 5-way 2-shot"], own["bayes", "test 5-way 2-shot"]
    assert (base["difference"], base["episodes"], other["episodes"]) == (0, 8, 5)
    assert (other["encoder_parameters"], other["head_parameters"]) == (0, 9)  # 8 radii and the temperature
    assert (other["steps"], other["saw"], other["rate"], other["chosen_on"]) == (12, "nothing else", 1, None)
    kept = json.loads((study.runs / "scores/cnn-protonet-seed-0/test.json").read_text())["scores"]
    first = np.mean(kept["protonet, 5-way 2-shot"]["values"][:5])
    assert other["difference"] == pytest.approx(other["accuracy"] - first, abs=2e-5)

    measured.clear()
    leaderboard.main(command)
    assert not measured
    page = Path("results/found.md").read_text()
    assert "| hyperproto | bayes | 0 |" in page
    assert page.count("[5]") == 9
    assert "| protonet | simpleshot |" in capsys.readouterr().out

    leaderboard.main([*command, "--few", "hyperproto@5-way 2-shot=3", "--few", "hyperproto@3-way 1-shot=0"])
    assert {candidate.method_name for candidate in measured} == {"hyperproto"}
    counts = {
        row["column"]: row["episodes"]
        for row in json.loads(Path("results/found.json").read_text())["results"]
        if row["row"] == "hyperproto"
    }
    assert set(counts.values()) == {3, 5}
    assert counts["test 5-way 2-shot"] == 3
    assert "val 3-way 1-shot" not in counts


def test_rows_of_runs_that_are_gone_stay_in_the_file(study: leaderboard.Study) -> None:
    file = Path("results/found.json")
    command = ["relations", "score", "--episodes", "8", "--json", str(file)]
    leaderboard.main(["relations", "train", "protonet", "hyperproto", "--minutes", "0.1"])
    leaderboard.main(command)
    before = json.loads(file.read_text())["results"]
    shutil.rmtree(study.folder("cnn", "hyperproto", 0))
    leaderboard.main(["relations", "train", "hyperproto-1shot", "--minutes", "0.1"])
    leaderboard.main([*command, "--few", "protonet=8"])
    found = json.loads(file.read_text())
    own = [row for row in before if row["row"] == "hyperproto"]
    earlier = "python -m research.leaderboard " + " ".join(command)
    assert [row for row in found["results"] if row["row"] == "hyperproto"] == [{"command": earlier, **r} for r in own]
    assert list(dict.fromkeys(row["row"] for row in found["results"])) == ["protonet", "hyperproto", "hyperproto-1shot"]
    assert f"- cnn hyperproto: `{earlier}`" in Path("results/found.md").read_text()
    file.write_text(file.read_text().replace('"episode_hash": "', '"episode_hash": "0'))
    with pytest.raises(SystemExit, match="its rows were scored on other episodes of val 3-way 1-shot; name another"):
        leaderboard.main(command)


@pytest.mark.parametrize(
    ("few", "message"),
    [
        ("hyperprot=5", "--few hyperprot: there is no row or method 'hyperprot'; did you mean 'hyperproto'?"),
        ("hyperproto@6-way 1-shot=5", "there is no column '6-way 1-shot'; write one of 3-way 1-shot, "),
    ],
)
def test_fewer_episodes_of_nobody_are_refused(
    study: leaderboard.Study, few: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        leaderboard.main(["relations", "score", "--few", few])
    assert message in capsys.readouterr().err


def test_methods_are_scored_where_their_traits_allow() -> None:
    def method(*traits: str, way: int | None = 5, shot: int | None = 5) -> Any:
        return SimpleNamespace(traits=frozenset(traits), way=way, shot=shot)

    free = method("any-way", "any-shot", "unequal-shots", way=None, shot=None)
    fixed = method("any-way")
    columns: list[tuple[int, Any]] = [(5, 1), (5, 5), (5, [1, 1, 2, 5, 20]), (10, 5)]
    assert [serves(free, *column) for column in columns] == [True] * 4
    assert [serves(fixed, *column) for column in columns] == [False, True, False, True]
    assert [serves(method("any-shot"), *column) for column in columns] == [True, True, False, False]
    assert [serves(method("any-shot", "unequal-shots"), *column) for column in columns] == [True, True, True, False]


def test_seeds_are_averaged_and_paired_by_seed() -> None:
    task = {"track": "cnn", "split": "val", "way": 5, "shot": 1}
    base = [{**task, "row": "protonet", "scored_by": "protonet", "seed": s, "values": [0.2, 0.6]} for s in (0, 1)]
    own = [{**task, "row": "gnn", "scored_by": "gnn", "seed": s, "values": [0.4 + 0.2 * s, 0.6]} for s in (0, 1)]
    row = board([*base, *own])[1]
    assert row["seeds"] == {"0": 0.5, "1": 0.6}
    assert (row["accuracy"], row["difference"]) == (pytest.approx(0.55), pytest.approx(0.15))
    assert "difference" not in board([base[0], *own])[1]  # a seed without its ProtoNet


def test_a_track_of_another_study_is_refused(study: leaderboard.Study, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        leaderboard.main(["relations", "train", "protonet", "--track", "glyphs"])
    assert "--track glyphs: relations has cnn" in capsys.readouterr().err


def test_rows_that_start_alike_share_the_first_stage(study: leaderboard.Study) -> None:
    path = Path(study.tracks["cnn"].recipes)
    row = '[[row]]\nname = "{}"\nstart = "{}:hyperproto"\nmethod = {{ name = "cosine", learn_temperature = true }}\n'
    path.write_text(path.read_text() + row.format("first", path) + row.format("second", path))
    leaderboard.main(["relations", "train", "first", "second", "--minutes", "0.2", "--start-share", "0.5"])
    starts = sorted(folder.name for folder in study.runs.glob("*-start"))
    assert starts == ["small-hyperproto-0.1-minutes-seed-0-start"]
    found = {entry.row: entry.facts() for entry in entries(study.runs, ["cnn"])}
    assert [found[row]["first_stage_steps"] for row in ("first", "second")] == [12, 12]
    assert found["first"]["steps"] == 12
