"""Grids of runs: names, mistakes, what is skipped, what goes on, what fails; and means over seeds."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hyperproto
from hyperproto.errors import BusyError, ConfigError, DataError
from hyperproto.files import lock
from hyperproto.paper import runs as train_run
from hyperproto.paper.grid import Combination, Grid, GridReport, read_settings
from hyperproto.paper.runs import GridRun, Planned, check_data, duration
from hyperproto.recipes import parse_values, toml_value
from hyperproto.training import load_recipe
from tests.training.conftest import TINY, recipe_file

SHORT = {"training.steps": 6, "training.validate_every": 3, "training.checkpoint_every": 2, "validation.episodes": 4}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small encoder; runs have no page, whose pictures take longer than the training."""
    exec(TINY, {"__name__": "tiny"})
    monkeypatch.setattr("hyperproto.reports.run_page.write_run_page", lambda *_: None)


@pytest.fixture
def recipe(vectors_file: Path) -> str:
    return str(recipe_file(vectors_file, "protonet"))


def grid(recipe: str, out: Path, settings: dict[str, Any], **more: Any) -> tuple[GridReport, list[str]]:
    lines: list[str] = []
    found = hyperproto.grid(
        recipe, {**SHORT, **settings}, out, workers=1, on_run=lambda _, line: lines.append(line), **more
    )
    return found, lines


def test_every_combination_is_a_run_and_the_best_mean_comes_first(recipe: str, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    found, lines = grid(recipe, out, {"training.seed": [0, 1, 2], "optim.encoder.lr": [0.5, 1e-2]})
    names = [f"optim.encoder.lr={rate}__training.seed={seed}" for seed in (0, 1, 2) for rate in (0.5, 0.01)]
    assert list(found.runs) == names
    assert [line.split(":")[0] for line in lines] == [f"[{n}/6] {name}" for n, name in enumerate(names, start=1)]
    assert "; 5 to go, about " in lines[0]
    assert " to go" not in lines[-1]
    content = json.loads((out / "grid.json").read_text())
    assert content == json.loads(json.dumps(found.to_json()))
    assert content["swept"] == ["optim.encoder.lr", "training.seed"]
    means = [group["accuracy"] for group in content["groups"]]
    assert means == sorted(means, reverse=True)
    for group in content["groups"]:
        values = []
        for seed, name in zip(group["seeds"], group["runs"], strict=True):
            trained = hyperproto.Run(out / name)
            assert trained.read_config()["recipe"]["training"]["seed"] == seed
            assert trained.read_config()["recipe"]["optim"]["encoder"]["lr"] == group["settings"]["optim.encoder.lr"]
            values.append(trained.best_validation()["accuracy"])
        assert group["accuracy"] == pytest.approx(np.mean(values))
        assert group["ci95"] == pytest.approx(4.302653 * np.std(values, ddof=1) / np.sqrt(3), rel=1e-5)
    best = content["groups"][0]
    text = (out / "grid.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| 0."))
    assert f"| {100 * best['accuracy']:.2f} ± {100 * best['ci95']:.2f} |" in row
    assert found.table_text("csv").splitlines()[0] == 'optim.encoder.lr,seeds,each,"accuracy, %","accuracy, % ±"'


def test_finished_runs_are_skipped_and_values_can_be_added(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "grid"
    grid(recipe, out, {"training.seed": [0, 1]})
    before = (out / "training.seed=0" / "model.safetensors").stat().st_mtime_ns
    trained: list[str] = []
    real = train_run.train_run

    def noted(name: str, folder: Path, *rest: Any) -> Any:
        trained.append(folder.name)
        return real(name, folder, *rest)

    monkeypatch.setattr(train_run, "train_run", noted)
    found, lines = grid(recipe, out, {"training.seed": [2, 0, 1]})
    assert trained == ["training.seed=2"]
    assert list(found.runs) == ["training.seed=2", "training.seed=0", "training.seed=1"]
    assert [line.endswith("finished before") for line in lines] == [True, True, False]
    assert (out / "training.seed=0" / "model.safetensors").stat().st_mtime_ns == before
    (out / "training.seed=0" / "finished.json").write_text(
        "damaged"
    )  # trained again: in a moment, with the same result
    again, _ = grid(recipe, out, {"training.seed": [2, 0, 1]})
    assert trained == ["training.seed=2", "training.seed=0"]
    assert again.groups[0].values == found.groups[0].values


def test_an_interrupted_grid_goes_on_to_the_same_result(recipe: str, tmp_path: Path) -> None:
    whole, _ = grid(recipe, tmp_path / "whole", {"training.seed": [0, 1]})
    calls = []

    def impatient(done: int, total: int, note: str = "") -> None:
        calls.append(note)
        if "training.seed=1: steps of" in note and done >= 1000 * (1 + 3 / 6):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grid(recipe, tmp_path / "cut", {"training.seed": [0, 1]}, progress=impatient)
    assert any(note.startswith("1 of 2 done; training.seed=1: steps of") for note in calls)
    kept = json.loads((tmp_path / "cut" / "grid.json").read_text())
    assert [run["name"] for run in kept["runs"]] == ["training.seed=0"]
    assert not (tmp_path / "cut" / "training.seed=1" / "finished.json").exists()
    found, lines = grid(recipe, tmp_path / "cut", {"training.seed": [0, 1]})
    assert lines[0].endswith("finished before")
    assert found.groups[0].values == whole.groups[0].values
    for seed in (0, 1):
        models = [tmp_path / place / f"training.seed={seed}" / "model.safetensors" for place in ("whole", "cut")]
        assert models[0].read_bytes() == models[1].read_bytes()


def test_a_run_that_fails_is_recorded_and_the_others_go_on(recipe: str, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    found, lines = grid(recipe, out, {"optim.encoder.lr": [1e38, 1e-2]})
    [failed] = found.failed
    assert failed.name == "optim.encoder.lr=1e+38"
    assert (failed.settings, failed.status) == ({"optim.encoder.lr": 1e38}, "failed")
    assert failed.error is not None
    assert failed.error.startswith("step ")
    assert "failed: step " in lines[0]
    content = json.loads((out / "grid.json").read_text())
    assert [run["status"] for run in content["runs"]] == ["failed", "finished"]
    assert content["runs"][0]["error"] == failed.error
    assert f"- {failed.name}: failed: step " in (out / "grid.md").read_text()


def test_a_changed_setting_is_refused_before_anything_runs(recipe: str, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    grid(recipe, out, {"training.seed": [0]})
    kept = (out / "grid.json").read_text()
    with pytest.raises(ConfigError, match=r"holds another grid \(fixed was .*\"training.steps\": 6.*is .*: 7"):
        grid(recipe, out, {"training.seed": [0, 1], "training.steps": 7})
    with pytest.raises(ConfigError, match=r"holds another grid \(swept was .* name another folder with --out"):
        grid(recipe, out, {"training.seed": [0], "optim.encoder.lr": [0.1, 0.2]})
    Path(recipe).write_text(Path(recipe).read_text().replace("lr = 0.01", "lr = 0.02"))
    message = r"training.seed=0 holds a run with other settings \(optim.encoder.lr\); name another folder with --out"
    with pytest.raises(ConfigError, match=message):
        grid(recipe, out, {"training.seed": [1, 0]})
    assert not (out / "training.seed=1").exists()
    assert (out / "grid.json").read_text() == kept
    (out / "grid.json").write_text("[]")
    with pytest.raises(DataError, match="not the results of a grid"):
        grid(recipe, out, {"training.seed": [1]})
    with pytest.raises(ConfigError, match="is the folder of a run, not of a grid"):
        grid(recipe, out / "training.seed=0", {"training.seed": [1]})


def test_two_processes_do_not_share_a_folder(recipe: str, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with lock(tmp_path / "grid", "taken"), ThreadPoolExecutor(1) as other:
        begun = other.submit(grid, recipe, tmp_path / "grid", {"training.seed": [0]})
        with pytest.raises(BusyError, match="another process runs a grid here"):
            begun.result()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["training.seed"], "'training.seed': write section.key=value,value, for example training.seed=0,1,2"),
        (["=1"], "write section.key=value,value"),
        (["training.seed=0,,1"], "-o training.seed=0,,1: value 2 of 3 is empty; write '' "),
        (["training.seed="], "-o training.seed=: there is no value"),
        (["training.seed=0,1", "training.seed=2"], "-o training.seed is given twice; write all its values in one"),
        (["training.seed=0,1,0"], "-o training.seed: 0 stands there twice; give each value once"),
        (["optim.encoder.lr=1e-3,0.001"], "-o optim.encoder.lr: 0.001 stands there twice"),
        (["validation.shot=[1,2"], "a bracket is not closed, or one too many is"),
        (["validation.shot=1]"], "a bracket is not closed, or one too many is"),
        (["data.spec='a"], "a quote is not closed"),
        (["training.sed=0,1"], "training.sed: there is no key 'sed'; did you mean 'seed'"),
        (["method.nme=1"], "protonet has no option 'nme'|no option"),
        (["training.seed=0,x"], "(?s)^training.seed=x: .*training.seed = 'x': input should be"),
        (["training.steps=" + ",".join(map(str, range(1, 1002)))], "1,001 combinations; a grid has at most 1,000 runs"),
        ({"training.seed": []}, "training.seed: an empty list; give at least one value"),
        ({"training.seed": [1, 1]}, "1 stands there twice"),
    ],
)
def test_mistakes_are_told_before_anything_runs(settings: Any, message: str, recipe: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        hyperproto.grid(recipe, settings, tmp_path / "grid", workers=1)
    assert not (tmp_path / "grid").exists()


@pytest.mark.parametrize("workers", [0, -1, 65, True, "2"])
def test_a_number_of_workers_that_there_is_not(workers: Any, recipe: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--workers {workers}: run 1 to 64 processes at a time"):
        hyperproto.grid(recipe, {"training.seed": 0}, tmp_path / "grid", workers=workers)


def test_missing_data_are_told_before_anything_runs(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = f"vectors:{tmp_path / 'gone.npz'}"
    with pytest.raises(
        DataError, match=r"nothing was run: data.spec=.* needs vectors:.*gone.npz \(train\): .*no such fi"
    ):
        grid(
            recipe,
            tmp_path / "grid",
            {"data.spec": [f"vectors:{recipe.replace('protonet.toml', 'vectors.npz')}", gone]},
        )
    assert not (tmp_path / "grid").exists()
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    plan = Planned("a run", "omniglot:protonet", [], load_recipe("omniglot:protonet"), tmp_path)
    with pytest.raises(DataError, match=r"a run needs omniglot \(train\): .*; hyperproto data get omniglot fetches it"):
        check_data([plan], None)


def test_values_with_commas() -> None:
    assert read_settings(["validation.shot=[1,1,2],[5, 5]", "data.spec='fewrel:,holdout=16', fewrel", "a=it's,b"]) == {
        "validation.shot": ["[1,1,2]", "[5, 5]"],
        "data.spec": ["'fewrel:,holdout=16'", "fewrel"],
        "a": ["it's", "b"],
    }
    assert read_settings(['method={name="cosine", learn_temperature=true},{name="protonet"}'])["method"] == [
        '{name="cosine", learn_temperature=true}',
        '{name="protonet"}',
    ]
    assert read_settings(["start=''"]) == {"start": ["''"]}
    assert read_settings({"validation.shot": [[1, 2], 5], "training.steps": 3}) == {
        "validation.shot": ["[1, 2]", "5"],
        "training.steps": ["3"],
    }


values = st.one_of(st.integers(), st.booleans(), st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])))


@given(st.lists(st.one_of(values, st.lists(values, max_size=3)), min_size=1, max_size=4))
@example(["\\", '\\",'])
@example([0, "0", ["0"], '["0"]', True, "true"])
def test_what_is_written_as_toml_is_read_back(given_values: list[Any]) -> None:
    texts = [toml_value(value) for value in given_values]
    seen: list[str] = []
    if len({json.dumps(value) for value in given_values}) < len(given_values):
        return
    [(key, found)] = read_settings([f"key={','.join(texts)}"]).items()
    assert (key, found) == ("key", texts)
    for text, value in zip(found, given_values, strict=True):
        one = Combination({"key": text})
        assert parse_values(one.overrides) == {"key": value}
        assert "/" not in one.name
        assert one.name.isascii()
        assert len(one.name) < 60
        seen.append(one.name)
    assert len(set(seen)) == len(seen)  # no two runs share a folder


def test_names_do_not_depend_on_the_order_or_the_spelling() -> None:
    one = Combination({"training.seed": "0", "optim.encoder.lr": "1e-3"})
    other = Combination({"optim.encoder.lr": "0.001", "training.seed": "0"})
    assert one.name == other.name == "optim.encoder.lr=0.001__training.seed=0"
    assert Combination({}).name == "run"
    assert Combination({"a": ".."}).name.startswith("a=..-")
    assert Combination({"a": "''"}).name != "a="


def test_the_seed_is_always_in_the_name() -> None:
    found = Grid.of("glyphs:protonet", ["training.seed=3", "training.steps=5"])
    assert (found.swept, found.fixed) == ({"training.seed": ["3"]}, {"training.steps": "5"})
    assert [one.name for one in found.combinations()] == ["training.seed=3"]


STAGES = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny" }}
episodes = {{ way = 4, shot = 3, query = 4 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 4, validate_every = 4 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 4 }}
[[row]]
name = "first"
method = {{ name = "cosine" }}
[[row]]
name = "second"
method = {{ name = "protonet" }}
start = "{own}:first"
"""


def test_a_first_stage_is_trained_once(vectors_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "stages.toml"
    path.write_text(STAGES.format(data=vectors_file, own=path))
    found = hyperproto.grid(f"{path}:second", ["training.seed=0,1"], tmp_path / "grid", workers=1)
    assert sorted(folder.name for folder in (tmp_path / "grid").iterdir() if folder.is_dir()) == [
        "stages-first", "training.seed=0", "training.seed=1",
    ]  # fmt: skip
    assert list(found.runs) == ["training.seed=0", "training.seed=1"]
    shutil.rmtree(tmp_path / "grid" / "training.seed=1")
    assert not hyperproto.grid(f"{path}:second", ["training.seed=0,1"], tmp_path / "grid", workers=1).failed


def test_a_single_seed_has_the_interval_over_episodes(tmp_path: Path) -> None:
    result = {"metric": "f1", "value": 0.5, "ci95": 0.02, "step": 3, "seconds": 1.0}
    run = GridRun("run", tmp_path, {}, "finished", result)
    report = GridReport({"recipe": "r", "fixed": {}}, tmp_path, {"run": run})
    [row] = report.sheet().rows
    assert (report.sheet().head, row.texts()) == (["each", "f1, %"], ["50.00", "50.00 ± 2.00"])
    empty = GridReport({"recipe": "r", "fixed": {}}, tmp_path, {})
    assert empty.sheet().rows == []


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 89, 90, 3600, 5400, 12000)] == [
        "0 s",
        "89 s",
        "2 min",
        "60 min",
        "1 h 30 min",
        "3 h 20 min",
    ]


def test_rows_show_what_their_runs_differ_in_as_resolved(recipe: str) -> None:
    tables = [{"name": "protonet"}, {"name": "protonet", "learn_temperature": True}]
    names = [one.name for one in Grid.of(recipe, {"method": tables}).combinations()]
    found = Grid.of(recipe, {"method": tables, "training.seed": [0, 1]}).settings
    assert list(found.values()) == [
        {"method.learn_temperature": False, "training.seed": 0},
        {"method.learn_temperature": False, "training.seed": 1},
        {"method.learn_temperature": True, "training.seed": 0},
        {"method.learn_temperature": True, "training.seed": 1},
    ]
    assert len(set(names)) == 2
    of_methods = Grid.of("glyphs:protonet", {"method": [{"name": "protonet"}, {"name": "simpleshot"}]}).settings
    assert [own["method.name"] for own in of_methods.values()] == ["protonet", "simpleshot"]
    assert [own["transform"] for own in of_methods.values()] == ["none", "center-unit"]


def test_two_combinations_of_the_same_run_are_refused(recipe: str) -> None:
    same = [{"name": "protonet"}, {"name": "protonet", "learn_temperature": False}]
    with pytest.raises(
        ConfigError, match=r"^method=.* and method=.* are the same run: every setting is equal; give one"
    ):
        Grid.of(recipe, {"method": same})
    Grid.of(recipe, {"method.learn_temperature": [False, True]})
