"""A long study that was killed goes on where it was, and never with what other settings gave."""

import json
from pathlib import Path

import pytest

from hyperproto.errors import ConfigError, DataError
from hyperproto.studies.intents import __main__ as program
from hyperproto.studies.intents import knowledge as study
from hyperproto.studies.journal import Journal
from tests.studies.test_intents import made_up


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
    command = ["knowledge", "--data", "hwu64", "--shots", "2", "--draws", "3", "--methods", "plain", "names", "--json"]
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
