"""A short run of the fuzz suite, the same cases each time; that nothing public is left out; and free properties."""

import inspect
import json
import os
import re
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import hyperproto
from hyperproto.data import DATASETS
from hyperproto.data.formats.tables import open_table
from tests.fuzz.commands import COMMANDS, Command, draw, judged
from tests.fuzz.files import BY_SUFFIX, mutate_file
from tests.fuzz.inputs import Samples
from tests.fuzz.judge import Enough, Outcome, Silent, Trial, check_probabilities, judge, unclear
from tests.fuzz.kinds import all_kinds, set_seed
from tests.fuzz.mutations import extreme_value, mutate_bytes, mutate_json
from tests.fuzz.processes import run_commands
from tests.fuzz.runner import deal, run_case, run_cases
from tests.fuzz.vectors import METHODS, SKLEARN

INPUTS = 1400  # together about 25 seconds on one core
COMMAND_LINES = 12  # of which two are processes from scratch
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    return Samples(tmp_path_factory.mktemp("samples"))


# The suite itself -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(all_kinds()))
def test_no_input_of_a_kind_does_harm(name: str, samples: Samples, tmp_path: Path) -> None:
    """Each case ends with a result or a clear refusal; `python -m tests.fuzz --case NAME` shows one that does not."""
    numbers = [number for kind, number in deal(INPUTS) if kind == name]
    found = {f"{name}:{number}": run_case(name, number, tmp_path, samples) for number in numbers}
    bad = [f"{case}: {outcome.verdict}, {outcome.cause}" for case, outcome in found.items() if not outcome.good]
    assert not bad, "\n".join(bad)


@pytest.mark.slow
def test_real_commands_end_as_commands_may(samples: Samples) -> None:
    found = run_commands(COMMAND_LINES, samples)
    assert not found.findings, found.to_json()["causes"]
    assert found.counts["from scratch"].total() == 2


# Nothing is left out ----------------------------------------------------------------------------------------------


def test_every_public_name_is_covered() -> None:
    covered = {name for kind in all_kinds().values() for name in kind.covers}
    errors = {name for name in hyperproto.__all__ if name.endswith("Error")}
    missing = {*hyperproto.__all__} - errors - {"__version__"} - {name.partition(".")[0] for name in covered}
    assert not missing
    own = [name for name in DATASETS.names() if not name.startswith("tiny")]  # other tests register theirs
    assert {f"data {name}" for name in own} <= covered
    assert {f"table {form}" for form in ("csv", "tsv", "jsonl", "parquet", "lines")} <= covered


def test_every_method_of_the_classifier_is_called() -> None:
    public = {
        name
        for name, member in inspect.getmembers(hyperproto.HypersphereClassifier, callable)
        if not name.startswith("_") and member.__module__.startswith("hyperproto")
    }
    assert public <= {*METHODS, "load"}


def test_every_command_is_drawn(samples: Samples, tmp_path: Path) -> None:
    import typer

    from hyperproto.cli import app

    group: Any = typer.main.get_command(app)
    assert {*group.commands} - {"demo"} <= {*COMMANDS, "methods"}  # the demo takes minutes, and no input
    drawn = set()
    for number in range(120):
        folder = tmp_path / str(number)
        folder.mkdir()
        drawn.add(draw(number, folder, samples).name)
    assert {"fit", "add", "predict", "diagnose", "evaluate", "compare", "data check"} <= drawn


def test_cases_are_dealt_out_by_their_shares_and_each_kind_comes_up() -> None:
    cases = deal(1000)
    assert 950 < len(cases) < 1100
    assert {name for name, _ in cases} == {*all_kinds()}
    assert sorted(cases) == sorted(set(cases))
    assert deal(50, ["npz"]) == [("npz", number) for number in range(50)]


def test_a_case_is_the_same_each_time(samples: Samples, tmp_path: Path) -> None:
    for name in ("npz", "recipe", "model-damaged", "fit-csv"):
        made = []
        for turn in ("one", "two"):
            folder = tmp_path / name / turn
            folder.mkdir(parents=True)
            all_kinds()[name].trial(7, folder, samples)
            made.append({path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()})
        assert made[0] == made[1]


# The judge sees what it should ------------------------------------------------------------------------------------


def raising(error: BaseException) -> Any:
    def run() -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (hyperproto.DataError("x.csv, line 3: no label; give it one"), "refused"),
        (hyperproto.DataError(""), "unclear"),
        (hyperproto.DataError("one\n\ntwo"), "unclear"),
        (ValueError("a" * 10_000), "unclear"),
        (ValueError("Input X contains NaN."), "refused"),
        (ValueError("operands could not be broadcast together"), "traceback"),
        (KeyError("x"), "traceback"),
        (Silent("NaN"), "silent"),
        (Enough(), "result"),
    ],
)
def test_verdicts(error: BaseException, verdict: str, tmp_path: Path) -> None:
    assert judge(Trial(raising(error), SKLEARN), tmp_path).verdict == verdict


def test_a_changed_file_a_draft_and_a_hang_are_seen(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("old")

    def spoil() -> None:
        kept.write_text("new")
        raise hyperproto.DataError("refused")

    def leave() -> None:
        (tmp_path / ".kept.txt.00ff.tmp").write_text("draft")

    def wait() -> None:
        while True:
            pass

    assert judge(Trial(spoil), tmp_path).verdict == "lost"
    assert judge(Trial(spoil, may_write=("kept.txt",)), tmp_path).verdict == "refused"
    assert judge(Trial(wait), tmp_path, seconds=1).verdict == "hang"
    assert judge(Trial(leave), tmp_path).verdict == "lost"


def test_a_process_that_dies_is_counted_and_the_next_case_runs(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.fuzz import kinds

    def die(random: Random, folder: Path, samples: Samples) -> Trial:
        return Trial(lambda: os._exit(9))

    monkeypatch.setitem(kinds.KINDS, "dies", kinds.Kind("dies", die, (), 1))
    found = run_cases([("spec", 0), ("dies", 0), ("dies", 1), ("spec", 1)], samples)
    assert found.counts["dies"] == {"traceback": 2}
    assert found.counts["spec"].total() == 2
    assert found.causes[("traceback", "dies: the process ended with 9")] == ["dies:0", "dies:1"]


@pytest.mark.parametrize(
    ("code", "stderr", "verdict"),
    [
        (0, "", "result"),
        (1, "error: x.csv: is empty", "refused"),
        (1, "", "unclear"),
        (1, "Traceback (most recent call last)\nKeyError: 'x'", "traceback"),
        (2, "Usage: hyperproto", "refused"),
        (-11, "", "traceback"),
        (1, "error: " + "a" * 9999, "unclear"),
    ],
)
def test_ends_of_commands(code: int, stderr: str, verdict: str) -> None:
    assert judged(Command(["fit"]), code, b"", stderr.encode()).verdict == verdict


def test_an_unforeseen_error_counts_as_a_traceback_whatever_is_printed(
    samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.fuzz import commands

    def fail() -> None:
        raise KeyError("x")

    monkeypatch.setattr(hyperproto, "list_methods", fail, raising=False)
    monkeypatch.setattr(commands, "draw", lambda *_: Command(["methods", "list"]))
    assert run_case("command", 0, tmp_path, samples).verdict == "traceback"


def test_probabilities_are_looked_at() -> None:
    check_probabilities([[0.5, 0.5]], "here")
    for wrong in ([[np.nan, 1.0]], [[0.4, 0.4]], [[-0.5, 1.5]]):
        with pytest.raises(Silent, match="here: probabilities"):
            check_probabilities(wrong, "here")
    assert Outcome("refused").good
    assert unclear("one paragraph\n- with a list") == ""


# Properties -------------------------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**32))
@QUICK
def test_a_mutation_always_changes_something(data: bytes, seed: int) -> None:
    assert mutate_bytes(Random(seed), data) != data
    for suffix in (".csv", ".json", ".jsonl", ".safetensors", ".bin"):
        assert suffix == ".bin" or suffix in BY_SUFFIX
        assert mutate_file(Random(seed), f"x{suffix}", data) != data


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.integers(0, 2**32))
@QUICK
def test_a_json_mutation_leaves_its_input_alone(value: Any, seed: int) -> None:
    before = repr(value)
    mutate_json(Random(seed), value, 3)
    assert repr(value) == before
    extreme_value(Random(seed))


@given(st.binary(max_size=200), st.sampled_from(["csv", "tsv", "jsonl", "lines"]))
@QUICK
def test_any_bytes_are_rows_or_an_error_that_names_the_file(tmp_path_factory: Any, data: bytes, form: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    told, rows = f"{path}", []
    try:
        with open_table(str(path), form) as table:
            rows = list(table.rows)
    except hyperproto.DataError as error:
        told = str(error)
    assert str(path) in told
    assert not unclear(told)
    assert all(isinstance(cells, dict) for _, cells in rows)


FLOATS = arrays(np.float64, (5, 3), elements=st.floats(-1e6, 1e6, width=32))


@given(FLOATS, FLOATS, st.sampled_from(["unit", "none"]), st.sampled_from(["bayes", "unbiased", "paper", "point"]))
@QUICK
def test_finite_rows_get_probabilities_or_an_error(x: Any, q: Any, transform: str, mode: str) -> None:
    model = hyperproto.HypersphereClassifier(feature_transform=transform, fit_mode=mode)
    told = "no error"
    try:
        check_probabilities(model.fit(x, [0, 0, 1, 1, 2]).predict_proba(q), "any rows")
    except (hyperproto.HyperProtoError, ValueError) as error:
        told = str(error)
    assert not unclear(told)


@given(JSON)
@QUICK
def test_any_head_of_a_model_is_refused_in_words(tmp_path_factory: Any, value: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-model"
    folder.mkdir(exist_ok=True)
    (folder / "model.json").write_text(json.dumps(value))
    with pytest.raises(hyperproto.DataError, match=re.escape("model.json")):
        hyperproto.load_classifier(folder)


FOUND = [  # by other seeds than that of the tests: each was a traceback
    (101, "tagger:50"),
    (202, "tagger:120"),
    (101, "predict-jsonl:120"),
    (101, "text-tables:641"),
    (202, "npz-evaluate:140"),
    (101, "text-items:21"),
    (202, "checkpoint:44"),
]


@pytest.mark.parametrize(("seed", "case"), FOUND)
def test_what_other_seeds_found_is_refused_in_words(seed: int, case: str, samples: Samples, tmp_path: Path) -> None:
    set_seed(seed)
    try:
        name, _, number = case.partition(":")
        outcome = run_case(name, int(number), tmp_path, samples)
    finally:
        set_seed(None)
    assert outcome.good, outcome.detail
