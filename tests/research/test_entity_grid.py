"""Choosing how to label words, and reporting it: on made-up sentences, against the library's own commands."""

import json
from pathlib import Path

import pytest

from hyperproto.comparison.measure import Selection, Tasks, measure
from research import entity_grid
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    register()
    for seed, split in enumerate(("train", "dev", "test")):
        write_conll(tmp_path / "data" / f"{split}.txt", random_sentences(150, 7, seed=seed, most_runs=3))
    spec = f"conll:{tmp_path / 'data'}"
    monkeypatch.setattr(entity_grid, "DATA", spec)
    bayes = ("hyperproto", "bayes")
    cases = [("protonet", "point", {}), ("cosine", "point", {}), (*bayes, {}), (*bayes, {"count_prior": 4.0})]
    monkeypatch.setattr(entity_grid, "CASES", cases)
    monkeypatch.setattr(entity_grid, "SHARES", (0.1, 1.0))
    monkeypatch.setattr(entity_grid, "CHOICES", {1: 6, 2: 4})
    return spec


def test_what_is_chosen_and_reported_is_what_the_commands_measure(data: str, tmp_path: Path) -> None:
    choices, found = tmp_path / "choices.json", tmp_path / "found.json"
    entity_grid.main(["choose", "--encoder", "tiny-words", "--json", str(choices)])
    content = json.loads(choices.read_text())
    rows = content["results"]
    assert (content["split"], content["command"]) == (
        "dev",
        f"python -m research.entity_grid choose --encoder tiny-words --json {choices}",
    )
    assert len(rows) == (3 + 2 + 3 + 3) * (1 + 2 * 3)  # transforms, then ways to decide
    for row in rows[5:7]:  # a path, with and without O
        options = {name: [value] for name, value in row["options"].items()}
        chosen = Selection([], ["tiny-words"], [row["method"]], [row["fit"]], [row["transform"]], options)
        [[result]] = measure(chosen, Tasks(data=data, split="dev", shots=[1], episodes=6, seed=11))
        assert row["1 shots"]["f1"] == pytest.approx(result.metrics["sentence"]["f1"], abs=1e-5)

    best = entity_grid.best(rows)
    assert [(row["method"], row["decided"]) for row in best] == [
        (method, decided) for method in ("protonet", "cosine", "hyperproto") for decided in ("words", "path", "path, O")
    ]
    for row in best:
        same = [r["mean_f1"] for r in rows if (r["method"], r["decided"]) == (row["method"], row["decided"])]
        assert row["mean_f1"] == max(same)

    arguments = ["report", "--encoder", "tiny-words", "--choices", str(choices), "--episodes", "8"]
    arguments += ["--ways", "3", "--shots", "2", "--least-spans", "10"]
    entity_grid.main([*arguments, "--json", str(found)])
    content = json.loads(found.read_text())
    assert content["split"] == "test"
    for row, from_dev in zip(content["results"], best, strict=True):
        assert row["options"] == from_dev["options"]
        options = {name: [value] for name, value in row["options"].items()}
        chosen = Selection([], ["tiny-words"], [row["method"]], [row["fit"]], [row["transform"]], options)
        [[result]] = measure(chosen, Tasks(data=data, shots=[2], way=3, episodes=8, least_spans=10))
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
        entity_grid.main(["report", "--encoder", "minilm", "--json", "x.json"])
    assert "report needs --choices: the file that choose wrote" in capsys.readouterr().err
