"""Control characters of labels, texts and file names are escaped wherever a terminal shows them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.text import Text

from hyperproto import DataError, FewShotTextClassifier, HypersphereClassifier
from hyperproto.cli.terminal import complain, echo, note, printable, say, show
from hyperproto.reports.tables import TextTable
from tests.cli.test_practice import run, table
from tests.helpers.items import LABELS, TEXTS

RED = "\x1b[31mred\x1b[0m"
SHOWN = "\\x1b[31mred\\x1b[0m"
COMMAND = [sys.executable, "-c", "from hyperproto.cli import main; main()"]


def test_what_is_escaped() -> None:
    assert printable("a\x1b[2Jb\rc\x07\x7f\x9b1m\u202e\u2066") == ("a\\x1b[2Jb\\rc\\x07\\x7f\\x9b1m\\u202e\\u2066")
    assert printable("tab\tline\nnaïve 字 שלום") == "tab\tline\nnaïve 字 שלום"


def test_every_way_to_the_terminal_escapes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    narrower = TextTable(RED, [RED], [[RED]])
    for write in (echo, say, note, lambda text: complain("error", "", text)):
        write(RED)
    show([TextTable(RED, ["", RED], [["a", RED], [RED]], narrower=narrower), Text(RED)], {}, None)
    monkeypatch.setenv("COLUMNS", "20")
    show([TextTable(RED, ["a" * 20, "b" * 20], [["a", "b"]], narrower=narrower)], {}, None)
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert printed.count(SHOWN) == 11


def test_labels_and_texts_in_fit_add_and_diagnose(tmp_path: Path, bert: str) -> None:
    labels = [RED if label == "court" else label for label in LABELS]
    texts = [f"{text} {RED}" for text in TEXTS]
    texts[0] = f"paris city in a river  {RED}"  # looks mislabelled
    file = table(tmp_path / "examples.jsonl", {"text": texts, "label": labels})
    printed = run("fit", file, "--encoder", bert, "--out", tmp_path / "model")
    assert f"3 in the smallest class ({SHOWN})" in printed
    found = run("diagnose", tmp_path / "model")
    assert "\x1b" not in printed + found
    assert SHOWN in found
    more = table(tmp_path / "more.jsonl", {"text": ["a"], "label": ["\x1b[32mgreen"]})
    with pytest.raises(DataError):
        run("add", tmp_path / "model", more)
    done = subprocess.run([*COMMAND, "add", tmp_path / "model", more], capture_output=True, text=True)
    assert done.returncode == 1
    assert "\x1b" not in done.stderr
    assert FewShotTextClassifier.load(tmp_path / "model").classes_.tolist()[0] == RED


def test_rows_are_escaped_on_a_terminal_and_stay_as_they_are_in_a_pipe(tmp_path: Path) -> None:
    HypersphereClassifier().fit(np.eye(2), [RED, "plain"]).save(tmp_path / "model")
    (tmp_path / "new.csv").write_text(f"vector,note\n1 0,{RED}\n")
    command = [*COMMAND, "predict", str(tmp_path / "model"), str(tmp_path / "new.csv")]
    piped = subprocess.run(command, capture_output=True, text=True)
    assert piped.stdout.splitlines()[1].startswith(f"1 0,{RED},{RED},")
    master, slave = os.openpty()
    done = subprocess.run(command, stdout=slave, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    shown = os.read(master, 10_000).decode()
    os.close(master)
    assert done.returncode == 0
    assert f"1 0,{SHOWN},{SHOWN}," in shown
    assert "\x1b" not in shown
