"""Choosing how to label words, and reporting it: on made-up sentences, against the library's own commands."""

import json
from pathlib import Path

import pytest

from experiments import words
from experiments.words_page import page
from hyperproto.commands.evaluation import Selection, evaluate
from hyperproto.commands.tasks import Tasks
from tests.episodes.tagged import random_sentences
from tests.words import register, write_conll


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    register()
    for seed, split in enumerate(("train", "dev", "test")):
        write_conll(tmp_path / "data" / f"{split}.txt", random_sentences(150, 7, seed=seed, most_runs=3))
    spec = f"conll:{tmp_path / 'data'}"
    monkeypatch.setattr(words, "DATA", spec)
    bayes = ("hyperproto", "bayes")
    cases = [("protonet", "point", {}), ("cosine", "point", {}), (*bayes, {}), (*bayes, {"count_prior": 4.0})]
    monkeypatch.setattr(words, "CASES", cases)
    monkeypatch.setattr(words, "SHARES", (0.1, 1.0))
    monkeypatch.setattr(words, "CHOICES", {1: 6, 2: 4})
    return spec


def test_what_is_chosen_and_reported_is_what_the_commands_measure(data: str, tmp_path: Path) -> None:
    choices, found = tmp_path / "choices.json", tmp_path / "found.json"
    words.main(["choose", "--encoder", "tiny-words", "--json", str(choices)])
    content = json.loads(choices.read_text())
    rows = content["results"]
    assert (content["split"], content["command"]) == (
        "dev",
        f"python -m experiments.words choose --encoder tiny-words --json {choices}",
    )
    assert len(rows) == (3 + 2 + 3 + 3) * (1 + 2 * 3)  # transforms, then ways to decide
    for row in rows[5:7]:  # a path, with and without O
        options = [f"{name}={json.dumps(value)}" for name, value in row["options"].items()]
        chosen = Selection([], ["tiny-words"], [row["method"]], [row["fit"]], [row["transform"]], options)
        [[result]] = evaluate(chosen, Tasks(data, "dev", ["1"], way=5, query=None, episodes=6, seed=11))
        assert row["1 shots"]["f1"] == pytest.approx(result.metrics["sentence"]["f1"], abs=1e-5)

    best = words.best(rows)
    assert [(row["method"], row["decided"]) for row in best] == [
        (method, decided) for method in ("protonet", "cosine", "hyperproto") for decided in ("words", "path", "path, O")
    ]
    for row in best:
        same = [r["mean_f1"] for r in rows if (r["method"], r["decided"]) == (row["method"], row["decided"])]
        assert row["mean_f1"] == max(same)

    arguments = ["report", "--encoder", "tiny-words", "--choices", str(choices), "--episodes", "8"]
    arguments += ["--ways", "3", "--shots", "2", "--least-spans", "10"]
    words.main([*arguments, "--json", str(found)])
    content = json.loads(found.read_text())
    assert content["split"] == "test"
    for row, from_dev in zip(content["results"], best, strict=True):
        assert row["options"] == from_dev["options"]
        options = [f"{name}={json.dumps(value)}" for name, value in row["options"].items()]
        chosen = Selection([], ["tiny-words"], [row["method"]], [row["fit"]], [row["transform"]], options)
        [[result]] = evaluate(chosen, Tasks(data, "test", ["2"], way=3, query=None, episodes=8, seed=0, least_spans=10))
        assert row["episode_hash"] == result.settings["episode_hash"]
        for convention in ("sentence", "toolkit"):
            assert row[convention]["f1"] == pytest.approx(result.metrics[convention]["f1"], abs=1e-5)
        assert row["outside_predicted"] == pytest.approx(
            result.metrics["errors"]["rates"]["outside_predicted"], abs=1e-5
        )
    protonet, ours = content["results"][0], content["results"][6]
    assert ours["less_protonet"][0] == pytest.approx(ours["sentence"]["f1"] - protonet["sentence"]["f1"], abs=0.02)
    assert "less_protonet" not in protonet


def test_a_report_needs_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        words.main(["report", "--encoder", "minilm", "--json", "x.json"])
    assert "report needs --choices: the file that choose wrote" in capsys.readouterr().err


def test_the_page_shows_what_the_files_hold(tmp_path: Path) -> None:
    counts = {"f1": 0.5, "precision": 0.4, "recall": 0.6, "ci95": 0.01}
    rates = {"outside": 0.8, "outside_predicted": 0.75, "false_positive": 0.1, "false_negative": 0.05, "within": 0.2,
             "outer": 0.3}  # fmt: skip
    row = {"setting": "5-way 1~2", "episode_hash": "abc", "method": "cosine", "fit": "point", "transform": "unit",
           "decided": "path", "options": {"path": True, "temperature": 0.05}, "sentence": counts,
           "toolkit": {**counts, "f1": 0.51}, **rates, "less_protonet": [0.02, 0.015]}  # fmt: skip
    content = {"command": "python -m experiments.words report", "encoder": "minilm", "split": "test", "results": [row]}
    (tmp_path / "fewnerd-a.json").write_text(json.dumps({**content, "command": "x report y"}))
    (tmp_path / "fewnerd-a-choices.json").write_text(json.dumps({**content, "command": "x choose y"}))
    text = page(tmp_path)
    assert text.count("## minilm, test split") == 1
    assert "**F1, spans within sentences**, by the best path" in text
    head = "| cosine, `point` | unit, temperature=0.05 |"
    for cell in ("50.0 ± 1.0", "51.0", "40.0 / 60.0", "75.0", "10.0 / 5.0", "20.0 / 30.0", "+2.0 ± 1.5", "-"):
        assert f"{head} {cell} |" in text
    assert "| *in truth* | | 80.0 |" in text


def test_the_page_in_the_documentation_is_that_of_the_results() -> None:
    root = Path(words.__file__).parents[1]
    assert (root / "docs" / "few-nerd.md").read_text() == page(root / "results")
