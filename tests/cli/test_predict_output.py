"""predict --out: formats by the ending, rows that cannot be labelled, cells that are formulas, SIGTERM."""

import csv
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hyperproto
from hyperproto import ConfigError, DataError, HypersphereClassifier
from hyperproto.cli import app
from tests.cli.test_practice import run, table
from tests.helpers.pictures import class_folders, write_tree

COMMAND = [sys.executable, "-c", "from hyperproto.cli import main; main()"]
VECTORS: dict[str, list[Any]] = {"id": ["x", "y"], "vector": ["1 0", "0 1"]}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    HypersphereClassifier().fit(np.eye(2), ["a", "b"]).save(tmp_path / "model")
    return tmp_path / "model"


def read(path: Path) -> list[dict[str, Any]]:
    """Read a file by its ending."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def warned(*arguments: object) -> str:
    """Run a command that must succeed; return what it says on standard error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.mark.parametrize("source", ["csv", "tsv", "jsonl", "parquet", "txt"])
@pytest.mark.parametrize("target", ["csv", "tsv", "jsonl", "parquet"])
def test_the_format_is_that_of_the_ending(tmp_path: Path, model: Path, source: str, target: str) -> None:
    if source == "txt":
        (tmp_path / "new.txt").write_text("1 0\n0 1\n")
    else:
        table(tmp_path / f"new.{source}", VECTORS)
    out = tmp_path / f"out.{target}"
    run("predict", model, tmp_path / f"new.{source}", "--out", out)
    found = read(out)
    own = {"text": VECTORS["vector"]} if source == "txt" else VECTORS
    assert [{name: row[name] for name in own} for row in found] == [
        dict(zip(own, values, strict=True)) for values in zip(*own.values(), strict=True)
    ]
    assert [row["predicted"] for row in found] == ["a", "b"]
    assert [float(row["probability"]) > 0.5 for row in found] == [True, True]
    assert {row.get("error") or None for row in found} == {None}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["model", f"new.{source}", f"out.{target}"])


def test_a_csv_with_semicolons_comes_back_with_semicolons(tmp_path: Path, model: Path) -> None:
    (tmp_path / "new.csv").write_text("id;vector\nx;1 0\n")
    assert run("predict", model, tmp_path / "new.csv").startswith("id;vector;predicted;probability;error\nx;1 0;a;")
    run("predict", model, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().startswith("id;vector;predicted")


def test_parquet_keeps_the_types_of_its_columns(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    HypersphereClassifier().fit(np.eye(2), [3, 4]).save(tmp_path / "model")
    vectors = pyarrow.array([[1, 0], [0, 1], None], pyarrow.list_(pyarrow.float32()))
    content = pyarrow.table({"vector": vectors, "n": pyarrow.array([1, None, 3], pyarrow.int16())})
    parquet.write_table(content, tmp_path / "new.parquet")
    warned("predict", tmp_path / "model", tmp_path / "new.parquet", "--out", tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.select(["vector", "n"]).schema.equals(content.schema)
    assert [str(field.type) for field in found.schema][2:] == ["int64", "double", "string"]
    assert found["predicted"].to_pylist() == [3, 4, None]
    assert found["error"].to_pylist()[2].startswith("'vector' is None; a vector")


def test_json_lines_with_columns_of_their_own_become_one_table(tmp_path: Path, model: Path) -> None:
    rows: list[dict[str, Any]] = [{"vector": [1, 0]}, {"vector": [0, 1], "n": 1, "deep": {"a": [1]}}]
    rows += [{"vector": [0, 1], "n": 1.5, "s": "\ud800"}]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("predict", model, tmp_path / "new.jsonl", "--out", tmp_path / "out.csv")
    found = read(tmp_path / "out.csv")
    assert list(found[0]) == ["vector", "n", "deep", "s", "predicted", "probability", "error"]
    assert [row["n"] for row in found] == ["", "1", "1.5"]
    assert (found[0]["vector"], found[1]["deep"], found[2]["s"]) == ("[1, 0]", '{"a": [1]}', "\\ud800")
    run("predict", model, tmp_path / "new.jsonl", "--out", tmp_path / "out.parquet")
    assert [row["n"] for row in read(tmp_path / "out.parquet")] == [None, 1.0, 1.5]
    (tmp_path / "mixed.jsonl").write_text('{"vector": [1, 0], "n": 1}\n{"vector": [1, 0], "n": "one"}\n')
    with pytest.raises(DataError, match=r"out.parquet: these rows do not fit into Parquet \(.*; write .jsonl instead"):
        run("predict", model, tmp_path / "mixed.jsonl", "--out", tmp_path / "out.parquet")
    assert len(read(tmp_path / "out.parquet")) == 3


@pytest.mark.parametrize("name", ["out.xlsx", "out", "out.txt", "out.json"])
def test_an_ending_that_names_no_format_is_refused_with_those_that_do(tmp_path: Path, model: Path, name: str) -> None:
    source = table(tmp_path / "new.csv", VECTORS)
    with pytest.raises(ConfigError, match=r"out.*: the ending '.*' names no format to write; use one of .csv, .tsv, "):
        run("predict", model, source, "--out", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_plain_lines_may_go_to_a_text_file(tmp_path: Path, model: Path) -> None:
    (tmp_path / "new.txt").write_text("1 0\n\n0 1\n")
    assert "1 of 3 rows have no label" in warned("predict", model, tmp_path / "new.txt", "--out", tmp_path / "out.txt")
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines[0].split("\t")[::2] == ["a", "1 0"]
    assert lines[1] == "\t\t\t'text' is an empty vector ('')"


BAD = {"id": ["x", "y", "z"], "vector": ["1 0", "1 2 3", "0 1"]}
REASON = "'vector' has 3 numbers where 2 belong"


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("batch", [1, 64])
def test_a_bad_row_keeps_its_place_without_a_label(tmp_path: Path, model: Path, form: str, batch: int) -> None:
    source, out = table(tmp_path / f"new.{form}", BAD), tmp_path / f"out.{form}"
    told = warned("predict", model, source, "--out", out, "--batch", batch)
    line = "row 2" if form == "parquet" else "line 2" if form == "jsonl" else "line 3"
    assert told == (
        f"warning: 1 of 3 rows have no label, and their reasons in the column error:\n{source}, {line}: {REASON}\n"
    )
    found = read(out)
    assert [row["id"] for row in found] == ["x", "y", "z"]
    assert [row["predicted"] or None for row in found] == ["a", None, "b"]
    assert [row.get("error") or None for row in found] == [None, REASON, None]


def test_bad_rows_are_skipped_or_stop_the_work(tmp_path: Path, model: Path) -> None:
    source, out = table(tmp_path / "new.csv", BAD), tmp_path / "out.csv"
    assert "1 of 3 rows were left out:\n" in warned("predict", model, source, "--out", out, "--on-error", "skip")
    assert [(row["id"], row["predicted"]) for row in read(out)] == [("x", "a"), ("z", "b")]
    assert "error" not in read(out)[0]
    before = out.read_text()
    with pytest.raises(DataError, match=f"new.csv, line 3: {REASON}"):
        run("predict", model, source, "--out", out, "--on-error", "stop")
    assert out.read_text() == before
    wrong = CliRunner().invoke(app, ["predict", str(model), str(source), "--on-error", "hope"])
    assert wrong.exit_code == 2
    assert "'hope' is none of stop, skip, blank" in " ".join(wrong.output.replace("│", " ").split())


def test_rows_that_are_no_rows_are_bad_rows_too(tmp_path: Path, model: Path) -> None:
    (tmp_path / "new.csv").write_text("id,vector\nx,1 0,more\ny\nz,0 1\n")
    found = list(csv.DictReader(io.StringIO(run("predict", model, tmp_path / "new.csv"))))
    assert [(row["id"], row["predicted"]) for row in found] == [("x", ""), ("y", ""), ("z", "b")]
    assert found[0]["error"].startswith("3 cells where the first line names 2; put a cell")
    (tmp_path / "new.jsonl").write_text('{"vector": [1, 0]}\n{"vector": \n[1, 2]\n{"other": 1}\n')
    rows = [json.loads(line) for line in run("predict", model, tmp_path / "new.jsonl").splitlines()]
    assert [row["predicted"] for row in rows] == ["a", None, None, None]
    assert [row.get("error", "")[:9] for row in rows] == ["", "not JSON ", "not an ob", "there is "]
    with pytest.raises(DataError, match=r"new.jsonl, line 2: not JSON"):
        run("predict", model, tmp_path / "new.jsonl", "--on-error", "stop")


def test_a_damaged_image_does_not_lose_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "photos", class_folders(2, 2))
    run("fit", "photos", "--out", "model")
    (tmp_path / "photos" / "class01" / "1.png").write_bytes(b"no image")
    warned("predict", "model", "photos", "--out", "out.csv")
    found = read(tmp_path / "out.csv")
    assert [row["predicted"] for row in found] == ["class00", "class00", "class01", ""]
    assert found[3]["error"].startswith("photos/class01/1.png")


def test_a_column_of_errors_is_not_replaced(tmp_path: Path, model: Path) -> None:
    source = table(tmp_path / "new.csv", {**VECTORS, "error": ["404", ""]})
    with pytest.raises(DataError, match="there is an 'error' already, where reasons would go; rename it, or say"):
        run("predict", model, source)
    assert run("predict", model, source, "--on-error", "skip").startswith("id,vector,error,predicted,probability\n")


def test_python_gets_the_same(tmp_path: Path, model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = table(tmp_path / "new.csv", BAD)
    done = hyperproto.predict(model, source, io.StringIO())
    assert (done.rows, done.failed, done.problems) == (3, 1, (f"{source}, line 3: {REASON}",))
    with pytest.raises(ConfigError, match="--on-error: there is no way 'hope'"):
        hyperproto.predict(model, source, io.StringIO(), on_error="hope")
    assert capfd.readouterr() == ("", "")


def test_cells_that_are_formulas_get_an_apostrophe_where_asked_for(tmp_path: Path) -> None:
    HypersphereClassifier().fit(np.eye(2), ["=1+1", "b"]).save(tmp_path / "model")
    cells = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "plain"]
    source = table(tmp_path / "new.csv", {"vector": ["1 0"] * 5, "=note": cells})
    plain = list(csv.reader(io.StringIO(run("predict", tmp_path / "model", source))))
    assert [row[1] for row in plain] == ["=note", *cells]
    for suffix in ("csv", "tsv"):
        out = tmp_path / f"out.{suffix}"
        run("predict", tmp_path / "model", source, "--safe-cells", "--out", out)
        found = read(out)
        assert [row["'=note"] for row in found] == [f"'{cell}" for cell in cells[:4]] + ["plain"]
        assert found[0]["predicted"] == "'=1+1"
        assert float(found[0]["probability"]) > 0
    with pytest.raises(ConfigError, match="--safe-cells is for CSV and TSV, but the output is jsonl; leave it out"):
        run("predict", tmp_path / "model", source, "--safe-cells", "--out", tmp_path / "out.jsonl")


def test_sigterm_leaves_no_draft_beside_the_output(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "folder" / "out.csv"
    out.parent.mkdir()
    out.write_text("before")
    command = [*COMMAND, "predict", str(model), "-", "--format", "csv", "--out", str(out), "--batch", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("vector\n1 0\n")
        process.stdin.flush()
        for _ in range(600):
            if len(list(out.parent.iterdir())) > 1:
                break
            time.sleep(0.05)
        assert len(list(out.parent.iterdir())) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert list(out.parent.iterdir()) == [out]
    assert out.read_text() == "before"


@pytest.mark.parametrize("target", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("batch", [1, 64])
def test_explanations_are_a_column_and_change_no_answer(tmp_path: Path, target: str, batch: int) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)) + np.repeat(4 * np.eye(3), 20, axis=0)
    HypersphereClassifier(coverage=0.8).fit(x, np.repeat(list("abc"), 20)).save(tmp_path / "model")
    table(tmp_path / "new.csv", {"vector": ["4 0 0", "nonsense", "-4 -4 -4"]})
    plain, out = tmp_path / f"plain.{target}", tmp_path / f"out.{target}"
    warned("predict", tmp_path / "model", tmp_path / "new.csv", "--out", plain, "--batch", batch)
    warned("predict", tmp_path / "model", tmp_path / "new.csv", "--out", out, "--batch", batch, "--explain")
    found = read(out)
    explanations = [row.pop("explanation", None) or "" for row in found]
    assert found == read(plain)
    assert [row["predicted"] for row in found] == ["a", found[1]["predicted"], "none of these"]
    assert explanations[0].startswith("a has probability ")
    assert "The nearest example is number " in explanations[0]
    assert explanations[1] == ""
    assert explanations[2].startswith("Rejected: ")


def test_explanations_of_plain_lines_follow_the_text_and_their_column_must_be_free(tmp_path: Path, model: Path) -> None:
    (tmp_path / "new.txt").write_text("1 0\n")
    label, _, text, explanation = run("predict", model, tmp_path / "new.txt", "--explain").rstrip("\n").split("\t")
    assert (label, text) == ("a", "1 0")
    assert explanation.startswith("a has probability ")
    table(tmp_path / "new.csv", {"vector": ["1 0"], "explanation": ["mine"]})
    with pytest.raises(DataError, match="there is a 'explanation' already, where the answer would go; rename it"):
        hyperproto.predict(model, tmp_path / "new.csv", tmp_path / "out.csv", explain=True)
