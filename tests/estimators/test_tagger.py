"""EntityTagger: annotated sentences in, tags of words out; saved, loaded, and refused with clear words."""

import copy
import json
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from hyperproto import EntityTagger
from hyperproto.encoders.parts.pretrained import INSTALL, PACKAGE
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import tagging
from hyperproto.files import json_checksum
from hyperproto.training import load_recipe, train
from tests.helpers.tiny_words import TinyWords, register

SENTENCES = [
    ["Marie", "Curie", "worked", "in", "Paris", "."],
    ["The", "mayor", "of", "Berlin", "met", "Angela", "Merkel", "."],
    ["John", "Smith", "lives", "in", "London", "with", "his", "dog", "."],
]
TAGS = [
    ["person", "person", "O", "O", "city", "O"],
    ["O", "O", "O", "city", "O", "person", "person", "O"],
    ["person", "person", "O", "O", "city", "O", "O", "O", "O"],
]
BIO = [
    ["B-person", "I-person", "O", "O", "B-city", "O"],
    ["O", "O", "O", "B-city", "O", "B-person", "I-person", "O"],
    ["B-person", "I-person", "O", "O", "B-city", "O", "O", "O", "O"],
]
NEW = [["Marie", "Smith", "lives", "in", "Berlin"], ["The", "dog"]]
FOUND = [["person", "person", "O", "O", "city"], ["O", "O"]]
RUN = Path(__file__).parents[1] / "fixtures" / "0.1" / "run-words"


@pytest.fixture(autouse=True)
def words() -> None:
    """An encoder to which a word is what it was in the examples, wherever it stands."""
    register()


def nearest(**more: Any) -> EntityTagger:
    return EntityTagger(encoder="tiny-words", method="nnshot", **more)


@pytest.fixture
def tagger() -> EntityTagger:
    return nearest().fit(SENTENCES, TAGS)


def test_words_get_the_tags_of_like_words(tagger: EntityTagger) -> None:
    assert tagger.predict(NEW) == FOUND
    assert tagger.classes_ == ["O", "city", "person"]
    assert tagger.entities(NEW) == [[("person", 0, 2), ("city", 4, 5)], []]
    assert tagger.predict([]) == []
    arrays = [np.array(words) for words in NEW]
    assert tagger.predict(arrays) == tagger.predict(tuple(map(tuple, NEW))) == FOUND


def test_scores_and_probabilities_are_of_each_word(tagger: EntityTagger) -> None:
    scores, probabilities = tagger.decision_function(NEW), tagger.predict_proba(NEW)
    assert [array.shape for array in scores] == [array.shape for array in probabilities] == [(5, 3), (2, 3)]
    for score, share, tags in zip(scores, probabilities, FOUND, strict=True):
        assert [tagger.classes_[n] for n in score.argmax(1)] == tags
        np.testing.assert_allclose(share.sum(1), 1, rtol=1e-5)
        warm = np.exp(score - score.max(1, keepdims=True))
        np.testing.assert_allclose(share, warm / warm.sum(1, keepdims=True), atol=1e-5)


def test_without_a_word_it_is_cosine_prototypes_and_the_best_path() -> None:
    short = EntityTagger(encoder="tiny-words").fit(SENTENCES, TAGS)
    options = {"path": True, "temperature": 0.05}
    said = EntityTagger(encoder="tiny-words", method="cosine", feature_transform="unit", options=options)
    assert short.predict(NEW) == said.fit(SENTENCES, TAGS).predict(NEW)
    np.testing.assert_array_equal(short.predict_proba(NEW)[0], said.predict_proba(NEW)[0])
    warmer = EntityTagger(encoder="tiny-words", options={"temperature": 1.0}).fit(SENTENCES, TAGS)
    np.testing.assert_allclose(warmer.decision_function(NEW)[0], short.decision_function(NEW)[0], atol=1e-6)
    assert warmer.predict_proba(NEW)[0].max() < short.predict_proba(NEW)[0].max()


def test_the_path_follows_the_transitions_of_the_examples() -> None:
    sentences, tags = [["a", "b"], ["a", "c"]], [["x", "x"], ["x", "x"]]
    mixed = [["q", "r", "s"]], [["O", "x", "O"]]
    model = EntityTagger(encoder="tiny-words", options={"temperature": 100.0})  # words say next to nothing
    often = model.fit([*sentences, *mixed[0]], [*tags, *mixed[1]])
    assert often.predict([["s", "a", "a"]]) == [["x", "x", "x"]]
    moves = {"transitions": [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]}
    assert clone(model).set_params(options={"temperature": 100.0, **moves}).fit(
        [*sentences, *mixed[0]], [*tags, *mixed[1]]
    ).predict([["s", "a", "a"]]) == [["O", "O", "O"]]


def test_transitions_are_counted_in_the_examples() -> None:
    kinds = {("", "O"): 0, ("", "I"): 1, ("O", "O"): 2, ("O", "I"): 3, ("I", "O"): 4}
    counts = [0] * 7
    for tags in TAGS:
        for before, here in zip(["", *tags], tags, strict=False):
            kind = ("I" if before not in ("", "O") else before, "O" if here == "O" else "I")
            counts[kinds.get(kind, 5 if before == here else 6)] += 1
    assert counts == [1, 2, 7, 4, 6, 3, 0]
    many = [words[::-1] for words in [*SENTENCES, *NEW]] * 2
    options = {"temperature": 3.0, "path": True}
    found = nearest(options=options).fit(SENTENCES, TAGS)
    given = nearest(options={**options, "transitions": counts}).fit(SENTENCES, TAGS)
    assert found.predict(many) == given.predict(many)
    other = nearest(options={**options, "transitions": [1, 0, 1, 0, 1, 0, 0]}).fit(SENTENCES, TAGS)
    assert found.predict(many) != other.predict(many)


def test_sentences_are_labelled_some_at_a_time(tagger: EntityTagger, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [[*words, str(n)] for n in range(5) for words in NEW]
    whole = tagger.predict(many)
    monkeypatch.setattr(tagging, "TOGETHER", 2)
    assert tagger.predict(many) == whole
    assert [len(tags) for tags in whole] == [len(words) for words in many]


def test_bio_is_read_as_io(tagger: EntityTagger) -> None:
    assert nearest().fit(SENTENCES, BIO).tags_ == TAGS
    assert nearest(scheme="bio").fit(SENTENCES, BIO).predict(NEW) == FOUND
    as_they_stand = nearest(scheme="io").fit(SENTENCES, BIO)
    assert as_they_stand.classes_ == ["O", "B-city", "B-person", "I-person"]
    with pytest.warns(UserWarning, match="y: 1 entities follow another of their type without a gap"):
        nearest().fit([["Ann", "Bob"]], [["B-person", "B-person"]])


def test_types_may_come_later(tagger: EntityTagger, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    prepare = TinyWords.prepare

    def noted(self: TinyWords, items: Any) -> list[list[int]]:
        seen.extend(items)
        return prepare(self, items)

    monkeypatch.setattr(TinyWords, "prepare", noted)
    tagger.partial_fit([["We", "left", "in", "May"]], [["O", "O", "O", "B-date"]])
    assert seen == [["We", "left", "in", "May"]]  # the others were encoded before
    assert tagger.classes_ == ["O", "city", "date", "person"]
    assert tagger.predict([["Paris", "May"]]) == [["city", "date"]]
    whole = nearest().fit([*SENTENCES, ["We", "left", "in", "May"]], [*TAGS, ["O", "O", "O", "date"]])
    np.testing.assert_allclose(whole.decision_function(NEW)[0], tagger.decision_function(NEW)[0], atol=1e-6)
    assert nearest().partial_fit(SENTENCES, TAGS).predict(NEW) == FOUND


def test_a_call_that_fails_changes_nothing(tagger: EntityTagger) -> None:
    for sentences, tags in ((["text"], [["O"]]), ([["a", "b"]], [["O"]])):
        with pytest.raises(DataError):
            tagger.partial_fit(sentences, tags)
    with pytest.raises(DataError):
        tagger.fit([["a"]], [["O"]])
    assert tagger.predict(NEW) == FOUND
    assert tagger.sentences_ == SENTENCES


def test_other_parameters_count_from_the_next_call_on(tagger: EntityTagger) -> None:
    scores = tagger.decision_function(NEW)[0]
    tagger.set_params(method="cosine")
    assert tagger.decision_function(NEW)[0].max() <= 1.0001
    assert np.abs(tagger.decision_function(NEW)[0] - scores).max() > 0.1


def test_scikit_learn_can_clone_and_pickle_it(tagger: EntityTagger) -> None:
    copy = clone(tagger)
    assert copy.get_params() == tagger.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(NEW)
    content = pickle.dumps(tagger)
    assert len(content) < 5000  # examples, not weights
    assert pickle.loads(content).predict(NEW) == FOUND
    assert repr(tagger) == "EntityTagger(encoder='tiny-words', method='nnshot')"
    assert repr(EntityTagger()) == "EntityTagger(encoder='minilm')"


def test_a_tagger_on_disk_is_the_same_tagger(tagger: EntityTagger, tmp_path: Path) -> None:
    tagger.save(tmp_path)
    again = EntityTagger.load(tmp_path)
    assert again.get_params() == tagger.get_params()
    assert again.encoder_ == tagger.encoder_
    np.testing.assert_array_equal(again.predict_proba(NEW)[0], tagger.predict_proba(NEW)[0])
    assert again.partial_fit([["May"]], [["date"]]).classes_ == ["O", "city", "date", "person"]


def test_a_copy_shares_nothing_that_changes(tagger: EntityTagger) -> None:
    other = copy.copy(tagger)
    other.sentences_[0].append("word")
    other.tags_[0].append("O")
    other.partial_fit([["May"]], [["date"]])
    assert (tagger.sentences_, tagger.tags_) == (SENTENCES, TAGS)
    assert tagger.classes_ == ["O", "city", "person"]
    assert other.classes_ == ["O", "city", "date", "person"]


def test_options_are_a_mapping() -> None:
    with pytest.raises(ConfigError, match=r"options=3: give a mapping of names to values, such as \{'path': True\}"):
        nearest(options=3).fit(SENTENCES, TAGS)


def test_threads_that_add_and_label_at_once(tagger: EntityTagger) -> None:
    """None loses what another adds, and types are named as they were when the labels were found."""
    types = [f"a{number}" for number in range(8)]  # before "city" in the alphabet: labels move up

    def add_and_label(name: str) -> list[str]:
        tagger.partial_fit([["May"]], [[name]])
        return tagger.predict(SENTENCES[:1])[0]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(add_and_label, types))
    assert tagger.classes_ == ["O", *types, "city", "person"]
    assert len(tagger.sentences_) == len(SENTENCES) + len(types)
    assert found == [TAGS[0]] * len(types)


def test_what_is_wrong_on_disk_is_said(tagger: EntityTagger, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing.tagger.json: no such file; a saved tagger is a folder with a tagger"):
        EntityTagger.load(tmp_path / "nothing")
    path = tmp_path / "tagger.json"
    tagger.save(tmp_path)
    content = json.loads(path.read_text())
    for change, message in (
        ({"format": "hyperproto-tagger/9"}, "format 'hyperproto-tagger/9'; this version of hyperproto reads"),
        ({"tags": []}, "was changed after it was saved"),
    ):
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(DataError, match=message):
            EntityTagger.load(tmp_path)
    content.pop("checksum")
    changes: list[tuple[dict[str, Any], str]] = [
        ({"tags": []}, "X has 3 sentences, but y tags of 0"),
        ({"sentences": [[1]]}, r"X\[0\]\[0\] is 1; each of the words is a string"),
        ({"encoder": {}}, "its encoder is {}, which has no name"),
        ({"parameters": {"none": 1}}, "unexpected keyword argument 'none'"),
    ]
    for forgery, message in changes:
        forged = {**content, **forgery}
        path.write_text(json.dumps({**forged, "checksum": json_checksum(forged)}))
        with pytest.raises(DataError, match=rf"tagger.json: no saved tagger is like that \(.*{message}.*\); take it"):
            EntityTagger.load(tmp_path)
    path.write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        EntityTagger.load(tmp_path)
    with pytest.raises(ConfigError, match=r"options=.* cannot be written as JSON"):
        nearest(options={"temperature": np.float32(1)}).fit(SENTENCES, TAGS).save(tmp_path)


def test_a_run_that_was_trained_on_other_types_is_an_encoder(tmp_path: Path) -> None:
    (tmp_path / "data.conll").write_text(
        "".join(
            "\n".join(map("\t".join, zip(words, tags, strict=True))) + "\n\n"
            for words, tags in zip(SENTENCES, TAGS, strict=True)
        )
    )
    (tmp_path / "words.toml").write_text(
        f'[data]\nspec = "conll:{tmp_path}/data.conll"\nsplit = "all"\n[encoder]\nname = "tiny-words"\n[method]\n'
        'name = "hyperproto"\ncenters = "episode"\n[episodes]\nway = 2\nshot = 1\nquery = 1\n[optim.encoder]\n'
        "name = 'adam'\nlr = 0.03\n[optim.radius]\nname = 'adam'\nlr = 0.03\n[training]\nsteps = 2\n"
        "validate_every = 2\n[validation]\nsplit = 'all'\nway = 2\nshot = 1\nquery = 1\nepisodes = 2\n"
    )
    run = train(load_recipe(str(tmp_path / "words.toml")), tmp_path / "run").folder
    model = EntityTagger(encoder=run).fit(SENTENCES, TAGS)
    assert model.encoder_["name"] == "run"
    assert model.encoder_["options"] == {"encoder": "tiny-words", **run_options(run)}
    options = {"path": True, "temperature": 0.05}
    said = EntityTagger(encoder=str(run), method="cosine", feature_transform="unit", options=options)
    assert model.predict(NEW) == said.fit(SENTENCES, TAGS).predict(NEW)
    own = EntityTagger(encoder=run, fit_mode="point").fit(SENTENCES, TAGS)  # the run's own method
    nearest_mean = EntityTagger(encoder=run, method="protonet").fit(SENTENCES, TAGS)
    np.testing.assert_allclose(own.decision_function(NEW)[0], nearest_mean.decision_function(NEW)[0], atol=1e-5)
    fresh = EntityTagger(encoder="tiny-words").fit(SENTENCES, TAGS)
    assert np.abs(fresh.decision_function(NEW)[0] - model.decision_function(NEW)[0]).max() > 1e-3


def run_options(run: Path) -> Any:
    recipe = json.loads((run / "config.json").read_text())["recipe"]
    return {name: value for name, value in recipe["encoder"].items() if name != "name"}


def test_a_saved_tagger_wants_the_run_of_its_fit(tmp_path: Path) -> None:
    shutil.copytree(RUN, tmp_path / "run")
    model = EntityTagger(encoder=tmp_path / "run").fit(SENTENCES, TAGS)
    model.save(tmp_path / "tagger")
    assert EntityTagger.load(tmp_path / "tagger").predict(NEW) == model.predict(NEW)
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(DataError, match=r"fitted to vectors of run \(.*encoder='tiny-words'.*there is no run in .*run"):
        EntityTagger.load(tmp_path / "tagger")
    again = EntityTagger.load(tmp_path / "tagger", encoder=tmp_path / "moved")
    assert again.predict(NEW) == model.predict(NEW)
    EntityTagger(encoder="tiny-words").fit(SENTENCES, TAGS).save(tmp_path / "named")
    with pytest.raises(
        DataError, match=r"fitted to vectors of tiny-words \(.*\), but .*moved.* is now run \(.*fit again"
    ):
        EntityTagger.load(tmp_path / "named", encoder=tmp_path / "moved")


@pytest.mark.parametrize(
    ("sentences", "tags", "message"),
    [
        ("Marie lives", [["O"]], "X is 'Marie lives'; give a list of sentences, each a text or a list"),
        ([7], [["O"]], r"X\[0\] is 7; a sentence is a text or a list of words"),
        ([["Marie"]], "O", "y is 'O'; give the tags of each sentence's words, or the spans of each text"),
        ([["Marie"]], ["O"], r"y\[0\] is 'O'; a sentence is a list of tags"),
        ([["Marie"], []], [["O"], []], r"X\[1\] holds no words; leave empty sentences out"),
        ([["Marie", None]], [["O", "O"]], r"X\[0\]\[1\] is None; each of the words is a string, and not empty"),
        ([["Marie", ""]], [["O", "O"]], r"X\[0\]\[1\] is ''; each of the words is a string"),
        ([["Marie"]], [[7]], r"y\[0\]\[0\] is 7; each of the tags is a string"),
        ([["Marie"]], [["O"], ["O"]], "X has 1 sentences, but y tags of 2; give each word a tag"),
        ([["Marie"], ["a", "b"]], [["O"], ["O"]], r"X\[1\] has 2 words, but y\[1\] 1 tags; give each word a tag"),
        ([["Marie"]], [["O"]], "every word is O; mark at least one entity"),
        (
            [["a"], ["b"]],
            [["B-x"], ["person"]],
            r"y\[1\]: label 'person' does not begin with B-, I- as those of BIO do",
        ),
    ],
)
def test_what_is_no_sentence_is_named_by_its_position(sentences: Any, tags: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        nearest().fit(sentences, tags)


def test_parameters_that_make_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    for parameters, message in (
        ({"scheme": "bilou"}, "there is no scheme of tags called 'bilou'"),
        ({"method": "nnshots"}, "there is no method 'nnshots'; did you mean 'nnshot'"),
        ({"options": {"tao": 1}}, "no option of method .* called 'tao'"),
        ({"fit_mode": "bayes"}, "there is no fit of nnshot called 'bayes'"),
        ({"encoder": "tiny-word"}, "there is no encoder 'tiny-word'"),
    ):
        with pytest.raises(ConfigError, match=message):
            nearest().set_params(**parameters).fit(SENTENCES, TAGS)
    monkeypatch.setattr(TinyWords, "collate", lambda self, prepared, index: ([], np.zeros(len(index) + 1, int)))
    monkeypatch.setattr(TinyWords, "prepare", lambda self, items: items)
    with pytest.raises(ConfigError, match="TinyWords does not give a vector for each word; name one that does"):
        nearest().fit(SENTENCES, TAGS)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hyperproto.encoders", None)
    with pytest.raises(ConfigError, match=r"encoders run on torch \(.*\); pip install 'hyperproto\[text\]'"):
        nearest().fit(SENTENCES, TAGS)


def test_three_sentences_teach_minilm() -> None:
    if find_spec(PACKAGE) is None:
        pytest.skip(f"no package {PACKAGE}; {INSTALL}")
    words = ["It", "rained", "all", "day", ",", "and", "nobody", "from", "Rome", "saw", "Sophia", "Loren", "."]
    [entities] = EntityTagger().fit(SENTENCES, BIO).entities([words])
    assert [(kind, " ".join(words[start:end])) for kind, start, end in entities] == [
        ("city", "Rome"),
        ("person", "Sophia Loren"),
    ]
