"""Tables whose rows carry several labels: fit, predict and add, in Python and on the command line."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hyperproto
from hyperproto import ConfigError, DataError, ImageEncoder, MultiLabelClassifier
from hyperproto.api.files import new_classifier
from hyperproto.cli import app

ROWS = [
    ("1 0 0", "sun"),
    ("0 1 0", "rain"),
    ("1 0.1 0", "sun"),
    ("0.1 1 0", "rain"),
    ("1 1 0", "sun | rain"),
    ("0 0 1", ""),
]


def table(path: Path, rows: Any, label: str = "label") -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("vector", label), *rows])
    return path


def fitted(folder: Path, rows: Any = ROWS, separator: str = "|", **settings: Any) -> Any:
    examples = table(folder / "examples.csv", rows)
    return hyperproto.fit(examples, folder / "model", encoder="identity", label_separator=separator, **settings)


def test_rows_with_several_labels_from_file_to_answer(tmp_path: Path) -> None:
    model = fitted(tmp_path)
    assert isinstance(model, MultiLabelClassifier)
    assert model.classes_.tolist() == ["rain", "sun"]
    assert model.counts_.tolist() == [3, 3]
    asked = table(tmp_path / "new.csv", [("1 0 0", 1), ("1 1 0", 2), ("0 0 1", 3), ("x", 4)], "id")
    hyperproto.predict(tmp_path / "model", asked, tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open() as file:
        answers = list(csv.DictReader(file))
    assert [row["predicted"] for row in answers] == ["sun", "rain|sun", "", ""]
    expected = model.predict_proba([[1.0, 1.0, 0.0]])[0]
    assert answers[1]["probability"] == "|".join(f"{value:.4f}" for value in expected)
    assert "a vector is a list of numbers" in answers[3]["error"]
    hyperproto.predict(tmp_path / "model", asked, tmp_path / "answers.parquet", on_error="skip")
    more = table(tmp_path / "more.csv", [("0 0.1 1", "snow|rain")])
    with pytest.raises(DataError, match="there is no class 'snow'"):
        hyperproto.add(tmp_path / "model", more)
    added = hyperproto.add(tmp_path / "model", more, new_classes=True)
    assert added.classes_.tolist() == ["rain", "snow", "sun"]
    hyperproto.add(tmp_path / "model", table(tmp_path / "single.csv", [("0 1 0", "rain")]))  # without a warning


def test_labels_may_be_lists_in_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    lines = [
        {"vector": [1, 0], "label": ["a", "b"]},
        {"vector": [0, 1], "label": []},
        {"vector": [1, 1], "label": "b|c"},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert hyperproto.fit(file, encoder="identity", label_separator="|").counts_.tolist() == [1, 2, 1]


def test_the_command_line(tmp_path: Path) -> None:
    examples = table(tmp_path / "examples.csv", [(vector, label.replace("|", ";")) for vector, label in ROWS])
    out = tmp_path / "model"
    given = ["fit", str(examples), "--encoder", "identity", "--label-separator", ";", "--out", str(out)]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    assert "2 labels, 3 examples of the rarest (rain)" in result.output
    assert "leave-one-out F1" in result.output
    found = CliRunner().invoke(app, ["predict", str(out), str(table(tmp_path / "new.csv", [("1 1 0", 1)], "id"))])
    assert "rain;sun" in found.output
    refused = CliRunner().invoke(app, ["diagnose", str(out)])
    assert "a multi-label classifier has no `diagnose`" in str(refused.exception)


def test_wrong_tables_and_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'label' is 'sun\|\|rain', with nothing between two separators '\|'"):
        fitted(tmp_path, [("1 0", "sun||rain")])
    with pytest.warns(UserWarning, match="no 'label' holds the separator '/', so that every row has at most one label"):
        fitted(tmp_path, separator="/")
    for separator in ("", " ", " |"):
        with pytest.raises(ConfigError, match=r"give a text between two labels, such as '\|', without spaces"):
            fitted(tmp_path, separator=separator)
    with pytest.raises(ConfigError, match=r"coverage=0\.9 is for classifiers of one label a row; leave it out"):
        fitted(tmp_path, coverage=0.9)
    (tmp_path / "photos").mkdir()
    with pytest.raises(ConfigError, match="a folder gives each image one label; write a table"):
        hyperproto.fit(tmp_path / "photos", label_separator="|")
    images: Any = new_classifier("efficientnet-lite0", label_separator="|")
    assert isinstance(images.encoder, ImageEncoder)
    assert new_classifier(label_separator="|").get_params()["encoder"] == "minilm"


def test_descriptions_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        hyperproto.TextEncoder, "encode", lambda self, X, name="X": np.array([[len(x), x.count("a"), 1.0] for x in X])
    )
    monkeypatch.setattr(hyperproto.TextEncoder, "identity", {"name": "none", "options": {}, "sha256": None})
    examples = tmp_path / "texts.csv"
    examples.write_text("text,label\naaa,a|b\nbb,b\nac,a\n")
    about = tmp_path / "about.csv"
    about.write_text("label,description\na,the letter a\nc,the third\n")
    with pytest.warns(UserWarning, match="described labels without an example: 'c'"):
        model = hyperproto.fit(examples, label_separator="|", descriptions=about)
    assert model.classes_.tolist() == ["a", "b", "c"]
