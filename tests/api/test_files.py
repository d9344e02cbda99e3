"""fit, add and predict on files, from Python: silent. What files may hold is tested with the commands."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

import hyperproto
from hyperproto import DataError, HypersphereClassifier


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    path = tmp_path / "examples.jsonl"
    rows = [{"vector": [1, 0.1], "label": "a"}, {"vector": [0.9, 0], "label": "a"}, {"vector": [0, 1], "label": "b"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_fitted_added_to_and_labelled(
    examples: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = hyperproto.fit(examples, tmp_path / "model", encoder="identity", region="gaussian", fit_mode="unbiased")
    assert model.classes_.tolist() == ["a", "b"]
    assert model.region == "gaussian"
    assert hyperproto.load_classifier(tmp_path / "model").get_params() == model.get_params()
    more = tmp_path / "more.csv"
    more.write_text("what,which\n0 1.1,b\n1 1,c\n")
    with pytest.raises(DataError, match="line 3: there is no class 'c'"):
        hyperproto.add(tmp_path / "model", more, text="what", label="which")
    grown = hyperproto.add(tmp_path / "model", more, text="what", label="which", new_classes=True)
    assert grown.counts_.tolist() == [2, 2, 1]

    out = io.StringIO()
    hyperproto.predict(tmp_path / "model", examples, out)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    expected = grown.predict(np.array([[1, 0.1], [0.9, 0], [0, 1]])).tolist()
    assert [row["predicted"] for row in found] == expected == ["a", "a", "b"]
    hyperproto.predict(tmp_path / "model", more, tmp_path / "answers.csv", text="what")
    assert (tmp_path / "answers.csv").read_text().splitlines()[0] == "what,which,predicted,probability"
    assert capfd.readouterr() == ("", "")


def test_a_fit_need_not_be_saved(examples: Path, tmp_path: Path) -> None:
    assert type(hyperproto.fit(examples, encoder="identity")) is HypersphereClassifier
    assert [path.name for path in tmp_path.iterdir()] == ["examples.jsonl"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.csv: No such file or directory; check the path$"):
        hyperproto.fit(tmp_path / "none.csv", encoder="identity")
