"""`tag`, in Python and as a command: raw text, labelled by the example of a few annotated sentences."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hyperproto.api import fit_tagger, tag
from hyperproto.cli import app
from hyperproto.data import open_pool
from hyperproto.data.formats.tagged import read_plain
from hyperproto.encoders.parts.pretrained import INSTALL, PACKAGE
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import tagging
from hyperproto.training import load_recipe, train
from tests.helpers.tiny_words import register

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
NEAREST: dict[str, Any] = {"encoder": "tiny-words", "method": "nnshot"}


def lines_of(support: Path | str, path: Path, **chosen: Any) -> str:
    return "".join(line.to_json() for line in tag(path, support, **chosen))


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
    with pytest.raises(DataError, match=r"nowhere.txt: No such file or directory; check the path"):
        read_plain(tmp_path / "nowhere.txt")


def test_entities_come_with_their_places_in_the_text(support: Path, tmp_path: Path) -> None:
    """To this encoder a word is what it was in the examples, wherever it stands."""
    path = text(tmp_path, "of  Marie Smith, Paris\n\nThe dog\n")
    found = [json.loads(line) for line in lines_of(support, path, **NEAREST).splitlines()]
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
    command = ["tag", str(path), "--support", str(support), "--encoder", "tiny-words", "--method", "nnshot"]
    result = CliRunner().invoke(app, [*command, "--format", "conll", "--out", str(out)], catch_exceptions=False)
    assert result.stdout == f"{out}: 2 sentences, 2 entities\n"
    assert out.read_text() == "".join(line.to_conll() for line in tag(path, support, **NEAREST))
    pool = open_pool(f"conll:{out}", "all")
    assert pool.items == [["Marie", "Curie", "worked", "in", "Paris", "."], ["The", "dog"]]
    assert [pool.class_names[label] if label >= 0 else "O" for label in pool.labels] == [
        *["person", "person", "O", "O", "city", "O"],
        *["O", "O"],
    ]


def test_lines_are_labelled_some_at_a_time(support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = text(tmp_path, "".join(f"Marie met John in town {n}\n" for n in range(7)))
    whole = lines_of(support, path, **NEAREST)
    monkeypatch.setattr(tagging, "TOGETHER", 2)
    assert lines_of(support, path, **NEAREST) == whole
    assert len(whole.splitlines()) == 7


def test_a_run_is_used_as_a_ready_encoder_is_unless_its_own_fit_is_wanted(support: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "words.toml"
    recipe.write_text(
        f'[data]\nspec = "conll:{support}"\nsplit = "all"\n[encoder]\nname = "tiny-words"\n[method]\n'
        'name = "hyperproto"\ncenters = "episode"\n[episodes]\nway = 2\nshot = 1\nquery = 1\n[optim.encoder]\n'
        "name = 'adam'\nlr = 0.03\n[optim.radius]\nname = 'adam'\nlr = 0.03\n[training]\nsteps = 2\n"
        "validate_every = 2\n[validation]\nsplit = 'all'\nway = 2\nshot = 1\nquery = 1\nepisodes = 2\n"
    )
    run = train(load_recipe(str(recipe)), tmp_path / "run")
    path = text(tmp_path, "Marie Curie met Angela in Paris\n")

    def tagged(**more: Any) -> str:
        return lines_of(support, path, run=run, **more)

    options = {"path": True, "temperature": 0.05}
    assert tagged() == tagged(method="cosine", transform="unit", options=options)
    own = tagged(fit="point")
    assert own == tagged(method="hyperproto", fit="point")
    assert own == tagged(method="protonet")


def test_a_ready_encoder_needs_no_method(support: Path, tmp_path: Path) -> None:
    path = text(tmp_path, "Marie Curie met Angela\n")
    short = lines_of(support, path, encoder="tiny-words")
    options = {"path": True, "temperature": 0.05}
    said: dict[str, Any] = {"encoder": "tiny-words", "method": "cosine", "transform": "unit", "options": options}
    assert short == lines_of(support, path, **said)
    assert lines_of(support, path, encoder="tiny-words", options={"temperature": 100.0}) != short


def test_sentences_need_no_file(support: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = ["Marie Curie met Angela", "", "The dog"]
    seen: list[tuple[int, int, str]] = []
    found = tag(sentences, support, **NEAREST, progress=lambda *args: seen.append(args))
    assert [line.line.number for line in found] == [1, 3]
    from_file = text(tmp_path, "\n".join(sentences))
    assert "".join(line.to_json() for line in found) == lines_of(support, from_file, **NEAREST)
    assert seen[-1] == (2, 2, "sentences encoded")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(DataError, match="the text: no words in it"):
        tag([" "], support, **NEAREST)


def test_mistakes_are_said(support: Path, tmp_path: Path) -> None:
    path = text(tmp_path, "Marie\n")
    with pytest.raises(ConfigError, match=r"fit = .*: name one, as a string; `compare` takes several"):
        tag(path, support, encoder="tiny-words", method="hyperproto", fit=["bayes", "paper"])  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"nowhere.config.json: no such file; is this the folder of a run\?"):
        tag(path, support, run="nowhere")
    wrong: list[dict[str, Any]] = [{}, {"run": "a", "encoder": "b"}]
    for both in wrong:
        with pytest.raises(ConfigError, match="give one of --run and --encoder"):
            tag(path, support, **both)
    empty = tmp_path / "empty.conll"
    empty.write_text("Marie O\n")
    with pytest.raises(DataError, match=r"empty.conll: every word is O; mark at least one entity"):
        tag(path, empty, **NEAREST)
    empty.write_text("Marie B-person\nCurie\n")
    with pytest.raises(DataError, match=r"empty.conll, line 2: 'Curie' has no word and label"):
        tag(path, empty, **NEAREST)
    with pytest.raises(DataError, match="there is no file or folder"):
        tag(path, tmp_path / "nowhere.conll", **NEAREST)


def test_the_command(support: Path, tmp_path: Path) -> None:
    path = text(tmp_path, "Marie Curie\n")
    common = ["tag", str(path), "--support", f"{support},scheme=bio", "--encoder", "tiny-words", "--method", "nnshot"]
    result = CliRunner().invoke(app, common, catch_exceptions=False)
    assert result.exit_code == 0
    [entity] = json.loads(result.stdout)["entities"]
    assert 0 < entity.pop("score") < 1
    assert entity == {"type": "person", "text": "Marie Curie", "start": 0, "end": 11}
    result = CliRunner().invoke(app, [*common, "--format", "conll"], catch_exceptions=False)
    assert result.stdout == "Marie\tperson\nCurie\tperson\n\n"
    result = CliRunner().invoke(app, common[:4])
    assert result.exit_code == 2
    assert "give one of --run and --encoder" in result.output


def test_a_saved_tagger_needs_no_examples(support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = text(tmp_path, "Marie Curie met Angela in Paris\n"), tmp_path / "tagger"
    words = [str(support), "--encoder", "tiny-words", "--method", "nnshot"]
    found = CliRunner().invoke(app, ["fit-tagger", *words, "--out", str(out)], catch_exceptions=False)
    assert found.stdout == f"{out}: 3 sentences; types: city, person\n"
    labelled = CliRunner().invoke(app, ["tag", str(path), "--model", str(out)], catch_exceptions=False)
    assert labelled.stdout == lines_of(support, path, **NEAREST)
    piped = CliRunner().invoke(app, ["tag", "-", "--model", str(out)], input=path.read_bytes())
    assert piped.stdout == labelled.stdout
    model = fit_tagger(support, names="auto", **NEAREST)
    assert (model.names, model.threshold_) == ("auto", None)
    with pytest.raises(
        ConfigError, match=r"--model .*tagger: a saved tagger has its own encoder; leave the option out"
    ):
        tag(path, model=out, encoder="minilm")
    with pytest.raises(ConfigError, match="give one of --support"):
        tag(path)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        tag("-", model=out)


def test_a_rejected_entity_is_not_written(support: Path, tmp_path: Path) -> None:
    path = text(tmp_path, "Marie Curie\n")
    words = [str(support), "--encoder", "tiny-words", "--method", "nnshot", "--out", str(tmp_path / "tagger")]
    CliRunner().invoke(app, ["fit-tagger", *words, "--threshold", "0.999"], catch_exceptions=False)
    [line] = tag(path, model=tmp_path / "tagger")
    assert (line.labels, list(line.entities())) == (["O", "O"], [])


def test_lines_that_are_not_utf8(support: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"Marie Curie\n\nM\xfcller\nParis\n")
    with pytest.raises(DataError, match=r"text.txt, line 3: not UTF-8 text"):
        tag(path, support, **NEAREST)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    skipped = tag(path, support, on_error="skip", **NEAREST)
    assert [line.line.number for line in skipped] == [1, 4]
    blank = tag(path, support, on_error="blank", **NEAREST)
    assert [line.line.number for line in blank] == [1, 3, 4]
    content = json.loads(blank[1].to_json())
    assert content["entities"] == content["words"] == []
    assert content["error"] == "not UTF-8 text (invalid start byte at byte 1)"
    assert blank[1].to_conll() == ""
    path.write_bytes(b"\xff")
    assert [line.problem for line in tag(path, support, on_error="blank", **NEAREST)] == [
        "not UTF-8 text (invalid start byte at byte 0)"
    ]
    with pytest.raises(ConfigError, match="--on-error: there is no way 'never'"):
        tag(path, support, on_error="never", **NEAREST)


def test_three_sentences_teach_minilm(support: Path, tmp_path: Path) -> None:
    if find_spec(PACKAGE) is None:
        pytest.skip(f"no package {PACKAGE}; {INSTALL}")
    lines = "Albert Einstein moved to Zurich in 1896.\nIt rained all day, and nobody from Rome saw Sophia Loren.\n"
    path = text(tmp_path, lines)
    found = lines_of(support, path, encoder="minilm").splitlines()
    entities = [[(e["type"], e["text"]) for e in json.loads(line)["entities"]] for line in found]
    assert entities == [
        [("person", "Albert Einstein"), ("city", "Zurich")],
        [("city", "Rome"), ("person", "Sophia Loren")],
    ]
