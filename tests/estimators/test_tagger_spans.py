"""EntityTagger: texts and spans of characters, scores, rejection, removal, descriptions of types, F1."""

import json
import pickle
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto import EntityTagger
from hyperproto.encoders.parts.pretrained import INSTALL, PACKAGE
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import tagger as tagger_module
from hyperproto.estimators.sentences import EntitySpan, bio_tags, places_of, read_examples
from hyperproto.estimators.tagging import span_probabilities
from hyperproto.files import json_checksum
from tests.estimators.test_tagger import BIO, FOUND, NEW, SENTENCES, TAGS, nearest
from tests.helpers.tiny_words import TinyWords, register

TEXTS = ["Marie Curie worked in Paris.", "The mayor of Berlin met Angela Merkel.", "nothing here"]
SPANS = [[(0, 11, "person"), (22, 27, "city")], [(24, 37, "person"), (13, 19, "city")], []]


@pytest.fixture(autouse=True)
def words() -> None:
    register()


@pytest.fixture
def tagger() -> EntityTagger:
    return nearest().fit(SENTENCES, TAGS)


def test_texts_with_spans_are_words_with_tags() -> None:
    model = nearest().fit(TEXTS, SPANS)
    assert model.sentences_[:2] == SENTENCES[:2]
    assert model.tags_ == [*TAGS[:2], ["O", "O"]]
    mixed = nearest().fit([TEXTS[0], SENTENCES[1]], [SPANS[0], BIO[1]])
    assert (mixed.sentences_, mixed.tags_) == (SENTENCES[:2], TAGS[:2])
    assert nearest().fit(iter([TEXTS[0]]), iter([SPANS[0]])).tags_ == TAGS[:1]
    spaced, _ = read_examples(["a  New York "], [[(2, 11, "city")]], "auto")
    assert spaced == [["a", "New", "York"]]


def test_spans_have_characters_words_and_scores(tagger: EntityTagger) -> None:
    text = ".Marie Smith. lives  in Berlin"
    [found] = tagger.spans([text])
    assert [span[:4] for span in found] == [("person", "Marie Smith", 1, 12), ("city", "Berlin", 24, 30)]
    assert [(span.first, span.last) for span in found] == [(1, 3), (6, 7)]
    assert all(isinstance(span, EntitySpan) and 0 < span.score <= 1 for span in found)
    assert tagger.entities([text]) == [[("person", 1, 3), ("city", 6, 7)]]
    assert tagger.predict([text])[0][:4] == ["O", "person", "person", "O"]
    [joined] = tagger.spans([["Marie", "lives", "in", "Berlin"]])
    assert [span[:4] for span in joined] == [("person", "Marie", 0, 5), ("city", "Berlin", 15, 21)]
    assert tagger.spans([]) == []


def test_tags_may_be_bio(tagger: EntityTagger) -> None:
    assert tagger.predict(NEW, scheme="bio") == [["B-person", "I-person", "O", "O", "B-city"], ["O", "O"]]
    with pytest.raises(ConfigError, match="no scheme of predicted tags called 'bioes'"):
        tagger.predict(NEW, scheme="bioes")


@given(st.lists(st.sampled_from(["O", "a", "b"]), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_bio_and_spans_lose_nothing(tags: list[str]) -> None:
    places = places_of(tags)
    again = ["O"] * len(tags)
    for kind, first, last in places:
        again[first:last] = [kind] * (last - first)
    assert again == tags
    sentence = [str(n) for n in range(len(tags))]
    assert read_examples([sentence], [bio_tags(tags)], "bio")[1] == [tags]
    starts = np.cumsum([0, *(len(word) + 1 for word in sentence)])
    spans = [(int(starts[first]), int(starts[last]) - 1, kind) for kind, first, last in places]
    assert read_examples([" ".join(sentence)], [spans], "auto") == ([sentence], [tags])


@pytest.mark.parametrize(("length", "way", "seed"), [(1, 2, 0), (4, 3, 1), (5, 2, 2), (3, 4, 3)])
def test_a_score_is_the_share_of_labellings_with_the_span(length: int, way: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    emissions, start, moves = (random.normal(size=shape) for shape in ((length, way), (way,), (way, way)))
    labellings = list(product(range(way), repeat=length))
    weights = []
    for labels in labellings:
        total = start[labels[0]] + sum(emissions[n, label] for n, label in enumerate(labels))
        weights.append(np.exp(total + sum(moves[a, b] for a, b in pairwise(labels))))
    spans = [(a, b, k) for a in range(length) for b in range(a + 1, length + 1) for k in range(way)]
    found = span_probabilities(emissions, start, moves, spans)
    for (first, last, kind), score in zip(spans, found, strict=True):
        fits = [
            all(label == kind for label in labels[first:last])
            and (first == 0 or labels[first - 1] != kind)
            and (last == length or labels[last] != kind)
            for labels in labellings
        ]
        assert score == pytest.approx(np.dot(weights, fits) / np.sum(weights), rel=1e-9)


def test_without_a_path_a_score_follows_from_the_words() -> None:
    plain = EntityTagger(encoder="tiny-words", options={"path": False}).fit(SENTENCES, TAGS)
    [share], [found] = plain.predict_proba(NEW[:1]), plain.spans(NEW[:1])
    assert found
    for span in found:
        own = share[:, plain.classes_.index(span.type)]
        beside = [1 - own[n] for n in (span.first - 1, span.last) if 0 <= n < len(own)]
        assert span.score == pytest.approx(np.prod([*own[span.first : span.last], *beside]), rel=1e-4)


def test_entities_below_the_threshold_are_not_tagged(tagger: EntityTagger) -> None:
    scores = sorted(span.score for spans in tagger.spans(NEW) for span in spans)
    middle = float(np.mean(scores))
    strict = nearest(threshold=middle).fit(SENTENCES, TAGS)
    assert [span.score for span in strict.spans(NEW)[0]] == [pytest.approx(scores[-1])]
    assert sum(tag != "O" for tag in strict.predict(NEW)[0]) < sum(tag != "O" for tag in FOUND[0])
    assert strict.threshold_ == middle
    assert tagger.threshold_ is None
    assert tagger.set_params(threshold=1 - 1e-9).predict(NEW) == [["O"] * 5, ["O"] * 2]
    assert not hasattr(EntityTagger(), "threshold_")


def test_the_threshold_is_a_quantile_of_sentences_left_out() -> None:
    """Right entities of each example, tagged by a model of the other examples; naive loop."""
    sentences, tags = SENTENCES * 3, TAGS * 3
    options = {"path": True, "temperature": 1.0, "transitions": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]}
    right = []
    for row in range(len(sentences)):
        rest = nearest(options=options).fit(sentences[:row] + sentences[row + 1 :], tags[:row] + tags[row + 1 :])
        truth = set(places_of(tags[row]))
        [spans] = rest.spans(sentences[row : row + 1])
        right += [span.score for span in spans if (span.type, span.first, span.last) in truth]
    assert len(right) > 10
    model = nearest(options=options, reject_rate=0.3).fit(sentences, tags)
    assert model.threshold_ == pytest.approx(sorted(right)[int(0.3 * (len(right) + 1)) - 1], rel=1e-5)
    with pytest.warns(UserWarning, match=r"reject_rate=0.01: \d+ entities are found .* this rate needs 99; nothing is"):
        assert nearest(options=options, reject_rate=0.01).fit(sentences, tags).threshold_ == 0
    few = nearest(reject_rate=0.5)
    with pytest.warns(UserWarning, match="reject_rate=0.5: 0 entities"):
        assert few.fit(SENTENCES[:1], TAGS[:1]).threshold_ == 0


def test_thresholds_that_make_no_sense() -> None:
    for wrong in ({"threshold": 1}, {"threshold": True}, {"reject_rate": -0.1}, {"reject_rate": "x"}):
        with pytest.raises(ConfigError, match="give a number from 0 to 1, excluding 1, or None"):
            nearest(**wrong).fit(SENTENCES, TAGS)
    with pytest.raises(ConfigError, match=r"threshold=0.5 and reject_rate=0.1: give one of them"):
        nearest(threshold=0.5, reject_rate=0.1).fit(SENTENCES, TAGS)


def test_f1_of_all_and_of_each_type(tagger: EntityTagger) -> None:
    assert tagger.score(SENTENCES, BIO) == 1.0
    truth = [["person", "O", "O", "O", "city"], ["date", "O"]]
    assert tagger.score(NEW, truth) == pytest.approx(2 * 1 / (2 + 3))
    scores = tagger.f1_by_type(NEW, truth)
    assert {kind: tuple(each) for kind, each in scores.items()} == {
        "city": (1.0, 1.0, 1.0, 1),
        "date": (0.0, 0.0, 0.0, 1),
        "person": (0.0, 0.0, 0.0, 1),
    }
    assert tagger.score(TEXTS[:1], SPANS[:1]) == 1.0
    assert tagger.score(["The dog"], [[]]) == 0.0


def test_what_is_forgotten_was_never_there(tagger: EntityTagger, monkeypatch: pytest.MonkeyPatch) -> None:
    tagger.partial_fit(["We left in May"], [[(11, 14, "date")]])
    monkeypatch.setattr(TinyWords, "prepare", lambda self, items: pytest.fail("encoded again"))
    tagger.forget([["We", "left", "in", "May"]], [["O", "O", "O", "B-date"]])
    monkeypatch.undo()
    assert tagger.classes_ == ["O", "city", "person"]
    whole = nearest().fit(SENTENCES, TAGS)
    np.testing.assert_allclose(tagger.decision_function(NEW)[0], whole.decision_function(NEW)[0], atol=1e-6)
    for words, tags, message in (
        (SENTENCES[0], ["O"] * 6, "it has other tags there"),
        (["Rome"], ["city"], "there is no such sentence"),
    ):
        with pytest.raises(DataError, match=rf"X\[0\] is not among the examples \({message}\)"):
            tagger.forget([words], [tags])
    with pytest.raises(DataError, match="every word is O"):
        tagger.forget(SENTENCES, TAGS)
    assert tagger.predict(NEW) == FOUND


def test_words_of_a_removed_type_are_outside(tagger: EntityTagger) -> None:
    tagger.remove_class("city")
    assert tagger.classes_ == ["O", "person"]
    assert tagger.predict(NEW) == [["person", "person", "O", "O", "O"], ["O", "O"]]
    with pytest.raises(DataError, match="there is no type 'city'; the types are person"):
        tagger.remove_class("city")
    with pytest.raises(DataError, match="there is no type 'O'"):
        tagger.remove_class("O")
    with pytest.raises(DataError, match="every word is O"):
        tagger.remove_class("person")


def test_a_description_is_one_more_example() -> None:
    names = {"city": "Paris Rome"}
    model = EntityTagger(encoder="tiny-words", names=names).fit(SENTENCES, TAGS)
    table = model._ready.source.encoder

    def vectors(*words: str) -> Any:
        return table.encode_all(table.prepare([[*words]])).x.detach().numpy()

    def unit(x: Any) -> Any:
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    described = vectors("Paris", "Rome").mean(0, keepdims=True)
    center = unit(np.vstack([vectors("Paris", "Berlin", "London"), described])).mean(0)
    [score] = model.decision_function([["Rome"]])
    np.testing.assert_allclose(score[0, 1], (unit(vectors("Rome")) @ unit(center))[0], rtol=1e-5)


def test_a_type_may_have_only_a_description(tmp_path: Path) -> None:
    model = nearest(names={"date": "May June"}).fit(SENTENCES, TAGS)
    assert model.classes_ == ["O", "city", "date", "person"]
    assert nearest(names={"date": "May"}).fit(SENTENCES, TAGS).predict([["May", "Paris"]]) == [["date", "city"]]
    model.save(tmp_path)
    for again in (EntityTagger.load(tmp_path), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(NEW)[0], model.predict_proba(NEW)[0])
    with pytest.raises(ConfigError, match=r"'date' has a description; take it out of names first"):
        model.remove_class("date")
    model.partial_fit([["in", "April"]], [["O", "date"]]).forget([["in", "April"]], [["O", "date"]])
    assert model.classes_ == ["O", "city", "date", "person"]
    only = nearest(names={"date": "May"}).fit([["We", "left"]], [["O", "O"]])
    assert only.predict([["We", "May"]]) == [["O", "date"]]
    auto = nearest(names="auto").fit(SENTENCES, [["O" if t == "O" else f"a-{t}" for t in row] for row in TAGS])
    assert auto._ready.support.items[3:] == [["a city"], ["a person"]]


def test_descriptions_that_make_no_sense() -> None:
    wrong: list[tuple[Any, str]] = [
        ("some", "names='some': give 'auto', a mapping from types to texts, or None"),
        ({3: "x"}, "names: 3 is no type"),
        ({"O": "nothing"}, "names: 'O' is no type"),
        ({"city": ""}, "the description of 'city' is an empty text"),
        ({"city": None}, "the description of 'city' is missing"),
    ]
    for names, message in wrong:
        with pytest.raises(ConfigError, match=message):
            nearest(names=names).fit(SENTENCES, TAGS)


@pytest.mark.parametrize(
    ("texts", "spans", "message"),
    [
        (["Rome"], [["O"]], r"y\[0\]\[0\] is 'O'; give \(start, end, type\)"),
        (["Rome"], ["O"], r"y\[0\] is 'O'; of a text, give spans"),
        (["Rome"], [[(0, 4)]], r"y\[0\]\[0\] is \(0, 4\); give \(start, end, type\)"),
        (["Rome"], [[(0, 4, "O")]], r"is \(0, 4, 'O'\); give"),
        (["Rome"], [[(0.5, 4, "city")]], r"is \(0.5, 4, 'city'\); give"),
        (["Rome"], [[(0, 5, "city")]], "not within the 4 characters"),
        (["Rome"], [[(2, 2, "city")]], "not within the 4 characters"),
        (["in Rome"], [[(3, 5, "city")]], "holds a part of 'Rome'; begin and end a span with whole words"),
        (["in  Rome"], [[(2, 4, "city")]], "holds no word"),
        (["New York"], [[(0, 8, "city"), (4, 8, "city")]], "overlaps another; give each word one type"),
        ([" \n"], [[]], r"X\[0\] is ' \\n', a text without words; leave it out"),
        (["Rome"], [[], []], "X has 1 sentences, but y tags of 2"),
        (["\ud800"], [[]], "holds half a character"),
        (["nothing"], [[]], "every word is O"),
    ],
)
def test_wrong_spans_are_named(texts: Any, spans: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        nearest().fit(texts, spans)


def test_adjacent_spans_of_one_type_become_one() -> None:
    with pytest.warns(UserWarning, match=r"y\[0\]: two spans of 'person' without a word between them become one"):
        assert nearest().fit(["Ann Bob left"], [[(0, 3, "person"), (4, 7, "person")]]).tags_ == [["person"] * 2 + ["O"]]


def test_a_tagger_of_the_first_format_loads(tagger: EntityTagger, tmp_path: Path) -> None:
    tagger.save(tmp_path)
    path = tmp_path / tagger_module.FILE
    content = json.loads(path.read_text())
    assert content.pop("format") == "hyperproto-tagger/2"
    del content["checksum"]
    for name in ("names", "threshold", "reject_rate"):
        del content["parameters"][name]
    content = {"format": "hyperproto-tagger/1", **content}
    path.write_text(json.dumps({**content, "checksum": json_checksum(content)}))
    assert EntityTagger.load(tmp_path).spans(NEW) == tagger.spans(NEW)
    state: Any = tagger.__getstate__()
    old = EntityTagger.__new__(EntityTagger)
    old.__setstate__(
        {name: value for name, value in state.items() if name not in ("names", "threshold", "reject_rate")}
    )
    assert old.spans(NEW) == tagger.spans(NEW)


def test_progress_of_fit() -> None:
    seen: list[tuple[int, int]] = []
    nearest().fit(SENTENCES, TAGS, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3, 3)


def test_minilm_finds_characters_and_descriptions_help() -> None:
    if find_spec(PACKAGE) is None:
        pytest.skip(f"no package {PACKAGE}; {INSTALL}")
    text = "It rained all day, and nobody from Rome saw Sophia Loren."
    model = EntityTagger(names={"weather": "rain, snow and wind"}).fit(TEXTS[:2], SPANS[:2])
    found = [(span.type, span.text, text[span.start : span.end]) for span in model.spans([text])[0]]
    assert [span[1][:6] for span in found if span[0] == "weather"] == ["rained"]
    assert {("city", "Rome", "Rome"), ("person", "Sophia Loren", "Sophia Loren")} <= {*found}
