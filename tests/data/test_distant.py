"""Distant supervision: which pairs are labelled, what is left out and counted, and what can be wrong with the files."""

import json
from pathlib import Path
from typing import Any

import pytest

import hyperproto
from hyperproto.data import open_pool
from hyperproto.data.distant import DistantCorpus, label_by_triples, read_sentences, read_triples
from hyperproto.errors import ConfigError, DataError
from tests.helpers.linked import write_linked

ENTITIES = [{"id": "Q1", "start": 0, "end": 2}, {"id": "Q2", "positions": [3]}, {"id": 3, "positions": [[4], [6]]}]


def sentence(text: str = "Ada Byron met Babbage London in London", entities: Any = ENTITIES) -> dict[str, Any]:
    return {"tokens": text.split(), "entities": entities}


def write(folder: Path, sentences: list[Any], triples: str) -> tuple[Path, Path]:
    paths = folder / "sentences.jsonl", folder / "triples.tsv"
    paths[0].write_text("".join(json.dumps(one) + "\n" for one in sentences))
    paths[1].write_text(triples)
    return paths


def labelled(folder: Path, sentences: list[Any], triples: str, **options: Any) -> tuple[DistantCorpus, dict[str, Any]]:
    out = folder / "corpus.json"
    given = {"without": None, "without_relations": None, **options}
    corpus = label_by_triples(*write(folder, sentences, triples), out, **given)
    content = json.loads(out.read_text())
    assert {relation: len(found) for relation, found in content.items()} == corpus.kept
    dropped = corpus.ambiguous if given.get("ambiguous", "drop") == "drop" else 0
    if given.get("ambiguous") != "keep":
        assert corpus.instances == corpus.pairs - corpus.nested - dropped
    left = (corpus.of_evaluation, corpus.repeated, corpus.surplus, corpus.rare, *corpus.kept.values())
    assert corpus.instances == sum(left)  # nothing disappears without being counted
    return corpus, content


def test_every_ordered_pair_that_a_triple_names_is_an_instance(tmp_path: Path) -> None:
    triples = "Q1\tknew\tQ2\nQ2\tborn in\t3\nQ2\tfellow of\tQ1\nQ9\tknew\tQ1\nQ1\tself\tQ1\n"
    others = [sentence("nobody here", []), sentence("Ada Byron alone", [ENTITIES[0]])]
    corpus, content = labelled(tmp_path, [sentence(), *others], triples)
    tokens = sentence()["tokens"]
    ada, babbage, london = ["Ada Byron", "Q1", [[0, 1]]], ["Babbage", "Q2", [[3]]], ["London", "3", [[4], [6]]]
    assert content == {
        "born in": [{"tokens": tokens, "h": babbage, "t": london}],
        "fellow of": [{"tokens": tokens, "h": babbage, "t": ada}],
        "knew": [{"tokens": tokens, "h": ada, "t": babbage}],
    }
    assert (corpus.sentences, corpus.without_triple, corpus.pairs, corpus.instances) == (3, 2, 3, 3)
    pool = open_pool(f"fewrel:{corpus.path}", "all")
    assert pool.class_names == ("born in", "fellow of", "knew")
    assert pool.items[0] == {"tokens": tokens, "head": [3], "tail": [4]}
    [first, *_] = open_pool(f"statements:{corpus.path}", "train").items  # MTB's pre-training reads the same file
    assert (first["head_id"], first["tail_id"]) == ("Q2", "3")


def test_several_mentions_and_names(tmp_path: Path) -> None:
    entities = [
        {"id": "a", "start": 3, "end": 4},
        {"id": "b", "positions": [[1, 2], [5]], "name": "The B"},
        {"id": "a", "positions": [0], "name": "The A"},
        {"id": "a", "start": 0, "end": 1, "name": "other"},
    ]
    _, content = labelled(tmp_path, [sentence("one two three four five six", entities)], "a\tr\tb\n")
    [instance] = content["r"]
    assert instance["h"] == ["The A", "a", [[0], [3]]]
    assert instance["t"] == ["The B", "b", [[1, 2], [5]]]


def test_mentions_that_share_words_give_way_to_others_or_are_left_out(tmp_path: Path) -> None:
    inside = [{"id": "a", "positions": [[0, 1], [3]]}, {"id": "b", "start": 1, "end": 2}, {"id": "c", "positions": [3]}]
    triples = "a\tr\tb\nb\tr\tc\nc\tr\ta\n"
    corpus, content = labelled(tmp_path, [sentence("u v w x", inside)], triples)
    assert [one["h"][1:] for one in content["r"]] == [["a", [[3], [0, 1]]], ["b", [[1]]], ["c", [[3]]]]
    assert [one["t"][2] for one in content["r"]] == [[[1]], [[3]], [[0, 1], [3]]]
    nested = [{"id": "a", "start": 0, "end": 2}, {"id": "b", "start": 1, "end": 2}, {"id": "c", "positions": [3]}]
    corpus, content = labelled(tmp_path, [sentence("u v w x", nested)], triples)
    assert (corpus.pairs, corpus.nested, corpus.kept) == (3, 1, {"r": 2})


def test_pairs_with_several_relations(tmp_path: Path) -> None:
    triples = "Q1\tknew\tQ2\nQ1\ttaught\tQ2\nQ1\tknew\tQ2\nQ2\tborn in\t3\n"
    corpus, content = labelled(tmp_path, [sentence()], triples)
    assert (corpus.pairs, corpus.ambiguous, corpus.kept) == (2, 1, {"born in": 1})
    corpus, content = labelled(tmp_path, [sentence()], triples, ambiguous="keep")
    assert (corpus.pairs, corpus.ambiguous, corpus.instances) == (2, 1, 3)
    assert content["knew"] == content["taught"]


def numbered(count: int, extra: str = "") -> list[dict[str, Any]]:
    return [sentence(f"Ada Byron met Babbage London in {n} {extra}") for n in range(count)]


def test_at_most_so_many_by_a_hash_whatever_the_order(tmp_path: Path) -> None:
    every = numbered(40)
    triples = "Q1\tknew\tQ2\nQ2\tborn in\t3\n"
    corpus, first = labelled(tmp_path, every, triples, most=7)
    assert (corpus.surplus, corpus.kept) == (66, {"born in": 7, "knew": 7})
    _, reversed_ = labelled(tmp_path, every[::-1], triples, most=7)
    assert {relation: found[::-1] for relation, found in first.items()} == reversed_
    _, fewer = labelled(tmp_path, every, triples, most=3)
    assert all(one in first["knew"] for one in fewer["knew"])
    _, other = labelled(tmp_path, every, triples, most=7, seed=1)
    assert other != first
    numbers = [one["tokens"][6] for one in first["knew"]]
    assert numbers == sorted(numbers, key=int) != [str(n) for n in range(7)]
    assert labelled(tmp_path, every, triples, most=40)[1] == labelled(tmp_path, every, triples)[1]


@pytest.mark.parametrize("most", [None, 2, 50])
def test_the_same_pair_in_the_same_sentence_counts_once(tmp_path: Path, most: int | None) -> None:
    again = [*numbered(3), *numbered(3, "!"), sentence("ADA BYRON met Babbage London in 1")]
    corpus, content = labelled(tmp_path, again, "Q1\tknew\tQ2\n", most=most)
    assert len(content["knew"]) == (2 if most == 2 else 3)
    assert corpus.repeated + corpus.surplus == 7 - len(content["knew"])
    keys = [one["tokens"][6] for one in content["knew"]]
    assert len(set(keys)) == len(keys)


def test_relations_with_too_few_instances_are_left_out(tmp_path: Path) -> None:
    rare = sentence("Ada Byron met Babbage London once more")
    corpus, content = labelled(tmp_path, [*numbered(5), rare], "Q1\tknew\tQ2\nQ2\tborn in\t3\n", least=6, most=6)
    assert set(content) == {"born in", "knew"}
    only = sentence("Ada Byron met Babbage", ENTITIES[:2])
    corpus, content = labelled(tmp_path, [*numbered(5), only], "Q1\tknew\tQ2\nQ2\tborn in\t3\n", least=6)
    assert (corpus.rare, corpus.rare_relations, corpus.kept) == (5, 1, {"knew": 6})


@pytest.fixture
def fewrel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """FewRel's folder: `knew` is a relation of val_wiki, `born in` of train_wiki."""
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data" / "fewrel"
    folder.mkdir(parents=True)
    instance = {"h": ["a", "Q1", [[0]]], "t": ["b", "Q2", [[1]]]}
    files = {
        "train_wiki": {"born in": [{"tokens": ["ada", "byron", "met", "babbage", "london", "in", "1"], **instance}]},
        "val_wiki": {"knew": [{"tokens": ["Ada Byron met", "Babbage London", "in 2 !"], **instance}]},
        "val_pubmed": {"treats": [{"tokens": ["x", "y"], **instance}]},
        "pid2name": {"knew": ["knew", "acquaintance"]},
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


TRIPLES = "Q1\tknew\tQ2\nQ2\tborn in\t3\nQ1\ttreats\t3\n"


def test_what_evaluation_uses_is_left_out_by_default(fewrel: Path, tmp_path: Path) -> None:
    corpus, content = labelled(tmp_path, numbered(4), TRIPLES, without="fewrel", without_relations="fewrel")
    assert (corpus.sentences, corpus.overlapping) == (4, 2)
    assert [one["tokens"][6] for one in content["born in"]] == ["0", "3"]
    assert (corpus.of_evaluation, corpus.relations_of_evaluation, set(content)) == (4, 2, {"born in"})
    given = write(tmp_path, numbered(4), TRIPLES)
    assert hyperproto.distant_data(*given, tmp_path / "again.json").kept == {"born in": 2}
    inside = hyperproto.distant_data(
        *given, fewrel / "corpus.json"
    )  # the result may lie beside what it is compared with
    assert hyperproto.distant_data(*given, fewrel / "corpus.json").kept == inside.kept == {"born in": 2}
    assert len(open_pool(f"fewrel:{fewrel / 'corpus.json'},without=fewrel", "all")) == 2


def test_other_files_to_leave_out(fewrel: Path, tmp_path: Path) -> None:
    corpus, content = labelled(tmp_path, numbered(4), TRIPLES, without=str(fewrel / "val_wiki.json"))
    assert (corpus.overlapping, corpus.of_evaluation, len(content["knew"])) == (1, 0, 3)
    names = tmp_path / "names.json"
    names.write_text('["knew", "other"]')
    corpus, content = labelled(tmp_path, numbered(4), TRIPLES, without="none", without_relations=str(names))
    assert (corpus.overlapping, corpus.of_evaluation, corpus.relations_of_evaluation) == (0, 4, 1)
    assert set(content) == {"born in", "treats"}
    corpus, _ = labelled(tmp_path, numbered(4), TRIPLES, without_relations="none")
    assert corpus.kept == {"born in": 4, "knew": 4, "treats": 4}


def test_an_ambiguous_pair_does_not_hide_an_evaluation_relation(fewrel: Path, tmp_path: Path) -> None:
    triples = "Q1\tknew\tQ2\nQ1\ttaught\tQ2\nQ2\tborn in\t3\n"
    options = {"without_relations": "fewrel", "ambiguous": "keep"}
    corpus, _ = labelled(tmp_path, numbered(2), triples, **options)
    assert (corpus.of_evaluation, corpus.kept) == (2, {"born in": 2, "taught": 2})


def test_without_fewrel_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(
        DataError, match=r"--without-relations fewrel: no val_wiki\.json in .*data get fewrel fetches it"
    ):
        labelled(tmp_path, numbered(1), TRIPLES, without_relations="fewrel")
    with pytest.raises(DataError, match=r"--without fewrel: there is no .*fewrel; .* --without none compares with"):
        labelled(tmp_path, numbered(1), TRIPLES, without="fewrel")
    with pytest.raises(DataError, match=r"x\.json: no such file; --without-relations none leaves out no relation"):
        labelled(tmp_path, numbered(1), TRIPLES, without_relations=str(tmp_path / "x.json"))
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(DataError, match=r"x\.json: no relations; write {relation: \.\.\.} or a list of their names"):
        labelled(tmp_path, numbered(1), TRIPLES, without_relations=str(tmp_path / "x.json"))
    assert not (tmp_path / "corpus.json").exists()


def linked(entity: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": ["a", "b"], "entities": [entity]}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (3, "3 is no object"),
        ({"entities": []}, "it has no tokens"),
        ({"tokens": ["a"]}, "it has no entities"),
        ({"tokens": [], "entities": []}, "tokens is [], not a list of at least one word"),
        ({"tokens": ["a", 2], "entities": []}, "word 1 of tokens is 2, not a string"),
        ({"tokens": ["\ud800"], "entities": []}, "half a character (a lone surrogate) in its words, ids or names"),
        ({"tokens": ["a"], "entities": {}}, "entities is {}, not a list"),
        ({"tokens": ["a"], "entities": [3]}, "entity 0 is 3, not an object with an id"),
        ({"tokens": ["a"], "entities": [{"end": 1}]}, "entity 0 is {'end': 1}, not an object with an id"),
        *(
            (linked({"id": own, "positions": [0]}), f"the id of entity 0 is {own!r}, not a string or a whole number")
            for own in ("", " ", None, 1.5, True, ["Q1"])
        ),
        *(
            (linked({"id": "q", "positions": given}), f"entity 0 is at {shown}; positions are at least one, rising")
            for given, shown in (([], []), ([2], [2]), ([[0], [1, 0]], [1, 0]), ("0", "'0'"), ([0, [1]], [0, [1]]))
        ),
        *(
            (linked({"id": "q", **given}), "entity 0 has start ")
            for given in ({}, {"start": 0}, {"start": 1, "end": 1}, {"start": 0, "end": 3}, {"start": True, "end": 2},
                          {"start": -1, "end": 1}, {"start": 0, "end": 10**30})
        ),
    ],
)  # fmt: skip
def test_malformed_sentences_are_named(tmp_path: Path, wrong: Any, words: str) -> None:
    path, _ = write(tmp_path, [sentence(), wrong, sentence()], "")
    with pytest.raises(DataError) as caught:
        list(read_sentences(path))
    head, *problems = str(caught.value).splitlines()
    assert head.startswith(
        f"{path}: 1 problem(s); nothing is written; fix or remove the lines named here (a line is {{"
    )
    assert len(problems) == 1
    assert problems[0].startswith(f"- line 2: {words}")


def test_many_bad_lines_come_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "corpus.json"
    out.write_text("old")
    sentences, triples = write(tmp_path, [], "Q1\tknew\tQ2\n")
    good = json.dumps(sentence()).encode()
    sentences.write_bytes(
        b"\xef\xbb\xbf" + good + b"\r\n\n" + b"{\n" + b'"\xff"\n' + b"x" * 1_000_002 + b"\n" + good + b"\n" + b"[" * 500
    )
    with pytest.raises(DataError) as caught:
        label_by_triples(sentences, triples, out, without=None, without_relations=None)
    head, *problems = str(caught.value).splitlines()
    assert ": 4 problem(s); nothing is written" in head
    assert [problem.split(":")[0] for problem in problems] == ["- line 3", "- line 4", "- line 5", "- line 7"]
    assert "not JSON" in problems[0]
    assert "not UTF-8 text (invalid start byte at byte 1)" in problems[1]
    assert "longer than 1,000,000 bytes" in problems[2]
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.json", "sentences.jsonl", "triples.tsv"]
    sentences.write_bytes(b"x\n" * 1000)
    with pytest.raises(DataError, match=r": 100 and more problem\(s\)") as caught:
        list(read_sentences(sentences))
    assert str(caught.value).endswith("- and 90 and more others")


def test_triples_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "triples.tsv"
    path.write_bytes(b"\xef\xbb\xbfQ1\tP1\tQ2\r\nQ1\tP0\tQ2\n\nQ1\tP1\tQ3\n")
    assert read_triples(path) == {"Q1": {"Q2": ("P0", "P1"), "Q3": ("P1",)}}
    path.write_bytes(b"Q1\tP1\tQ2\nQ1 P1 Q2\nQ1\t\tQ2\nQ1\tP1\tQ2\tP3\n\xff\na\ttokens\tb\n")
    with pytest.raises(DataError) as caught:
        read_triples(path)
    head, *problems = str(caught.value).splitlines()
    assert "5 problem(s)" in head
    assert head.endswith("(a line is head, relation and tail, separated by tabs)")
    assert problems[0] == "- line 2: 'Q1 P1 Q2' has 1 column(s)"
    assert problems[1].endswith("has 3 column(s), one blank")
    assert problems[3] == "- line 5: not UTF-8 text (invalid start byte at byte 0)"
    assert problems[4].startswith("- line 6: no relation can be called tokens in FewRel's format")
    path.write_text("\n")
    with pytest.raises(DataError, match=r"triples\.tsv: no triples in it; write head, relation and tail"):
        read_triples(path)


def test_nothing_left_says_why(tmp_path: Path) -> None:
    words = (
        r"no instance is left \(sentences read: 2; without a triple: 2\); nothing is written; check that both files "
    )
    with pytest.raises(DataError, match=words):
        labelled(tmp_path, numbered(2), "a\tr\tb\n")
    with pytest.raises(DataError, match=r"of 1 relations with too few: 2\); .*; relax --least, --without or"):
        labelled(tmp_path, numbered(2), "Q1\tr\tQ2\n", least=3)
    with pytest.raises(DataError, match=r"no instance is left \(it is empty\)"):
        labelled(tmp_path, [], "Q1\tr\tQ2\n")
    assert not (tmp_path / "corpus.json").exists()


def test_options_that_will_not_do(tmp_path: Path) -> None:
    one = numbered(1)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"most": 0}, "--most 0: how many instances of a relation; write a whole number from 1 on"),
        ({"least": "a"}, "--least 'a': how many"),
        ({"most": 2, "least": 3}, "--least 3 is more than --most 2: every relation would be left out"),
        ({"ambiguous": "kep"}, "--ambiguous: there is no choice 'kep'; did you mean 'keep'"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigError, match=message):
            labelled(tmp_path, one, "Q1\tr\tQ2\n", **options)
    given = write(tmp_path, one, "Q1\tr\tQ2\n")
    with pytest.raises(ConfigError, match="a folder; name the file to write, such as"):
        label_by_triples(*given, tmp_path, without=None, without_relations=None)
    for path in given:
        before = path.read_bytes()
        with pytest.raises(ConfigError, match="this is a file to read; name another one to write"):
            label_by_triples(*given, path, without=None, without_relations=None)
        assert path.read_bytes() == before


def test_memory_does_not_grow_with_the_sentences(tmp_path: Path) -> None:
    """With a `most`, fifteen times as many sentences take no more memory."""
    import tracemalloc

    peaks = []
    for count in (200, 3000):
        given = write(tmp_path, numbered(count), "Q1\tknew\tQ2\n")
        tracemalloc.start()
        label_by_triples(*given, tmp_path / "corpus.json", without=None, without_relations=None, most=50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    given = write(tmp_path, numbered(3000), "Q1\tknew\tQ2\n")
    seen: list[tuple[int, int, str]] = []

    def show(done: int, total: int, note: str = "") -> None:
        seen.append((done, total, note))

    hyperproto.distant_data(*given, tmp_path / "c.json", without=None, without_relations=None, progress=show)
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1] == (given[0].stat().st_size // 1000, given[0].stat().st_size // 1000, "kB of sentences")


def test_a_file_of_fewrel_comes_back(tmp_path: Path) -> None:
    def instance(n: int, relation: str) -> dict[str, Any]:
        words = [f"head{n}", relation, f"tail{n}", "."]
        return {"tokens": words, "h": [words[0], "Q", [[0]]], "t": [words[2], "Q", [[2]]]}

    relations = {name: [instance(n + 10 * k, name) for n in range(4)] for k, name in enumerate(("P1", "P2"))}
    given = write_linked(relations, tmp_path)
    label_by_triples(*given, tmp_path / "corpus.json", without=None, without_relations=None)
    (tmp_path / "before.json").write_text(json.dumps(relations))
    digests = [open_pool(f"fewrel:{tmp_path / name}", "all").digest for name in ("before.json", "corpus.json")]
    assert digests[0] == digests[1]
