import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from hyperproto.data import Pool
from hyperproto.data.formats.images import FileTree
from hyperproto.data.miniimagenet import NAMES as NAMES_BY_ID
from hyperproto.data.miniimagenet import SPLITS
from hyperproto.data.names import class_texts, known_texts, label_text
from hyperproto.errors import ConfigError, DataError

NAMES = {"P6": ["head of government", "head of the executive power"], "P17": ["country", "No description defined"]}


def pool_of(*classes: str, name: str = "fewrel") -> Pool:
    return Pool(np.zeros((len(classes), 2), np.float32), np.arange(len(classes)), classes, name=name)


def texts(source: str, pool: Pool) -> tuple[str | None, ...]:
    return class_texts(source, pool, known_texts(source, pool))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    (tmp_path / "fewrel").mkdir()
    (tmp_path / "fewrel" / "pid2name.json").write_text(json.dumps(NAMES))
    return tmp_path


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("Cause-Effect(e1,e2)", "Cause Effect from first to second"),
        ("Cause-Effect(e2,e1)", "Cause Effect from second to first"),
        ("is_normal_tissue_origin_of_disease", "is normal tissue origin of disease"),
        ("Other", "Other"),
        ("n01532829", "house finch"),
        ("n02457408", "three-toed sloth"),
        ("n00000000", ""),
        ("n0153282", "n0153282"),
        ("004.Groove_billed_Ani", "groove billed ani"),
        ("004.", "004."),
        ("17", ""),
        ("-", ""),
    ],
)
def test_a_label_in_words(label: str, text: str) -> None:
    assert label_text(label) == text


def test_labels_name_every_class_that_has_letters() -> None:
    pool = pool_of("one_two", "_")
    assert known_texts("labels", pool) == {}
    assert texts("labels", pool) == ("one two", None)


def test_descriptions_are_name_and_description(folder: Path) -> None:
    pool = pool_of("P17", "P6", "P99", "gene_found-in", name="fewrel2")
    known = known_texts("descriptions", pool)
    assert known == {"P6": "head of government: head of the executive power", "P17": "country"}
    assert texts("descriptions", pool) == ("country", known["P6"], None, "gene found in")


def test_descriptions_beside_the_files_of_a_spec_come_first(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "pid2name.json").write_text(json.dumps({"P6": "mayor"}))
    (folder / "mine" / "corpus.json").write_text("{}")
    for place in (folder / "mine", folder / "mine" / "corpus.json"):
        assert known_texts("descriptions", pool_of("P6", name=f"fewrel:{place},holdout=1")) == {"P6": "mayor"}
    assert known_texts("descriptions", pool_of("P6", name=f"fewrel:{folder}"))["P17"] == "country"


def test_a_file_names_classes(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"a": "the first letter", "c": "unused", "d": " "}))
    pool = pool_of("a", "b")
    assert known_texts(str(path), pool) == {"a": "the first letter", "c": "unused"}
    assert texts(str(path), pool) == ("the first letter", None)


@pytest.mark.parametrize("content", ["[]", '{"a": 1}', '{"a": ["name", "description"]}'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"names.json: not \{class: text\}"):
        known_texts(str(path), pool_of("a"))


def test_a_source_without_any_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=r"'descriptions' has no text for any of the 2 classes of fewrel .*data get fewrel"
    ):
        texts("descriptions", pool_of("P6", "P17"))


@pytest.mark.parametrize("spec", ["omniglot", "omniglot:,split=vinyals", "glyphs", "glyphs:3"])
def test_characters_have_no_names_with_a_meaning(spec: str, tmp_path: Path) -> None:
    pool = pool_of("Greek/character01/rot000", "Greek/character02/rot000", name=spec)
    name = spec.partition(":")[0]
    with pytest.raises(
        ConfigError, match=rf"the classes of {name} are characters, and their labels are not words; .*a file"
    ):
        texts("labels", pool)
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"Greek/character01/rot000": "alpha"}))
    assert texts(str(path), pool) == ("alpha", None)


def test_ids_of_unknown_classes_have_no_text() -> None:
    assert texts("labels", pool_of("n02129165", "n99999999")) == ("lion", None)
    with pytest.raises(DataError, match=r"'labels' has no text for any of the 1 classes of [^;]*; name a file"):
        texts("labels", pool_of("n99999999"))


@pytest.mark.data
def test_the_real_classes_have_names() -> None:
    data = Path(os.environ.get("HYPERPROTO_DATA", ""))
    if not all((data / name).is_dir() for name in ("miniimagenet", "cub")):
        pytest.skip("HYPERPROTO_DATA names no folder with miniimagenet and cub")
    tree = FileTree(data / "miniimagenet", archives=True)
    lists = [tree.read(name).decode() for split in SPLITS for name in tree.names if name.endswith(f"{split}.csv")]
    ids = [dict.fromkeys(line.rpartition(",")[2] for line in text.splitlines()[1:]) for text in lists]
    assert [len(each) for each in ids] == [64, 16, 20]
    assert {name for each in ids for name in each} == NAMES_BY_ID.keys()
    birds = [name for split in SPLITS for name in json.loads((data / "cub" / f"{split}.json").read_text())]
    assert len(birds) == 200
    assert all(re.fullmatch("[a-z ]+", label_text(name)) for name in birds)


@pytest.mark.skipif(
    not (Path(os.environ.get("HYPERPROTO_DATA", "")) / "fewrel" / "pid2name.json").exists(),
    reason="HYPERPROTO_DATA names no folder with fewrel",
)
def test_the_official_descriptions() -> None:
    known = known_texts("descriptions", pool_of("P6"))
    assert len(known) == 744
    assert known["P177"].startswith("crosses: ")
    assert not any("No description" in text for text in known.values())
