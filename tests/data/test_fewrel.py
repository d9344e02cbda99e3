"""FewRel: files of its format in small, whatever can be wrong with one, and the real files where they are at hand."""

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from hyperproto.data import OUTSIDE, Pool, find_dataset, open_pool
from hyperproto.data.fewrel import relation_names, sentences_in
from hyperproto.data.formats.relations import Words, sentence_key, uncased
from hyperproto.data.get import DOWNLOADS
from hyperproto.errors import ConfigError, DataError


def instance(text: str = "Ada wrote of engines", head: Any = ((0,),), tail: Any = ((3,),)) -> dict[str, Any]:
    return {"tokens": text.split(), "h": ["ada", "Q1", head], "t": ["engines", "Q2", tail]}


def relations(prefix: str, count: int, each: int = 3) -> dict[str, list[dict[str, Any]]]:
    names = [f"{prefix}{n}" for n in range(count)]
    return {name: [instance(f"Ada wrote {name} engines {i}") for i in range(each)] for name in names}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The official files, in small."""
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    folder = tmp_path / "fewrel"
    folder.mkdir()
    for name, prefix, count in (("train_wiki", "P", 8), ("val_wiki", "V", 3), ("val_pubmed", "M", 2)):
        write(folder / f"{name}.json", relations(prefix, count))
    return folder


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def opened(path: Path, *options: str) -> Pool:
    return open_pool(",".join([f"fewrel:{path}", *options]), "all")


def test_items_are_words_and_the_first_mention_of_each_entity(tmp_path: Path) -> None:
    both = [
        instance("Ada Byron wrote of the Engine of Ada", ((0, 1), (7,)), ((5,),)),
        {**instance("a b c", ((2,),), ((0, 1),)), "other": {"kept": False}},
    ]
    pool = opened(write(tmp_path / "mine.json", {"wrote": both, "P6": [instance()]}))
    assert pool.class_names == ("wrote", "P6")
    assert pool.labels.tolist() == [0, 0, 1]
    assert pool.items[0] == {"tokens": both[0]["tokens"], "head": [0, 1], "tail": [5]}
    assert pool.items[1] == {"tokens": ["a", "b", "c"], "head": [2], "tail": [0, 1]}
    assert str(pool) == f"fewrel:{tmp_path / 'mine.json'} (all)"


def test_the_splits_of_fewrel(folder: Path) -> None:
    dataset, argument = find_dataset("fewrel")
    assert dataset.splits(argument) == ("train", "val", "train_wiki", "val_wiki", "val_pubmed")
    assert open_pool("fewrel", "train").class_names == tuple(f"P{n}" for n in range(8))
    assert open_pool("fewrel", "val").class_names == open_pool("fewrel", "val_wiki").class_names == ("V0", "V1", "V2")
    assert open_pool(f"fewrel:{folder}", "val_pubmed").counts.tolist() == [3, 3]
    with pytest.raises(ConfigError, match=r"fewrel: there is no split 'val_semeval'; did you mean .*Known: train, "):
        open_pool("fewrel", "val_semeval")
    with pytest.raises(ConfigError, match=r"there is no split 'train'"):
        open_pool(f"fewrel:{folder / 'val_wiki.json'}", "train")


def test_the_splits_of_fewrel2(folder: Path) -> None:
    write(folder / "val_semeval.json", relations("S", 4))
    pools = {split: open_pool("fewrel2", split) for split in ("train", "val", "test")}
    assert {split: pool.class_names[0] for split, pool in pools.items()} == {"train": "P0", "val": "S0", "test": "M0"}
    assert pools["test"].name == "fewrel2"
    assert open_pool(f"fewrel2:{folder},uncased=yes", "test").items[0]["tokens"][:2] == ["ada", "wrote"]
    with pytest.raises(ConfigError, match="fewrel2: there is no uncased 'maybe'"):
        open_pool("fewrel2:,uncased=maybe", "test")


def test_unlabelled_text_of_fewrel2_leaves_out_what_is_evaluated(folder: Path) -> None:
    own = [instance(f"PubMed says {n} of engines") for n in range(3)]
    seen = instance("ADA  wrote M0 engines 0")  # the same sentence in other case
    write(folder / "pubmed_unsupervised.json", [own[0], seen, *own[1:]])
    pool = open_pool("fewrel2", "unlabelled")
    assert [item["tokens"] for item in pool.items] == [each["tokens"] for each in own]
    assert pool.labels.tolist() == [OUTSIDE] * 3
    assert pool.class_names == ()
    assert len(open_pool("fewrel2:,overlap=official", "unlabelled")) == 4
    with pytest.raises(ConfigError, match="fewrel2: there is no overlap 'some'"):
        open_pool("fewrel2:,overlap=some", "unlabelled")
    write(folder / "pubmed_unsupervised.json", [own[0], {"tokens": ["a"]}])
    with pytest.raises(DataError, match=r"(?s)pubmed_unsupervised.json: 1 problem.*- index 1: it has no h"):
        open_pool("fewrel2", "unlabelled")
    write(folder / "pubmed_unsupervised.json", {})
    with pytest.raises(DataError, match=r"(?s)unsupervised.json: 1 problem.*- \{\} is not a list of at least one"):
        open_pool("fewrel2", "unlabelled")


@pytest.mark.data
def test_none_of_val_pubmed_is_among_the_unlabelled() -> None:
    evaluated = {sentence_key(item["tokens"]) for item in open_pool("fewrel2", "test").items}
    disjoint, official = (open_pool(f"fewrel2:,overlap={name}", "unlabelled") for name in ("disjoint", "official"))
    assert (len(disjoint), len(official)) == (1473, 2500)
    assert not evaluated & {sentence_key(item["tokens"]) for item in disjoint.items}
    assert evaluated <= {sentence_key(item["tokens"]) for item in official.items}


def test_files_that_are_not_there(folder: Path, tmp_path: Path) -> None:
    (folder / "val_wiki.json").unlink()
    with pytest.raises(
        DataError, match=rf"^fewrel: no val_wiki.json in {folder}; hyperproto data get fewrel fetches it"
    ):
        open_pool("fewrel", "val")
    with pytest.raises(DataError, match=r"^fewrel2: no val_semeval.json in .*; hyperproto data get fewrel fetches it"):
        open_pool("fewrel2", "val")
    with pytest.raises(DataError, match=r"none/corpus.json: no such file; check its name and folder"):
        opened(tmp_path / "none" / "corpus.json")


def test_holdout_keeps_training_relations_for_choosing(folder: Path) -> None:
    spec = "fewrel:,holdout=3"
    assert find_dataset(spec)[0].splits(",holdout=3")[:3] == ("train", "val", "test")
    train, val, test = (open_pool(spec, split) for split in ("train", "val", "test"))
    assert (train.n_classes, val.n_classes) == (5, 3)
    assert {*train.class_names, *val.class_names} == {f"P{n}" for n in range(8)}
    assert train.class_names == tuple(sorted(train.class_names))  # in the order of the file
    assert test.class_names == ("V0", "V1", "V2")
    assert open_pool(spec, "val").digest == val.digest
    fewer = open_pool("fewrel:,holdout=2", "val").class_names
    assert set(fewer) < set(val.class_names)  # the same choice, only shorter
    assert open_pool(spec, "train_wiki").n_classes == 8


def test_holdout_of_a_single_file(folder: Path) -> None:
    spec = f"fewrel:{folder / 'train_wiki.json'},holdout=2"
    assert [open_pool(spec, split).n_classes for split in ("all", "train", "val")] == [8, 6, 2]


@pytest.mark.parametrize("count", [8, 9])
def test_holdout_must_leave_something(folder: Path, count: int) -> None:
    with pytest.raises(ConfigError, match=rf"holdout={count} of the 8 relations in .* none to train on; keep fewer"):
        open_pool(f"fewrel:,holdout={count}", "train")
    with pytest.raises(ConfigError, match="fewrel: holdout=few is invalid; write a whole number from 0 to"):
        open_pool("fewrel:,holdout=few", "train")


def test_uncased_makes_differently_prepared_files_agree(tmp_path: Path) -> None:
    tail = ((3,),)
    original = write(tmp_path / "original.json", {"P6": [instance("Jan Stráský , ČEZ", tail=tail)]})
    prepared = write(tmp_path / "prepared.json", {"P6": [instance("jan strasky , cez", tail=tail)]})
    assert opened(original).items[0]["tokens"] == ["Jan", "Stráský", ",", "ČEZ"]
    assert opened(original, "uncased=yes").digest == opened(prepared, "uncased=yes").digest == opened(prepared).digest
    assert opened(original, "uncased=no").digest == opened(original).digest
    with pytest.raises(ConfigError, match=r"fewrel: there is no uncased 'true'\. Known: no, yes"):
        opened(original, "uncased=true")


def test_words() -> None:
    assert [uncased(word) for word in ("Ädä", "İ", "ẞ", "日本", "\u0301")] == ["ada", "i", "ß", "日本", "\u0301"]
    words = Words(uncased=True)
    assert words["Ä"] is words["Ä"] == "a"
    assert (
        sentence_key(["Don", "'t", "STRÁSKÝ-1", "_", "ẞ"])
        == sentence_key(["don't", "strasky", "1ss"])
        == "dontstrasky1ss"
    )


def test_one_word_is_kept_once(tmp_path: Path) -> None:
    first, second = opened(write(tmp_path / "mine.json", {"P6": [instance(), instance()]})).items
    assert all(one is other for one, other in zip(first["tokens"], second["tokens"], strict=True))


GOOD = instance("one two three four")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("text", "'text' is no instance"),
        (None, "None is no instance"),
        ([], "[] is no instance"),
        ({"h": GOOD["h"], "t": GOOD["t"]}, "it has no tokens"),
        ({"tokens": ["a"], "t": GOOD["t"]}, "it has no h"),
        ({"tokens": GOOD["tokens"], "h": GOOD["h"]}, "it has no t"),
        ({**GOOD, "tokens": []}, "tokens is [], not a list of at least one word"),
        ({**GOOD, "tokens": "one two"}, "tokens is 'one two', not a list of at least one word"),
        ({**GOOD, "tokens": ["one", 2, None, "x"]}, "word 1 of tokens is 2, not a string"),
        ({**GOOD, "tokens": ["one", "\ud800", "c", "d"]}, "half a character (a lone surrogate) in its words"),
        ({**GOOD, "h": ["ada", [[0]]]}, "h is ['ada', [[0]]], not [name, id, [[positions], ...]]"),
        ({**GOOD, "t": {"pos": [0]}}, "t is {'pos': [0]}, not [name, id, [[positions], ...]]"),
        ({**GOOD, "h": ["a", "Q", []]}, "the mentions of h are [], not [[positions], ...]"),
        ({**GOOD, "h": ["a", "Q", [0, 1]]}, "the mentions of h are [0, 1], not [[positions], ...]"),
        ({**GOOD, "t": ["a", "Q", "0"]}, "the mentions of t are '0', not [[positions], ...]"),
        *(
            (instance("a b c d", (positions,)), f"h is at {positions}; positions are at least one, rising, from 0 to 3 "
             "(the sentence has 4 words)")
            for positions in ([], [4], [3, 4], [-1], [-1, 0], [1, 0], [1, 1], ["1"], [1.0], [True], [None])
        ),
    ],
)  # fmt: skip
def test_malformed_instances_are_named(tmp_path: Path, wrong: Any, words: str) -> None:
    path = write(tmp_path / "mine.json", {"P6": [GOOD], "P17": [GOOD, GOOD, wrong]})
    with pytest.raises(DataError) as caught:
        opened(path)
    head, *problems = str(caught.value).splitlines()
    assert head.startswith(
        f"{path}: 1 problem(s); fix or remove what is named here (an index counts from 0; an instance"
    )
    assert problems == [f"- 'P17', index 2: {words}"]


def test_the_first_few_of_many_problems_are_named(tmp_path: Path) -> None:
    content = {"P1": [GOOD, *[None] * 8], "P2": "none", "P3": [], "P4": {}, "P5": [GOOD, 3]}
    with pytest.raises(DataError) as caught:
        opened(write(tmp_path / "mine.json", content))
    head, *problems = str(caught.value).splitlines()
    assert ": 12 problem(s)" in head
    assert problems[0] == "- 'P1', index 1: None is no instance"
    assert problems[8:] == [
        "- 'P2': 'none' is not a list of at least one instance",
        "- 'P3': [] is not a list of at least one instance",
        "- and 2 more",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[]", "a list, where {relation: [instances]} should be; put each under its relation"),
        (json.dumps([GOOD]).encode(), "a list, where"),
        (json.dumps(GOOD).encode(), "something else, where"),
        (b'{"tokens": 3}', "something else, where"),
        (b"{}", "an empty object, where"),
        (b"3", "something else, where"),
        (b'{"P6": ', "not JSON (Expecting value: line 1 column 8 (char 7)); fetch or save it anew, as one JSON value"),
        (b'{"P6": []}\n{"P7": []}', "not JSON (Extra data: line 2 column 1 (char 11)); fetch or save it anew"),
        (b"", "not JSON"),
        ('{"P6": "é"}'.encode("latin-1"), "not UTF-8 text (invalid continuation byte at byte 8)"),
    ],
)
def test_files_of_another_format(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        opened(path)
    assert str(caught.value).replace(", line 1:", ":").startswith(f"{path}: {words}")


def test_a_byte_order_mark_and_any_letters_will_do(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(json.dumps({"Größe": [instance("Straße 日本 x y")]}, ensure_ascii=False).encode("utf-8-sig"))
    pool = opened(path)
    assert pool.class_names == ("Größe",)
    assert pool.items[0]["tokens"][:2] == ["Straße", "日本"]


def test_options_that_there_are_not(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"fewrel:,holdouts=3: there is no option 'holdouts'; did you mean 'holdout'\?"
    ):
        open_pool("fewrel:,holdouts=3", "train")
    with pytest.raises(ConfigError, match=r"there is no option 'holdout'"):
        open_pool("fewrel2:,holdout=3", "train")


CORPUS = {
    "P1": [instance("Café one Don't stop !"), instance("a sentence of its own")],
    "P2": [instance("CAFE ONE don 't stop"), instance("cafe , one , dont stop 2")],
    "P3": [instance("Cafe One Don't Stop")],
}
FORMATS = {
    "relations": {"X": [instance("cafe one dont - stop")]},
    "list": [instance("cafe one dont - stop")],
    "tasks": [
        {"meta_train": [[instance("x y z w")], [instance("v w x y")]], "meta_test": instance("café one dont stop")}
    ],
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("in_folder", [True, False])
def test_sentences_of_other_files_are_left_out(tmp_path: Path, form: str, in_folder: bool) -> None:
    corpus = write(tmp_path / "corpus.json", CORPUS)
    others = tmp_path / "others" / "deeper"
    others.mkdir(parents=True)
    other = write(others / "test.json", FORMATS[form])
    write(others / "pid2name.json", {"P1": ["name", "description"]})
    place = tmp_path / "others" if in_folder else other
    words = r"\(all\): 3 of 5 instances occur in .* and are left out, and with them 1 of 3 relations"
    with pytest.warns(UserWarning, match=words):
        pool = opened(corpus, f"without={place}")
    assert pool.class_names == ("P1", "P2")
    assert [" ".join(item["tokens"]) for item in pool.items] == ["a sentence of its own", "cafe , one , dont stop 2"]
    assert pool.labels.tolist() == [0, 1]


def test_the_corpus_may_lie_beside_what_it_is_compared_with(folder: Path) -> None:
    corpus = write(
        folder / "corpus.json", {"P0": [instance("Ada wrote V2 engines 0"), instance("another sentence x y")]}
    )
    with pytest.warns(UserWarning, match=rf"1 of 2 instances occur in {folder} and are left out$"):
        assert len(opened(corpus, "without=fewrel")) == 1
    deal = {name: [instance(f"{name} wrote of it"), instance(f"Ada wrote {name} engines 0")] for name in ("P1", "V2")}
    spec = f"fewrel:{write(corpus, deal)},holdout=1,without=fewrel"
    for split in ("train", "val"):
        with pytest.warns(UserWarning, match=rf"^fewrel:.* \({split}\): 1 of 2 instances"):
            assert len(open_pool(spec, split)) == 1


def test_nothing_is_said_where_nothing_is_left_out(folder: Path, tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.json", CORPUS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened(corpus, "without=fewrel").digest == opened(corpus).digest


def test_places_that_nothing_can_be_compared_with(folder: Path, tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.json", CORPUS)
    with pytest.raises(
        DataError, match=r"all 5 instances occur in .*corpus.json; name another corpus, or another place"
    ):
        opened(corpus, f"without={corpus}")
    with pytest.raises(DataError, match=r"nowhere: no such file"):
        opened(corpus, f"without={tmp_path / 'nowhere'}")
    write(folder / "notes.json", {"a": ["no", "sentences"]})
    with pytest.raises(DataError, match=r"notes.json: no sentences \(tokens\) in it; name a folder without this file"):
        opened(corpus, "without=fewrel")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        DataError, match=r"empty: no .json files to compare with; name a folder, or a file, of FewRel's"
    ):
        opened(corpus, f"without={tmp_path / 'empty'}")


@pytest.mark.parametrize("content", [{"P6": ["head of government", "its leader"], "P17": ["country"]},
                                     {"P6": "head of government", "P17": "country"}])  # fmt: skip
def test_readable_names(folder: Path, content: Any) -> None:
    assert relation_names() == {}
    write(folder / "pid2name.json", content)
    assert relation_names() == relation_names(folder) == {"P6": "head of government", "P17": "country"}


@pytest.mark.parametrize("content", [[], {}, {"P6": 3}, {"P6": []}, {"P6": [3]}])
def test_names_that_are_none(tmp_path: Path, content: Any) -> None:
    path = write(tmp_path / "pid2name.json", content)
    with pytest.raises(DataError, match=rf"{path}: not .*{{id: name}}; hyperproto data get fewrel fetches it"):
        relation_names(tmp_path)


real = pytest.mark.skipif(
    not (Path(os.environ.get("HYPERPROTO_DATA", "")) / "fewrel").is_dir(),
    reason="HYPERPROTO_DATA names no folder with fewrel",
)


@real
@pytest.mark.data
@pytest.mark.parametrize(
    ("spec", "split", "classes", "items", "smallest"),
    [
        ("fewrel", "train", 64, 44_800, 700),
        ("fewrel", "val", 16, 11_200, 700),
        ("fewrel2", "val", 17, 8_851, 110),
        ("fewrel2", "test", 10, 1_000, 100),
    ],
)
def test_the_real_files(spec: str, split: str, classes: int, items: int, smallest: int) -> None:
    pool = open_pool(spec, split)
    assert (pool.n_classes, len(pool), pool.counts.min()) == (classes, items, smallest)
    assert (pool.labels != OUTSIDE).all()
    assert all(item["tokens"][position] for item in pool.items[::50] for position in (*item["head"], *item["tail"]))


@real
@pytest.mark.data
def test_the_real_holdout() -> None:
    train, val = (open_pool("fewrel:,holdout=14", split) for split in ("train", "val"))
    assert (train.n_classes, val.n_classes) == (50, 14)
    assert not set(train.class_names) & set(val.class_names)
    assert open_pool("fewrel:,holdout=14", "test").digest == open_pool("fewrel", "val").digest
    names = relation_names()
    assert {*train.class_names, *val.class_names} <= names.keys()
    assert names["P177"] == "crosses"


@real
@pytest.mark.data
def test_the_real_digests_do_not_change() -> None:
    assert open_pool("fewrel", "val").digest == "6bb405c03579cbd7"
    assert open_pool("fewrel:,uncased=yes", "val").digest == "fd0c2b551bd1d94b"
    assert open_pool("fewrel2", "val").digest == "dc73a58e027d0d40"
    assert open_pool("fewrel2", "test").digest == "082fa9b0fd04c884"
    assert open_pool("fewrel2:,uncased=yes", "test").digest == "d7d22da04f6ac98d"


@real
@pytest.mark.data
def test_the_real_files_share_sentences() -> None:
    folder = Path(os.environ["HYPERPROTO_DATA"]) / "fewrel"
    assert len(sentences_in(folder / "pubmed_unsupervised.json")) == 2_295  # of 2,500: some with another head and tail
    with pytest.warns(UserWarning, match=r"\d+ of 44,800 instances occur in .*val_wiki.json and are left out$"):
        pool = open_pool(f"fewrel:,without={folder / 'val_wiki.json'}", "train")
    assert pool.n_classes == 64
    assert 44_000 < len(pool) < 44_800


@real
@pytest.mark.data
def test_the_real_files_are_the_published_ones() -> None:
    """A copy may leave out the blanks between values; with them, its content is the official file to the byte."""
    folder = Path(os.environ["HYPERPROTO_DATA"]) / "fewrel"
    for entry in DOWNLOADS["fewrel"]:
        if entry.file != "train_wiki.json":
            content = json.dumps(json.loads((folder / entry.file).read_text(encoding="utf-8"))).encode()
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == entry.checksum
            assert len(content) == entry.size
