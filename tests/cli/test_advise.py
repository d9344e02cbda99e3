"""suggest on the command line and on files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hyperproto
from hyperproto import ConfigError, DataError, HypersphereClassifier
from hyperproto.cli import app
from tests.cli.test_practice import run, table
from tests.cli.test_predict_output import read, warned


@pytest.fixture
def model(tmp_path: Path) -> Path:
    HypersphereClassifier().fit(np.eye(3)[:2], ["a", "b"]).save(tmp_path / "model")
    return tmp_path / "model"


POOL: dict[str, list[Any]] = {"id": ["x", "y", "z", "w"], "vector": ["1 0 0", "0 0 1", "nonsense", "0 0.1 1"]}


@pytest.mark.parametrize("target", ["csv", "tsv", "jsonl", "parquet"])
def test_the_most_useful_rows_come_first_with_score_and_reason(tmp_path: Path, model: Path, target: str) -> None:
    table(tmp_path / "pool.csv", POOL)
    out = tmp_path / f"next.{target}"
    said = warned("suggest", model, tmp_path / "pool.csv", "-n", 2, "--out", out)
    assert "1 of 4 rows cannot be read and were left out:" in said
    assert "pool.csv, line 4: 'vector' is 'nonsense'; a vector is a list of numbers" in said.replace("\n", " ")
    found = read(out)
    expected = HypersphereClassifier.load(model).suggest([[1, 0, 0], [0, 0, 1], [0, 0.1, 1]], 2)
    assert [row["id"] for row in found] == ["xyw"[each.index] for each in expected]
    assert [row["reason"] for row in found] == [each.reason for each in expected]
    np.testing.assert_allclose([float(row["score"]) for row in found], [each.score for each in expected], rtol=1e-2)


def test_it_says_where_more_labels_hardly_help(tmp_path: Path, model: Path) -> None:
    table(tmp_path / "pool.jsonl", {"vector": [[1, 0, 0], [0, 1, 0]]})
    assert "more labels from this pool are expected to change little" in warned(
        "suggest", model, tmp_path / "pool.jsonl"
    )
    table(tmp_path / "more.jsonl", {"vector": [[1, 0, 0], [0, 0, 1], [0, 0, 1]]})
    assert "after 1 labels more are expected to change little" in warned("suggest", model, tmp_path / "more.jsonl")


def test_standard_output_keeps_the_format(tmp_path: Path, model: Path) -> None:
    (tmp_path / "pool.txt").write_text("0 0 1\n")
    assert run("suggest", model, tmp_path / "pool.txt").endswith("\t0 0 1\n")


def test_what_it_refuses(tmp_path: Path, model: Path) -> None:
    table(tmp_path / "pool.csv", {"vector": ["1 0 0"], "score": ["3"]})
    with pytest.raises(DataError, match="there is a 'score' already, where the answer would go; rename it"):
        hyperproto.suggest(model, tmp_path / "pool.csv", tmp_path / "next.csv")
    table(tmp_path / "bad.csv", {"vector": ["no"]})
    with pytest.raises(DataError, match=r"(?s)bad.csv: holds no items.*a vector is a list of numbers"):
        hyperproto.suggest(model, tmp_path / "bad.csv", tmp_path / "next.csv")
    with pytest.raises(ConfigError, match="names no format to write"):
        hyperproto.suggest(model, tmp_path / "bad.csv", tmp_path / "next.doc")
    assert CliRunner().invoke(app, ["suggest", str(model), "pool.csv", "-n", "0"]).exit_code == 2
