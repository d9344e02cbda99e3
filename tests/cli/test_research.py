"""The command line as scripts use it: real processes for the exit codes, the rest in-process."""

import json
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from hyperproto import __version__, cli
from hyperproto.encoders import ENCODERS, Encoder, Units
from hyperproto.errors import ConfigError, DataError, HyperProtoError

FIELDS = {
    "accuracy", "ci95", "episodes", "episode_hash", "method", "fit", "transform", "data", "split", "way", "shot",
    "query", "seconds", "metrics", "seed",
}  # fmt: skip


def run(*arguments: str) -> str:
    """Run a command that must succeed; return standard output."""
    result = CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from hyperproto.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def evaluate(file: Path, *more: str) -> dict[str, Any]:
    common = ["--encoder", "identity", "--data", f"vectors:{file}", "--episodes", "30", "--json", "-"]
    content: dict[str, Any] = json.loads(run("evaluate", *common, *more))
    return content


def test_evaluate_prints_one_json_object(vectors_file: Path) -> None:
    found = evaluate(vectors_file, "--method", "hyperproto", "--fit", "bayes", "--transform", "unit", "--split", "test")
    assert set(found) >= FIELDS
    assert (found["method"], found["fit"], found["transform"], found["split"]) == (
        "hyperproto",
        "bayes",
        "unit",
        "test",
    )
    assert (found["way"], found["shot"], found["query"], found["episodes"]) == (5, 5, 15, 30)
    assert 0.5 < found["accuracy"] <= 1
    again = evaluate(vectors_file, "--method", "hyperproto", "--fit", "bayes", "--transform", "unit", "--split", "test")
    assert (again["accuracy"], again["episode_hash"]) == (found["accuracy"], found["episode_hash"])


def test_one_episode_has_no_interval(vectors_file: Path) -> None:
    assert evaluate(vectors_file, "--method", "protonet", "--episodes", "1")["ci95"] is None
    both = ["--method", "protonet", "--method", "cosine", "--episodes", "1", "--json", "-"]
    pair = json.loads(run("compare", "--encoder", "identity", "--data", f"vectors:{vectors_file}", *both))
    assert pair["comparisons"][0]["ci95"] is None


def test_unequal_shots_and_method_options(vectors_file: Path) -> None:
    shots = ["--shot", "1,1,2,5,10", "--query", "10", "--method", "hyperproto", "--fit", "paper"]
    found = evaluate(vectors_file, *shots)
    assert found["shot"] == [1, 1, 2, 5, 10]
    assert set(found["metrics"]["accuracy_by_shot"]) == {"1", "2", "5", "10"}
    other = evaluate(vectors_file, *shots, "-o", "radius_weight=0.0")
    assert other["accuracy"] > found["accuracy"]


def test_compare_pairs_everything(vectors_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    table = run(
        "compare", "--encoder", "identity", "--data", f"vectors:{vectors_file}", "--episodes", "30",
        "--method", "protonet", "--method", "hyperproto", "--fit", "bayes", "--fit", "point",
        "--transform", "none", "--transform", "unit",
        "--json", str(file),
    )  # fmt: skip
    content = json.loads(file.read_text())
    assert len(content["results"]) == 6
    assert len(content["comparisons"]) == 15
    assert set(content["comparisons"][0]) == {"shot", "a", "b", "difference", "ci95"}
    assert all(set(result) >= FIELDS for result in content["results"])
    assert len({result["episode_hash"] for result in content["results"]}) == 1
    assert "hyperproto bayes unit" in table
    assert content["command"] == shlex.join(["hyperproto", *sys.argv[1:]])


def test_compare_takes_several_kinds_of_shots(vectors_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    common = ["--encoder", "identity", "--data", f"vectors:{vectors_file}", "--episodes", "30", "--way", "3"]
    methods = ["--method", "protonet", "--method", "cosine"]
    shots = ["--shot", "1", "--shot", "1,2,5", "--shot", "1"]  # twice the same is once
    drawn = tmp_path / "curves.svg"
    table = run("compare", *common, *methods, *shots, "--json", str(file), "--plot", str(drawn))
    assert "<svg" in drawn.read_text()
    refused = CliRunner().invoke(cli.app, ["compare", *common, *methods, "--plot", "curves.doc"])
    assert "curves.doc: a picture ends in .png, .svg, .pdf" in " ".join(refused.output.replace("│", " ").split())
    content = json.loads(file.read_text())
    assert [result["shot"] for result in content["results"]] == [1, 1, [1, 2, 5], [1, 2, 5]]
    assert [row["shot"] for row in content["comparisons"]] == [1, [1, 2, 5]]
    alone = json.loads(run("evaluate", *common, "--method", "cosine", "--shot", "1,2,5", "--json", "-"))
    assert content["results"][3]["accuracy"] == alone["accuracy"]
    assert content["results"][3]["episode_hash"] == alone["episode_hash"]
    for words in ("shots 1,2,5", "shots 1", f"{100 * alone['accuracy']:.2f}", "("):
        assert words in table


def test_none_of_the_above(vectors_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "out.json"
    common = ["--encoder", "identity", "--data", f"vectors:{vectors_file}", "--episodes", "30", "--query", "5"]
    methods = ["--method", "hyperproto", "--method", "protonet", "--shot", "5", "--nota-share", "0.5"]
    table = run("compare", *common, *methods, "--json", str(file))
    content = json.loads(file.read_text())
    [pair] = content["comparisons"]
    assert set(pair) == {"shot", "a", "b", "difference", "ci95", "auroc_difference", "auroc_ci95"}
    found = content["results"][0]
    assert (found["nota_share"], found["threshold_data"], found["threshold_split"]) == (0.5, found["data"], "val")
    nota = found["metrics"]["nota"]
    assert nota["share"] == 0.5
    assert nota["auroc"] - content["results"][1]["metrics"]["nota"]["auroc"] == pytest.approx(pair["auroc_difference"])
    for words in ("AUROC %", "coverage %", f"{100 * nota['auroc']:.2f}", "NOTA share 0.5", found["threshold_hash"]):
        assert words in " ".join(table.split())
    one = ["--method", "hyperproto", "--na-rate", "1", "--threshold-split", "train", "--json", "-"]
    alone = json.loads(run("evaluate", *common, *one))
    assert (alone["na_rate"], alone["threshold_split"]) == (1, "train")
    assert "nota_share" not in alone
    assert alone["metrics"]["nota"]["share"] == pytest.approx(1 / 6)
    both = run("compare", *common, *methods, "--shot", "1,1,1,2,2")
    assert both.count("AUROC") == 4
    assert "(" in both


def test_thresholds_come_from_other_data(vectors_file: Path, tmp_path: Path) -> None:
    with np.load(vectors_file) as content:
        kept = {name: content[name][content["split"] == "val"] for name in ("x", "y")}
    np.savez(tmp_path / "other.npz", **kept)
    np.savez(tmp_path / "narrow.npz", x=kept["x"][:, :3], y=kept["y"])
    nota = ["--method", "cosine", "--query", "5", "--nota-share", "0.4"]
    here = evaluate(vectors_file, *nota)
    there = ["--threshold-data", f"vectors:{tmp_path / 'other.npz'}", "--threshold-split", "all"]
    assert evaluate(vectors_file, *nota, *there)["metrics"] == here["metrics"]  # the same items under another name
    common = ["evaluate", "--encoder", "identity", "--data", f"vectors:{vectors_file}", "--episodes", "5", *nota]
    narrow = ["--threshold-data", f"vectors:{tmp_path / 'narrow.npz'}", "--threshold-split", "all"]
    for more, message in (
        (["--split", "val"], r"thresholds would be chosen on vectors:.* \(val\), the very data that are reported"),
        (["--split", "val", *there], "the very data that are reported; name other data with --threshold-data"),
        (narrow, r"which thresholds are to be chosen on, as \{'shape': \[3\]\}; name data of the same kind"),
        (["--threshold-split", "vall"], "did you mean 'val'"),
        (["--na-rate", "1"], "give one of them"),
        (["--nota-share", "0", "--threshold-split", "val"], "add --nota-share or --na-rate"),
        (["--way", "8"], "8-way episodes leave none of its 8 classes"),
    ):
        with pytest.raises(HyperProtoError, match=message):
            run(*common, *more)


class Bag(Encoder):
    """Counts letters of a sentence."""

    pretrained = True

    feature_shape = (26,)

    def collate(self, prepared: Any, index: Any) -> torch.Tensor:
        texts = ["".join(prepared[i]["tokens"]) for i in index]
        return torch.tensor([[text.count(chr(97 + n)) for n in range(26)] for text in texts], dtype=torch.float32)

    def forward(self, batch: torch.Tensor) -> Units:
        return Units.one_each(batch)


def test_submit_answers_a_hidden_test_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sentence(letter: str) -> dict[str, Any]:
        return {"tokens": [letter * 3, "of", letter], "h": [letter, "Q1", [[0]]], "t": [letter, "Q2", [[2]]]}

    answers = [2, 0, 1, 1, 2]
    tasks = [
        {"meta_train": [[sentence(letter)] * 2 for letter in letters], "meta_test": sentence(letters[answer])}
        for letters, answer in zip(["abc", "xyz", "bca", "mno", "zyx"], answers, strict=True)
    ]
    (tmp_path / "test_wiki_input-3-2.json").write_text(json.dumps(tasks))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ENCODERS, "_entries", {**ENCODERS._entries, "bag": Bag})
    ask = ["submit", "test_wiki_input-3-2.json", "--encoder", "bag", "--method", "protonet", "--transform", "unit"]
    assert run(*ask) == "pred-3-2.json: 5 predictions\n"
    assert json.loads((tmp_path / "pred-3-2.json").read_text()) == answers
    run(*ask, "--uncased", "--out", "mine.json")
    assert (tmp_path / "mine.json").read_text() == (tmp_path / "pred-3-2.json").read_text()
    assert CliRunner().invoke(cli.app, ["submit", "test_wiki_input-3-2.json"]).exit_code == 2


def test_train_then_evaluate_the_run(tmp_path: Path) -> None:
    run_folder = str(tmp_path / "run")
    small = ["training.steps=2", "episodes.way=5", "validation.episodes=5", "encoder.filters=4"]
    overrides = [part for override in small for part in ("-o", override)]
    trained = json.loads(run("train", "glyphs:hyperproto", "--out", run_folder, *overrides, "--json", "-"))
    assert trained["run"] == run_folder
    assert 0 < trained["accuracy"] <= 1
    assert "best validation accuracy" in run("train", "glyphs:hyperproto", "--out", run_folder, *overrides)
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<img") == 2
    assert "hyperproto train glyphs:hyperproto" in page
    common = ["--data", "glyphs", "--episodes", "20", "--json", "-"]
    found = json.loads(run("evaluate", "--run", run_folder, *common))
    assert (found["method"], found["fit"], found["transform"], found["run"]) == (
        "hyperproto",
        "bayes",
        "none",
        run_folder,
    )
    pixels = json.loads(
        run(
            "compare",
            "--run",
            run_folder,
            "--encoder",
            "identity",
            "--method",
            "protonet",
            "--method",
            "simpleshot",
            *common,
        )
    )
    assert [row["label"] for row in pixels["results"]] == [
        f"{run_folder} protonet point none",
        f"{run_folder} simpleshot point center-unit",
        "identity protonet point none",
        "identity simpleshot point center-unit",
    ]


def test_a_grid_prints_a_line_a_run_and_a_table(tmp_path: Path) -> None:
    small = ["training.steps=1", "episodes.way=5", "validation.episodes=2", "encoder.filters=2"]
    words = [part for override in small for part in ("-o", override)]
    words += ["--out", str(tmp_path / "grid"), "--workers", "1"]
    seeds, rates = ["-o", "training.seed=0,1"], ["-o", "optim.encoder.lr=1e-3,1e38"]
    result = CliRunner().invoke(cli.app, ["grid", "glyphs:protonet", *words, *seeds, *rates])
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == [
        f"[{number}/4] optim.encoder.lr={rate}__training.seed={seed}"
        for number, (seed, rate) in enumerate(product((0, 1), (0.001, "1e+38")), start=1)
    ]
    assert lines[-1] == "error: 2 of 4 runs failed; the same command tries them again"
    assert "0.001" in result.stdout
    assert "optim.encoder.lr=1e+38__training.seed=0: failed: step 1: " in " ".join(result.stdout.split())
    again = CliRunner().invoke(cli.app, ["grid", "glyphs:protonet", *words, *seeds])
    assert isinstance(again.exception, ConfigError)  # nothing but the seed is swept: another grid
    words[words.index("--out") + 1] = str(tmp_path / "other")
    found = json.loads(run("grid", "glyphs:protonet", *words, *seeds, "--json", "-"))
    assert [(group["settings"], group["seeds"]) for group in found["groups"]] == [({}, [0, 1])]


def test_reproduce_a_table_in_small(tmp_path: Path) -> None:
    planned = run("reproduce", "table4", "--seeds", "2", "--out", str(tmp_path / "out"), "--dry-run")
    for said in ("table4, budget small", "glyphs:hyperproto-cone", "6 runs to train", "--rows takes default, all"):
        assert said in planned
    assert not (tmp_path / "out").exists()
    small = ["training.steps=1", "episodes.way=5", "validation.episodes=2", "encoder.filters=2"]
    words = ["reproduce", "table4", "--rows", "hyperproto", "--seeds", "2", "--episodes", "3", "--workers", "1"]
    words += [*(part for override in small for part in ("-o", override)), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(cli.app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "glyphs:hyperproto with training.steps=1" in " ".join(result.stdout.split())
    assert result.stderr.startswith("[1/2] glyphs-hyperproto-seed-0: accuracy ")
    assert {path.suffix for path in (tmp_path / "out").glob("table4.*")} == {".md", ".tex", ".csv", ".html", ".json"}
    content = json.loads(run(*words, "--json", "-"))
    assert content.pop("command") == shlex.join(["hyperproto", *sys.argv[1:]])
    assert content == json.loads((tmp_path / "out" / "table4.json").read_text())
    refused = CliRunner().invoke(cli.app, [*words, "-o", "optim.encoder.lr=1e38"])
    assert isinstance(refused.exception, ConfigError)
    failing = [*words[:-1], str(tmp_path / "other"), "-o", "optim.encoder.lr=1e38"]
    failed = CliRunner().invoke(cli.app, failing)
    assert failed.exit_code == 1
    assert failed.stderr.splitlines()[-1] == "error: 2 of 2 runs failed; the same command tries them again"


def test_lists() -> None:
    assert run("--version").strip() == __version__
    assert [row["method"] for row in json.loads(run("methods", "list", "--json", "-"))] == [
        "act2param", "awgim", "baseline-plus", "bd-cspn", "bert-pair", "classifier", "cosine", "covamnet", "gnn",
        "hyperproto", "hyperproto-closed", "hyperproto-cone", "hyperproto-gaussian", "hyperproto-named", "imp",
        "label-propagation", "leo", "logistic", "maml", "matchingnet", "metanet", "metanet-conv", "mlman", "mtb",
        "mtb-pretrain", "nearest", "nnshot", "proto-adv", "proto-hatt", "protonet", "regrab", "relationnet", "s2m2",
        "self-training", "simpleshot", "snail", "soft-kmeans", "structshot", "traml", "two-stage", "variational",
    ]  # fmt: skip
    assert {row["data"] for row in json.loads(run("data", "list", "--json", "-"))} == {
        "cifar-fs", "conll", "cub", "fc100", "fewnerd", "fewrel", "fewrel2", "folder", "glyphs", "intents",
        "miniimagenet", "omniglot", "statements", "texts", "tieredimagenet", "vectors",
    }  # fmt: skip
    recipes = json.loads(run("recipes", "list", "--json", "-"))
    assert "glyphs:hyperproto" in {row["recipe"] for row in recipes}
    shown = json.loads(run("recipes", "show", "glyphs:hyperproto", "-o", "training.steps=3", "--json", "-"))
    assert shown["training"]["steps"] == 3
    assert "glyphs" in run("data", "list")


TABLE = """
[table]
title = "A table"
episodes = 50
query = 5
columns = [{ name = "5-way 1-shot", data = "glyphs", way = 5, shot = 1 }]
[[published]]
method = "ProtoNet"
backbone = "Conv"
numbers = { "5-way 1-shot" = [46.44, 0.60] }
"""


def test_report_a_table_with_a_run(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TABLE)
    small = ["training.steps=1", "episodes.way=5", "validation.episodes=5", "encoder.filters=4"]
    small.append('paper={table="mine", method="ProtoNet", backbone="Conv", note="4 filters"}')
    overrides = [part for override in small for part in ("-o", override)]
    run("train", "glyphs:protonet", "--out", str(tmp_path / "runs" / "small"), *overrides)
    files = ["--json", str(tmp_path / "a.json"), "--out", str(tmp_path / "a.md")]
    printed = run("report", str(tmp_path / "mine.toml"), "--runs", str(tmp_path / "runs"), "--episodes", "6", *files)
    content = json.loads((tmp_path / "a.json").read_text())
    [column] = content["columns"]
    assert f"6 episodes, seed 0, hash {column['episode_hash']}" in " ".join(printed.split())
    assert "46.44 ± 0.60" in printed
    [ours] = content["rows"][0]["ours"]
    assert (ours["recipe"], ours["note"]) == (None, "4 filters")
    assert [result["label"] for result in ours["results"]] == [
        "as in the paper: protonet point none",
        "Bayes fit: hyperproto bayes none",
        "cosine point none",
        "simpleshot point center-unit",
    ]
    assert "| **ProtoNet** | **Conv** | **46.44 ± 0.60** |" in (tmp_path / "a.md").read_text()


def test_a_table_in_other_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = {kind: run("report", "table4", "--format", kind) for kind in ("markdown", "latex", "csv", "html")}
    assert printed["markdown"].startswith("## Table 4: generalised prototypes")
    assert r"\toprule" in printed["latex"]
    assert "Cone HyperProto,WideResNet-28-10,62.43,0.63,76.03,0.50\n" in printed["csv"]
    assert printed["html"].startswith("<!doctype html>")
    for name, kind in (("t.tex", "latex"), ("t.csv", "csv"), ("t.html", "html"), ("t.md", "markdown")):
        assert "62.43" in run("report", "table4", "--out", name)  # the terminal gets the table as before
        assert (tmp_path / name).read_text() == printed[kind]
    run("report", "table4", "--out", "t.txt", "--format", "csv")
    assert (tmp_path / "t.txt").read_text() == printed["csv"]
    assert json.loads(run("report", "table4", "--format", "csv", "--json", "-"))["table"] == "table4"


def test_show_a_recipe_with_its_cost_and_the_published_number() -> None:
    shown = run("recipes", "show", "table3:hyperproto-conv4-5shot", "-o", "training.steps=7")
    published = "# published, table3, HyperProto, ConvNet: 66.48 ± 0.71"
    for words in ('cost = "a GPU', 'expected = "paper: 66.48', published):
        assert words in shown
    assert "steps = 7" in shown


def test_report_a_table_without_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = json.loads(run("report", "table4", "--json", "-"))
    assert content["rows"][0]["published"]["percent"] == {"5-way 1-shot": [62.43, 0.63], "5-way 5-shot": [76.03, 0.5]}
    assert content["rows"][0]["to_run"] == ["table4:cone-1shot", "table4:cone-5shot"]


def test_a_figure_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = run("figure", "fig1", "--out", str(tmp_path))
    files = [str(tmp_path / f"fig1.{ending}") for ending in ("png", "svg", "json")]
    assert said == f"fig1: A hypersphere is initialised and learned: {', '.join(files)}\n"
    assert json.loads(Path(files[2]).read_text())["figure"] == "fig1"
    (tmp_path / "data.conll").write_text("Anna\tPER\nsang\tO\n\nBo\tPER\nsat\tO\n\n" * 4)
    few = ["--data", f"conll:{tmp_path / 'data.conll'}", "--split", "all", "--shot", "1"]
    (tmp_path / "results" / "figures").mkdir(parents=True)  # measured before, of other data: not what is asked for
    (tmp_path / "results" / "figures" / "memory.json").write_text('{"figure": "memory", "rows": []}')
    with pytest.raises(HyperProtoError, match="lower the way"):
        run("figure", "memory", "--out", str(tmp_path), *few)


def test_data_check_counts(vectors_file: Path) -> None:
    rows = json.loads(run("data", "check", f"vectors:{vectors_file}", "--json", "-"))
    assert [(row["split"], row["classes"], row["items"]) for row in rows] == [
        ("all", 24, 720), ("test", 8, 240), ("train", 8, 240), ("val", 8, 240),
    ]  # fmt: skip


def test_data_distant_says_what_was_kept_and_what_was_not(tmp_path: Path) -> None:
    sentence = {"tokens": ["x", "y"], "entities": [{"id": "a", "positions": [0]}, {"id": "b", "positions": [1]}]}
    (tmp_path / "s.jsonl").write_text(json.dumps(sentence) + "\n" + '{"tokens": ["z"], "entities": []}\n')
    (tmp_path / "t.tsv").write_text("a\tP1\tb\n")
    files = [str(tmp_path / name) for name in ("s.jsonl", "t.tsv", "corpus.json")]
    nothing = ["--without", "none", "--without-relations", "none"]
    shown = run("data", "distant", *files[:2], "--out", files[2], *nothing)
    for words in (f"Written to {files[2]}", "sentences read", "- without a triple", "kept, of 1 relations", "P1"):
        assert words in shown
    assert shown.endswith(f"use it with: --data fewrel:{files[2]}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "glyphs:protnet"], "did you mean 'protonet'?"),
        (["train", "glyphs:protonet", "-o", "training.stepz=1", "-o", "episodes.wya=2"], "2 problem(s)"),
        (["evaluate", "--encoder", "identity", "--data", "glyph", "--method", "protonet"], "did you mean 'glyphs'?"),
        (["evaluate", "--encoder", "identity", "--data", "vectors:no.npz", "--method", "protonet"], "no such file"),
        (["evaluate", "--run", "no/run", "--data", "glyphs"], "is this the folder of a run?"),
        (
            ["evaluate", "--encoder", "identity", "--data", "glyphs", "--method", "protonet", "--fit", "bayes"],
            "Known: point",
        ),
        (
            ["evaluate", "--encoder", "identity", "--data", "glyphs", "--method", "protonet", "--shot", "x"],
            "--shot 'x'",
        ),
        (["evaluate", "--encoder", "identity", "--data", "glyphs", "--method", "protonet", "--shot", "39"], "need 54"),
        (
            ["evaluate", "--encoder", "identity", "--data", "glyphs", "--method", "protonet", "--shot", "0"],
            "at least 1 example",
        ),
        (["methods", "list", "--json", "/proc/none.json"], "No such file or directory; check the path"),
        (["grid", "glyphs:protonet", "-o", "training.seed=0,,1"], "value 2 of 3 is empty"),
        (["reproduce", "table4", "--rows", "none"], "--rows: table4: there is no row 'none'"),
        (["report", "glyphs"], "glyphs has no [table]; tables in the package: table1"),
        (["report", "table3", "--runs", "no/folder"], "no/folder: no such folder"),
        (["figure", "fig33", "--out", "x"], "there is no figure 'fig33'; did you mean 'fig3'?"),
        (["figure", "fig4", "--out", "x", "--run", "no/run"], "is this the folder of a run?"),
        (["figure", "fig3", "--out", "x", "--results", "no.json"], "no.json: no such file; make one with"),
        (["report", "table3", "--format", "word"], "--format: there is no format 'word'"),
    ],
)
def test_a_users_mistake_is_one_clear_paragraph(arguments: list[str], words: str) -> None:
    failed = process(*arguments)
    assert failed.returncode == 1
    assert words in " ".join(failed.stderr.split())
    assert failed.stderr.startswith("error:") or "\nerror:" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""


def test_debug_shows_the_traceback_wherever_it_stands() -> None:
    for arguments in (["--debug", "train", "glyphs:protnet"], ["train", "glyphs:protnet", "--debug"]):
        failed = process(*arguments)
        assert failed.returncode == 1
        assert "Traceback" in failed.stderr
        assert "ConfigError" in failed.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "--data", "glyphs", "--method", "protonet"],
        ["evaluate", "--data", "glyphs", "--run", "a", "--encoder", "identity"],
        ["evaluate", "--encoder", "identity"],
        ["evaluate", "--encoder", "identity", "--data", "glyphs", "--way", "many"],
        ["evaluate", "--encoder", "identity", "--data", "glyphs", "--method", "protonet", "--episodes", "0"],
        ["compare", "--data", "glyphs"],
        ["report", "table3", "--episodes", "1"],
        ["report", "table3", "--out", "."],
        ["figure", "fig1"],
        ["figure", "fig6", "--out", "x", "--anchors", "0"],
        ["methods", "list", "--json", "."],
        ["trane"],
        ["train", "glyphs:protonet", "--no-such-option"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2


def test_a_failed_command_leaves_an_old_json_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text("precious")
    assert process("recipes", "show", "glyphs:protnet", "--json", str(file)).returncode == 1
    assert file.read_text() == "precious"


def test_a_run_on_images_does_not_read_words(tmp_path: Path) -> None:
    few = ["training.steps=1", "encoder.filters=2", "validation.episodes=2"]
    run("train", "glyphs:protonet", "--out", str(tmp_path / "run"), *(part for one in few for part in ("-o", one)))
    (tmp_path / "few.conll").write_text("Anna\tB-PER\nsang\tO\n\n" * 8)
    common = ["--data", f"conll:{tmp_path / 'few.conll'}", "--split", "all", "--way", "1", "--shot", "1"]
    with pytest.raises(DataError, match="conv4 reads images, but the items are list"):
        run("evaluate", *common, "--run", str(tmp_path / "run"))


@pytest.mark.parametrize("name", ["--way", "--shot", "--query", "--episodes", "--seed", "--na-rate", "--least-spans"])
@pytest.mark.parametrize("value", [2**31, 2**64, 10**400])
def test_options_beyond_counting_are_refused(vectors_file: Path, name: str, value: int) -> None:
    common = ["--encoder", "identity", "--method", "protonet", "--data", f"vectors:{vectors_file}", "--episodes", "2"]
    result = CliRunner().invoke(cli.app, ["evaluate", *common, name, str(value)])
    assert (
        result.exit_code == 0 if (name, value) == ("--seed", 2**31) else isinstance(result.exception, HyperProtoError)
    )
