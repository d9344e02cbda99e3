"""Names of the classes of texts: labels in words, descriptions, and what they are worth."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from hyperproto import FewShotImageClassifier, FewShotTextClassifier, HypersphereClassifier, TextEncoder
from hyperproto.data.specs import data_folder
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import load_classifier
from hyperproto.estimators.text import label_words
from tests.helpers.items import LABELS, TEXTS, names_of

NEW = ["the queen was born", "london", "bob"]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("card_arrival", "card arrival"),
        ("CardArrival", "card arrival"),
        ("cardArrival", "card arrival"),
        ("HTTPError", "HTTP error"),
        ("exchange-rate", "exchange rate"),
        ("Cause-Effect(e1,e2)", "Cause Effect from first to second"),
        ("top_10_lists", "top 10 lists"),
        ("beantragte Karte", "beantragte Karte"),
        ("\u5361\u7247", "\u5361\u7247"),
        ("iPhone", "i phone"),
        ("n01532829", "house finch"),
        ("n99999999", ""),
        ("P131", ""),
        ("3f2a-11", ""),
        ("17", ""),
        ("b", ""),
        ("", ""),
        (17, ""),
        (True, ""),
    ],
)
def test_labels_in_words(label: Any, words: str) -> None:
    assert label_words(label) == words


@pytest.fixture
def encode(bert: str) -> Any:
    return TextEncoder(bert).transform


def test_labels_are_names_by_default(bert: str, encode: Any) -> None:
    model = FewShotTextClassifier(encoder=bert).fit(TEXTS, LABELS)
    head = HypersphereClassifier().fit(encode(TEXTS), LABELS, names=names_of(LABELS, encode))
    assert_same(model, head, encode)
    plain = FewShotTextClassifier(encoder=bert, names=None).fit(TEXTS, LABELS)
    assert_same(plain, HypersphereClassifier().fit(encode(TEXTS), LABELS), encode)
    assert np.abs(plain.predict_proba(NEW) - model.predict_proba(NEW)).max() > 1e-6


def assert_same(model: Any, head: Any, encode: Any) -> None:
    np.testing.assert_array_equal(model.predict_proba(NEW), head.predict_proba(encode(NEW)))


@pytest.mark.parametrize("labels", [[1, 2, 3], ["P1", "P22", "P333"], ["a", "b", "c"]])
def test_labels_that_are_no_words_are_not_used(bert: str, labels: Any) -> None:
    y = [labels[("court", "place", "people").index(label)] for label in LABELS]
    auto, none = (FewShotTextClassifier(encoder=bert, names=names).fit(TEXTS, y) for names in ("auto", None))
    np.testing.assert_array_equal(auto.predict_proba(NEW), none.predict_proba(NEW))


def test_other_modes_go_without_names(bert: str) -> None:
    """Where nobody asked for them; a mapping that cannot be used is refused."""
    model = FewShotTextClassifier(encoder=bert, fit_mode="point").fit(TEXTS, LABELS)
    assert not model.head_._state.names
    changed = FewShotTextClassifier(encoder=bert).fit(TEXTS, LABELS).set_params(fit_mode="point")
    np.testing.assert_array_equal(changed.predict_proba(NEW), model.predict_proba(NEW))
    with pytest.raises(ConfigError, match="names of classes and unlabelled rows are for region='sphere'"):
        FewShotTextClassifier(encoder=bert, fit_mode="point", names={"court": "a king"}).fit(TEXTS, LABELS)


def test_descriptions_and_classes_without_examples(bert: str, encode: Any, tmp_path: Path) -> None:
    described = {"court": "the king and the queen", "river": "a river", 3: "the city of london"}
    model = FewShotTextClassifier(encoder=bert, names=described).fit(TEXTS, LABELS)
    assert model.classes_.tolist() == [3, "court", "people", "place", "river"]
    vectors = dict(zip(described, encode(list(described.values())).astype(float), strict=True))
    head = HypersphereClassifier().fit(encode(TEXTS), LABELS, names=vectors)
    assert_same(model, head, encode)
    assert_same(clone(model).fit(TEXTS, LABELS), head, encode)
    by_call = FewShotTextClassifier(encoder=bert).fit(TEXTS, LABELS, names=described)
    assert_same(by_call, head, encode)
    model.save(tmp_path)
    again = load_classifier(tmp_path)
    assert again.get_params()["names"] == described
    assert_same(again, head, encode)


def test_no_example_at_all(bert: str, encode: Any) -> None:
    described = {"court": "the king and the queen", "river": "a river"}
    model = FewShotTextClassifier(encoder=bert, names=described).fit([], [])
    names, texts = encode(list(described.values())), encode(NEW)
    names, texts = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (names, texts))
    assert model.predict(NEW).tolist() == [["court", "river"][best] for best in (texts @ names.T).argmax(1)]
    model.partial_fit(TEXTS, LABELS)
    assert model.counts_.tolist() == [3, 3, 3, 0]


def test_unlabelled_texts(bert: str, encode: Any, tmp_path: Path) -> None:
    model = FewShotTextClassifier(encoder=bert, refine=True).fit(TEXTS, LABELS, unlabelled=[*NEW, *TEXTS[:2]])
    names = names_of(LABELS, encode)
    head = HypersphereClassifier(refine=True)
    head.fit(encode(TEXTS), LABELS, names=names, unlabelled=encode([*NEW, *TEXTS[:2]]))
    assert_same(model, head, encode)
    same = FewShotTextClassifier(encoder=bert, refine=True)
    same.fit([*TEXTS, *NEW, *TEXTS[:2]], [*LABELS, *[None] * 5])
    np.testing.assert_allclose(same.predict_proba(NEW), head.predict_proba(encode(NEW)), atol=1e-5)
    assert set(same.examples_.values()) == set(TEXTS)
    same.save(tmp_path)
    assert NEW[0] not in (tmp_path / "model.json").read_text()  # texts of unlabelled rows are kept nowhere
    assert NEW[0].encode() not in pickle.dumps(same)
    assert_same(load_classifier(tmp_path), same, lambda texts: texts)
    model.partial_fit(NEW[:1], ["royal"]).forget([NEW[0], NEW[1]], ["royal", None])
    assert model.classes_.tolist() == ["court", "people", "place"]  # a name off a label goes with the class
    assert "royal" not in model.head_._state.names
    assert len(model.head_._state.unlabelled.view) == 4


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ("labels", ConfigError, "names='labels': give 'auto', a mapping from labels to texts, or None"),
        ({"court": "  "}, DataError, "the name of 'court' is an empty text"),
        ({"court": None}, DataError, "the name of 'court'"),
        (
            {"court": [1.0, 2.0]},
            DataError,
            r"the name of 'court' is an array of shape \(2,\); a name is a vector of 32",
        ),
    ],
)
def test_names_that_will_not_do(bert: str, names: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        FewShotTextClassifier(encoder=bert, names=names).fit(TEXTS, LABELS)


def test_names_in_a_saved_file_are_pairs(bert: str, tmp_path: Path) -> None:
    from tests.estimators.test_storage import forge

    FewShotTextClassifier(encoder=bert, names={"court": "a king"}).fit(TEXTS, LABELS).save(tmp_path)
    assert json.loads((tmp_path / "model.json").read_text())["parameters"]["names"] == [["court", "a king"]]
    forge(tmp_path, head=lambda head: head["parameters"].update(names=[["court"]]))
    with pytest.raises(DataError, match="its names are no pairs of labels and texts; take it from a copy"):
        FewShotTextClassifier.load(tmp_path)


def test_images_take_vectors_as_names() -> None:
    images = [np.full((4, 4), value, np.uint8) for value in (0, 10, 200, 250)]

    def brightness(items: Any) -> Any:
        return [[item.mean(), 255 - item.mean()] for item in items]

    model = FewShotImageClassifier(encoder=brightness)
    model.fit(images, ["dark", "dark", "light", "light"], names={"grey": [1.0, 1.0]}, unlabelled=images[:2])
    assert model.predict([np.full((4, 4), 128, np.uint8)]).tolist() == ["grey"]
    vectors = np.array(brightness(images), np.float32)
    head = HypersphereClassifier().fit(
        vectors, ["dark", "dark", "light", "light"], names={"grey": [1.0, 1.0]}, unlabelled=vectors[:2]
    )
    np.testing.assert_array_equal(model.predict_proba(images), head.predict_proba(vectors))


def accuracy(
    train: Any, train_y: Any, test: Any, test_y: Any, names: Any, shots: int, draws: int = 10, rows: bool = False
) -> float:
    """Mean accuracy in points over some draws of supports, by vectors; with the other `rows`, if asked, unlabelled."""
    found = []
    for seed in range(draws):
        random, way = np.random.default_rng(seed), train_y.max() + 1
        own = [random.choice(np.flatnonzero(train_y == n), shots, replace=False) for n in range(way)]
        x, y = train[np.concatenate(own)], train_y[np.concatenate(own)]
        known: dict[str, Any] = {} if names is None else {"names": dict(enumerate(names))}
        if rows:
            known["unlabelled"] = np.delete(train, np.concatenate(own), axis=0)
        model = HypersphereClassifier().fit(x, y, **known)
        found.append(model.score(test, test_y))
    return 100 * float(np.mean(found))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not data_folder("intents").is_dir(), reason="HYPERPROTO_DATA has no folder intents")
def test_names_that_say_nothing_cost_nothing_and_those_that_do_pay() -> None:
    """HWU64 by frozen MiniLM, one and five shots: shuffled and meaningless names lose at most 0.1 points."""
    folder = data_folder("intents") / "hwu64"
    texts, labels = {}, {}
    for split in ("train", "valid"):
        texts[split] = (folder / split / "seq.in").read_text().splitlines()
        labels[split] = (folder / split / "label").read_text().splitlines()
    classes, codes = np.unique(labels["train"], return_inverse=True)
    first = np.concatenate([np.flatnonzero(codes == n)[:12] for n in range(len(classes))])
    encode = TextEncoder("minilm").transform
    vectors = encode([*(texts["train"][i] for i in first), *texts["valid"]])
    data = vectors[: len(first)], codes[first], vectors[len(first) :], np.searchsorted(classes, labels["valid"])
    right = encode([label_words(label) for label in classes.tolist()])
    shuffled = right[np.random.default_rng(7).permutation(len(right))]
    meaningless = encode([f"code {n}" for n in range(len(right))])
    for shots, gain in ((1, 5.0), (5, 0.5)):
        plain = accuracy(*data, None, shots)
        for names in (shuffled, meaningless):
            assert accuracy(*data, names, shots) > plain - 0.1
        assert accuracy(*data, right, shots) > plain + gain
    plain = accuracy(*data, None, 5, 3, rows=True)
    for names in (shuffled, meaningless):
        assert accuracy(*data, names, 5, 3, rows=True) > plain - 0.1
    assert accuracy(*data, right, 5, 3, rows=True) > plain + 0.5
