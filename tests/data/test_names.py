import json
import os
from pathlib import Path

import numpy as np
import pytest

from hyperproto.data import Pool
from hyperproto.data.names import class_texts, known_texts, label_text
from hyperproto.errors import DataError

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
        DataError, match=r"'descriptions' has no text of any of the 2 classes of fewrel .*data get fewrel"
    ):
        texts("descriptions", pool_of("P6", "P17"))


@pytest.mark.skipif(
    not (Path(os.environ.get("HYPERPROTO_DATA", "")) / "fewrel" / "pid2name.json").exists(),
    reason="HYPERPROTO_DATA names no folder with fewrel",
)
def test_the_official_descriptions() -> None:
    known = known_texts("descriptions", pool_of("P6"))
    assert len(known) == 744
    assert known["P177"].startswith("crosses: ")
    assert not any("No description" in text for text in known.values())
