"""At 80 columns nothing is cut and no word is broken: help and tables of every command, and errors."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from hyperproto import HypersphereClassifier
from hyperproto.cli import app
from hyperproto.cli.terminal import complain
from hyperproto.reports.tables import TextTable, folded

FRAME = re.compile(r"[│┃╭╮╰╯─━┏┓┗┛┡┩┌┐└┘├┤╇┳┴┬╈]+")


def commands(group: typer.Typer = app) -> Iterator[list[str]]:
    for sub in group.registered_groups:
        for rest in commands(sub.typer_instance) if sub.typer_instance else ():
            yield [*([sub.name] if isinstance(sub.name, str) else []), *rest]
    for command in group.registered_commands:
        assert command.callback is not None
        yield [command.name or command.callback.__name__]


def printed(monkeypatch: pytest.MonkeyPatch, width: int, *arguments: str) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def words(lines: list[str]) -> set[str]:
    return {word for line in lines for word in FRAME.sub(" ", line).split()}


def check(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Compare with a terminal that is wide enough for anything."""
    wide, narrow = printed(monkeypatch, 400, *arguments), printed(monkeypatch, 80, *arguments)
    assert max(map(len, narrow)) <= 80
    assert "…" not in "".join(narrow)
    assert words(wide) - words(narrow) <= {"[default:", "[required]"}
    return "\n".join(narrow)


ALL = list(commands())


def test_every_command_is_looked_at() -> None:
    assert len(ALL) == 25
    assert ["recipes", "list"] in ALL


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_help(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    check(monkeypatch, *command, "--help")


def test_help_says_what_the_commands_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from hyperproto.data.get import DOWNLOADS
    from hyperproto.recipes import builtin_tables

    fetched = " ".join(printed(monkeypatch, 200, "data", "get", "--help"))
    assert f"{', '.join([*DOWNLOADS][:-1])} or {[*DOWNLOADS][-1]}." in fetched
    reported = " ".join(printed(monkeypatch, 200, "report", "--help"))
    assert builtin_tables() == ["table1", "table1-shots", "table2", "table3", "table4", "table5"]
    assert "table1, table1-shots, table2 to table5, or a .toml file that has a table section" in reported
    for command in ("evaluate", "compare", "tag", "submit"):
        assert "FILE.py:CLASS" in " ".join(printed(monkeypatch, 200, command, "--help"))


@pytest.mark.parametrize("command", ["recipes list", "methods list", "data list"])
def test_lists(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """The optional parts of a data spec, FOLDER[,size=84][,seed=0], are folded between them."""
    wide, narrow = (
        [line.replace("[,", " [,") for line in printed(monkeypatch, width, *command.split())] for width in (400, 80)
    )
    assert max(len(line.replace(" [,", "[,")) for line in narrow) <= 80
    missing = words(wide) - words(narrow)
    assert {word for word in missing if f"{word}:" not in words(narrow)} <= {"recipe"}  # the head of a list


@pytest.mark.parametrize("more", [[], ["--shot", "1", "--shot", "1,1,2,5,5"], ["--nota-share", "0.5"]])
def test_results(monkeypatch: pytest.MonkeyPatch, vectors_file: Path, more: list[str]) -> None:
    monkeypatch.chdir(vectors_file.parent)
    common = ["compare", "--encoder", "identity", "--data", "vectors:vectors.npz", "--episodes", "9", "--query", "3"]
    methods = ["--method", "nearest", "--method", "hyperproto", "--fit", "bayes", "--fit", "unbiased"]
    options = [*common, *methods, "-o", "prior_ratio=0.123456789", *more]
    lines = printed(monkeypatch, 80, *options)
    text = " ".join(FRAME.sub(" ", line) for line in lines)
    assert max(map(len, lines)) <= 80
    found = json.loads("".join(printed(monkeypatch, 80, *options, "--json", "-")))
    numbers = [result["accuracy"] for result in found["results"]]
    numbers += [result["metrics"]["nota"]["auroc"] for result in found["results"] if "nota" in result["metrics"]]
    expected = [f"{100 * number:.2f}" for number in numbers]
    expected += [word for result in found["results"] for word in result["label"].split()]
    first = found["results"][0]["label"]
    expected += [f"{-100 * row['difference']:+.2f}" for row in found["comparisons"] if row["a"] == first]
    for word in [*expected, *(result["episode_hash"] for result in found["results"])]:
        assert word.replace("-0.00", "+0.00") in text


@pytest.mark.parametrize("table", ["table1", "table2", "table3"])
def test_reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, table: str) -> None:
    monkeypatch.chdir(tmp_path)
    narrow = printed(monkeypatch, 80, "report", table)
    assert max(map(len, narrow)) <= 80
    missing = words(printed(monkeypatch, 400, "report", table)) - words(narrow)
    assert {word for word in missing if f"{word}:" not in words(narrow)} <= {"row"}


def test_a_table_takes_the_form_that_fits() -> None:
    short = TextTable("", ["", "value"], [["a long name", "1.00 ± 0.10\n(+0.50 ± 0.20)"]])
    rows = [["a long name", "1.00", "0.10", "+0.50", "0.20"]]
    table = TextTable("A title of some words", ["", "value", "±", "- first", "±"], rows, narrower=short)
    assert "│ a long name │  1.00 │ 0.10 │   +0.50 │ 0.20 │" in table.text(80)
    assert "│ long │       │      │       │      │" in table.text(39)
    assert "│             │ (+0.50 ± 0.20) │" in table.text(35)
    assert "│ long │ (+0.50 ± 0.20) │" in table.text(25)
    assert table.text(15).splitlines() == [
        "A title of some",
        "words",
        "a long name",
        "  value: 1.00 ±",
        "    0.10 (+0.50",
        "    ± 0.20)",
    ]


def test_words_are_folded_but_never_broken() -> None:
    assert folded("see /a/path/that/is/long.npz and more", 12) == "see\n/a/path/that/is/long.npz\nand more"
    assert folded("folder:PATH[,size=84][,seed=0]", 22) == "folder:PATH[,size=84]\n[,seed=0]"
    assert folded("one\n\ntwo", 10) == "one\n\ntwo"


def test_an_error_is_folded_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hyperproto.cli.terminal import complain

    message = "runs/a-run: something is wrong with " + "it and so on " * 8
    complain("error", "bold red", message)
    assert capsys.readouterr().err == f"error: {message}\n"
    for name, value in {"COLUMNS": "80", "TTY_COMPATIBLE": "1", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    complain("error", "bold red", message)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).split() == f"error: {message}".split()


def test_the_doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    labels = ["card_arrival", "card_arrival", "exchange_rate_of_the_day", "exchange_rate_of_the_day"]
    HypersphereClassifier().fit(rows, labels).save(tmp_path / "model")
    narrow = printed(monkeypatch, 80, "diagnose", str(tmp_path / "model"))
    assert max(map(len, narrow)) <= 80
    assert words(printed(monkeypatch, 400, "diagnose", str(tmp_path / "model"))) - words(narrow) <= {
        "class",
        "examples",
        "extent",
        "rival",
        "distance",
        "overlap",
        "more",
    }  # with a colon


def test_a_terminal_of_no_width_gets_its_answer_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich prints nothing at all to one."""
    assert any("protonet" in line for line in printed(monkeypatch, 0, "methods", "list"))
    told: list[str] = []
    monkeypatch.setattr("sys.stderr", SimpleNamespace(write=told.append, flush=lambda: None, isatty=lambda: False))
    complain("error", "bold red", "there is no data set 'nope'")
    assert "".join(told) == "error: there is no data set 'nope'\n"
