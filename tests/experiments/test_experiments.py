"""The experiments run, on small made-up classes; what they draw, transform and measure is what they say."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import normalize

from experiments import __main__ as program
from experiments.accuracy import accuracy
from experiments.calibration import BINS, expected_calibration_error
from experiments.contenders import BASELINES, TWINS, CosinePrototypes, contenders, discriminant, searched_discriminant
from experiments.draws import SHOTS, draw
from experiments.feature_transform import Features
from experiments.folds import folds
from experiments.intents import Intents, load_intents
from experiments.markdown import page
from experiments.outside import separation
from experiments.rows import Tally
from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError, DataError
from tests.encoders.tiny_models import tiny_bert

LABELS = np.repeat(np.arange(6), 25)


def made_up(outside=20):
    random = np.random.default_rng(0)
    centers = 2 * random.normal(size=(7, 8))

    def rows(labels):
        return (centers[labels] + random.normal(size=(len(labels), 8))).astype(np.float32)

    test_y = np.repeat(np.arange(6), 10)
    names = [f"class {n}" for n in range(6)]
    return Intents("made up", "test", names, rows(LABELS), LABELS, rows(test_y), test_y, rows(np.full(outside, 6)))


@pytest.mark.parametrize("experiment", program.EXPERIMENTS)
def test_every_experiment_runs_and_writes_its_numbers(experiment, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "load_intents", lambda *_: made_up())
    file = tmp_path / "found.json"
    arguments = [experiment, "--data", "clinc150", "--draws", "2", "--shots", "1", "5", "unequal", "--json", str(file)]
    program.main(arguments)
    content = json.loads(file.read_text())
    assert len(file.read_text().splitlines()) < 40 + len(content["results"]) + len(content.get("comparisons", []))
    assert content["command"] == f"python -m experiments {' '.join(arguments)}"
    assert (content["classes"], content["texts"]) == (6, {"train": 150, "test": 60, "outside": 20})
    assert content["supports"].keys() == {"1", "5", "unequal"}
    assert all(len(set(hashes)) == 2 for hashes in content["supports"].values())
    measures = [value for row in content["results"] for value in row.values() if isinstance(value, dict)]
    assert all(len(value["draws"]) == 2 for value in measures)
    assert all(value["mean"] == pytest.approx(np.mean(value["draws"]), abs=1e-4) for value in measures)
    if experiment != "coverage":
        assert all(
            "difference" in value for row in content["comparisons"] for value in row.values() if type(value) is dict
        )
        assert len(content["comparisons"]) == len(content["results"]) - 3
    printed = capsys.readouterr()
    assert "shots unequal: draw 2 of 2" in printed.err
    assert "mean ± 95 % interval over draws" in printed.out


def test_accuracy_is_that_of_the_classifier():
    data = made_up()
    found = accuracy(data, ["5"], 2, 4.0)
    rows = {(row["method"], row["transform"]): row for row in found["results"]}
    assert len(rows) == len(contenders(4.0))
    for index in range(2):
        support = draw(LABELS, "5", index).rows
        model = HypersphereClassifier(feature_transform="none").fit(data.train[support], LABELS[support])
        expected = model.score(data.test, data.test_y)
        assert rows["hypersphere sphere bayes", "none"]["accuracy"]["draws"][index] == pytest.approx(expected, abs=1e-5)
    for transform in ("none", "unit", "center-unit"):  # the same thing by two names
        ours, theirs = rows["hypersphere point point", transform], rows["nearest centroid", transform]
        assert ours["accuracy"]["draws"] == theirs["accuracy"]["draws"]
        twin = rows["logistic regression, balanced", transform]
        assert twin["accuracy"] == rows["logistic regression", transform]["accuracy"]


def test_draws_are_nested_and_the_same_everywhere():
    one, five, ten = (draw(LABELS, shots, 3).rows for shots in ("1", "5", "10"))
    assert np.bincount(LABELS[five]).tolist() == [5] * 6
    assert set(one) < set(five) < set(ten)
    assert set(draw(LABELS, "5", 4).rows) != set(five)
    assert draw(LABELS, "5", 3).digest == draw(LABELS, "5", 3).digest == "42f1f9015488b3e8"
    assert draw(LABELS, "unequal", 3).digest == "111a320f58a10b79"
    with pytest.raises(DataError, match="class 0 has 25 texts, and 30 shots were asked for"):
        draw(LABELS, "30", 0)


def test_unequal_counts_are_drawn_with_probability_one_over_k():
    labels = np.repeat(np.arange(300), 20)
    counts = np.concatenate([np.bincount(labels[draw(labels, "unequal", n).rows]) for n in range(20)])
    total = sum(1 / k for k in range(1, 21))
    assert (counts.min(), counts.max()) == (1, 20)
    for k in (1, 2, 5, 20):
        expected = 1 / k / total
        assert np.mean(counts == k) == pytest.approx(expected, abs=4 * math.sqrt(expected / len(counts)))


def test_folds_leave_no_class_out():
    y = np.array([0, 0, 1, 2, 2, 2, 2])
    split = list(folds(y).split())
    assert len(split) == 3
    for train, test in split:
        assert set(y[train]) == {0, 1, 2}
        assert 1 not in y[test]
    assert sorted(np.concatenate([test for _, test in split])) == [0, 1, 3, 4, 5, 6]
    assert folds(np.arange(4)) is None


@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
def test_others_see_the_vectors_that_ours_do(transform):
    data = made_up()
    rows = draw(LABELS, "unequal", 0).rows
    x, y = data.train[rows], LABELS[rows]
    ours = HypersphereClassifier(feature_transform=transform).fit(x, y)
    seen = Features(transform).fit(x, y).transform(data.test)
    np.testing.assert_allclose(seen, ours._model().prepare(data.test), atol=1e-5)


def test_cosine_prototypes():
    data = made_up()
    model = CosinePrototypes().fit(data.train, LABELS)
    centers = np.stack([normalize(data.train[n == LABELS]).mean(0) for n in range(6)])
    expected = [max(range(6), key=lambda n: row @ centers[n] / np.linalg.norm(centers[n])) for row in data.test]
    assert model.predict(data.test).tolist() == expected


def test_discriminant_analysis_needs_more_examples_than_classes():
    assert discriminant(np.arange(5)) is None
    assert searched_discriminant(np.arange(5)) is None
    assert searched_discriminant(np.array([0, 0, 1, 1])).shrinkage == 0.5  # half of these are as many as the classes
    assert searched_discriminant(np.repeat([0, 1], 3)).param_grid["shrinkage"]
    assert set(TWINS) | set(TWINS.values()) <= set(BASELINES)


def test_calibration_error_is_that_of_a_loop():
    random = np.random.default_rng(0)
    probability = random.dirichlet(np.ones(4) / 2, 500)
    probability[0] = [1, 0, 0, 0]
    y = random.integers(0, 4, 500)
    expected = 0.0
    for b in range(BINS):
        low, high = b / BINS, (b + 1) / BINS
        here = [
            n for n in range(500) if low <= probability[n].max() < high or (b == BINS - 1 and probability[n].max() == 1)
        ]
        if here:
            sure = np.mean([probability[n].max() for n in here])
            right = np.mean([probability[n].argmax() == y[n] for n in here])
            expected += len(here) / 500 * abs(sure - right)
    assert expected_calibration_error(probability, y) == pytest.approx(expected)


def test_separation():
    scores, strange = np.array([*range(100), 94.5, 200.0]), np.array([False] * 100 + [True] * 2)
    found = separation(scores, strange)
    assert found["auroc"] == pytest.approx((95 + 100) / 200)
    assert found["fpr95"] == 0.5  # 95 of 100 lie up to 94 or 95: 94.5 passes, 200 does not


def test_paired_differences():
    tally = Tally("shots", "method")
    for ours, theirs in ((0.9, 0.8), (0.7, 0.7), (0.8, 0.9)):
        tally.add(("1", "ours"), accuracy=ours)
        tally.add(("1", "theirs"), accuracy=theirs)
    [row] = tally.against(("ours",), ["accuracy"])
    assert (row["shots"], row["method"], row["accuracy"]["larger"]) == ("1", "theirs", 1)
    assert row["accuracy"]["difference"] == pytest.approx(0, abs=1e-12)
    assert row["accuracy"]["ci95"] == pytest.approx(4.302653 * 0.1 / math.sqrt(3), abs=1e-5)
    one = Tally("shots", "method")
    one.add(("1", "ours"), accuracy=0.5)
    assert one.rows() == [
        {"shots": "1", "method": "ours", "accuracy": {"mean": 0.5, "ci95": None, "std": None, "draws": [0.5]}}
    ]


def test_the_files_of_the_releases_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    model = str(tiny_bert(tmp_path / "bert"))
    folder = tmp_path / "intents"
    for split in ("train", "valid", "test"):
        (folder / "hwu64" / split).mkdir(parents=True)
        (folder / "hwu64" / split / "seq.in").write_text("the king\n \nriver\n")
        (folder / "hwu64" / split / "label").write_text("b\na\na\n")
    (folder / "banking77").mkdir()
    for split in ("train", "test"):
        (folder / "banking77" / f"{split}.csv").write_text('text,category\n"a, b",x\nc,y\nd,y\n')
    parts = {"train": [["a", "x"], ["b", "y"]], "val": [["c", "x"]], "test": [["d", "y"]]}
    strangers = {"oos_val": [["e", "oos"]], "oos_test": [["f", "oos"], ["g", "oos"]], "oos_train": []}
    (folder / "clinc150.json").write_text(json.dumps({**parts, **strangers}))
    hwu = load_intents("hwu64", "valid", model)
    assert (hwu.classes, hwu.train_y.tolist(), hwu.test.shape) == (["a", "b"], [1, 0], (2, 32))
    banking = load_intents("banking77", "test", model)
    assert (banking.test_y.tolist(), len(banking.outside)) == ([0, 1, 1], 0)
    clinc = load_intents("clinc150", "test", model)
    assert (clinc.train_y.tolist(), clinc.test_y.tolist(), clinc.outside.shape) == ([0, 1], [1], (2, 32))
    assert len(load_intents("clinc150", "valid", model).outside) == 1
    with pytest.raises(ConfigError, match="banking77 has no valid split; use test"):
        load_intents("banking77", "valid", model)


def test_mistakes_are_said_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="1"):
        program.main(["accuracy", "--data", "hwu64"])
    assert "HYPERPROTO_DATA names the folder that holds intents/" in capsys.readouterr().err
    monkeypatch.setattr(program, "load_intents", lambda *_: made_up(outside=0))
    with pytest.raises(SystemExit, match="1"):
        program.main(["outside", "--data", "hwu64"])
    assert "error: made up has no texts outside its classes; use clinc150" in capsys.readouterr().err
    assert SHOTS == ("1", "2", "5", "10", "unequal")


def test_the_page_shows_what_the_files_hold(tmp_path):
    def of(mean):
        return {"mean": mean, "ci95": 0.01, "std": 0.02, "draws": [mean, mean]}

    def pair(value):
        return {"difference": value, "ci95": 0.015, "larger": 1}

    names = {"method": "a", "transform": "unit"}
    content = {
        "command": "python -m experiments accuracy --data hwu64",
        "data": "hwu64",
        "split": "test",
        "classes": 64,
        "texts": {"test": 1076},
        "reference": "a unit",
        "results": [
            {"shots": "1", **names, "accuracy": of(0.5), "fit_seconds": of(0.25)},
            {"shots": "5", **names, "accuracy": of(0.7), "fit_seconds": of(0.5)},
            {"shots": "5", **names, "method": "b", "accuracy": of(0.81), "fit_seconds": of(0.125)},
            {"shots": "5", **names, "transform": "none", "accuracy": of(0.9), "fit_seconds": of(0.125)},
        ],
        "comparisons": [{"shots": "5", "method": "b", "transform": "unit", "accuracy": pair(-0.11)}],
    }
    (tmp_path / "intents-hwu64.json").write_text(json.dumps(content))
    text = page(tmp_path)
    assert "`python -m experiments accuracy --data hwu64`, 64 classes, 1,076 texts, 2 draws." in text
    assert "| method | 1 shot | 5 shots |\n| --- | --- | --- |\n| a | **50.0** | 70.0 |\n| b | - | **81.0** |\n" in text
    assert "| a | **0.250** | 0.500 |\n| b | - | **0.125** |" in text  # the faster, the better
    assert "**accuracy**, transform none\n\n| method | 5 shots |\n| --- | --- |\n| a | **90.0** |\n" in text
    assert "a unit less the others, transform unit, paired over draws" in text
    assert "| b | -11.0 ± 1.5 |" in text


def test_the_page_in_the_documentation_is_that_of_the_results():
    root = Path(program.__file__).parents[1]
    assert (root / "docs" / "intents.md").read_text() == page(root / "results")
