"""The command line on tagged sentences: train, evaluate, compare, report."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hyperproto.cli import app
from hyperproto.data import open_pool
from hyperproto.episodes import GreedySampler, episodes_hash, save_fewnerd_episodes
from hyperproto.errors import ConfigError
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll

RECIPE = """
encoder = {{ name = "tiny-words" }}
method = {{ name = "protonet" }}
episodes = {{ way = 3, shot = 2, query = 2 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 3, validate_every = 1, checkpoint_every = 3 }}
validation = {{ way = 3, shot = 2, query = 2, episodes = 5 }}
data = {{ spec = "{data}" }}
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    register()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "250")
    for seed, split in enumerate(("train", "val", "test")):
        write_conll(tmp_path / "data" / f"{split}.txt", random_sentences(150, 5, seed=seed, most_runs=3))
    return f"conll:{tmp_path / 'data'}"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json", "-"))


def test_a_run_is_trained_and_evaluated(data: str, tmp_path: Path) -> None:
    Path("mine.toml").write_text(RECIPE.format(data=data))
    assert "best validation f1" in run("train", "mine.toml", "--out", "runs/mine")
    again = as_json("train", "mine.toml", "--out", "runs/mine")
    assert set(again) == {"run", "validation", "step", "f1", "ci95"}
    assert "<th>f1, %</th>" in Path("runs/mine/report.html").read_text()
    common = ["--data", data, "--way", "3", "--shot", "2", "--episodes", "6"]
    content = as_json("evaluate", "--run", "runs/mine", *common)
    assert content["f1"] == pytest.approx(content["metrics"]["sentence"]["f1"])
    assert content["query"] == 2
    text = run("evaluate", "--run", "runs/mine", *common)
    assert "F1 %, toolkit" in text
    assert "O, predicted %" in text
    path = as_json("evaluate", "--run", "runs/mine", *common, "-o", "path=true", "-o", "temperature=5.0")
    assert path["options"] == {"path": True, "temperature": 5.0}
    assert path["metrics"] != content["metrics"]


def test_methods_are_compared_on_entities(data: str) -> None:
    methods = ["--method", "protonet", "--method", "nnshot", "--method", "structshot"]
    common = ["compare", "--encoder", "tiny-words", *methods, "--data", data, "--way", "3", "--episodes", "6"]
    content = as_json(*common, "--shot", "1", "--shot", "2")
    assert [(row["method"], row["shot"], row["query"]) for row in content["results"]] == [
        (name, shot, shot) for shot in (1, 2) for name in ("protonet", "nnshot", "structshot")
    ]
    assert len(content["comparisons"]) == 6
    assert {"difference", "ci95", "toolkit_difference", "toolkit_ci95"} <= content["comparisons"][0].keys()
    pool = open_pool(data, "test")
    expected = GreedySampler(pool, way=3, shot=1, query=4, rule="appendix", least_spans=30, seed=2).draw(6)
    drawn = ["--rule", "appendix", "--least-spans", "30", "--query", "4", "--seed", "2", "--shot", "1"]
    assert as_json(*common, *drawn)["results"][0]["episode_hash"] == episodes_hash(pool, expected)
    with pytest.raises(ConfigError, match=r"--rule: there is no rule 'toolkits'; did you mean 'toolkit'\?"):
        run(*common, "--rule", "toolkits")


def test_episodes_that_others_drew(data: str) -> None:
    pool = open_pool(data, "test")
    save_fewnerd_episodes("test_3_2.jsonl", pool, GreedySampler(pool, way=3, shot=2, query=2).draw(7))
    common = ["evaluate", "--encoder", "tiny-words", "--method", "structshot", "--data", data]
    content = as_json(*common, "--episode-file", "test_3_2.jsonl")
    same = as_json(*common, "--way", "3", "--shot", "2", "--episodes", "7")
    assert content["metrics"] == same["metrics"]
    assert (content["episodes"], content["episode_file"], content["way"]) == (7, "test_3_2.jsonl", 3)
    assert as_json(*common, "--episode-file", "test_3_2.jsonl", "--episodes", "3")["episodes"] == 3
