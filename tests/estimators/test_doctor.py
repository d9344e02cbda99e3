"""The class doctor: planted troubles are found, formulas are those of simulations, and every form can be read."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.errors import ConfigError
from hyperproto.estimators import ClassReport, Diagnosis, HypersphereClassifier
from hyperproto.estimators.doctor import Confusion
from tests.estimators.conftest import blobs


def planted(mode: str = "bayes", region: Any = "sphere") -> Any:
    """Six classes: c close to d; one example of e labelled f; one of a far away; b has a single example."""
    random = np.random.default_rng(0)
    centers = 4 * random.normal(size=(6, 8))
    centers[3] = centers[2] + 0.9 * random.normal(size=8)
    shots = (8, 1, 8, 4, 8, 8)
    labels = np.repeat(np.arange(6), shots)
    x = centers[labels] + random.normal(size=(len(labels), 8))
    y = np.array(list("abcdef"))[labels]
    y[20] = "d"  # was c or d: hard to tell
    wrong = int(np.flatnonzero(labels == 4)[2])
    y[wrong] = "f"
    x[1] += 9 * np.array([1, -1, 1, -1, 1, -1, 1, -1]) / math.sqrt(8)
    model = HypersphereClassifier(region=region, fit_mode=mode, feature_transform="none").fit(x, y)
    return model, wrong


@pytest.mark.parametrize(("region", "mode"), [("sphere", "bayes"), ("sphere", "unbiased"), ("point", "point")])
def test_planted_troubles_are_found(region: Any, mode: str) -> None:
    model, wrong = planted(mode, region)
    found = model.diagnose()
    by_label = {report.label: report for report in found.classes}
    assert [report.label for report in found.classes] == list("abcdef")
    assert by_label["c"].rival == "d"
    assert by_label["d"].rival == "c"
    assert max(by_label, key=lambda label: by_label[label].overlap) in "cd"
    assert found.mislabelled[0].example == wrong
    assert (found.mislabelled[0].label, found.mislabelled[0].suggestion) == ("f", "e")
    assert found.mislabelled[0].odds > 10
    assert len(found.mislabelled) <= 2
    assert {report.example for report in found.outlying} >= {1}
    assert found.would_gain_most == "d"  # of the close pair the one with fewer examples
    assert by_label["b"].count == 1
    np.testing.assert_allclose([report.extent for report in found.classes], model.extents_)


def test_many_wrong_labels_do_not_hide_each_other() -> None:
    """Six of forty-eight: each is judged by others that are wrong too."""
    random = np.random.default_rng(1)
    x = np.repeat(6 * np.eye(6, 8), 8, axis=0) + random.normal(size=(48, 8))
    y = np.repeat(np.arange(6), 8)
    wrong = np.arange(0, 48, 8)
    y[wrong] = (y[wrong] + 2) % 6
    found = HypersphereClassifier(feature_transform="none").fit(x, y).diagnose()
    assert {report.example for report in found.mislabelled} == set(wrong.tolist())
    assert all(report.suggestion == report.example // 8 for report in found.mislabelled)


def test_clean_classes_are_left_in_peace() -> None:
    random = np.random.default_rng(1)
    x = np.repeat(20 * np.eye(5, 8), 12, axis=0) + random.normal(size=(60, 8))
    found = HypersphereClassifier().fit(x, np.repeat(list("abcde"), 12)).diagnose()
    assert found.mislabelled == ()
    assert len(found.outlying) <= 1
    assert all(report.overlap is not None and report.overlap < 0.03 for report in found.classes)


@pytest.mark.parametrize("shots", [1, 3, 20])
def test_the_confusion_is_that_of_a_simulation(shots: int) -> None:
    """Two classes three apart, among far ones, in ten dimensions: how often is a fresh example of one mistaken?"""
    predicted, measured, covered = [], [], []
    for seed in range(60):
        random = np.random.default_rng(seed)
        centers = np.vstack([np.zeros(10), 3 * np.eye(1, 10), 30 * np.eye(3, 10, 2)])
        y = np.repeat(np.arange(5), [shots, shots, 20, 20, 20])
        x = centers[y] + random.normal(size=(len(y), 10))
        model = HypersphereClassifier(fit_mode="point", feature_transform="none").fit(x, y)
        confusion = Confusion(model._snapshot().stats)
        assert confusion.rival[:2].tolist() == [1, 0]
        predicted.append(confusion.error[0])
        fresh = centers[np.repeat([0, 1], 200)] + random.normal(size=(400, 10))
        measured.append((model.predict(fresh) != np.repeat([0, 1], 200)).mean())
        assert confusion.gain[0] >= 0
        mean, low, high = confusion.overlaps()
        assert (low <= mean).all()
        assert (mean <= high).all()
        covered.append(low[0] <= 2 * measured[-1] <= high[0])
    assert -0.02 < np.mean(predicted) - np.mean(measured) < 0.06  # real classes have heavier tails than these
    assert np.mean(covered) > 0.65  # least with one example a class


def test_the_table_shows_overlaps_with_intervals_where_the_examples_can_tell() -> None:
    found = planted()[0].diagnose()
    [c] = [report for report in found.classes if report.label == "c"]
    assert c.overlap_low < c.overlap < c.overlap_high
    known = replace(found, classes=(replace(c, overlap=0.3, overlap_low=0.2, overlap_high=0.4),))
    assert "  30% (20% to 40%)  " in known.table()
    wide = replace(found, classes=(replace(c, overlap=0.5, overlap_low=0.2, overlap_high=0.8),))
    assert "  unknown  " in wide.table()


def test_numbers_of_examples_are_those_of_all_that_ever_came() -> None:
    model, wrong = planted()
    random = np.random.default_rng(5)
    weights = np.ones(3)
    weights[1] = 0
    more = model.means_[[1, 1, 1]] + random.normal(size=(3, 8))
    more[2] = model.means_[0]  # labelled b, but an a
    model.partial_fit(more, ["b", "b", "b"], sample_weight=weights)
    found = {report.example: report for report in model.diagnose().mislabelled}
    assert wrong in found
    assert found[37 + 2].suggestion == "a"
    model.forget(more[:1], ["b"])
    model.remove_class("a")
    assert wrong in {report.example for report in model.diagnose().mislabelled}


def test_it_can_be_written_as_json() -> None:
    model, _ = planted()
    content = json.loads(json.dumps(model.diagnose().to_dict()))
    assert content.keys() == {"classes", "outlying", "mislabelled", "would_gain_most", "merges", "splits"}
    interval = {"overlap_low", "overlap_high"}
    assert content["classes"][0].keys() == {*vars(ClassReport("a", 1.0, 1.0))} >= interval
    assert content["mislabelled"][0].keys() == {"example", "label", "suggestion", "odds"}
    assert content["outlying"][0].keys() == {"example", "label", "score"}


def test_it_can_be_read() -> None:
    model, wrong = planted()
    text = model.diagnose().table()
    lines = text.splitlines()
    assert lines[0].split() == [
        *("class", "examples", "extent", "nearest", "rival", "distance", "overlap"),
        *("gain", "of", "one", "more"),
    ]
    assert lines[1].startswith("d")
    assert "Another example would help most in: d" in lines
    assert f"  example {wrong}, labelled f: rather e (" in text
    assert "  example 1 of a: " in text
    assert max(map(len, lines)) < 100


def test_examples_that_are_known_are_shown() -> None:
    model, wrong = planted()
    found = replace(model.diagnose(), items={wrong: "a text " * 40, 1: "another\ntext"})
    assert found == model.diagnose()
    content = found.to_dict()
    assert content["mislabelled"][0]["item"] == "a text " * 40
    assert {report["example"]: report.get("item") for report in content["outlying"]}[1] == "another\ntext"
    lines = found.table().splitlines()
    [after] = [lines[n + 1] for n, line in enumerate(lines) if line.startswith(f"  example {wrong}, ")]
    assert after.startswith("    a text a text ")
    assert after.endswith("text …")
    assert len(after) <= 104
    assert "    another text" in lines


def test_long_lists_are_cut_and_long_names_too() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4))
    y = np.array(["a name that goes on and on, much longer than any column", "b"])[random.integers(0, 2, 300)]
    text = (
        HypersphereClassifier(feature_transform="none")
        .fit(x * np.exp(random.normal(size=(300, 1))), y)
        .diagnose()
        .table()
    )
    assert "… " in text
    assert "  ... and " in text


@pytest.mark.filterwarnings("ignore:there is only one class")
def test_one_class_one_example_each_and_examples_that_do_not_differ() -> None:
    one = HypersphereClassifier().fit(np.eye(3), ["a"] * 3).diagnose()
    assert (one.classes[0].rival, one.classes[0].overlap, one.mislabelled) == (None, None, ())
    single = HypersphereClassifier().fit(np.eye(3), list("abc")).diagnose()
    assert all(report.overlap is None for report in single.classes)
    assert single.outlying == ()
    assert single.mislabelled == ()
    same = HypersphereClassifier().fit(np.repeat(np.eye(2), [3, 2], axis=0), list("aaabb")).diagnose()
    assert same.would_gain_most == "b"  # the smallest class, for want of anything better
    for found in (one, single, same):
        assert isinstance(found, Diagnosis)
        assert "Possibly mislabelled: none" in found.table()
        json.dumps(found.to_dict(), allow_nan=False)
        found.figure()


@pytest.mark.filterwarnings("ignore:there is only one class")
@pytest.mark.parametrize("shots", [(3,), (3, 2), (4, 1, 2), (3,) * 30])
@pytest.mark.parametrize("dim", [1, 2, 9])
def test_a_figure_of_any_size(shots: tuple[int, ...], dim: int, tmp_path: Path) -> None:
    x, y = blobs(shots, dim=dim)
    found = HypersphereClassifier(feature_transform="none").fit(x, y).diagnose()
    figure = found.figure()
    axis = figure.axes[0]
    circles = [patch for patch in axis.patches if type(patch).__name__ == "Circle"]
    shown = found.plane.classes
    assert len(circles) == 2 * len(shown)
    assert len(shown) == len(shots) if len(shots) <= 25 else 25 <= len(shown) <= 26
    texts = {text.get_text() for text in axis.texts}
    assert texts >= {found.classes[n].label for n in shown}
    if len(shots) > 25:
        assert "most confused of 30" in axis.get_title()
    assert "circle: covers 80% of the class's own examples" in axis.get_xlabel()
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_long_labels_and_formulas_are_cut_and_shown_as_they_are(tmp_path: Path) -> None:
    """The time of a layout grows with the square of the length of a text."""
    labels = ["x" * 100_000, "a $x^ label\nof two lines"]
    figure = HypersphereClassifier().fit(np.eye(4), labels * 2).diagnose().figure()
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"x" * 39 + "…", r"a \$x^ label of two lines"} <= texts
    assert max(map(len, texts)) <= 41
    figure.savefig(tmp_path / "figure.png")


def test_the_plane_shows_means_as_they_are_in_it_and_circles_about_most_examples() -> None:
    x, y = blobs((6, 7, 5), dim=2)
    plane = HypersphereClassifier(feature_transform="none", fit_mode="point").fit(x, y).diagnose().plane
    model = HypersphereClassifier(feature_transform="none", fit_mode="point").fit(x, y)
    apart = np.linalg.norm(plane.means[:, None] - plane.means, axis=2)
    np.testing.assert_allclose(apart, np.linalg.norm(model.means_[:, None] - model.means_, axis=2), rtol=1e-6)
    for n, label in enumerate("abc"):
        away = np.linalg.norm(x[y == label] - model.means_[n], axis=1)
        covered = np.mean(away <= plane.radii[n] * (1 + 1e-9))
        assert covered >= plane.covered == 0.8
        assert np.mean(away < plane.radii[n] * (1 - 1e-9)) < plane.covered
        assert np.isclose(plane.radii[n], np.sort(away)[int(np.ceil(0.8 * len(away))) - 1])


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = HypersphereClassifier().fit(*blobs()).diagnose()
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"drawn with matplotlib .*pip install 'hyperproto\[plots\]'"):
        found.figure()
