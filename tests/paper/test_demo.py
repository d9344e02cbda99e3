"""The demo in small: it writes what it says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hyperproto.paper import demo
from hyperproto.paper.demo import SAME_FIT, SHORT
from hyperproto.training import load_recipe


@pytest.mark.slow
def test_the_demo_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole job with 4 filters, 3 steps and 20 episodes: every part of the report is there."""
    real = load_recipe
    small = ["training.steps=3", "training.log_every=1", "encoder.filters=4", "episodes.way=5", "validation.episodes=5"]
    monkeypatch.setattr(demo, "load_recipe", lambda name: real(name, small))
    few = tuple(replace(task, episodes=3 if task.way == 20 else 20) for task in demo.TASKS)
    monkeypatch.setattr(demo, "TASKS", few)
    monkeypatch.setattr(demo, "SHOWN", 4)
    said: list[str] = []
    report = demo.run_demo(tmp_path / "demo", lambda done, total, note="": said.append(note))
    saved = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert saved["results"] == [result.to_json() for column in report.columns.values() for result in column]
    methods = {(row["method"], row["fit"]) for row in saved["results"]}
    assert methods >= {("hyperproto", fit) for fit in ("bayes", "unbiased", "paper", "point")}
    assert methods >= {(name, "point") for name in ("protonet", "cosine", "simpleshot", "nearest", "logistic")}
    tasks = {(row["way"], json.dumps(row["shot"]), row["episode_hash"]) for row in saved["results"]}
    assert {task[:2] for task in tasks} == {(5, "1"), (5, "5"), (5, "[1, 1, 2, 5, 20]"), (20, "1"), (20, "5")}
    assert len(tasks) == 5
    labels = {row["label"] for row in saved["results"]}
    assert labels == {row[key] for row in saved["comparisons"] for key in ("a", "b")}
    assert {*SHORT, SAME_FIT} <= labels
    html = (tmp_path / "demo" / "report.html").read_text()
    assert html.count("<img") == 5
    assert "hyperproto bayes unit" in html
    parts = ("steps of hyperproto: loss", "episodes scored, 20-way, 5 shots", "pictures drawn: done")
    for part in parts:
        assert any(note.startswith(part) for note in said), part


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        demo.run_demo(tmp_path / "file" / "below", lambda done, total, note="": pytest.fail("the work began"))
