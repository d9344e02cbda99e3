"""Texts with labels: tables of the user's own, and the released intents."""

import json
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
        ("text,intent\na,b\n", "", r"no column 'label'.*; name it with label=COLUMN behind the file's name"),
        ("text,label\na,b\n", ",split=part", r"no column 'part'.*; name it with split=COLUMN behind the file's name"),
        ("text,label\n ,b\n", "", r"own\.csv, line 2: no text in column 'text'; remove the row"),
        ("text,label\n", "", "no row below the names of the columns"),
        ("", "", "is empty; its first line names the columns"),
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
    with pytest.raises(DataError, match=r"clinc150: .*clinc150\.json: No such file.*data get intents fetches it"):
        open_pool("intents:clinc150", "test")
    (tmp_path / "intents").mkdir()
    (tmp_path / "intents/clinc150.json").write_text('{"train": []')
    with pytest.raises(DataError, match=r"clinc150: the files of split test in .* are damaged .*; get them again"):
        open_pool("intents:clinc150", "test")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "classes", "texts"), [("hwu64", 64, 1076), ("banking77", 77, 3080), ("clinc150", 150, 4500)]
)
def test_the_released_intents(name: str, classes: int, texts: int) -> None:
    pool = open_pool(f"intents:{name}", "test")
    assert (pool.n_classes, len(pool)) == (classes, texts)
    assert open_pool(f"intents:{name}", "train").class_names == pool.class_names
