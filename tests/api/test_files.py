"""fit, add and predict on files, from Python: silent. What files may hold is tested with the commands."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

import hyperproto
from hyperproto import ConfigError, DataError, HypersphereClassifier


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
    assert (tmp_path / "answers.csv").read_text().splitlines()[0] == "what,which,predicted,probability,error"
    assert capfd.readouterr() == ("", "")


def test_a_fit_need_not_be_saved(examples: Path, tmp_path: Path) -> None:
    assert type(hyperproto.fit(examples, encoder="identity")) is HypersphereClassifier
    assert [path.name for path in tmp_path.iterdir()] == ["examples.jsonl"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.csv: No such file or directory; check the path$"):
        hyperproto.fit(tmp_path / "none.csv", encoder="identity")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            '{"vector": [1' + "0" * 400 + ', 1], "label": "a"}',
            r"line 1: 'vector' is \[1000.*; a vector is a list of num",
        ),
        ('{"vector": [1' + "0" * 5000 + ', 1], "label": "a"}', "line 1: a whole number of thousands of digits"),
        (
            '{"vector": [1, 1], "label": 9223372036854775808}',
            "'label' is 9223372036854775808, a number of more than 64",
        ),
        ('{"vector": [1, 1], "label": "\\ud800"}', r"'label' is '\\ud800', which holds half a character"),
        ("[" * 100_000, "line 1: lists or objects nested more than 100 deep"),
    ],
)
def test_rows_that_json_can_hold_and_a_model_cannot(tmp_path: Path, row: str, message: str) -> None:
    (tmp_path / "odd.jsonl").write_text(row)
    with pytest.raises(DataError, match=message):
        hyperproto.fit(tmp_path / "odd.jsonl", tmp_path / "model", encoder="identity")
    assert [path.name for path in tmp_path.iterdir()] == ["odd.jsonl"]


def test_any_batch_will_do_but_none(examples: Path, tmp_path: Path) -> None:
    hyperproto.fit(examples, tmp_path / "model", encoder="identity")
    hyperproto.predict(tmp_path / "model", examples, out := io.StringIO(), batch=2**70)
    assert out.getvalue().count("\n") == 3
    with pytest.raises(ConfigError, match="batch=0: label at least 1 row at once"):
        hyperproto.predict(tmp_path / "model", examples, out, batch=0)


def test_a_pipe_of_the_shell_is_read_and_a_fifo_is_not(examples: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.csv")
    with pytest.raises(DataError, match=r"fifo\.csv: a FIFO, not a file"):
        hyperproto.fit(tmp_path / "fifo.csv", encoder="identity")
    reader, writer = os.pipe()
    os.write(writer, examples.read_bytes())
    os.close(writer)
    assert hyperproto.fit(f"/dev/fd/{reader}", encoder="identity", format="jsonl").classes_.tolist() == ["a", "b"]
    os.close(reader)
