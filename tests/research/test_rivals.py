"""The study of other packages: what is fitted, added and measured, here and in another interpreter."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import normalize

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError
from research.intents.supports import draw, some_classes
from research.intents.texts import Intents
from research.rivals import __main__ as program
from research.rivals import worker
from research.rivals.packages import Package
from research.rivals.page import page
from research.rivals.study import METHODS, NAMED, OURS, OURS_NAMED, Draw, measure_method
from tests.docs.markdown import section, tables
from tests.research.test_intents import LABELS, made_up

RESULTS = Path(__file__).parents[2] / "results" / "rivals"
ROUTER = {  # stands for semantic-router, which no test installs: the nearest example by cosine
    "semantic_router/__init__.py": """
from types import SimpleNamespace
class Route(SimpleNamespace): pass
print("a line of the package's own")
""",
    "semantic_router/encoders.py": """
class DenseEncoder:
    def __init__(self, name): pass
""",
    "semantic_router/routers.py": """
import numpy as np
from types import SimpleNamespace
class IndexedRouter:
    def __init__(self, encoder, routes, aggregation):
        assert aggregation == "mean"
        self.encoder, self.rows = encoder, []
        self.add(routes)
    def add(self, routes):
        self.rows += [(route.name, self.encoder([text])[0]) for route in routes for text in route.utterances]
    def __call__(self, text):
        cosine = [np.dot(row, self.encoder([text])[0]) for _, row in self.rows]
        best = int(np.argmax(cosine))
        return SimpleNamespace(name=self.rows[best][0], confidence=cosine[best])
""",
    "semantic_router-9.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: semantic-router\nVersion: 9.1\n",
}


def with_texts() -> Intents:
    data = made_up(0)
    data.__dict__["train_texts"] = [f"train {n}" for n in range(len(data.train))]
    data.__dict__["test_texts"] = [f"test {n}" for n in range(len(data.test))]
    return data


@pytest.fixture
def router(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an interpreter that has a package of this name."""
    for name, text in ROUTER.items():
        file = tmp_path / "packages" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    return sys.executable


def test_ours_is_fitted_and_measured_as_the_classifier_itself() -> None:
    data = with_texts()
    rows = draw(LABELS, "5", 1).rows
    now = Draw.of(data, "5", rows, 1)
    old = sorted(some_classes(6, 5, 1))
    assert now.old.tolist() == old
    found = measure_method(OURS, now, {})
    x, y, test = normalize(data.train[rows]), LABELS[rows], normalize(data.test)
    model, known = HypersphereClassifier().fit(x, y), np.isin(data.test_y, old)
    assert found["accuracy"] == pytest.approx(model.score(test, data.test_y), abs=1e-5)
    assert (
        found["old_joint"]
        == found["old_after"]
        == pytest.approx(model.score(test[known], data.test_y[known]), abs=1e-5)
    )
    partly = HypersphereClassifier().fit(x[np.isin(y, old)], y[np.isin(y, old)])
    assert found["auroc"] == pytest.approx(roc_auc_score(~known, partly.novelty(test)), abs=1e-5)
    assert found["auroc_confidence"] == pytest.approx(
        roc_auc_score(known, partly.predict_proba(test).max(axis=1)), abs=1e-5
    )
    named = measure_method(OURS_NAMED, now, {})
    model = HypersphereClassifier().fit(x, y, names=dict(enumerate(normalize(data.names))))
    assert named["accuracy"] == pytest.approx(model.score(test, data.test_y), abs=1e-5)


def test_a_name_is_an_example_where_the_method_says_so() -> None:
    now = Draw.of(with_texts(), "1", draw(LABELS, "1", 0).rows, 0)
    plain, named = ([*now.steps(given, True)] for given in (False, True))
    assert [step["call"] for step in named] == ["fit", "answer"] * 2 + ["add", "answer"]
    for without, extended in zip(plain[::2], named[::2], strict=True):
        assert np.bincount(extended["labels"], minlength=6).tolist() == [
            count + (count > 0) for count in np.bincount(without["labels"], minlength=6).tolist()
        ]
    fit, _, partly, _, added, asked = named
    assert sorted([*partly["labels"], *added["labels"]]) == sorted(fit["labels"])
    assert set(partly["labels"]) == set(now.old.tolist())
    assert [now.texts[row] for row in asked["rows"]] == [f"test {n}" for n in range(60)]
    assert [now.y[row] for row in range(now.examples, now.examples + 6)] == [*range(6)]  # names follow the examples
    found = [measure_method(f"logistic regression{ending}", now, {}) for ending in ("", NAMED)]
    assert found[0]["accuracy"] < found[1]["accuracy"]
    assert "old_after" not in found[0]


def test_a_package_answers_from_its_own_interpreter(router: str) -> None:
    data = with_texts()
    rows = draw(LABELS, "5", 0).rows
    now = Draw.of(data, "5", rows, 0)
    with Package("semantic-router", router, Path("model")) as package:
        assert package.version == "9.1"
        found = measure_method("semantic-router", now, {"semantic-router": package.run_steps})
        named = measure_method(f"semantic-router{NAMED}", now, {"semantic-router": package.run_steps})
    cosine = normalize(data.test) @ normalize(data.train[rows]).T
    right = LABELS[rows][cosine.argmax(axis=1)] == data.test_y
    assert found["accuracy"] == pytest.approx(right.mean(), abs=1e-5)
    old = np.isin(LABELS[rows], now.old)
    score = -cosine[:, old].max(axis=1)
    assert found["auroc"] == pytest.approx(roc_auc_score(~np.isin(data.test_y, now.old), score), abs=1e-5)
    assert found["old_after"] == found["old_joint"]
    assert "ece" not in found  # a similarity is no probability
    assert named != found


def test_an_interpreter_without_the_package_is_named(tmp_path: Path, router: str) -> None:
    for python, message in (
        ("nowhere", "nowhere: cannot be run"),
        (router, r"SetFit failed in .*No module named 'set"),
    ):
        with (
            pytest.raises(ConfigError, match=rf"{message}.*ENV/bin/pip install setfit"),
            Package("SetFit", python, tmp_path),
        ):
            pass


def test_the_novelty_of_adaptive_classifier_is_its_own_score(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    random = np.random.default_rng(0)
    x = random.normal(size=(9, 4)).astype(np.float32)
    prototypes = {"0": torch.from_numpy(x[:3].mean(0)), "1": torch.from_numpy(x[3])}
    radii = {"0": 0.7, "1": 0.0}

    class Stub:
        def __init__(self, model: str, **settings: Any) -> None:
            assert settings == {"use_onnx": False, "device": "cpu"}
            self.memory = SimpleNamespace(prototypes=prototypes, class_radius=radii.get)
            self.config = SimpleNamespace(ood_min_radius=0.05)
            self.added: list[str] = []

        def add_examples(self, texts: list[str], labels: list[str]) -> None:
            self.added += labels
            assert torch.stack(self._get_embeddings(texts)).shape == (len(texts), 4)

        def _get_embeddings(self, texts: list[str]) -> Any:
            raise AssertionError("the encoder runs")

        def predict_batch(self, texts: list[str], k: int) -> list[list[tuple[str, float]]]:
            return [[("1", float(self._get_embeddings([text])[0][0]))] for text in texts]

    module = ModuleType("adaptive_classifier")
    module.AdaptiveClassifier = Stub  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "adaptive_classifier", module)
    model = worker.Adaptive("folder")
    steps = [{"call": "fit", "rows": [0, 1, 3], "labels": [0, 0, 1]}, {"call": "answer", "rows": [4, 5]}]
    fitted, answer = worker.run_steps(model, steps, [f"text {n}" for n in range(9)], x)
    assert model.model.added == ["0", "0", "1"]
    naive = [
        min(np.linalg.norm(row - p.numpy()) / max(radii[label], 0.05) for label, p in prototypes.items())
        for row in x[4:6]
    ]
    assert answer["novelty"].tolist() == pytest.approx(naive)
    assert answer["confidence"].tolist() == pytest.approx(x[4:6, 0].tolist())
    assert answer["labels"].tolist() == [1, 1]
    assert set(fitted) == {"seconds"}


def test_a_file_of_results_is_extended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "load_intents", lambda *_: made_up(0))
    monkeypatch.setattr(program, "encode_seconds", lambda _: 4.5)
    file = tmp_path / "rivals-hwu64.json"
    first = ["--data", "hwu64", "--shots", "1", "5", "--draws", "2", "--methods", OURS, "--json", str(file)]
    program.main(first)
    before = json.loads(file.read_text())
    second = ["--data", "hwu64", "--shots", "5", "--draws", "3", "--methods", OURS, OURS_NAMED, "--json", str(file)]
    program.main([*second[:-2], "--again", OURS_NAMED, *second[-2:]])
    content = json.loads(file.read_text())
    assert [row["method"] for row in content["results"]] == [OURS, OURS, OURS_NAMED]
    assert content["results"][0] == before["results"][0]
    assert content["results"][1]["accuracy"]["draws"][:2] == before["results"][1]["accuracy"]["draws"]
    assert {shot: len(hashes) for shot, hashes in content["supports"].items()} == {"1": 2, "5": 3}
    assert content["supports"]["5"][2] == draw(LABELS, "5", 2).digest
    assert content["commands"][0] == f"python -m research.rivals {' '.join(first)}"
    assert len(content["commands"]) == 2
    assert not list(tmp_path.glob("*.part"))
    pairs = {(pair["reference"], pair["shots"], pair["method"]) for pair in content["comparisons"]}
    assert pairs == {(OURS, "5", OURS_NAMED), (OURS_NAMED, "5", OURS)}
    assert "accuracy, mean" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        program.main([*second, "--texts", "7"])
    assert "was measured with other data, encoder or texts; name another file" in capsys.readouterr().err
    text = page(tmp_path)
    assert "6 classes, 60 test texts; encoder 4.5 s for 1,000 texts." in text
    accuracy = [f"{100 * row['accuracy']['mean']:.1f}" for row in content["results"]]
    assert f"| ours | 2 / 3 | {accuracy[0]} / {accuracy[1]} |" in text
    assert f"| ours, names | 0 / 3 | - / {accuracy[2]} |" in text


def test_some_texts_are_at_even_distances() -> None:
    data = with_texts()
    some = program.some_texts(data, 7)
    assert list(some.test_texts) == [f"test {round(n * 59 / 6)}" for n in range(7)]
    rows = [int(text.split()[1]) for text in some.test_texts]
    assert (some.test == data.test[rows]).all()
    assert (some.test_y == data.test_y[rows]).all()
    assert program.some_texts(data, None) is data is program.some_texts(data, 60)


def test_the_page_is_up_to_date() -> None:
    assert (RESULTS / "rivals.md").read_text() == page(RESULTS)
    every = {row["method"] for file in RESULTS.glob("rivals-*.json") for row in json.loads(file.read_text())["results"]}
    assert every <= set(METHODS)


def test_the_guide_shows_rows_of_the_page() -> None:
    _, _, text = section("docs/estimators.md", "What we measured").partition("### Other packages")
    _, _, banking = (RESULTS / "rivals.md").read_text().partition("## banking77\n")
    groups = tables(banking.partition("\n## ")[0])
    [_, *titles], *rows = tables(text)[0]
    page_rows = {row[0]: dict(zip(table[0], row, strict=True)) for table in groups for row in table[1:]}
    assert len(rows) <= 10
    for name, *cells in rows:
        assert cells == [page_rows[name][title] for title in titles], name
