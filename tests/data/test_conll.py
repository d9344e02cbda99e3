"""Tagged sentences of one's own: schemes, columns, and what is wrong with a file, by line."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperproto.data import OUTSIDE, Pool, find_dataset, open_pool
from hyperproto.data.formats.tagged import find_spans
from hyperproto.errors import ConfigError, DataError


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def sentence(*labels: str) -> str:
    return "".join(f"w{i}\t{label}\n" for i, label in enumerate(labels)) + "\n"


def kinds(pool: Pool) -> list[str]:
    return ["O" if label == OUTSIDE else pool.class_names[label] for label in pool.labels.tolist()]


def test_words_types_and_sentences(tmp_path: Path) -> None:
    path = write(tmp_path / "my.txt", "Anna\tperson-actor\nsaw\tO\nParis\tcity\n\n\nBern\tcity\n")
    pool = open_pool(f"conll:{path}", "all")
    assert pool.items == [["Anna", "saw", "Paris"], ["Bern"]]
    assert pool.class_names == ("city", "person-actor")
    assert pool.labels.tolist() == [1, OUTSIDE, 0, 0]
    assert pool.offsets is not None
    assert pool.offsets.tolist() == [0, 3, 4]
    assert (pool.name, pool.split) == (f"conll:{path}", "all")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("B-PER", "I-PER", "O", "B-LOC"), ["PER", "PER", "O", "LOC"]),
        (("I-PER", "I-PER", "O", "I-LOC"), ["PER", "PER", "O", "LOC"]),
        (("B-PER", "E-PER", "O", "S-LOC"), ["PER", "PER", "O", "LOC"]),
        (("B-PER", "L-PER", "O", "U-LOC"), ["PER", "PER", "O", "LOC"]),
        (("person-actor", "person-actor", "O", "location-GPE"), ["person-actor", "person-actor", "O", "location-GPE"]),
    ],
)
def test_every_scheme_becomes_io(tmp_path: Path, labels: tuple[str, ...], expected: list[str]) -> None:
    pool = open_pool(f"conll:{write(tmp_path / 'my.txt', sentence(*labels))}", "all")
    assert kinds(pool) == expected


def test_labels_may_be_taken_as_they_stand(tmp_path: Path) -> None:
    path = write(tmp_path / "my.txt", sentence("B-PER", "I-PER", "O"))
    assert open_pool(f"conll:{path},scheme=io", "all").class_names == ("B-PER", "I-PER")


def test_entities_that_touch_become_one_and_are_counted(tmp_path: Path) -> None:
    text = sentence("B-PER", "I-PER", "B-PER", "B-LOC", "B-LOC", "O") + sentence("B-LOC")
    path = write(tmp_path / "my.txt", text)
    with pytest.warns(UserWarning, match=r"my\.txt: 2 entities follow another of their type without a gap"):
        pool = open_pool(f"conll:{path}", "all")
    assert pool.offsets is not None
    assert len(find_spans(pool.labels, pool.offsets)) == 3
    open_pool(f"conll:{write(path, sentence('B-LOC') + sentence('B-LOC'))}", "all")  # a border is a gap: no warning
    path = write(tmp_path / "other.txt", sentence("S-PER", "B-PER", "E-PER"))
    with pytest.warns(UserWarning, match="1 entities follow"):
        open_pool(f"conll:{path}", "all")


def test_a_folder_has_a_split_for_each_file(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", sentence("a", "O"))
    write(tmp_path / "dev.conll", sentence("b"))
    write(tmp_path / "README.md", "not data")
    assert find_dataset("conll")[0].splits(str(tmp_path)) == ("dev", "train")
    assert open_pool(f"conll:{tmp_path}", "dev").class_names == ("b",)
    with pytest.raises(ConfigError, match=r"no split 'tran'; did you mean 'train'\?"):
        open_pool(f"conll:{tmp_path}", "tran")


def test_columns_separators_documents_and_comments(tmp_path: Path) -> None:
    old = "-DOCSTART- -X- -X- O\n\nEU NNP  I-NP B-ORG\nrejects VBZ I-VP O\n\n"
    pool = open_pool(f"conll:{write(tmp_path / 'a.txt', old)}", "all")
    assert (pool.items, kinds(pool)) == ([["EU", "rejects"]], ["ORG", "O"])
    assert open_pool(f"conll:{tmp_path / 'a.txt'},column=2", "all").class_names == ("NNP", "VBZ")
    with pytest.raises(DataError, match=r"a\.txt, line 3: .* no word and label in the columns asked for"):
        open_pool(f"conll:{tmp_path / 'a.txt'},column=9", "all")
    numbered = "# id 7\n1\tAnna\tB-PER\r\n2\t#\tO\r\n"
    pool = open_pool(f"conll:{write(tmp_path / 'b.txt', numbered)},word=2,comments=true", "all")
    assert (pool.items, kinds(pool)) == ([["Anna", "#"]], ["PER", "O"])
    turned = "B-PER\tAnna\r\nO\tsang\r\n\r\nO\tyes\r\n"
    pool = open_pool(f"conll:{write(tmp_path / 'd.txt', turned)},word=2,column=1", "all")
    assert pool.items == [["Anna", "sang"], ["yes"]]
    odd = "\ufeffa\u00a0b\u2028c \tO\nx\tB-X\n \t\ny\tO\n"  # only tabs part columns, only newlines end lines
    assert open_pool(f"conll:{write(tmp_path / 'c.txt', odd)}", "all").items == [["a\u00a0b\u2028c ", "x"], ["y"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tO\nb\n", r"my\.txt, line 2: 'b' has no word and label in the columns asked for; write a word, a tab"),
        ("a\tO\nb\t\n", r"my\.txt, line 2: 'b\\t' has no word and label"),
        ("a\tO\n\tO\n", r"my\.txt, line 2: '\\tO' has no word and label"),
        ("a\tB-X\n\nb\tX\n", r"my\.txt, line 3: label 'X' does not begin with B-, I- as those of BIO do; fix it, or"),
        (
            "a\tS-X\n\nb\tX\n",
            r"my\.txt, line 3: label 'X' does not begin with B-, I-, E-, S-, L-, U- as",
        ),
        ("\n\n", r"my\.txt: no sentences in it"),
        ("a\tO\n\nb\tO\n", r"my\.txt: every word is O; mark at least one entity"),
    ],
)
def test_what_is_wrong_is_named_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "my.txt", text)
    with pytest.raises(DataError, match=message):
        open_pool(f"conll:{path}", "all")


def test_wrong_files_and_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="conll: no path named; write conll:FILE or conll:FOLDER"):
        open_pool("conll", "all")
    with pytest.raises(DataError, match="there is no file or folder"):
        open_pool(f"conll:{tmp_path / 'none.txt'}", "all")
    with pytest.raises(DataError, match=r"no file in .* ends in \.txt, "):
        open_pool(f"conll:{tmp_path}", "all")
    (tmp_path / "latin.txt").write_bytes("a\tO\nMünchen\tcity\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.txt, line 2: not UTF-8 text"):
        open_pool(f"conll:{tmp_path / 'latin.txt'}", "all")
    path = write(tmp_path / "my.txt", sentence("I-X"))
    with pytest.raises(ConfigError, match=r"no scheme 'bioe'; did you mean 'bioes'\?"):
        open_pool(f"conll:{path},scheme=bioe", "all")
    with pytest.raises(DataError, match=r"line 1: label 'E-X' does not begin with B-, I- as those of BIO"):
        open_pool(f"conll:{write(path, sentence('E-X'))},scheme=bio", "all")


@given(st.lists(st.lists(st.integers(-1, 2), max_size=7), max_size=6))
def test_spans_are_what_a_loop_finds(sentences: list[list[int]]) -> None:
    expected, start = [], 0
    for labels in sentences:
        i = 0
        while i < len(labels):
            j = i
            while j < len(labels) and labels[j] == labels[i]:
                j += 1
            if labels[i] >= 0:
                expected.append((start + i, start + j, labels[i]))
            i = j
        start += len(labels)
    flat = np.array([label for labels in sentences for label in labels], np.int64)
    spans = find_spans(flat, np.cumsum([0, *map(len, sentences)]))
    assert list(zip(spans.start.tolist(), spans.end.tolist(), spans.label.tolist(), strict=True)) == expected
