"""Messages name only options that their command has; a file of Python named as an encoder says what is possible."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hyperproto import HyperProtoError
from hyperproto.cli import app
from tests.helpers.pictures import class_folders, write_tree

FILES = {
    "list.json": '[{"text": "a", "label": "b"}]',
    "rows.csv": "text,label\na,b\n",
    "other.csv": "said,intent\na,b\n",
    "empty.csv": "",
    "blank.csv": "text,label\n,b\n",
    "vectors.csv": "vector,label\n1 0,a\n0 1,b\n",
    "words.conll": "one O\n",
    "bad.npz": "no archive",
}
TABLES = ["list.json", "other.csv", "empty.csv", "blank.csv", "nowhere.csv", "rows.csv,text=said", "rows.csv,split=x"]
SPECS = [
    *(f"texts:{file}" for file in ("", *TABLES)),
    *(f"folder:{path}" for path in ("", "nowhere", "photos", "photos,shares=1", "photos,size=0", "rows.csv")),
    *(f"vectors:{path}" for path in ("", "bad.npz", "nowhere.npz", "rows.csv")),
    *(f"conll:{path}" for path in ("", "nowhere.conll", "rows.csv", "words.conll,scheme=xyz")),
    *("fewrel:nowhere", "fewrel:list.json", "fewnerd:nowhere", "omniglot:nowhere", "cub:nowhere", "mine.py:Data"),
    *("miniimagenet:nowhere", "intents:nothing", "statements:nowhere", "nothing", "fewrel2:nowhere", "cifar-fs:none"),
]
EVALUATE = ["--encoder", "identity", "--method", "protonet", "--episodes", "2"]
FIT = ["--encoder", "identity", "--out", "model"]
COMMANDS = [
    *(["data", "check", spec] for spec in SPECS),
    *(["evaluate", "--data", spec, *EVALUATE] for spec in SPECS),
    *(["fit", file, *FIT] for file in (*TABLES, "photos", "a text")),
    *(["fit", "vectors.csv", *FIT, "--unlabelled", file] for file in (*TABLES, "photos")),
    *(["fit", "rows.csv", "--out", "model", "--descriptions", file] for file in TABLES),
    *(["predict", "saved", file] for file in (*TABLES, "photos", "a text")),
    *(["add", "saved", file] for file in (*TABLES, "photos", "vectors.csv", "a text")),
]


def options_of(*command: str) -> set[str]:
    """Every option that a command takes."""
    found: Any = typer.main.get_command(app)
    for name in command:
        found = found.commands[name]
    return {option for parameter in found.params for option in parameter.opts} | {"--help", "--debug"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path / "none"))
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    write_tree(tmp_path / "photos", class_folders(2, 2))
    CliRunner().invoke(app, ["fit", "vectors.csv", "--encoder", "identity", "--out", "saved"], catch_exceptions=False)
    return tmp_path


def test_messages_name_no_option_that_their_command_lacks(folder: Path) -> None:
    met, wrong = 0, {}
    for command in COMMANDS:
        result = CliRunner().invoke(app, command)
        if not isinstance(result.exception, HyperProtoError):
            continue
        met += 1
        words = command[:2] if command[0] == "data" else command[:1]
        strange = {*re.findall(r"(?<![\w-])--[a-z][a-z-]*", str(result.exception))} - options_of(*words)
        if strange:
            wrong[" ".join(command)] = sorted(strange), str(result.exception)
    assert wrong == {}
    assert met > 70


def test_a_table_of_another_ending_says_which_ones_there_are(folder: Path) -> None:
    result = CliRunner().invoke(app, ["data", "check", "texts:list.json"])
    assert "list.json: the suffix '.json' names no format; rename it so that" in str(result.exception)
    assert ".csv, .tsv, .tab, .jsonl" in str(result.exception)


def test_classes_too_few_for_a_split_say_how_to_share_them_out(folder: Path) -> None:
    result = CliRunner().invoke(app, ["data", "check", "folder:photos"])
    assert "give it other shares, such as folder:photos,shares=40/30/30" in str(result.exception)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["train", "glyphs:protonet", "--out", "run", "-o", 'encoder={name="mine.py:Mlp"}'], "'hyperproto.encoders'"),
        (["compare", "--data", "glyphs", "--encoder", "mine.py:Mlp"], r"call hyperproto.encoders.ENCODERS.add\(NAME"),
        (["data", "check", "mine.py:Data"], "entry point 'hyperproto.data' of a package, or in Python call hyperproto"),
        (["fit", "rows.csv", "--encoder", "mine.py:Mlp", "--out", "model"], "in Python give the callable or the torch"),
    ],
)
def test_a_file_named_as_an_encoder_says_what_is_possible(folder: Path, command: list[str], words: str) -> None:
    (folder / "mine.py").write_text("raise SystemExit('imported')")
    result = CliRunner().invoke(app, command)
    assert re.search(words, str(result.exception))


def test_the_answers_of_submit_are_a_list_of_whole_numbers_as_its_help_says(folder: Path) -> None:
    """One JSON list, a place from 0 to N - 1 for each task."""
    from hyperproto.episodes.episode_files import write_predictions

    write_predictions(folder / "pred-5-1.json", [4, 0, 2])
    content = (folder / "pred-5-1.json").read_text()
    assert content == "[4, 0, 2]"
    assert [type(answer) for answer in json.loads(content)] == [int] * 3
    help_text = " ".join(CliRunner().invoke(app, ["submit", "--help"], env={"COLUMNS": "200"}).output.split())
    assert "one JSON list of whole numbers, such as [2, 0, 4]" in help_text
