"""The demo in small: it writes what it says."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from hyperproto.studies import demo
from hyperproto.training import load_recipe


@pytest.mark.slow
def test_the_demo_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole job with 4 filters, 3 steps and 20 episodes: every part of the report is there."""
    real = load_recipe
    small = ["training.steps=3", "training.log_every=1", "encoder.filters=4", "episodes.way=5", "validation.episodes=5"]
    monkeypatch.setattr(demo, "load_recipe", lambda name: real(name, small))
    monkeypatch.setattr(demo, "EPISODES", 20)
    console = Console(width=200, record=True, file=StringIO())
    report = demo.run_demo(tmp_path / "demo", console)
    saved = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert saved["results"] == report["results"]
    methods = {(row["method"], row["fit"]) for row in saved["results"]}
    assert methods >= {("hyperproto", fit) for fit in ("bayes", "unbiased", "paper", "point")}
    assert methods >= {(name, "point") for name in ("protonet", "cosine", "simpleshot", "nearest", "logistic")}
    shots = [1, 5, [1, 1, 2, 5, 20]]
    assert [shot for shot in shots if shot not in [row["shot"] for row in saved["results"]]] == []
    labels = {row["label"] for row in saved["results"]}
    assert labels == {row[key] for row in saved["comparisons"] for key in ("a", "b")}
    assert len({(json.dumps(row["shot"]), row["episode_hash"]) for row in saved["results"]}) == 3
    html = (tmp_path / "demo" / "report.html").read_text()
    assert html.count("<img") == 5
    assert "hyperproto bayes unit" in console.export_text()
