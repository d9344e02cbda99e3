"""The map tuned on the examples: its loss, its rank, and the study."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hyperproto import HypersphereClassifier
from hyperproto.regions import Sphere
from research import tuning
from research.intents.supports import draw
from research.tuning import RIDGE, Mapped, Spheres, fitted_map
from tests.docs.markdown import result, section, tables
from tests.research.test_intents import LABELS, made_up


def spheres_of(shots: str = "5") -> tuple[HypersphereClassifier, Spheres, np.ndarray, np.ndarray]:
    data, rows = made_up(), draw(LABELS, shots, 0).rows
    x = data.train[rows] / np.linalg.norm(data.train[rows], axis=1, keepdims=True)
    model = HypersphereClassifier().fit(x, LABELS[rows])
    return model, Spheres.of(model, x, LABELS[rows]), x, LABELS[rows]


def test_the_loss_leaves_out_each_example() -> None:
    model, spheres, x, y = spheres_of()
    region, change = model.region_, 0.3 * np.random.default_rng(0).normal(size=(8, 8))
    assert isinstance(region, Sphere)
    assert region.whiten is not None
    assert region.bias_radius is not None
    f, total = region.whiten(x.astype(np.float64)), 0.0
    means = np.stack([f[y == n].mean(0) for n in range(6)])
    k = float(region.ratio)
    middle = means.mean(0)  # equal shots: equal weights
    for i in range(len(f)):
        scores = np.zeros(6)
        for n in range(6):
            others = f[(y == n) & (np.arange(len(f)) != i)]
            center = middle + len(others) / (len(others) + k) * (others.mean(0) - middle)
            gap = (f[i] - center) @ (np.eye(8) + change)
            scores[n] = -(gap @ gap - region.bias_radius[n]) / (2 * float(region.scatter) / 20)
        total += np.log(np.exp(scores).sum()) - scores[y[i]]
    assert float(spheres.loss(torch.from_numpy(change))) == pytest.approx(total / len(f), rel=1e-5)


def test_the_map_lowers_the_loss_and_has_the_rank_that_is_asked_for() -> None:
    _, spheres, x, y = spheres_of()
    eye = torch.eye(8, dtype=spheres.rows.dtype)
    whole, low = (fitted_map(spheres, rank) - eye for rank in (8, 2))
    start = float(spheres.loss(torch.zeros_like(eye)))
    assert float(spheres.loss(whole) + RIDGE * (whole**2).sum()) < start
    assert torch.linalg.matrix_rank(low, atol=1e-9) == 2
    model = Mapped().fit(x, y)
    mapped = torch.from_numpy(model.map)
    distance = torch.cdist(spheres.rows @ mapped, spheres.center @ mapped) ** 2 - spheres.radius
    assert model.predict(x).tolist() == distance.argmin(1).tolist()


def test_the_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tuning, "load_intents", lambda *_: made_up())
    file = tmp_path / "tuning.json"
    tuning.main(["--data", "hwu64", "--shots", "5", "--draws", "2", "--json", str(file)])
    content = json.loads(file.read_text())
    assert {row["method"]: len(row["accuracy"]["draws"]) for row in content["results"]} == dict.fromkeys(
        tuning.methods("5"), 2
    )
    assert content["command"].startswith("python -m research.tuning --data hwu64")
    assert "accuracy, mean" in capsys.readouterr().out


def test_the_guide_shows_what_the_files_hold() -> None:
    _, _, text = section("docs/estimators.md", "What we measured").partition("### Tuning on the examples")
    [[_, *names], *rows] = tables(text)[0]
    assert [row[0] for row in rows] == [
        "default",
        "`refine=True`",
        "logistic regression",
        "map",
        "map, then `refine=True`",
    ]
    for place, name in enumerate(names, start=1):
        found = json.loads(result(f"tuning-{name.lower()}.json"))["results"]
        cells = {(row["method"], row["shots"]): f"{100 * row['accuracy']['mean']:.1f}" for row in found}
        expected = [f"{cells[method, '10']} / {cells[method, '20']}" for method in tuning.methods("10")]
        assert [row[place] for row in rows] == expected
