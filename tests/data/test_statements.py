"""Statements: files in their three forms, identities, what is left out, and the four spellings of a sentence."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from hyperproto.data import OUTSIDE, Pool, open_pool
from hyperproto.data.formats.relations import BLANK, Relation, mentions_overlap, spellings, with_blanks
from hyperproto.data.statements import MOST
from hyperproto.errors import ConfigError, DataError


def statement(text: str, head: tuple[str | None, list[int]], tail: tuple[str | None, list[int]]) -> dict[str, Any]:
    words = text.split()
    return {"tokens": words, "h": ["h", head[0], [head[1]]], "t": ["t", tail[0], [tail[1]]]}


ADA = statement("Ada Byron wrote of the Engine", ("Q1", [0, 1]), ("Q2", [5]))
BOB = statement("the Engine was BUILT by Bob", ("Q2", [1]), (None, [5]))


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def opened(path: Path, options: str = "") -> Pool:
    return open_pool(f"statements:{path}{options}", "train")


def test_a_list_lines_and_relations_hold_the_same_statements(tmp_path: Path) -> None:
    listed = opened(write(tmp_path / "list.json", [ADA, BOB]))
    lines = tmp_path / "lines.jsonl"
    lines.write_text(f"{json.dumps(ADA)}\n\n{json.dumps(BOB)}\n")
    by_relation = opened(write(tmp_path / "by.json", {"wrote": [ADA], "built": [BOB]}))
    assert listed.items == opened(lines).items == by_relation.items
    assert listed.labels.tolist() == [OUTSIDE, OUTSIDE]
    assert (listed.n_classes, by_relation.class_names) == (0, ("wrote", "built"))
    assert by_relation.labels.tolist() == [0, 1]
    expected = {"tokens": ADA["tokens"], "head": [0, 1], "tail": [5], "head_id": "Q1", "tail_id": "Q2"}
    assert listed.items[0] == expected


@pytest.mark.parametrize("none", [None, ""])
def test_without_an_id_the_mention_is_the_identity(none: str | None, tmp_path: Path) -> None:
    pool = opened(write(tmp_path / "a.json", [statement("Élan VITAL met Bob", (none, [0, 1]), ("Q3", [3]))]))
    assert (pool.items[0]["head_id"], pool.items[0]["tail_id"]) == ("elan vital", "Q3")
    assert pool.items[0]["tokens"] == ["Élan", "VITAL", "met", "Bob"]
    plain = opened(tmp_path / "a.json", ",uncased=yes")
    assert plain.items[0]["tokens"] == ["elan", "vital", "met", "bob"]


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path: Path) -> None:
    known = statement("a sentence of an evaluation", ("Q8", [1]), ("Q9", [4]))
    itself = statement("Ada met Ada", ("Q1", [0]), ("Q1", [2]))
    across = statement("the King of Spain", ("Q4", [1, 2, 3]), ("Q5", [3]))
    often = [statement(f"star {n} shines", ("Q7", [0]), (f"S{n}", [1])) for n in range(MOST + 2)]
    path = write(tmp_path / "all.json", [ADA, itself, across, known, *often, BOB])
    other = write(tmp_path / "val.json", {"P1": [{**known, "tokens": ["A", "sentence", "OF", "an", "evaluation!"]}]})
    with pytest.warns(UserWarning, match="statements are left out") as found:
        pool = opened(path, f",without={other}")
    words = str(found[0].message)
    assert len(found) == 1
    for reason in (
        f"5 of {len(often) + 5} statements are left out",
        "1 of an entity with itself",
        "1 with overlapping mentions",
        f"1 that occur in {other}",
        "2 of an entity that is in 100 others",
    ):
        assert reason in words
    assert [item["head_id"] for item in pool.items] == ["Q1", *["Q7"] * MOST, "Q2"]
    assert known["tokens"] not in [item["tokens"] for item in pool.items]


def test_a_relation_without_statements_that_can_be_used_disappears(tmp_path: Path) -> None:
    itself = statement("Ada met Ada", ("Q1", [0]), ("Q1", [2]))
    path = write(tmp_path / "by.json", {"wrote": [ADA], "met": [itself], "built": [BOB]})
    with pytest.warns(UserWarning, match="1 of 3 statements"):
        pool = opened(path)
    assert (pool.class_names, pool.labels.tolist()) == (("wrote", "built"), [0, 1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"\[\] is not a list of at least one instance"),
        ({}, r"\{\} is not a list of at least one instance"),
        (ADA, "is not a list of at least one instance"),
        ({"wrote": []}, r"'wrote': \[\] is not a list of at least one instance"),
        ([ADA, {**ADA, "h": ["x", 7, [[0]]]}], "index 1: the id of h is 7, not a string or null"),
        ([{**ADA, "h": ["x", "\ud800", [[0]]]}], "index 0: half a character"),
        ([{**ADA, "tokens": []}], "index 0: tokens is"),
        (
            [statement("Ada met Ada", ("Q1", [0]), ("Q1", [2]))],
            r"none of its 1 statements can be used \(1 of an entity",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        opened(write(tmp_path / "bad.json", content))


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{json.dumps(ADA)}\n{{")
    with pytest.raises(DataError, match=r"bad\.jsonl, line 2: not JSON"):
        opened(path)


def test_a_spec_without_a_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="statements: no file named"):
        open_pool("statements", "train")


@pytest.mark.skipif("HYPERPROTO_DATA" not in os.environ, reason="no real files at hand")
def test_the_real_file_of_pubmed() -> None:
    folder = Path(os.environ["HYPERPROTO_DATA"]) / "fewrel"
    if not (folder / "pubmed_unsupervised.json").exists():
        pytest.skip("no pubmed_unsupervised.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(opened(folder / "pubmed_unsupervised.json")) == 2500
        assert len(opened(folder / "pubmed_unsupervised.json", f",without={folder / 'val_pubmed.json'}")) == 1473


# Blanks -----------------------------------------------------------------------------------------------------------


def test_the_four_spellings_of_a_sentence() -> None:
    words = ["the", "Engine", "was", "built", "by", "Ada", "Byron", "."]
    item: Relation = {"tokens": words, "head": [5, 6], "tail": [0, 1]}
    spelled = [(" ".join(one["tokens"]), one["head"], one["tail"]) for one in spellings(item)]
    assert spelled == [
        ("the Engine was built by Ada Byron .", [5, 6], [0, 1]),
        (f"the Engine was built by {BLANK} .", [5], [0, 1]),
        (f"{BLANK} was built by Ada Byron .", [4, 5], [0]),
        (f"{BLANK} was built by {BLANK} .", [4], [0]),
    ]


@pytest.mark.parametrize(("head", "tail", "overlap"), [([0, 1], [1, 2], True), ([0, 3], [1], True), ([0], [1], False)])
def test_overlapping_mentions_stay_as_they_are(head: list[int], tail: list[int], overlap: bool) -> None:
    item: Relation = {"tokens": list("abcd"), "head": head, "tail": tail}
    assert mentions_overlap(item) == overlap
    assert all(one == item for one in spellings(item)[1:]) == overlap


def test_a_pool_with_blanks_keeps_labels_and_identities(tmp_path: Path) -> None:
    pool = with_blanks(opened(write(tmp_path / "by.json", {"wrote": [ADA], "built": [BOB]})))
    assert pool.labels.tolist() == [0] * 4 + [1] * 4
    assert [item["head_id"] for item in pool.items] == ["Q1"] * 4 + ["Q2"] * 4
    assert pool.items[6]["tokens"] == ["the", "Engine", "was", "BUILT", "by", BLANK]
