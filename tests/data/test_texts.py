"""Texts with labels: tables of the user's own, and the released intents."""

import json
import os
from pathlib import Path

import pytest

from hyperproto.data import open_pool, splits_of
from hyperproto.errors import ConfigError, DataError

TABLE = 'text,label,split\n"hello, you",greet,train\nbye,leave,train\nmy card,card,test\nwhat?,,test\n'


def test_a_table_is_a_pool(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(TABLE)
    assert splits_of(f"texts:{path}") == ("all", "train", "test")
    train, test = (open_pool(f"texts:{path}", split) for split in ("train", "test"))
    assert train.items == ["hello, you", "bye"]
    assert (train.class_names, train.labels.tolist()) == (("greet", "leave"), [0, 1])
    assert (test.class_names, test.labels.tolist()) == (("card",), [0, -1])  # a row without a label is of no class
    whole = open_pool(f"texts:{path}", "all")
    assert (len(whole), whole.n_classes) == (4, 3)
    assert whole.name == f"texts:{path}"


def test_columns_may_have_other_names_and_labels_be_numbers(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps({"q": text, "intent": n}) + "\n" for n, text in enumerate(["a", "b"])))
    spec = f"texts:{path},text=q,label=intent"
    assert splits_of(spec) == ("all",)
    assert open_pool(spec, "all").class_names == ("0", "1")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("text,intent\na,b\n", "", r"no column 'label'.*; name it with label=COLUMN after the file's name"),
        ("text,label\na,b\n", ",split=part", r"no column 'part'.*; name it with split=COLUMN after the file's name"),
        ("text,label\n ,b\n", "", r"own\.csv, line 2: no text in column 'text'; remove the row"),
        ("text,label\n", "", "no rows below the header"),
        ("", "", "is empty; its first line must name the columns"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, content: str, options: str, message: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        open_pool(f"texts:{path}{options}", "all")


def test_no_file_no_option_no_split_no_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"texts: no file named; write texts:FILE\.csv"):
        splits_of("texts")
    path = tmp_path / "own.csv"
    path.write_text(TABLE)
    with pytest.raises(ConfigError, match="no option 'txet'; did you mean 'text'"):
        splits_of(f"texts:{path},txet=q")
    with pytest.raises(ConfigError, match="no split 'dev'"):
        open_pool(f"texts:{path}", "dev")
    with pytest.raises(ConfigError, match=r"intents: .*no data set 'banking'; did you mean 'banking77'"):
        splits_of("intents:banking")


def test_intents_that_are_missing_or_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"clinc150\.json: no such file; hyperproto data get intents fetches it"):
        open_pool("intents:clinc150", "test")
    (tmp_path / "intents").mkdir()
    (tmp_path / "intents/clinc150.json").write_text('{"train": []')
    with pytest.raises(DataError, match=r"clinc150\.json: not JSON .*; hyperproto data get intents fetches it"):
        open_pool("intents:clinc150", "test")


NO_PAIR = "not a text and its label; hyperproto data get intents fetches it"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("clinc150.json", '{"test": [["a", ["b"]]]}', rf"clinc150.json, test\[0\]: 'a' with label \['b'\], {NO_PAIR}"),
        ("clinc150.json", '{"test": [["a", "b"], 3]}', rf"test\[1\]: None with label None, {NO_PAIR}"),
        ("clinc150.json", '{"test": [["a", 1]]}', rf"test\[0\]: 'a' with label 1, {NO_PAIR}"),
        ("clinc150.json", '{"test": [["a\\ud800", "b"]]}', NO_PAIR),
        ("clinc150.json", '{"train": []}', r"clinc150.json: no list 'test' of \[text, label\] in it"),
        ("clinc150.json", "[" * 5000 + "]" * 5000, "clinc150.json: lists or objects nested more than 100 deep"),
        ("banking77/test.csv", "text,category\na\n", "test.csv, line 2: 1 cells where the first line names 2"),
        ("banking77/test.csv", "text,label\na,b\n", r"test.csv: its columns are \['text', 'label'\], not text and cat"),
        ("banking77/test.csv", "text,category\na,\n", rf"test.csv, line 2: 'a' with label '', {NO_PAIR}"),
        ("hwu64/test/seq.in", "a\nb\n", "seq.in has 2 lines, but label 1; hyperproto data get intents fetches it"),
    ],
)
def test_intents_that_are_odd(
    file: str, content: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    path = tmp_path / "intents" / file
    path.parent.mkdir(parents=True)
    (path.parent / "label").write_text("x\n")
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        open_pool(f"intents:{file.partition('/')[0].removesuffix('.json')}", "test")


def test_intents_with_long_fields_and_odd_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    folder = tmp_path / "intents" / "hwu64" / "test"
    folder.mkdir(parents=True)
    (folder / "seq.in").write_text("one\u2028line\r\ntwo\x85\n")
    (folder / "label").write_text("x\ny\n")
    assert open_pool("intents:hwu64", "test").items == ["one\u2028line", "two\x85"]
    long = "word " * 50_000  # more than Python's csv takes unless told
    (tmp_path / "intents" / "banking77").mkdir()
    (tmp_path / "intents" / "banking77" / "test.csv").write_text(f"text,category\n{long},x\n")
    assert open_pool("intents:banking77", "test").items == [long]


@pytest.mark.parametrize("file", ["clinc150.json", "banking77/test.csv", "hwu64/test/seq.in"])
def test_intents_that_never_end_are_refused(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    path = tmp_path / "intents" / file
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(DataError, match=rf"{path.name}: a FIFO, not a file"):
        open_pool(f"intents:{file.partition('/')[0].removesuffix('.json')}", "test")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "classes", "texts"), [("hwu64", 64, 1076), ("banking77", 77, 3080), ("clinc150", 150, 4500)]
)
def test_the_released_intents(name: str, classes: int, texts: int) -> None:
    pool = open_pool(f"intents:{name}", "test")
    assert (pool.n_classes, len(pool)) == (classes, texts)
    assert open_pool(f"intents:{name}", "train").class_names == pool.class_names
