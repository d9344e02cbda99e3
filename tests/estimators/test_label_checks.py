"""Slips in labels and examples: warned of, or refused where a class would be added unseen."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyperproto
from hyperproto import FewShotImageClassifier, FewShotTextClassifier, HypersphereClassifier
from hyperproto.errors import DataError

X = np.array([[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [0.0, 1.0]])
TEXTS = ["aaa", "aab", "eeb", "eee"]
COMPOSED, APART = "caf\u00e9", "cafe\u0301"


def letters(texts: list[str]) -> list[list[float]]:
    return [[text.count(letter) + 0.1 for letter in "abe"] for text in texts]


def text_model(**settings: Any) -> FewShotTextClassifier:
    return FewShotTextClassifier(**{"encoder": letters, "names": None, **settings})


@pytest.mark.parametrize("label", ["NaN", "nan", "None", "<NA>", "", "  "])
def test_labels_that_look_missing_are_warned_of(label: str) -> None:
    told = "became a class, and looks like a missing label; give such rows the label None"
    with pytest.warns(UserWarning, match=told):
        model = HypersphereClassifier().fit(X, ["a", "a", label, label])
    with pytest.warns(UserWarning, match=told):
        HypersphereClassifier().fit(X, list("aabb")).partial_fit(X[:1], [label])
    model.partial_fit(X[2:], [label, label])  # known by now: no second warning
    assert label in model.classes_


@pytest.mark.parametrize("label", ["none", "none of these", "null", "0", "na\u00efve"])
def test_other_labels_are_not(label: str) -> None:
    HypersphereClassifier().fit(X, ["a", "a", label, label])


@pytest.mark.parametrize(
    ("one", "other"), [("a", "a "), (" a", "a"), (COMPOSED, APART), (APART, f"{COMPOSED} "), (3, "3"), ("3", 3)]
)
def test_labels_that_differ_in_spelling_only_are_warned_of(one: Any, other: Any) -> None:
    told = "differ only in spaces, in Unicode form or in being a number or a string, and are two classes"
    with pytest.warns(UserWarning, match=told):
        HypersphereClassifier().fit(X, [one, one, other, other])
    model = HypersphereClassifier().fit(X, [one, one, "x", "x"])
    with pytest.warns(UserWarning, match=told):
        model.partial_fit(X[2:], [other, other])
    model.partial_fit(X, [one, one, other, other])  # both known by now
    with pytest.warns(UserWarning, match=told):
        HypersphereClassifier().fit(X, [one, one, "x", "x"]).merge(
            HypersphereClassifier().fit(X, [other, other, "x", "x"])
        )


def test_labels_that_differ_in_more_are_not() -> None:
    HypersphereClassifier().fit(X, ["a b", "ab", "A", "3.5"]).partial_fit(X, ["a  b", "aB", "3", "-3"])


def test_a_single_class_is_warned_of_by_fit_alone() -> None:
    told = "there is only one class, 'a', and `predict` always returns it"
    for model, rows in ((HypersphereClassifier(), X), (text_model(), TEXTS)):
        with pytest.warns(UserWarning, match=told) as found:
            model.fit(rows, ["a"] * 4)
        assert found[0].filename == __file__  # the caller's line, whatever lies between
    HypersphereClassifier().partial_fit(X[:2], ["a", "a"]).partial_fit(X[2:], ["b", "b"])
    text_model().partial_fit(TEXTS, ["a"] * 4)
    HypersphereClassifier(coverage=0.5).fit(X, ["a"] * 4)  # which rejects what is unlike it


def test_one_text_under_two_labels_is_warned_of() -> None:
    with pytest.warns(
        UserWarning, match="one item has two labels: 'aaa' under 'a' and 'b'; keep the one that is right"
    ):
        model = text_model().fit([*TEXTS, "aaa"], ["a", "a", "b", "b", "b"])
    with pytest.warns(UserWarning, match="2 items have two labels, such as 'aab' under 'a' and 'b'"):
        model.partial_fit(["aaa", "aab", "aab", "aaa"], ["a", "a", "b", "b"])
    with pytest.warns(UserWarning, match=r"one item has two labels: 'x.png' under 'a' and 'b'"):
        FewShotImageClassifier(encoder=lambda items: np.eye(len(items), 3)).fit(
            ["x.png", "y.png", "x.png"], list("aab")
        )
    text_model().fit([*TEXTS, "aaa", "aaa"], ["a", "a", "b", "b", "a", None])  # once more, and unlabelled
    text_model().fit([*TEXTS, "aaa"], ["a", "a", "b", "b", "b"], sample_weight=[1, 1, 1, 1, 0])


def test_a_warning_that_is_an_error_changes_nothing() -> None:
    model = HypersphereClassifier().fit(X, list("aabb"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="looks like a missing label"):
            model.partial_fit(X[:1], ["NaN"])
        with pytest.raises(UserWarning, match="only one class"):
            model.fit(X, ["c"] * 4)
    assert model.classes_.tolist() == ["a", "b"]


@pytest.mark.parametrize("label", [float("nan"), np.float32("nan"), None, b"a"])
def test_names_of_labels_that_no_class_can_have_are_refused(label: Any) -> None:
    model = HypersphereClassifier().fit(X, list("aabb"))
    calls: tuple[Callable[[], Any], ...] = (
        lambda: model.fit(X, list("aabb"), names={label: X[0]}),
        lambda: text_model(names={label: "x"}).fit(TEXTS, list("aabb")),
    )
    for call in calls:
        with pytest.raises(DataError, match=r"names has a label .* a label is a string or a number"):
            call()
    with pytest.raises(DataError, match="names has a label"):
        model.partial_fit(None, None, names={label: X[0]})


@pytest.mark.parametrize(("labels", "name"), [(["0", "0", "1", "1"], 0), ([0, 0, 1, 1], "0"), ([0, 0, 1, 1], "1.0")])
def test_names_whose_label_is_of_another_type_are_refused(labels: Any, name: Any) -> None:
    told = r"names has the label .* \((int|str)\), and there is a class .* \((int|str)\); write .* in names"
    with pytest.raises(DataError, match=told):
        HypersphereClassifier().fit(X, labels, names={name: X[0]})
    model = HypersphereClassifier().fit(X, labels)
    with pytest.raises(DataError, match=told):
        model.partial_fit(None, None, names={name: X[0]})
    with pytest.raises(DataError, match=told):
        text_model(names={name: "about"}).fit(TEXTS, labels)
    assert model.classes_.tolist() == sorted(set(labels))
    assert model.fit(X, labels, names={labels[0]: X[0], "new": X[1]}).classes_.tolist() == [*sorted(set(labels)), "new"]


def table(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows))
    return path


def test_descriptions_of_labels_without_examples_are_warned_of(tmp_path: Path, bert: str) -> None:
    examples = table(tmp_path / "examples.csv", ["text,label", "the king,court", "the river,place"])
    about = table(tmp_path / "about.csv", ["label,description", "court,a king", "plase,a river"])
    with pytest.warns(
        UserWarning, match=r"about.csv: described labels without an example: 'plase' \(1 of 2\); each becomes"
    ):
        model = hyperproto.fit(examples, encoder=bert, descriptions=about)
    assert model.classes_.tolist() == ["court", "place", "plase"]
    hyperproto.fit(examples, encoder=bert, descriptions=table(about, ["label,description", "court,a king"]))


def test_an_empty_class_folder_is_warned_of(tmp_path: Path, files: list[Path]) -> None:
    from hyperproto.api.examples import read_examples

    for n, path in enumerate(files):
        (tmp_path / "photos" / "pets" / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
        path.rename(tmp_path / "photos" / "pets" / "ab"[n % 2] / path.name)
    folder = str(tmp_path / "photos")
    model = FewShotImageClassifier(encoder=lambda items: np.eye(len(items), 3))
    assert set(read_examples(model, folder, None, "label", None)[1]) == {"pets/a", "pets/b"}
    (tmp_path / "photos" / "pets" / "c" / "deep").mkdir(parents=True)
    (tmp_path / "photos" / ".hidden").mkdir()
    with pytest.warns(UserWarning, match=r"no images in pets/c \(empty folders: 1\), so that these become no classes"):
        assert set(read_examples(model, folder, None, "label", None)[1]) == {"pets/a", "pets/b"}
