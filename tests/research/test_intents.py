"""The studies of intents run, on small made-up classes; what they draw, transform and measure is what they say."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from hyperproto import HypersphereClassifier
from hyperproto.data import open_pool
from hyperproto.encoders import make_encoder
from hyperproto.errors import ConfigError, DataError
from research.intents import __main__ as program
from research.intents.accuracy import accuracy
from research.intents.calibration import BINS, expected_calibration_error
from research.intents.classifiers import (
    BASELINES,
    TWINS,
    CosinePrototypes,
    SupportTransform,
    candidates,
    discriminant,
    folds,
    searched_discriminant,
)
from research.intents.evidence import evidence, soft_prototypes
from research.intents.open_set import by_warning, rejected, separation, vacuous
from research.intents.over_draws import OverDraws
from research.intents.pools import POOLS, situation
from research.intents.setfit import SetFit
from research.intents.supports import SHOTS, Supports, draw, some_classes
from research.intents.texts import Intents, load_intents
from tests.helpers.tiny_models import tiny_bert

LABELS = np.repeat(np.arange(6), 25)


def made_up(outside: int = 20) -> Intents:
    random = np.random.default_rng(0)
    centers = 2 * random.normal(size=(7, 8))

    def rows(labels: NDArray[np.int64]) -> NDArray[np.float32]:
        x: NDArray[np.float32] = (centers[labels] + random.normal(size=(len(labels), 8))).astype(np.float32)
        return x

    test_y = np.repeat(np.arange(6), 10)
    names = [f"class {n}" for n in range(6)]
    parts = rows(LABELS), LABELS, rows(test_y), test_y, rows(np.full(outside, 6)), rows(np.arange(6))
    return Intents("made up", "test", names, *parts)


@pytest.mark.parametrize("study", program.STUDIES)
def test_every_study_runs_and_writes_its_numbers(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "load_intents", lambda *_: made_up())
    file = tmp_path / "found.json"
    arguments = [study, "--data", "clinc150", "--draws", "2", "--shots", "1", "5", "unequal", "--json", str(file)]
    program.main(arguments)
    content = json.loads(file.read_text())
    lines = sum(len(content.get(part, [])) for part in ("results", "comparisons", "curves"))
    assert len(file.read_text().splitlines()) < 40 + lines
    assert content["command"] == f"python -m research.intents {' '.join(arguments)}"
    assert (content["classes"], content["texts"]) == (6, {"train": 150, "test": 60, "outside": 20})
    assert content["supports"].keys() == {"1", "5", "unequal"}
    assert all(len(set(hashes)) == 2 for hashes in content["supports"].values())
    measures = [value for row in content["results"] for value in row.values() if isinstance(value, dict)]
    undefined = {1} if study == "rejection" else set()  # the precision where nothing is answered
    assert {len(value["draws"]) for value in measures} - undefined == {2}
    assert all(value["mean"] == pytest.approx(np.mean(value["draws"]), abs=1e-4) for value in measures)
    if study not in ("coverage", "vacuous", "rejection"):
        assert all(
            "difference" in value for row in content["comparisons"] for value in row.values() if type(value) is dict
        )
        assert len(content["comparisons"]) == len(content["results"]) - 3
    assert "mean ± 95 % interval over draws" in capsys.readouterr().out


def test_accuracy_is_that_of_the_classifier() -> None:
    data = made_up()
    found = accuracy(data, Supports(LABELS, ["5"], 2), 4.0)
    rows = {(row["method"], row["transform"]): row for row in found["results"]}
    assert len(rows) == len(candidates(4.0))
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


def test_what_is_known_is_used() -> None:
    data = made_up()
    found = evidence(data, Supports(LABELS, ["0", "1"], 2), 4.0)
    rows = {(row["shots"], row["method"]): row["accuracy"]["draws"] for row in found["results"]}
    assert [method for shots, method in rows if shots == "0"] == [
        "names",
        "names + unlabelled",
        "names + unlabelled, refined",
    ]
    cosine = (normalize(data.test) @ normalize(data.names).T).argmax(1)
    assert rows["0", "names"] == [pytest.approx((cosine == data.test_y).mean(), abs=1e-5)] * 2
    support = draw(LABELS, "1", 1).rows
    unlabelled = np.delete(data.train, support, axis=0)
    model = HypersphereClassifier(refine=False).fit(
        data.train[support], LABELS[support], names=dict(enumerate(data.names)), unlabelled=unlabelled
    )
    assert rows["1", "names + unlabelled"][1] == pytest.approx(model.score(data.test, data.test_y), abs=1e-5)
    assert np.mean(rows["1", "names + unlabelled"]) > np.mean(rows["1", "plain"])


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_is_what_it_says(pool: str) -> None:
    way, support = 6, draw(LABELS, "2", 3).rows
    now = situation(pool, LABELS, support, 3)
    first = some_classes(way, way // 2, 3)
    known = {"out-of-class": first, "few-known": some_classes(way, 5, 3)}.get(pool, list(range(way)))
    assert now.classes.tolist() == sorted(known)
    with_examples = first if pool == "by-name" else known
    assert np.bincount(LABELS[now.support], minlength=way).tolist() == [2 * (n in with_examples) for n in range(way)]
    assert not set(now.unlabelled) & set(support)
    sizes = np.bincount(LABELS[now.unlabelled], minlength=way)
    every = np.bincount(LABELS) - 2
    if pool == "absent":
        assert sizes.tolist() == [every[n] * (n in first) for n in range(way)]
    elif pool == "unequal":
        order = some_classes(way, way, 3)
        assert sizes[order].tolist() == [min(150 // rank, every[n]) for rank, n in enumerate(order, start=1)]
    else:
        assert sizes.tolist() == every.tolist()
    assert now.codes(np.array(known)).tolist() == np.argsort(np.argsort(known)).tolist()
    assert (now.codes(np.setdiff1d(range(way), known)) == -1).all()


def test_evidence_of_a_pool_by_some_methods() -> None:
    data, supports = made_up(), Supports(LABELS, ["2"], 2)
    only = ["names", "plain", "logistic regression, name as example"]
    found = evidence(data, supports, 4.0, "by-name", only, probabilities=True)
    assert found["pool"] == "by-name"
    rows = {row["method"]: row for row in found["results"]}
    assert set(rows) == {"names", "logistic regression, name as example"}  # no other can know a class by its name
    now = situation("by-name", LABELS, draw(LABELS, "2", 1).rows, 1)
    model = HypersphereClassifier().fit(data.train[now.support], LABELS[now.support], names=dict(enumerate(data.names)))
    assert rows["names"]["accuracy"]["draws"][1] == pytest.approx(model.score(data.test, data.test_y), abs=1e-5)
    bare = ~np.isin(data.test_y, LABELS[now.support])
    alone = model.score(data.test[bare], data.test_y[bare])
    assert rows["names"]["accuracy of classes known by name"]["draws"][1] == pytest.approx(alone, abs=1e-5)
    calibration_error = expected_calibration_error(model.predict_proba(data.test), data.test_y)
    assert rows["names"]["ece"]["draws"][1] == pytest.approx(calibration_error, abs=1e-3)
    few = evidence(data, supports, 4.0, "out-of-class", ["plain"])["results"]
    known = situation("out-of-class", LABELS, draw(LABELS, "2", 0).rows, 0)
    model = HypersphereClassifier().fit(data.train[known.support], LABELS[known.support])
    inside = np.isin(data.test_y, known.classes)
    expected = model.score(data.test[inside], data.test_y[inside])
    assert few[0]["accuracy"]["draws"][0] == pytest.approx(expected, abs=1e-5)


def test_evidence_refuses_unknown_methods_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="no method is called plane; there are: names; "):
        evidence(made_up(), Supports(LABELS, ["2"], 1), 4.0, only=["plane"])
    with pytest.raises(SystemExit):
        program.main(["accuracy", "--data", "hwu64", "--pool", "absent"])
    told = "--pool, --methods, --probabilities, --slow-draws and --setfit are for the study `evidence`"
    assert told in capsys.readouterr().err


def test_methods_that_take_long_are_measured_on_fewer_draws() -> None:
    data, only = made_up(), ["self-training", "plain", "names + unlabelled"]
    whole = evidence(data, Supports(LABELS, ["2"], 3), 4.0, only=only)
    found = evidence(data, Supports(LABELS, ["2"], 3), 4.0, only=only, slow_draws=2)
    every, rows = ({row["method"]: row["accuracy"]["draws"] for row in part["results"]} for part in (whole, found))
    assert rows == {**every, "self-training": every["self-training"][:2]}
    pairs = {row["method"]: row["accuracy"] for row in found["comparisons"]}
    ours = np.array(every["names + unlabelled"])
    for method, draws in (("self-training", 2), ("plain", 3)):
        expected = np.mean(ours[:draws] - every[method][:draws])
        assert pairs[method]["difference"] == pytest.approx(expected, abs=2e-5)


ANSWERS = """#!{python}
import json, sys
job = json.load(open(sys.argv[3]))
assert (job["iterations"], job["batch"]) == (20, 16)
known = dict(zip(job["texts"], job["labels"]))
labels = [known.get("train" + text[4:6], 0) for text in job["asked"]]
json.dump({{"labels": labels, "seconds": 7.5}}, open(sys.argv[4], "w"))
"""  # stands for an environment with SetFit, which no test installs: a test text has the label of a text like it


def test_setfit_sees_the_texts_of_the_support(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(ANSWERS.format(python=sys.executable))
    script.chmod(0o700)
    texts = {"train_texts": [f"train {n}" for n in LABELS], "test_texts": [f"test {n}" for n in made_up().test_y]}
    data = replace(made_up(), **texts, encoder=str(tiny_bert(tmp_path / "bert")))  # type: ignore[arg-type]
    found = evidence(data, Supports(LABELS, ["2"], 1), 4.0, only=["plain"], setfit=str(script))
    rows = {row["method"]: row for row in found["results"]}
    assert set(rows) == {"plain", "SetFit"}
    assert rows["SetFit"]["accuracy"]["mean"] == 1.0
    assert rows["SetFit"]["seconds"]["mean"] == 7.5


def test_an_interpreter_without_setfit_is_told(tmp_path: Path) -> None:
    model = str(tiny_bert(tmp_path / "bert"))
    with pytest.raises(ConfigError, match=r"--setfit nowhere: cannot be run .*; name an interpreter that has it"):
        SetFit("nowhere", model, ["a"], [0], ["b"])
    with pytest.raises(ConfigError, match=r"SetFit failed \(ModuleNotFoundError: No module named '\w+'\); name an"):
        SetFit(sys.executable, model, ["a"], [0], ["b"])


def test_soft_prototypes_are_one_step_of_soft_k_means() -> None:
    random = np.random.default_rng(0)
    x, y, rows = normalize(random.normal(size=(6, 4))), np.repeat([0, 1, 2], 2), normalize(random.normal(size=(9, 4)))
    means = [x[y == n].mean(0) for n in range(3)]
    total, size = [x[y == n].sum(0) for n in range(3)], [2.0] * 3
    for row in rows:
        odds = [math.exp(-5 * sum((row - mean) ** 2)) for mean in means]
        for n in range(3):
            total[n] = total[n] + odds[n] / sum(odds) * row
            size[n] += odds[n] / sum(odds)
    expected = [total[n] / size[n] for n in range(3)]
    np.testing.assert_allclose(soft_prototypes(x, y, rows, 5.0), expected, rtol=1e-9)


def test_no_shots_are_for_what_knows_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["accuracy", "--data", "hwu64", "--shots", "0"])
    assert "--shots 0 is for the study `evidence`: the others need an example of each class" in capsys.readouterr().err


def test_draws_are_nested_and_the_same_everywhere() -> None:
    one, five, ten = (draw(LABELS, shots, 3).rows for shots in ("1", "5", "10"))
    assert np.bincount(LABELS[five]).tolist() == [5] * 6
    assert set(one) < set(five) < set(ten)
    assert set(draw(LABELS, "5", 4).rows) != set(five)
    assert draw(LABELS, "5", 3).digest == draw(LABELS, "5", 3).digest == "42f1f9015488b3e8"
    assert draw(LABELS, "unequal", 3).digest == "111a320f58a10b79"
    with pytest.raises(DataError, match="class 0 has 25 texts, and 30 shots were asked for"):
        draw(LABELS, "30", 0)


def test_how_far_it_is() -> None:
    said: list[tuple[int, int, str]] = []
    supports = Supports(LABELS, ["1", "5"], 2, lambda done, total, note="": said.append((done, total, note)))
    assert [shots for shots, _ in supports] == ["1", "1", "5", "5"]
    assert said[0] == (0, 4, "shots 1: draw 1 of 2")
    assert said[3:] == [(3, 4, "shots 5: draw 2 of 2"), (4, 4, "")]


def test_unequal_counts_are_drawn_with_probability_one_over_k() -> None:
    labels = np.repeat(np.arange(300), 20)
    counts = np.concatenate([np.bincount(labels[draw(labels, "unequal", n).rows]) for n in range(20)])
    total = sum(1 / k for k in range(1, 21))
    assert (counts.min(), counts.max()) == (1, 20)
    for k in (1, 2, 5, 20):
        expected = 1 / k / total
        assert np.mean(counts == k) == pytest.approx(expected, abs=4 * math.sqrt(expected / len(counts)))


def test_folds_leave_no_class_out() -> None:
    y = np.array([0, 0, 1, 2, 2, 2, 2])
    made = folds(y)
    assert made is not None
    split = list(made.split())
    assert len(split) == 3
    for train, test in split:
        assert set(y[train]) == {0, 1, 2}
        assert 1 not in y[test]
    assert sorted(np.concatenate([test for _, test in split])) == [0, 1, 3, 4, 5, 6]
    assert folds(np.arange(4)) is None


@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
def test_others_see_the_vectors_that_ours_do(transform: str) -> None:
    data = made_up()
    rows = draw(LABELS, "unequal", 0).rows
    x, y = data.train[rows], LABELS[rows]
    ours = HypersphereClassifier(feature_transform=transform).fit(x, y)
    seen = SupportTransform(transform).fit(x, y).transform(data.test)
    np.testing.assert_allclose(seen, ours._snapshot().prepare(data.test), atol=1e-5)


def test_cosine_prototypes() -> None:
    data = made_up()
    model = CosinePrototypes().fit(data.train, LABELS)
    centers = np.stack([normalize(data.train[n == LABELS]).mean(0) for n in range(6)])
    expected = [max(range(6), key=lambda n: row @ centers[n] / np.linalg.norm(centers[n])) for row in data.test]
    assert model.predict(data.test).tolist() == expected


def test_discriminant_analysis_needs_more_examples_than_classes() -> None:
    assert discriminant(np.arange(5)) is None
    assert searched_discriminant(np.arange(5)) is None
    assert searched_discriminant(np.array([0, 0, 1, 1])).shrinkage == 0.5  # half of these are as many as the classes
    assert searched_discriminant(np.repeat([0, 1], 3)).param_grid["shrinkage"]
    assert set(TWINS) | set(TWINS.values()) <= set(BASELINES)


def test_calibration_error_is_that_of_a_loop() -> None:
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


def test_separation() -> None:
    scores, strange = np.array([*range(100), 94.5, 200.0]), np.array([False] * 100 + [True] * 2)
    found = separation(scores, strange)
    assert found["auroc"] == pytest.approx((95 + 100) / 200)
    assert found["fpr95"] == 0.5  # 95 of 100 lie up to 94 or 95: 94.5 passes, 200 does not


def test_texts_that_a_coverage_rejects_are_of_omitted_classes_and_of_none() -> None:
    data = made_up()
    found = vacuous(data, Supports(LABELS, ["10"], 2), 4.0)
    rows = {(row["classes"], row["nominal"]): row for row in found["results"]}
    assert rows.keys() == {(classes, nominal) for classes in ("3", "6") for nominal in ("0.9", "0.95")}
    assert "left_out_rejected" not in rows["6", "0.9"]  # there are none
    assert set(some_classes(6, 3, 1)) < set(some_classes(6, 4, 1))
    for index in range(2):
        classes = some_classes(6, 3, index)
        support = [n for n in draw(LABELS, "10", index).rows if LABELS[n] in classes]
        model = HypersphereClassifier(coverage=0.9).fit(data.train[support], LABELS[support])
        row = {name: value["draws"][index] for name, value in rows["3", "0.9"].items() if isinstance(value, dict)}
        others = data.test[[label not in classes for label in data.test_y]]
        assert len(others) == 30
        for name, texts in (("left_out_rejected", others), ("outside_rejected", data.outside)):
            assert row[name] == pytest.approx(np.mean([not any(sets) for sets in model.predict_set(texts)]), abs=1e-5)
        assert row["expected_rejected"] == pytest.approx(model.expected_.strangers_rejected, abs=1e-5)
        assert row["expected_set_size"] == pytest.approx(model.expected_.set_size, abs=1e-5)
    assert sum(group["outside_rejected"]["models"] for group in found["warnings"].values() if group) == 8
    assert sum(group["left_out_rejected"]["models"] for group in found["warnings"].values() if group) == 4


def test_models_are_told_apart_by_their_warning() -> None:
    near, far = np.random.default_rng(0).normal(size=(2, 60, 8))
    labels, others = np.repeat(np.arange(3), 20), {"left_out": 9 + far, "outside": far[:0]}
    models = [
        rejected(HypersphereClassifier(feature_transform="none", coverage=0.9).fit(x, y), others)
        for x, y in ((near[:2], labels[[0, 20]]), (near, labels), (near + 20 * labels[:, None], labels))
    ]
    assert [(model["too_few"], model["vacuous"]) for model in models] == [(1, 0), (0, 1), (0, 0)]
    assert models[0]["expected_set_size"] == 2  # everything is accepted
    found = by_warning([*models, {**models[2], "left_out_rejected": 0.05}])
    names = ("models", "at_most_0.05", "least", "mean", "most", "from_expected")
    assert {warning: tuple(group["left_out_rejected"][name] for name in names) for warning, group in found.items()} == {
        "too_few": (1, 1, 0, 0, 0, 0),
        "vacuous": (1, 0, 1, 1, 1, round(1 - models[1]["expected_rejected"], 5)),
        "none": (2, 1, 0.05, 0.525, 1, 0.475),
    }


def test_paired_differences() -> None:
    values = OverDraws("shots", "method")
    for ours, theirs in ((0.9, 0.8), (0.7, 0.7), (0.8, 0.9)):
        values.add(("1", "ours"), accuracy=ours)
        values.add(("1", "theirs"), accuracy=theirs)
    [row] = values.against(("ours",), ["accuracy"])
    assert (row["shots"], row["method"], row["accuracy"]["larger"]) == ("1", "theirs", 1)
    assert row["accuracy"]["difference"] == pytest.approx(0, abs=1e-12)
    assert row["accuracy"]["ci95"] == pytest.approx(4.302653 * 0.1 / math.sqrt(3), abs=1e-5)
    one = OverDraws("shots", "method")
    one.add(("1", "ours"), accuracy=0.5)
    assert one.rows() == [
        {"shots": "1", "method": "ours", "accuracy": {"mean": 0.5, "ci95": None, "std": None, "draws": [0.5]}}
    ]


def test_the_files_of_the_releases_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    outside = {"oos_val": [["e", "oos"]], "oos_test": [["f", "oos"], ["g", "oos"]], "oos_train": []}
    (folder / "clinc150.json").write_text(json.dumps({**parts, **outside}))
    hwu = load_intents("hwu64", "valid", model)
    assert (hwu.classes, hwu.train_y.tolist(), hwu.test.shape) == (["a", "b"], [1, 0], (2, 32))
    banking = load_intents("banking77", "test", model)
    assert (banking.test_y.tolist(), len(banking.outside)) == ([0, 1, 1], 0)
    clinc = load_intents("clinc150", "test", model)
    assert (clinc.train_y.tolist(), clinc.test_y.tolist(), clinc.outside.shape) == ([0, 1], [1], (2, 32))
    assert len(load_intents("clinc150", "valid", model).outside) == 1
    with pytest.raises(ConfigError, match="banking77 has no valid split; use train or test"):
        load_intents("banking77", "valid", model)


def test_topics_are_read_by_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    model = str(tiny_bert(tmp_path / "bert"))
    (tmp_path / "topics").mkdir()
    lines = ["text,label,split", '"the king, anna",b,train', "river,a,train", "paris,b,test"]
    (tmp_path / "topics" / "trec.csv").write_text("\n".join(lines))
    found = load_intents("trec", "test", model)
    assert (found.classes, found.train_y.tolist(), found.test_y.tolist()) == (["a", "b"], [1, 0], [1])
    assert (found.train_texts[0], len(found.outside)) == ("the king, anna", 0)
    with pytest.raises(ConfigError, match="trec has no valid split; use train or test"):
        load_intents("trec", "valid", model)


def test_relations_are_studied_as_intents_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    folder, model = tmp_path / "fewrel", str(tiny_bert(tmp_path / "bert"))
    folder.mkdir()
    words = ["the", "king", "met", "anna", "river", "paris"]
    sentences = {
        relation: [
            {"tokens": [word, "king", "met", "anna"], "h": ["king", "Q1", [[1]]], "t": ["anna", "Q2", [[3]]]}
            for word in words[:size]
        ]
        for relation, size in (("P1", 5), ("P2", 6))
    }
    (folder / "val_wiki.json").write_text(json.dumps(sentences))
    (folder / "pid2name.json").write_text(json.dumps({"P1": ["the king", "of a river"], "P2": ["a city", "paris"]}))
    found = load_intents("fewrel-val_wiki", "test", model)
    assert (found.train_y.tolist(), found.test_y.tolist()) == ([0] * 3 + [1] * 3, [0] * 2 + [1] * 3)
    encoder = make_encoder("relation-transformer", {"model": model, "representation": "prompt"}).eval()
    pool = open_pool("fewrel", "val_wiki")
    every = encoder.encode_all(encoder.prepare(pool.items)).x.numpy()
    np.testing.assert_allclose(found.train, every[[0, 2, 4, 5, 7, 9]], atol=1e-5)
    np.testing.assert_allclose(found.test, every[[1, 3, 6, 8, 10]], atol=1e-5)
    with torch.no_grad():
        np.testing.assert_allclose(found.names[1], encoder.read_texts(["a city: paris"])[0].numpy(), atol=1e-5)
    with pytest.raises(ConfigError, match="fewrel-val_wiki has no valid split; use test, or fewrel-train to choose"):
        load_intents("fewrel-val_wiki", "valid", model)


def test_mistakes_are_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="1"):
        program.main(["accuracy", "--data", "hwu64"])
    assert "hyperproto data get intents fetches it" in capsys.readouterr().err
    monkeypatch.setattr(program, "load_intents", lambda *_: made_up(outside=0))
    with pytest.raises(SystemExit, match="1"):
        program.main(["outside", "--data", "hwu64"])
    assert "error: made up has no texts outside its classes; use clinc150" in capsys.readouterr().err
    assert SHOTS == ("1", "2", "5", "10", "unequal")
