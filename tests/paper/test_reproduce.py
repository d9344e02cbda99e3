"""A table of the paper from one call: which rows, what is run, what is measured, what is kept and what is written."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyperproto
from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import open_pool
from hyperproto.errors import BusyError, ConfigError, DataError
from hyperproto.files import lock
from hyperproto.paper import report as paper_table
from hyperproto.paper import reproduce
from hyperproto.paper import runs as train_run
from hyperproto.paper.report import scores_path
from hyperproto.paper.reproduce import Reproduction, plan_rows
from hyperproto.paper.table import lines
from hyperproto.problems import make_sampler
from hyperproto.recipes import builtin_tables, cost_minutes
from hyperproto.training import load_recipe
from hyperproto.training.sources import run_source
from tests.docs.markdown import ROOT
from tests.paper.test_report import FIXED, TABLE
from tests.training.conftest import TINY, recipe_file

SMALL = """
[table.small]
episodes = 8
rows = [
  {{ recipe = "{own}:protonet" }},
  {{ recipe = "{own}:cone", columns = ["other"], note = "cones" }},
  {{ recipe = "{other}", set = "more", method = "Elsewhere", backbone = "Huge" }},
]
columns = [{{ name = "other", data = "vectors:{data}", split = "val", way = 3, shot = 2 }}]
notes = ["a note on the small table"]
[[published]]
"""


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    exec(TINY, {"__name__": "tiny"})
    monkeypatch.setattr("hyperproto.reports.run_page.write_run_page", lambda *_: None)


@pytest.fixture
def table(vectors_file: Path) -> str:
    path = vectors_file.with_name("mini.toml")
    other = f"{recipe_file(vectors_file, 'protonet')}:protonet"
    small = SMALL.format(own=path, data=vectors_file, other=other)
    path.write_text(TABLE.format(data=vectors_file).replace("[[published]]\n", small, 1))
    return str(path)


def made(table: str, out: Path, **arguments: Any) -> tuple[Reproduction, list[str]]:
    told: list[str] = []
    given = {"seeds": 2, "workers": 1, **arguments}
    return hyperproto.reproduce(table, out=out, on_run=lambda _, line: told.append(line), **given), told


def test_a_table_is_trained_measured_and_written(table: str, tmp_path: Path, vectors_file: Path) -> None:
    out = tmp_path / "out"
    found, told = made(table, out)
    names = [f"mini-{row}-seed-{seed}" for row in ("protonet", "cone") for seed in (0, 1)]
    assert list(found.runs) == names
    assert [line.partition(":")[0] for line in told] == [f"[{n}/4] {name}" for n, name in enumerate(names, start=1)]
    assert found.report is not None
    rows = [(line.label, line.how, line.cells) for line in lines(found.report)]
    assert [row[:2] for row in rows] == [
        ("ProtoNet", "Tiny"),
        (f"{table}:protonet, seeds 0, 1; tiny", "as in the paper: protonet point none"),
        ("", "Bayes fit: hyperproto bayes none"),
        ("", "cosine point none"),
        ("", "simpleshot point center-unit"),
        ("HyperProto", "Tiny"),
        (f"{table}:cone, seeds 0, 1; cones", "as in the paper: hyperproto-cone paper none"),
        ("", "Bayes fit: hyperproto bayes none"),
    ]
    assert rows[0][2] == ["40.00 ± 1.50", "50.25 ± 0.50", ""]
    assert [bool(cell) for cell in rows[1][2]] == [True, True, False]
    assert [bool(cell) for cell in rows[6][2]] == [False, False, True]
    pool = open_pool(f"vectors:{vectors_file}", "test")
    episodes = make_sampler(pool, way=4, shot=1, query=5, seed=3).draw(8)
    values = []
    for seed in (0, 1):
        candidates = select([run_source(str(out / f"mini-protonet-seed-{seed}"), pool)], ["protonet"], [], [], {})
        values.append(evaluate_candidates(candidates, pool, episodes, {"way": 4, "shot": 1})[0].values)
    content = json.loads((out / "mini.json").read_text())
    measured = content["rows"][0]["ours"][0]["results"][0]["columns"]["1 shot"]
    assert measured["accuracy"] == pytest.approx(np.mean(values))
    assert measured["sd_between_seeds"] == pytest.approx(np.std(np.mean(values, axis=1), ddof=1))
    assert content["budget"] == "small"
    assert [run["name"] for run in content["runs"]] == names
    assert "a note on the small table" in content["notes"]
    assert [path.name for path in found.files] == ["mini.md", "mini.tex", "mini.csv", "mini.html", "mini.json"]
    written = list(csv.reader((out / "mini.csv").read_text().splitlines()))
    assert written[2][:3] == [rows[1][0], rows[1][1], f"{100 * np.mean(values):.2f}"]
    assert (out / "mini.md").read_text() == found.report.table_text("markdown")
    config = hyperproto.Run(out / "mini-cone-seed-1").read_config()["recipe"]
    assert (config["training"]["seed"], config["paper"]["note"]) == (1, "cones")


def test_what_is_there_is_kept(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    first, _ = made(table, out)
    trained: list[str] = []
    measured: list[str] = []
    real_train, real_measure = train_run.train_run, paper_table.measure_column

    def train(name: str, folder: Path, *rest: Any) -> Any:
        trained.append(folder.name)
        return real_train(name, folder, *rest)

    def measure(candidates: Any, table: Any, column: Any, *rest: Any) -> Any:
        measured.append(column.name)
        return real_measure(candidates, table, column, *rest)

    monkeypatch.setattr(train_run, "train_run", train)
    monkeypatch.setattr(paper_table, "measure_column", measure)
    again, told = made(table, out)
    assert (trained, measured) == ([], [])
    assert all(line.endswith("finished before") for line in told)
    assert again.report is not None
    assert first.report is not None
    assert again.report.to_json() == first.report.to_json()
    scores_path(out / "mini-protonet-seed-1", "unequal").write_text("{}")  # damaged
    scores_path(out / "mini-protonet-seed-0", "1 shot").unlink()
    repaired, _ = made(table, out)
    assert (trained, measured) == ([], ["1 shot", "unequal"])
    assert repaired.report is not None
    assert [line.cells for line in lines(repaired.report)] == [line.cells for line in lines(first.report)]
    made(table, out, seeds=3)
    assert trained == ["mini-protonet-seed-2", "mini-cone-seed-2"]
    measured.clear()
    made(table, out, episodes=5, rows="cone")
    assert measured == ["other", "other"]  # other episodes: measured again, not trained
    assert len(trained) == 2
    with pytest.raises(ConfigError, match=r"seed-0 holds a run with other settings \(training.steps\); name another"):
        made(table, out, overrides={"training.steps": 7})


def test_an_interrupted_reproduction_goes_on(table: str, tmp_path: Path) -> None:
    whole, _ = made(table, tmp_path / "whole")

    def impatient(done: int, total: int, note: str = "") -> None:
        if "cone-seed-0" in note:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(table, tmp_path / "cut", progress=impatient)
    found, told = made(table, tmp_path / "cut")
    assert [line.endswith("finished before") for line in told] == [True, True, False, False]
    assert found.report is not None
    assert whole.report is not None
    assert [line.cells for line in lines(found.report)] == [line.cells for line in lines(whole.report)]


def test_a_run_that_fails_does_not_cost_the_table(table: str, tmp_path: Path) -> None:
    text, row = Path(table).read_text(), 'name = "cone"\n'
    Path(table).write_text(text.replace(row, f'{row}optim.encoder = {{ name = "adam", lr = 1e38 }}\n'))
    found, told = made(table, tmp_path / "out", rows="cone,protonet", seeds=1)
    assert [run.name for run in found.failed] == ["mini-cone-seed-0"]
    assert found.report is not None
    assert found.report.remarks[0].startswith("mini-cone-seed-0 failed: step ")
    assert "mini-cone-seed-0: failed: step " in told[0]
    assert [group.paper.method for group in found.report.groups] == ["ProtoNet"]
    assert found.to_json()["runs"][0]["status"] == "failed"


def test_changed_settings_are_in_the_label_and_not_the_note(table: str, tmp_path: Path) -> None:
    found, _ = made(table, tmp_path / "out", overrides={"training.steps": 3}, rows="protonet", seeds=1)
    assert found.report is not None
    assert [group.label for group in found.report.groups] == [f"{table}:protonet with training.steps=3, seed 0"]


def test_a_column_that_a_method_does_not_serve_is_left_out(table: str, tmp_path: Path) -> None:
    row = [*FIXED, 'paper = { table = "mini", method = "Elsewhere", backbone = "Huge" }']
    Path(table).write_text("\n".join([Path(table).read_text(), "[[row]]", *row]))
    found, _ = made(table, tmp_path / "out", budget="paper", rows="snail", seeds=1, episodes=4)
    assert found.report is not None
    [group] = found.report.groups
    assert list(group.own.results) == ["1 shot"]
    assert found.report.remarks[0].startswith(
        "mini-snail-seed-0, column 'unequal', is left out: SNAIL was trained with 1"
    )
    assert found.runs["mini-snail-seed-0"].status == "finished"


def test_a_dry_run_tells_what_would_be_run_and_what_is_missing(table: str, tmp_path: Path) -> None:
    found, told = made(table, tmp_path / "out", dry_run=True)
    assert (found.report, told, found.missing) == (None, [], [])
    assert not (tmp_path / "out").exists()
    assert [(row.recipe.rpartition(":")[2], row.row, row.columns, row.runs, row.finished) for row in found.plan] == [
        ("protonet", "ProtoNet, Tiny", 2, 2, 0),
        ("cone", "HyperProto, Tiny", 1, 2, 0),
    ]
    words = found.plan_words()
    assert words[0] == "4 runs to train, 1 at a time: not known."
    assert words[1].startswith("--rows takes default, more, all, or recipes by name: ")
    text = Path(table).read_text()
    Path(table).write_text(
        text.replace('columns = [{ name = "other", data = "', 'columns = [{ name = "other", data = "x')
    )
    missing, _ = made(table, tmp_path / "out", dry_run=True)
    assert missing.missing[0].startswith("the table needs xvectors:")
    assert missing.plan_words()[-1].startswith("missing: the table needs xvectors:")
    with pytest.raises(
        ConfigError, match=r"nothing was run: the table needs xvectors.*there is no data set 'xvectors'"
    ):
        made(table, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_data_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"nothing was run: fewrel-cnn-protonet-seed-0 needs fewrel .*data get fewrel"):
        made("table2", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": "large"}, "--budget: there is no budget 'large'"),
        ({"budget": 0}, "--budget 0: give 'small' or 'paper'"),
        ({"seeds": 0}, "--seeds 0: train each row with 1 to 100 seeds"),
        ({"seeds": True}, "--seeds True"),
        ({"rows": "protnet"}, "--rows: mini: there is no row 'protnet'"),
        ({"rows": ""}, "there is no row ''"),
        ({"rows": 3}, "rows = 3: give a name, or a list of names"),
        ({"rows": "default,more,nothing"}, "there is no row 'nothing'"),
        ({"episodes": 1}, "--episodes 1: draw at least 2, and at most 1,000,000"),
        ({"workers": 0}, "--workers 0"),
        ({"overrides": ["training.seed=3"]}, "-o training.seed: seeds are 0, 1, ...; --seeds says how many"),
        ({"overrides": ["training.stepz=3"]}, "there is no key 'stepz'; did you mean 'steps'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    arguments: dict[str, Any], message: str, table: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        made(table, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_mistakes_of_a_table(table: str, tmp_path: Path) -> None:
    text = Path(table).read_text()
    Path(table).write_text(text.replace(', method = "Elsewhere", backbone = "Huge" }', " }"))
    with pytest.raises(ConfigError, match=r"mini: small row .*:protonet does not say its method; add method = ..."):
        made(table, tmp_path / "out")
    Path(table).write_text(text.replace('columns = ["other"]', 'columns = ["othr"]'))
    with pytest.raises(ConfigError, match="there is no column 'othr'; did you mean 'other'"):
        made(table, tmp_path / "out")
    Path(table).write_text(text.replace('{ name = "other"', '{ name = "1 shot"'))
    with pytest.raises(ConfigError, match="'1 shot' twice; name each once"):
        made(table, tmp_path / "out")
    with pytest.raises(
        ConfigError, match="table1-shots has no CPU-sized recipe: there is nothing to run with --budget sma"
    ):
        made("table1-shots", tmp_path / "out")


def test_two_processes_do_not_share_a_folder(table: str, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with lock(tmp_path / "out", "taken"), ThreadPoolExecutor(1) as other:
        begun = other.submit(made, table, tmp_path / "out")
        with pytest.raises(BusyError, match="another process reproduces a table here"):
            begun.result()


@pytest.mark.parametrize("name", builtin_tables())
@pytest.mark.parametrize("budget", ["small", "paper"])
def test_every_table_can_be_planned(name: str, budget: str) -> None:
    if (name, budget) == ("table1-shots", "small"):
        return
    table, rows, _ = plan_rows(name, budget, "default")
    assert {(row.method, row.backbone) for row in table.published} == {
        (row.paper.method, row.paper.backbone) for row in rows
    }
    for row in rows:
        assert table.columns_of(row.paper)
        assert (cost_minutes(load_recipe(row.recipe).cost) is not None) == (budget == "small") or row.recipe.startswith(
            "table2:"
        )
    assert len(plan_rows(name, budget, "all")[1]) >= len(rows)


def test_the_small_table_2_is_protonet_and_the_variants_of_hyperproto() -> None:
    table, rows, _ = plan_rows("table2", "small", "default")
    assert [row.recipe for row in rows] == [
        f"fewrel-cnn:{row}"
        for row in ("protonet", "hyperproto-published", "hyperproto", "hyperproto-cone", "hyperproto-gaussian")
    ]
    assert len(table.columns) == 8
    published = load_recipe("fewrel-cnn:hyperproto-published")
    assert published.method.options == {"centers": "stored", "fit": "paper", "radius_distance": "plain"}
    assert published.episodes is not None
    assert published.episodes.shot == 0
    minutes = sum(3 * (cost_minutes(load_recipe(row.recipe).cost) or 1000) for row in rows)
    assert minutes / 2 < 60  # of two cores: half of the two hours
    images = [row.recipe for row in plan_rows("table3", "small", "omniglot")[1]]
    assert images[0] == "omniglot:protonet"
    assert [column.name for column in plan_rows("table3", "small", "omniglot")[0].columns][2:] == [
        "omniglot 5-way 1-shot", "omniglot 5-way 5-shot",
    ]  # fmt: skip


def test_rows_that_fig3_has_bars_for_are_drawn(tmp_path: Path) -> None:
    report = json.loads((ROOT / "results/tables/table3.json").read_text())
    drawn = reproduce.draw_rows("table3", report, tmp_path)
    assert [path.name for path in drawn] == ["fig3.png", "fig3.svg", "fig3.json"]
    panels = json.loads((tmp_path / "fig3.json").read_text())["panels"]
    assert any("ours" in label for panel in panels for label in panel["series"])
    assert reproduce.draw_rows("table3", {**report, "rows": []}, tmp_path) == []
