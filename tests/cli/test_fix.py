"""diagnose --fix: all examples as a table with corrected labels, which fit reads again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyperproto
from hyperproto import ConfigError, DataError, HypersphereClassifier
from tests.cli.test_practice import run, table
from tests.cli.test_predict_output import read, warned
from tests.estimators.test_doctor import planted


@pytest.fixture
def planted_model(tmp_path: Path) -> tuple[Path, Any, int]:
    model, wrong = planted()
    model.save(tmp_path / "model")
    return tmp_path / "model", model, wrong


@pytest.mark.parametrize("target", ["csv", "tsv", "jsonl", "parquet"])
def test_examples_come_out_with_corrected_labels(
    tmp_path: Path, planted_model: tuple[Path, Any, int], target: str
) -> None:
    folder, model, wrong = planted_model
    out = tmp_path / f"fixed.{target}"
    said = warned("diagnose", folder, "--fix", out)
    found, diagnosis = read(out), model.diagnose()
    better = {each.example: each.suggestion for each in diagnosis.mislabelled}
    far = {each.example for each in diagnosis.outlying} - {*better}
    assert f"{out}: 37 examples, {len(better)} relabelled, {len(far)} to check" in said
    assert list(found[0]) == ["vector", "label", "given", "reason", "number"]
    assert [int(row["number"]) for row in found] == list(range(37))
    assert {int(row["number"]): row["label"] for row in found if row["reason"] == "relabel"} == better
    assert {int(row["number"]) for row in found if row["reason"] == "check"} == far
    assert all(row["label"] == row["given"] for row in found if row["reason"] != "relabel")
    assert (found[wrong]["given"], found[wrong]["label"]) == ("f", "e")
    again = hyperproto.fit(out, encoder="identity", feature_transform="none")
    y = model.classes_[model._snapshot().labels].astype(object)
    for example, label in better.items():
        y[example] = label
    expected = HypersphereClassifier(feature_transform="none").fit(model._snapshot().rows, y)
    np.testing.assert_array_equal(again.means_, expected.means_)


def test_texts_come_back_as_they_were(tmp_path: Path, bert: str) -> None:
    texts = ['a, "quoted" court', "two\nlines", "=1+1", "ünïcode ☃", "the court", "a people"]
    table(tmp_path / "examples.jsonl", {"text": texts, "label": [1, 1, 1, 2, 2, 2]})
    model = hyperproto.fit(tmp_path / "examples.jsonl", tmp_path / "model", encoder=bert)
    for target in ("csv", "jsonl", "parquet"):
        done = hyperproto.fix(tmp_path / "model", tmp_path / f"fixed.{target}")
        assert done.examples == 6
        found = read(tmp_path / f"fixed.{target}")
        assert [row["text"] for row in found] == texts
        assert [row["given"] for row in found] == [1, 1, 1, 2, 2, 2] if target != "csv" else list("111222")
    again = hyperproto.fit(tmp_path / "fixed.jsonl", encoder=bert)
    assert again.classes_.tolist() == model.classes_.tolist()


def test_weights_are_kept_and_numbers_after_forget(tmp_path: Path) -> None:
    x = np.eye(6) + np.random.default_rng(0).normal(size=(6, 6)) / 9
    model = HypersphereClassifier(feature_transform="none").fit(x, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0], [1, 2, 1, 1, 1, 0.5])
    model.forget(x[:1], [0.0])
    model.save(tmp_path / "model")
    hyperproto.fix(tmp_path / "model", tmp_path / "fixed.jsonl")
    found = read(tmp_path / "fixed.jsonl")
    assert [row["number"] for row in found] == [1, 2, 3, 4, 5]
    assert [row["weight"] for row in found] == [2, 1, 1, 1, 0.5]
    assert [row["given"] for row in found] == ["0.0", "0.0", "1.0", "1.0", "1.0"]
    assert found[0]["vector"] == x[1].tolist()


def test_errors_write_nothing(tmp_path: Path, planted_model: tuple[Path, Any, int], bert: str) -> None:
    folder = planted_model[0]
    with pytest.raises(ConfigError, match=r"fixed.doc: the ending '.doc' names no format to write"):
        run("diagnose", folder, "--fix", tmp_path / "fixed.doc")
    with pytest.raises(ConfigError, match=r"fixed.doc: the ending '.doc' names no format to write"):
        hyperproto.fix(tmp_path / "nowhere", tmp_path / "fixed.doc")
    model = hyperproto.FewShotTextClassifier(encoder=bert).fit(["the court", "a people"], ["a", "b"])
    model.head_._state.items = {}  # as in models that were saved without texts
    model.save(tmp_path / "bare")
    with pytest.raises(DataError, match=r"2 of 2 examples are not stored as a text, the first is number 0; correct"):
        hyperproto.fix(tmp_path / "bare", tmp_path / "fixed.csv")
    assert not (tmp_path / "fixed.csv").exists()
    plain = HypersphereClassifier(store_support=False, fit_mode="unbiased").fit(np.eye(2), ["a", "b"])
    plain.save(tmp_path / "plain")
    with pytest.raises(ConfigError, match="store_support"):
        hyperproto.fix(tmp_path / "plain", tmp_path / "fixed.csv")
