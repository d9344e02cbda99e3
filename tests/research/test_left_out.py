"""Studies of out-of-class scores and of rules of rejection, on small synthetic classes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import normalize

from hyperproto import HypersphereClassifier
from research.intents import left_out as study
from research.intents import page, rejection
from research.intents.open_set import least_distance
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports, draw, some_classes
from research.intents.texts import Intents

WAY, SHOT = 12, 4


@pytest.fixture(scope="module")
def data() -> Intents:
    random = np.random.default_rng(0)
    names = 2 * random.normal(size=(WAY + 1, 8)).astype(np.float32)
    y = np.repeat(np.arange(WAY), 15)
    train, test = (names[y] + random.normal(size=(len(y), 8)).astype(np.float32) for _ in range(2))
    outside = names[WAY] + random.normal(size=(30, 8)).astype(np.float32)
    return Intents("tiny", "test", [str(n) for n in range(WAY)], train, y, test, y, outside, names[:WAY])


def test_scores_are_those_of_models_without_a_quarter_of_the_classes(data: Intents) -> None:
    supports = Supports(data.train_y, [str(SHOT)], 2)
    found = study.left_out(data, supports, 4.0)
    rows = {row["score"]: row for row in found["results"]}
    assert set(study.STRENGTHS) < set(rows)
    known = np.sort(some_classes(WAY, 9, 1))
    own = draw(data.train_y, str(SHOT), 1).rows
    own = own[np.isin(data.train_y[own], known)]
    strange = ~np.isin(data.test_y, known)
    x, y, test = normalize(data.train[own]), data.train_y[own], normalize(data.test)
    model = HypersphereClassifier().fit(x, y, names={int(n): data.names[n] for n in known})
    nearest = ((test[:, None] - x[None]) ** 2).sum(2).min(1)
    strength = study.STRENGTHS["logistic regression, max probability"]["5"]
    logistic = LogisticRegression(C=strength, class_weight="balanced", tol=1e-6, max_iter=10_000).fit(x, y)
    expected = {
        "novelty, names": model.novelty(test),
        "max probability, names": -model.predict_proba(test).max(1),
        "relative measure, names": [min(row) - np.mean(row) for row in model.measure(test)],
        "energy, names": [-np.log(np.exp(-row / model.temperature_).sum()) for row in model.measure(test)],
        "nearest neighbour": nearest,
        "logistic regression, max probability": -logistic.predict_proba(test).max(1),
    }
    for name, score in expected.items():
        assert rows[name]["auroc"]["draws"][1] == pytest.approx(roc_auc_score(strange, score), abs=2e-4), name
    every = draw(data.train_y, str(SHOT), 1).rows
    whole = HypersphereClassifier().fit(normalize(data.train[every]), data.train_y[every])
    score = np.concatenate([whole.novelty(test), whole.novelty(normalize(data.outside))])
    of_no_class = roc_auc_score(np.arange(len(score)) >= len(test), score)
    assert rows["novelty"]["auroc_out_of_scope"]["draws"][1] == pytest.approx(of_no_class, abs=1e-5)
    [pair] = [row for row in found["comparisons"] if row["score"] == "novelty"]
    for measure in ("auroc", "auroc_out_of_scope"):
        difference = np.mean(rows["novelty, names"][measure]["draws"]) - np.mean(rows["novelty"][measure]["draws"])
        assert pair[measure]["difference"] == pytest.approx(difference, abs=2e-5)


def test_the_former_novelty_is_the_least_distance_in_units_of_scatter(data: Intents) -> None:
    x, y, rows = data.train[::3], data.train_y[::3], data.test[:30]
    model = HypersphereClassifier(feature_transform="none").fit(x, y)
    means = np.stack([x[y == n].mean(0) for n in range(WAY)])
    far = np.linalg.norm(rows[:, None] - means, axis=2).min(1)
    ratio = least_distance(model, rows) / far
    np.testing.assert_allclose(ratio, ratio[0], rtol=0.03)  # scatters of classes are shrunk to one
    own = [np.linalg.norm(row - (5 * means[n] - row) / 4) for row, n in zip(x, y, strict=True)]
    assert 1 / ratio[0] == pytest.approx(np.sqrt(np.mean(np.square(own))), rel=0.15)  # its unit: 1 is usual


def test_the_other_training_texts_are_scored_at_every_strength(data: Intents) -> None:
    found = study.left_out(replace(data, split="train"), Supports(data.train_y, ["2"], 1), 4.0)
    names = [row["score"] for row in found["results"]]
    own = draw(data.train_y, "2", 0).rows
    x, y = np.delete(data.train, own, axis=0), np.delete(data.train_y, own)
    known = study.known_classes(WAY, 0)
    own = own[np.isin(data.train_y[own], known)]
    score = HypersphereClassifier().fit(normalize(data.train[own]), data.train_y[own]).novelty(normalize(x))
    [row] = [row for row in found["results"] if row["score"] == "novelty"]
    assert row["auroc"]["mean"] == pytest.approx(roc_auc_score(~np.isin(y, known), score), abs=1e-5)
    assert "auroc_out_of_scope" not in row
    for name in study.STRENGTHS:
        assert [f"{name}, C = {strength:g}" in names for strength in study.GRID] == [True] * len(study.GRID)
        assert name not in names


def test_rows_of_a_rival_are_of_equal_supports_only(data: Intents, tmp_path: Path) -> None:
    rows = [
        {
            "method": method,
            "shots": shot,
            "auroc": {"draws": [0.5, 0.6, 0.7]},
            "auroc_confidence": {"draws": [0.1, 0.2]},
        }
        for method in ("adaptive-classifier", "ours")
        for shot in ("1", "2", "5")
    ]
    supports = Supports(data.train_y, ["1", "2"], 3)
    assert len([*supports]) == 6
    stored = {"1": [*supports.hashes["1"][:2], "another"], "2": ["another", *supports.hashes["2"][1:]], "5": ["a"]}
    file = tmp_path / "rivals-tiny.json"
    file.write_text(json.dumps({"asked": 1000, "supports": stored, "results": rows}))
    values = OverDraws("shots", "score")
    study.add_rival(values, data, supports, tmp_path)
    name = "adaptive-classifier, {} (1,000 of the texts)"
    assert values.values == {
        ("1", name.format("own score")): {"auroc": [0.5, 0.6]},
        ("1", name.format("max probability")): {"auroc": [0.1, 0.2]},
    }
    study.add_rival(values, replace(data, split="train"), supports, tmp_path)
    study.add_rival(values, replace(data, name="other"), supports, tmp_path)
    assert len(values.values) == 2


def test_rules_are_measured_on_genuine_and_out_of_class_texts(data: Intents) -> None:
    found = rejection.rejection(data, Supports(data.train_y, ["8"], 2), 4.0)
    rows = {row["rule"]: row for row in found["results"]}
    assert list(rows) == [f"{rule}={value}" for rule, value in rejection.RULES]
    known = study.known_classes(WAY, 1)
    own = draw(data.train_y, "8", 1).rows
    own = own[np.isin(data.train_y[own], known)]
    model = HypersphereClassifier(reject_rate=0.1)
    model.fit(normalize(data.train[own]), data.train_y[own], names={int(n): data.names[n] for n in known})
    answers = list(zip(model.predict(normalize(data.test)).tolist(), data.test_y.tolist(), strict=True))
    genuine = [(answer, label) for answer, label in answers if label in known]
    right = [answer == label for answer, label in genuine if answer != -1]
    outside = [answer == -1 for answer, label in answers if label not in known]
    expected = {
        "genuine_rejected": 1 - len(right) / len(genuine),
        "outside_rejected": np.mean(outside),
        "precision": np.mean(right),
        "expected_outside_rejected": model.expected_.outside_rejected,
    }
    for measure, value in expected.items():
        assert rows["reject_rate=0.1"][measure]["draws"][1] == pytest.approx(value, abs=1e-5), measure


def test_risk_is_that_of_the_most_probable_answers(data: Intents) -> None:
    x, y = normalize(data.train[::3]), data.train_y[::3]
    model = HypersphereClassifier().fit(x, y)
    rows = normalize(data.test[:40])
    found = rejection.risk_by_share(model, rows, data.test_y[:40])
    pairs = sorted(zip(model.predict_proba(rows).max(1), model.predict(rows) != data.test_y[:40], strict=True))[::-1]
    assert len(found) == 20
    for share, risks in found.items():
        answered = pairs[: round(float(share) * 40)]
        assert risks["risk"] == pytest.approx(np.mean([wrong for _, wrong in answered])), share
    assert found["1.00"]["expected_risk"] == pytest.approx(1 - (model.expected_.accuracy or 0.0))
    alone = rejection.risk_by_share(HypersphereClassifier().fit(x[::5], y[::5]), rows, data.test_y[:40])
    assert set(alone["1.00"]) == {"risk"}  # no example can be left out


def test_the_figure_and_the_page_show_the_rules(data: Intents, tmp_path: Path) -> None:
    found = rejection.rejection(data, Supports(data.train_y, ["1", "8"], 2), 4.0)
    head = {"command": "python -m research.intents rejection", "data": "tiny", "split": "test", "classes": WAY}
    file = tmp_path / "intents-tiny-rejection.json"
    content: dict[str, Any] = {**head, "texts": {"test": 180}, **found}
    file.write_text(json.dumps(content))
    rejection.main([str(tmp_path / "risk.png"), str(file)])
    assert (tmp_path / "risk.png").read_bytes().startswith(b"\x89PNG")
    [(name, text)] = page.pages(tmp_path).items()
    assert name == "none-of-these"
    assert "| `precision=0.95` | 1 | 100.0 ± 0.0 | 100.0 ± 0.0" in text  # one example a class certifies nothing
