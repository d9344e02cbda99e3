"""`hyperproto tag`: raw text, labelled by the example of a few annotated sentences."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hyperproto.cli import app
from hyperproto.commands import tagging
from hyperproto.commands.evaluation import Selection
from hyperproto.commands.tagging import open_support, tag_file
from hyperproto.data import open_pool
from hyperproto.data.tagged_text import read_plain
from hyperproto.encoders.pretrained import INSTALL, PACKAGE
from hyperproto.errors import ConfigError, DataError
from hyperproto.methods.path import abstract_transitions
from hyperproto.training import load_recipe, train
from tests.words import register

SUPPORT = """Marie B-person
Curie I-person
worked O
in O
Paris B-city
. O

The O
mayor O
of O
Berlin B-city
met O
Angela B-person
Merkel I-person
. O

John B-person
Smith I-person
lives O
in O
London B-city
with O
his O
dog O
. O
"""
NEAREST = Selection(encoders=["tiny-words"], methods=["nnshot"])


@pytest.fixture
def support(tmp_path: Path) -> Path:
    register()
    path = tmp_path / "few.conll"
    path.write_text(SUPPORT)
    return path


def text(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(content)
    return path


def test_lines_are_cut_into_words_that_know_their_places(tmp_path: Path) -> None:
    lines = read_plain(text(tmp_path, "Été: 3,5 o'clock!\n\n \t\n  U.S.\r\n"))
    assert [(line.number, line.words) for line in lines] == [
        (1, ["Été", ":", "3", ",", "5", "o", "'", "clock", "!"]),
        (4, ["U", ".", "S", "."]),
    ]
    assert lines[1].spans == [(2, 3), (3, 4), (4, 5), (5, 6)]


def test_texts_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"text.txt: no words in it; write plain text, a sentence a line"):
        read_plain(text(tmp_path, "\n  \n"))
    (tmp_path / "text.txt").write_bytes(b"fine\nnot \xff fine\n")
    with pytest.raises(DataError, match=r"text.txt, line 2: not UTF-8 text"):
        read_plain(tmp_path / "text.txt")
    with pytest.raises(DataError, match=r"nowhere.txt: cannot be read \(No such file"):
        read_plain(tmp_path / "nowhere.txt")


def test_entities_come_with_their_places_in_the_text(support: Path, tmp_path: Path) -> None:
    """To this encoder a word is what it was in the examples, wherever it stands."""
    path = text(tmp_path, "of  Marie Smith, Paris\n\nThe dog\n")
    found = [json.loads(line) for line in tag_file(NEAREST, str(support), path, None).splitlines()]
    first, second = found
    assert first["text"] == "of  Marie Smith, Paris"
    assert first["line"] == 1
    assert [word["text"] for word in first["words"]] == ["of", "Marie", "Smith", ",", "Paris"]
    entities = {(e["type"], e["text"]) for e in first["entities"]}
    assert {("person", "Marie Smith"), ("city", "Paris")} <= entities
    for entity in [*first["entities"], *first["words"]]:
        assert first["text"][entity["start"] : entity["end"]] == entity["text"]
    assert second == {
        "line": 3,
        "text": "The dog",
        "entities": [],
        "words": [
            {"text": "The", "start": 0, "end": 3, "label": "O"},
            {"text": "dog", "start": 4, "end": 7, "label": "O"},
        ],
    }


def test_conll_out_is_conll_in(support: Path, tmp_path: Path) -> None:
    path = text(tmp_path, "Marie Curie worked in Paris.\nThe dog\n")
    out = tmp_path / "out.conll"
    assert tag_file(NEAREST, str(support), path, out, "conll") == f"{out}: 2 sentences, 2 entities\n"
    pool = open_pool(f"conll:{out}", "all")
    assert pool.items == [["Marie", "Curie", "worked", "in", "Paris", "."], ["The", "dog"]]
    assert [pool.class_names[label] if label >= 0 else "O" for label in pool.labels] == [
        *["person", "person", "O", "O", "city", "O"],
        *["O", "O"],
    ]


def test_lines_are_labelled_some_at_a_time(support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = text(tmp_path, "".join(f"Marie met John in town {n}\n" for n in range(7)))
    whole = tag_file(NEAREST, str(support), path, None)
    monkeypatch.setattr(tagging, "TOGETHER", 2)
    assert tag_file(NEAREST, str(support), path, None) == whole
    assert len(whole.splitlines()) == 7


def test_a_path_finds_its_transitions_in_the_support(support: Path, tmp_path: Path) -> None:
    examples = open_support(str(support))
    chosen = Selection(encoders=["tiny-words"], methods=["structshot"])
    [contender] = chosen.contenders(examples, train_data=(examples.name, examples.split))
    assert contender.method.path is not None
    assert contender.method.path.transitions.tolist() == abstract_transitions(examples).tolist()
    assert "Marie" in tag_file(chosen, str(support), text(tmp_path, "Marie lives in Paris\n"), None)


def test_a_run_is_used_as_a_ready_encoder_is_unless_its_own_fit_is_wanted(support: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "words.toml"
    recipe.write_text(
        f'[data]\nspec = "conll:{support}"\nsplit = "all"\n[encoder]\nname = "tiny-words"\n[method]\n'
        'name = "hyperproto"\ncenters = "episode"\n[episodes]\nway = 2\nshot = 1\nquery = 1\n[optim.encoder]\n'
        "name = 'adam'\nlr = 0.03\n[optim.radius]\nname = 'adam'\nlr = 0.03\n[training]\nsteps = 2\n"
        "validate_every = 2\n[validation]\nsplit = 'all'\nway = 2\nshot = 1\nquery = 1\nepisodes = 2\n"
    )
    runs = [str(train(load_recipe(str(recipe)), tmp_path / "run").folder)]
    path = text(tmp_path, "Marie Curie met Angela in Paris\n")

    def tagged(**more: Sequence[str]) -> str:
        return tag_file(Selection(runs=runs, **more), str(support), path, None)

    options = ["path=true", "temperature=0.05"]
    assert tagged() == tagged(methods=["cosine"], transforms=["unit"], options=options)
    own = tagged(fits=["point"])
    assert own == tagged(methods=["hyperproto"], fits=["point"])
    assert own == tagged(methods=["protonet"])


def test_a_ready_encoder_needs_no_method(support: Path, tmp_path: Path) -> None:
    path = text(tmp_path, "Marie Curie met Angela\n")
    short = tag_file(Selection(encoders=["tiny-words"]), str(support), path, None)
    options = ["path=true", "temperature=0.05"]
    said = Selection(encoders=["tiny-words"], methods=["cosine"], transforms=["unit"], options=options)
    assert short == tag_file(said, str(support), path, None)
    assert (
        tag_file(Selection(encoders=["tiny-words"], options=["temperature=100.0"]), str(support), path, None) != short
    )


def test_mistakes_are_said(support: Path, tmp_path: Path) -> None:
    path = text(tmp_path, "Marie\n")
    two = Selection(encoders=["tiny-words"], methods=["hyperproto"], fits=["bayes", "paper"])
    with pytest.raises(ConfigError, match="2 contenders, but one label a word; name one method, fit and so on"):
        tag_file(two, str(support), path, None)
    empty = tmp_path / "empty.conll"
    empty.write_text("Marie O\n")
    with pytest.raises(DataError, match=r"empty.conll: every word is O; mark at least one entity"):
        tag_file(NEAREST, str(empty), path, None)
    empty.write_text("Marie B-person\nCurie\n")
    with pytest.raises(DataError, match=r"empty.conll, line 2: 'Curie' has no word and label"):
        tag_file(NEAREST, str(empty), path, None)
    with pytest.raises(DataError, match="there is no file or folder"):
        tag_file(NEAREST, str(tmp_path / "nowhere.conll"), path, None)


def test_the_command(support: Path, tmp_path: Path) -> None:
    path = text(tmp_path, "Marie Curie\n")
    common = ["tag", str(path), "--support", f"{support},scheme=bio", "--encoder", "tiny-words", "--method", "nnshot"]
    result = CliRunner().invoke(app, common, catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["entities"] == [{"type": "person", "text": "Marie Curie", "start": 0, "end": 11}]
    result = CliRunner().invoke(app, [*common, "--format", "conll"], catch_exceptions=False)
    assert result.stdout == "Marie\tperson\nCurie\tperson\n\n"
    result = CliRunner().invoke(app, common[:4])
    assert result.exit_code == 2
    assert "give one of --run and --encoder" in result.output


def test_three_sentences_teach_minilm(support: Path, tmp_path: Path) -> None:
    if find_spec(PACKAGE) is None:
        pytest.skip(f"no package {PACKAGE}; {INSTALL}")
    lines = "Albert Einstein moved to Zurich in 1896.\nIt rained all day, and nobody from Rome saw Sophia Loren.\n"
    path = text(tmp_path, lines)
    found = tag_file(Selection(encoders=["minilm"]), str(support), path, None).splitlines()
    entities = [[(e["type"], e["text"]) for e in json.loads(line)["entities"]] for line in found]
    assert entities == [
        [("person", "Albert Einstein"), ("city", "Zurich")],
        [("city", "Rome"), ("person", "Sophia Loren")],
    ]
