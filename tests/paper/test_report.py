"""A report on a table of the paper, from tiny runs on vectors: what is found, what is measured, what is said."""

import json
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import ENCODERS
from hyperproto.episodes import EpisodeSampler, episodes_hash
from hyperproto.errors import ConfigError, DataError, EpisodeError, HyperProtoError
from hyperproto.files import json_checksum
from hyperproto.methods import METHODS, Method, Task
from hyperproto.paper.report import HOW, make_report, options_from_data
from hyperproto.paper.table import TableReport, caption, lines, markdown, text_table
from hyperproto.training import load_recipe, train
from hyperproto.training.sources import run_source
from tests.training.conftest import TINY

TABLE = """
encoder = {{ name = "tiny" }}
episodes = {{ way = 4, shot = 3, query = 4 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 6, validate_every = 3, checkpoint_every = 3, log_every = 3 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 10 }}
[data]
spec = "vectors:{data}"

[table]
title = "Table 0: tests"
notes = ["a note on the table"]
episodes = 14
query = 5
seed = 3
columns = [
  {{ name = "1 shot", data = "vectors:{data}", way = 4, shot = 1 }},
  {{ name = "unequal", data = "vectors:{data}", way = 4, shot = [1, 1, 2, 5] }},
]
[[published]]
method = "ProtoNet"
backbone = "Tiny"
numbers = {{ "1 shot" = [40.0, 1.5], unequal = [50.25, 0.5] }}
note = "a note on a row"
[[published]]
method = "Elsewhere"
backbone = "Huge"
numbers = {{ unequal = [99.0, 0.1] }}
[[published]]
method = "HyperProto"
backbone = "Tiny"
numbers = {{ "1 shot" = [45.0, 1.5], unequal = [60.0, 0.5] }}

[[row]]
name = "protonet"
method = {{ name = "protonet" }}
paper = {{ table = "mini", method = "ProtoNet", backbone = "Tiny", note = "tiny" }}
[[row]]
name = "hyperproto"
method = {{ name = "hyperproto", centers = "episode", fit = "paper" }}
optim.radius = {{ name = "adam", lr = 1.0 }}
paper = {{ table = "mini", method = "HyperProto", backbone = "Tiny", columns = ["unequal"] }}
[[row]]
name = "cone"
method = {{ name = "hyperproto-cone", centers = "episode", fit = "paper" }}
optim.radius = {{ name = "adam", lr = 0.1 }}
paper = {{ table = "mini", method = "HyperProto", backbone = "Tiny" }}
[[row]]
name = "first"
method = {{ name = "cosine" }}
"""


@pytest.fixture(autouse=True)
def tiny() -> None:
    exec(TINY, {"__name__": "tiny"})


@pytest.fixture
def table(vectors_file: Path) -> str:
    path = vectors_file.with_name("mini.toml")
    path.write_text(TABLE.format(data=vectors_file))
    return str(path)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def made(table: str, runs: Path, row: str, folder: str | None = None, *overrides: str) -> Path:
    return train(load_recipe(f"{table}:{row}", list(overrides)), runs / (folder or row)).folder


def report(table: str, runs: Path, episodes: int | None = None) -> TableReport:
    return make_report(table, runs, episodes, lambda done, total, note="": None)


def shown(found: TableReport) -> list[tuple[str, str, list[str]]]:
    return [(line.label, line.how, line.cells) for line in lines(found)]


def test_two_seeds_an_empty_cell_and_what_can_be_run(table: str, runs: Path) -> None:
    made(table, runs, "protonet")
    made(table, runs / "deeper", "hyperproto", "a")
    made(table, runs, "hyperproto", "b", "training.seed=7")
    made(table, runs, "first")  # of no row
    found = report(table, runs)
    rows = shown(found)
    protonet, simple = rows[1][2], [("", "cosine point none"), ("", "simpleshot point center-unit")]
    assert rows[0] == ("ProtoNet", "Tiny", ["40.00 ± 1.50", "50.25 ± 0.50"])
    assert [row[:2] for row in rows[1:5]] == [
        (f"{table}:protonet, seed 0; tiny", "as in the paper: protonet point none"),
        ("", "Bayes fit: hyperproto bayes none"),
        *simple,
    ]
    assert all("±" in cell and "sd" not in cell for cell in protonet)
    assert rows[5] == ("Elsewhere", "Huge", ["", "99.00 ± 0.10"])
    assert rows[6][0] == "HyperProto"
    assert [row[:2] for row in rows[7:9]] == [
        (f"{table}:hyperproto, seeds 0, 7", "as in the paper: hyperproto paper none radius_distance=plain"),
        ("", "Bayes fit: hyperproto bayes none"),
    ]
    assert all(row[2][0] == "" and ", sd " in row[2][1] for row in rows[7:9])
    assert rows[9:] == [(f"to run: {table}:cone", "", ["", ""])]


def test_averages_over_columns(table: str, runs: Path) -> None:
    text = Path(table).read_text()
    Path(table).write_text(
        text.replace(
            "[[published]]", 'averages = [{ name = "both", columns = ["1 shot", "unequal"] }]\n[[published]]', 1
        )
    )
    for seed in (0, 7):
        made(table, runs, "protonet", f"seed{seed}", f"training.seed={seed}")
    made(table, runs, "hyperproto")  # in one column only
    found = report(table, runs)
    rows = shown(found)
    assert rows[0] == ("ProtoNet", "Tiny", ["40.00 ± 1.50", "50.25 ± 0.50", "45.12"])
    assert [row[2][2] for row in rows if row[0].startswith(("Elsewhere", f"{table}:hyperproto", "to run"))] == [""] * 3
    own = found.to_json()["rows"][0]["ours"][0]["results"][0]
    one, other = (own["columns"][name] for name in ("1 shot", "unequal"))
    mean = (one["accuracy"] + other["accuracy"]) / 2
    half = (one["ci95"] ** 2 + other["ci95"] ** 2) ** 0.5 / 2
    seeds = [(a["accuracy"] + b["accuracy"]) / 2 for a, b in zip(one["runs"], other["runs"], strict=True)]
    assert own["averages"]["both"] == pytest.approx(
        {"mean": mean, "ci95": half, "sd_between_seeds": np.std(seeds, ddof=1)}
    )
    assert rows[1][2][2] == f"{100 * mean:.2f} ± {100 * half:.2f}, sd {100 * np.std(seeds, ddof=1):.2f}"
    assert "both: the mean over 1 shot, unequal" in caption(found)
    assert all(len(row.split(" | ")) == 5 for row in markdown(found).splitlines() if row.startswith("| "))


def test_the_numbers_are_those_of_an_evaluation(table: str, runs: Path, vectors_file: Path) -> None:
    folders = [made(table, runs, "hyperproto", f"seed{seed}", f"training.seed={seed}") for seed in (0, 1, 2)]
    content = report(table, runs).to_json()
    pool = open_pool(f"vectors:{vectors_file}", "test")
    episodes = EpisodeSampler(pool, way=4, shot=[1, 1, 2, 5], query=5, seed=3).draw(14)
    [group] = content["rows"][2]["ours"]
    assert [run["folder"] for run in group["runs"]] == [str(folder) for folder in folders]
    for variant in group["results"]:
        name, fit, _, *reading = variant["label"].rpartition(": ")[2].split()
        options = dict(option.split("=") for option in reading)
        accuracies = []
        for folder in folders:
            candidates = select([run_source(str(folder), pool)], [name], [fit], [], options)
            settings = {"way": 4, "shot": [1, 1, 2, 5]}
            accuracies.append(evaluate_candidates(candidates, pool, episodes, settings)[0].values)
        measured = variant["columns"]["unequal"]
        assert [run["accuracy"] for run in measured["runs"]] == pytest.approx([a.mean() for a in accuracies])
        assert [run["training_seed"] for run in measured["runs"]] == [0, 1, 2]
        assert measured["accuracy"] == pytest.approx(np.mean(accuracies))
        assert measured["sd_between_seeds"] == pytest.approx(np.std([a.mean() for a in accuracies], ddof=1))
        error = np.std(np.mean(accuracies, axis=0), ddof=1) / np.sqrt(14)
        assert measured["ci95"] == pytest.approx(2.160369 * error, rel=1e-5)  # Student's t with 13 degrees of freedom
        assert {run["episode_hash"] for run in measured["runs"]} == {episodes_hash(pool, episodes)}
    assert [column["episode_hash"] for column in content["columns"]] == [None, episodes_hash(pool, episodes)]


def test_everything_is_paired(table: str, runs: Path) -> None:
    for row in ("protonet", "hyperproto", "cone"):
        made(table, runs, row)
    content = report(table, runs, episodes=9).to_json()
    json.dumps(content, allow_nan=False)
    results = [r for row in content["rows"] for group in row["ours"] for r in every_result(group)]
    for column in content["columns"]:
        own = [result for result in results if result["column"] == column["name"]]
        assert {result["episode_hash"] for result in own} == {column["episode_hash"]}
        assert {(result["episodes"], result["seed"], result["query"]) for result in own} == {(9, 3, 5)}
    pairs = [(pair["column"], pair["a"].split(":")[-1], pair["b"].split(":")[-1]) for pair in content["comparisons"]]
    assert sorted(pairs) == [
        ("1 shot", " hyperproto-cone paper none", " protonet point none"),
        ("unequal", " hyperproto paper none radius_distance=plain", " protonet point none"),
        ("unequal", " hyperproto-cone paper none", " hyperproto paper none radius_distance=plain"),
        ("unequal", " hyperproto-cone paper none", " protonet point none"),
    ]
    labels = [variant["label"] for variant in content["rows"][2]["ours"][0]["results"]]
    assert labels == ["as in the paper: hyperproto-cone paper none", "Bayes fit: hyperproto bayes none"]


def every_result(group: dict[str, Any]) -> list[dict[str, Any]]:
    return [run for variant in group["results"] for column in variant["columns"].values() for run in column["runs"]]


def test_a_pool_is_encoded_once_a_run(table: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(table, runs, "protonet")
    encoder = ENCODERS.get("tiny")
    real, calls = encoder.encode_all, []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(encoder, "encode_all", counted)
    report(table, runs)
    assert len(calls) == 1


def with_row(table: str, *row: str) -> None:
    Path(table).write_text("\n".join([Path(table).read_text(), "[[row]]", *row]))


FIXED = (
    'name = "snail"',
    'method = { name = "snail" }',
    "episodes = { way = 4, shot = 1, query = 4 }",
    "validation = { way = 4, shot = 1 }",
    'optim.head = { name = "adam", lr = 0.001 }',
)


@pytest.mark.parametrize("columns", [', columns = ["1 shot"]', ""])
def test_a_method_of_fixed_way_and_shots_is_measured_where_it_serves(table: str, runs: Path, columns: str) -> None:
    with_row(table, *FIXED, f'paper = {{ table = "mini", method = "Elsewhere", backbone = "Huge"{columns} }}')
    folder = made(table, runs, "snail")
    found = report(table, runs)
    [group] = found.groups
    assert all(set(variant.results) == {"1 shot"} for variant in group.variants.values())
    assert list(group.variants) == ["as in the paper: snail point none", "Bayes fit: hyperproto bayes none"]
    left_out = f"{folder}, column 'unequal', is left out: SNAIL was trained with 1 shots and serves no other number"
    assert [remark.startswith(left_out) for remark in found.remarks] == ([] if columns else [True])
    assert set(found.hashes) == {"1 shot"}


class OnItems(Method):
    """Scores by the sum of the coordinates of raw items: no encoder is asked for anything but its batch."""

    reads: ClassVar = "items"
    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def scores(self, task: Task) -> Tensor:
        assert task.items is not None
        rows = []
        for b, (support, query) in enumerate(zip(task.items.support, task.items.query, strict=True)):
            sums = [task.items.batch(index).sum(1) for index in (support, query)]
            members = task.members()[b, : len(support)]
            means = sums[0] @ members / members.sum(0)
            rows.append(-(sums[1][:, None] - means).abs() * self.scale)
        return torch.stack(rows)


def test_a_method_on_items_causes_no_encoding_and_has_no_baselines(
    table: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._entries, "on-items", OnItems)
    words = 'paper = { table = "mini", method = "Elsewhere", backbone = "Huge", episodes = 5 }'
    with_row(table, 'name = "items"', 'method = { name = "on-items" }', words)
    made(table, runs, "items")
    monkeypatch.setattr(ENCODERS.get("tiny"), "encode_all", lambda *_: pytest.fail("nothing asked for vectors"))
    [group] = report(table, runs).groups
    assert list(group.variants) == ["as in the paper: on-items point none"]


def test_a_costly_method_is_measured_on_the_first_episodes(table: str, runs: Path) -> None:
    made(table, runs, "protonet")
    made(table, runs, "hyperproto")
    text = Path(table).read_text()
    Path(table).write_text(text.replace('columns = ["unequal"]', 'columns = ["unequal"], episodes = 5'))
    found = report(table, runs)
    costly = next(group for group in found.groups if group.paper.episodes)
    assert costly.label.endswith("hyperproto, seed 0; at most 5 episodes")
    assert {len(variant.over_seeds("unequal").values) for variant in costly.variants.values()} == {5}
    [pair] = found.to_json()["comparisons"]
    assert (pair["column"], pair["episodes"]) == ("unequal", 5)
    whole = next(group for group in found.groups if not group.paper.episodes)
    both = costly.own.over_seeds("unequal").values, whole.own.over_seeds("unequal").values[:5]
    assert abs(pair["difference"]) == pytest.approx(abs((both[0] - both[1]).mean()))
    assert costly.variants["Bayes fit: hyperproto bayes none"].results["unequal"][0].settings["episodes"] == 5
    assert "of some rows the first of them" in caption(found)[0]
    assert found.to_json()["columns"][1]["episode_hash"] == whole.own.results["unequal"][0].settings["episode_hash"]


def test_runs_without_a_model_and_runs_that_go_on(table: str, runs: Path) -> None:
    folder = made(table, runs, "protonet", "begun")
    (folder / "model.safetensors").unlink()
    (folder / "metrics.jsonl").write_text("")
    shutil.rmtree(folder / "checkpoint")
    half = made(table, runs, "hyperproto", "half")
    metrics = (half / "metrics.jsonl").read_text().splitlines(keepends=True)
    (half / "metrics.jsonl").write_text(metrics[0])
    shutil.rmtree(half / "checkpoint")
    made(table, runs, "hyperproto", "whole", "training.seed=1")
    found = report(table, runs)
    rows = shown(found)
    begun = f"{table}:protonet, seed 0, not finished: step 0 of 6; tiny; no model yet"
    assert rows[1] == (begun, str(folder), ["", ""])
    labels = [label for label, _, _ in rows if "hyperproto" in label]
    assert labels == [f"{table}:hyperproto, seed 0, not finished: step 3 of 6", f"{table}:hyperproto, seed 1"]
    assert found.to_json()["rows"][0]["started"] == [{"folder": str(folder), "step": 0}]


def test_patience_is_an_end(table: str, runs: Path) -> None:
    overrides = ["training.patience=2", "training.steps=500", "optim.encoder.lr=1e-9"]
    folder = made(table, runs, "protonet", None, *overrides)
    [group] = report(table, runs).groups
    assert group.label == f"protonet with other settings ({folder}), seed 0; tiny"


def test_a_run_serves_every_table_whose_recipe_it_equals(table: str, runs: Path) -> None:
    folder = made(table, runs, "protonet")
    config = json.loads((folder / "config.json").read_text())
    del config["recipe"]["paper"], config["checksum"]
    config["recipe"].update(description="other words", name="another name")
    (folder / "config.json").write_text(json.dumps({**config, "checksum": json_checksum(config)}))
    [group] = report(table, runs).groups
    assert group.label == f"{table}:protonet, seed 0; tiny"
    config["recipe"]["optim"]["encoder"]["lr"] = 0.5
    (folder / "config.json").write_text(json.dumps({**config, "checksum": json_checksum(config)}))
    assert report(table, runs).groups == []


def test_a_run_of_an_encoder_with_an_argument_is_found(table: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(ENCODERS.get("tiny")):  # type: ignore[misc]
        argument = "model"

        def __init__(self, *, shape: list[int], model: str = "small") -> None:
            super().__init__(shape=shape, size=7 if model == "large" else 5)

    monkeypatch.setitem(ENCODERS._entries, "named", Named)
    Path(table).write_text(Path(table).read_text().replace('name = "tiny"', 'name = "named:large"'))
    config = json.loads((made(table, runs, "protonet") / "config.json").read_text())
    assert config["recipe"]["encoder"] == {"name": "named", "model": "large", "shape": [8]}
    folder = made(table, runs, "protonet", "other", "encoder.name='named:small'")
    labels = [group.label for group in report(table, runs).groups]
    assert labels == [f"protonet with other settings ({folder}), seed 0; tiny", f"{table}:protonet, seed 0; tiny"]


def test_a_number_without_an_interval_is_printed_as_it_is(table: str, runs: Path) -> None:
    Path(table).write_text(Path(table).read_text().replace("unequal = [99.0, 0.1]", "unequal = [99.0]"))
    found = report(table, runs)
    assert ("Elsewhere", "Huge", ["", "99.00"]) in shown(found)
    assert "| **Elsewhere** | **Huge** |  | **99.00** |" in markdown(found)


def test_other_settings_are_said_and_the_recipe_stays_to_be_run(table: str, runs: Path) -> None:
    folder = made(table, runs, "protonet", "wide", "encoder.size=7")
    rows = shown(report(table, runs))
    assert rows[1][0] == f"protonet with other settings ({folder}), seed 0; tiny"
    assert (f"to run: {table}:protonet", "", ["", ""]) in rows


def test_the_same_run_twice_counts_once(table: str, runs: Path) -> None:
    shutil.copytree(made(table, runs, "protonet", "a"), runs / "b")
    found = report(table, runs)
    assert [len(group.runs) for group in found.groups] == [1]
    assert found.remarks == [f"{runs / 'b'} is left out: it has the settings and the seed of {runs / 'a'}"]


def test_one_bad_run_does_not_cost_the_others(table: str, runs: Path) -> None:
    made(table, runs, "protonet", "good")
    bad = made(table, runs, "protonet", "bad", "training.seed=1")
    (bad / "model.safetensors").write_bytes(b"not tensors")
    alone = made(table, runs, "hyperproto", "alone")
    (alone / "model.safetensors").write_bytes(b"")
    (runs / "x").mkdir()
    (runs / "x" / "config.json").write_text("[]")
    lost = made(table, runs, "cone", "lost", "paper.method='Hyperproto'", "training.steps=3")
    found = report(table, runs)
    assert [group.label for group in found.groups] == [f"{table}:protonet, seed 0; tiny"]
    words = sorted(found.remarks)
    assert words[0].startswith(f"{alone} is left out: {alone}/model.safetensors: not a readable safetensors file")
    assert words[1].startswith(f"{bad} is left out: {bad}/model.safetensors: not a readable safetensors file")
    assert words[2].startswith(f"{lost} is left out: mini: there is no published row 'Hyperproto, Tiny'; did you mean")
    assert words[3].startswith(f"{runs / 'x'} is left out: {runs / 'x'}/config.json: not the configuration of a run")
    assert found.to_json()["left_out"] == found.remarks


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (
            'name = "1 shot", data = "vectors:',
            'name = "1 shot", data = "vectors:/no',
            DataError,
            "'1 shot': .*no such fi",
        ),
        ("[1, 1, 2, 5] }", '[1, 1, 2, 5], split = "tset" }', ConfigError, "'unequal': .*no split 'tset'"),
        ("shot = [1, 1, 2, 5]", "shot = 29", EpisodeError, "mini, column 'unequal': .*29 shots and 5 queries need 34"),
    ],
)
def test_an_error_names_its_column(
    old: str, new: str, error: type[HyperProtoError], message: str, table: str, runs: Path
) -> None:
    made(table, runs, "protonet")
    text = Path(table).read_text()
    assert old in text
    Path(table).write_text(text.replace(old, new))
    with pytest.raises(error, match=message):
        report(table, runs)


def test_without_runs_no_data_are_needed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(runs / "nowhere"))
    monkeypatch.chdir(runs)
    found = make_report("table3", None, None, lambda done, total, note="": None)
    rows = shown(found)
    assert ("to run: table3:hyperproto-conv4-5shot", "", ["", ""]) in rows
    assert ("HyperProto", "WideResNet-28-10", ["63.78 ± 0.63", "81.29 ± 0.46"]) in rows
    assert found.hashes == {}
    with pytest.raises(DataError, match="nowhere: no such folder; name the one that holds your runs"):
        report("table3", runs / "nowhere")


def test_a_recipe_that_reproduces_no_row_is_a_mistake(table: str, runs: Path) -> None:
    Path(table).write_text(Path(table).read_text().replace('method = "ProtoNet", ', 'method = "ProtNet", '))
    with pytest.raises(ConfigError, match="no published row 'ProtNet, Tiny'; did you mean 'ProtoNet, Tiny'"):
        report(table, runs)


def test_what_is_printed(table: str, runs: Path) -> None:
    made(table, runs, "protonet")
    found = report(table, runs)
    words = caption(found)
    hashed = found.hashes["unequal"]
    assert any(f"shots 1,1,2,5, 5 queries a class, 14 episodes, seed 3, hash {hashed}" in line for line in words)
    assert words[-3:] == ["ProtoNet, Tiny: a note on a row", HOW, "a note on the table"]
    text = markdown(found).splitlines()
    assert text[0] == "## Table 0: tests"
    assert text[2:5] == [
        "| row | backbone, or how it was evaluated | 1 shot | unequal |",
        "| --- | --- | ---: | ---: |",
        "| **ProtoNet** | **Tiny** | **40.00 ± 1.50** | **50.25 ± 0.50** |",
    ]
    assert len({line.count("|") for line in text if line.startswith("|")}) == 1
    assert f"- {words[-1]}" in text
    console = Console(width=160, record=True, file=StringIO())
    console.print(text_table(found))
    terminal = console.export_text()
    for cell in ("40.00 ± 1.50", lines(found)[1].cells[0], "mini.toml:hyperproto", "simpleshot point center-unit"):
        assert cell in terminal


def test_settings_leave_out_what_encoders_read_off_the_data(make_blobs: Callable[..., Pool]) -> None:
    images = Pool(np.zeros((2, 84, 84, 3), np.uint8), np.arange(2), ("a", "b"))
    for name in ENCODERS.names():
        for pool in (images, make_blobs()):
            try:
                assert set(ENCODERS.get(name).options_for(pool)) <= options_from_data(name)
            except DataError:
                continue  # it does not read such data
