"""A long study that was killed goes on where it was, and never with what other settings gave."""

import json
from pathlib import Path

import pytest

from hyperproto.errors import ConfigError, DataError
from research.intents import __main__ as program
from research.intents import evidence as study
from research.journal import Journal
from tests.research.test_intents import made_up


def test_a_value_is_measured_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def measure() -> dict[str, float]:
        asked.append(1)
        return {"accuracy": 0.5 + len(asked)}

    results = tmp_path / "found.json"
    facts = {"data": "hwu64", "shots": (1, 2)}
    for _ in range(2):  # the second as after a kill
        assert Journal(results, facts).measured("one", measure) == {"accuracy": 1.5}
    assert len(asked) == 1
    with pytest.raises(ConfigError, match=r"found.json.part is of a run with other settings; repeat its command"):
        Journal(results, {"data": "banking77"})
    (tmp_path / "other.json.part").write_text("[]")
    with pytest.raises(ConfigError, match="other settings"):
        Journal(tmp_path / "other.json", facts)
    (tmp_path / "other.json.part").unlink()
    journal = Journal(results, facts)
    journal.close()
    journal.close()
    assert list(tmp_path.iterdir()) == []
    assert Journal(None, facts).measured("one", measure) == {"accuracy": 2.5}
    (tmp_path / "found.json.part").write_text("{")
    with pytest.raises(DataError, match="remove it to begin anew"):
        Journal(results, facts)


def test_a_study_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "load_intents", lambda *_: made_up())
    command = ["evidence", "--data", "hwu64", "--shots", "2", "--draws", "3", "--methods", "plain", "names", "--json"]
    program.main([*command, str(tmp_path / "whole.json")])
    measured, calls = study._measured, []

    def until_killed(*arguments: object) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return measured(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(study, "_measured", until_killed)
    for attempt in (1, 2):
        try:
            program.main([*command, str(tmp_path / "killed.json")])
        except KeyboardInterrupt:
            assert attempt == 1
    assert len(calls) == 3 + 1 + 3  # 2 methods x 3 draws, and the one that was killed
    whole, killed = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "killed"))
    assert [row["accuracy"] for row in whole["results"]] == [row["accuracy"] for row in killed["results"]]
    assert (whole["supports"], whole["comparisons"]) == (killed["supports"], killed["comparisons"])
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_of_results_is_extended_by_the_draws_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "load_intents", lambda *_: made_up())
    command = ["evidence", "--data", "hwu64", "--shots", "2", "--methods", "plain", "self-training", "--json"]
    whole, file = tmp_path / "whole.json", tmp_path / "file.json"
    program.main([*command, str(whole), "--draws", "3"])
    program.main([*command, str(file), "--draws", "3", "--slow-draws", "1"])
    measured, calls = study._measured, []

    def counted(*arguments: object) -> dict[str, float]:
        calls.append(1)
        return measured(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(study, "_measured", counted)
    program.main([*command, str(file), "--draws", "3", "--extend"])
    assert len(calls) == 2  # the second and third draw of self-training
    rows = [json.loads(path.read_text())["results"] for path in (whole, file)]
    assert [row["accuracy"]["draws"] for row in rows[0]] == [row["accuracy"]["draws"] for row in rows[1]]

    def refused(*more: str) -> str:
        with pytest.raises(SystemExit):
            program.main([*command, *more, "--draws", "3", "--extend"])
        return " ".join(capsys.readouterr().err.split())

    assert "name one that exists with --json" in refused(str(tmp_path / "none.json"))
    assert "was measured with another split, prior_ratio; extend it" in refused(
        str(file), "--split", "valid", "--prior-ratio", "2"
    )
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"supports": {"2": ["0", *content["supports"]["2"][1:]]}}))
    assert "its draws of 2 shots are of other supports; measure all of them anew" in refused(str(file))
