"""Fitted classifiers in the formats of others: skops, and MLflow's flavour of scikit-learn (extra `interop`)."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto import HypersphereClassifier
from hyperproto.estimators.state import AppendableArray
from tests.estimators.conftest import assert_equal_models
from tests.estimators.test_side import NAMES, ROWS, TEST, X, Y

Q = TEST[:9]
PICKLES = Path(__file__).parents[1] / "fixtures" / "0.1" / "pickles"


def models(folder: Path) -> list[HypersphereClassifier]:
    """Examples alone, with side evidence, with unlabelled rows that were not saved, and statistics alone."""
    informed = HypersphereClassifier(coverage=0.9).fit(X, Y, names=NAMES, unlabelled=ROWS)
    informed.save(folder)
    lean = HypersphereClassifier(fit_mode="unbiased", store_support=False, temperature=1.0)
    return [HypersphereClassifier().fit(X, Y), informed, HypersphereClassifier.load(folder), lean.fit(X, Y)]


def test_the_state_of_an_array_is_a_dictionary() -> None:
    array = AppendableArray((2,), np.float64)
    array.append(np.eye(2))
    assert [*array.__getstate__()] == ["rows"]
    again = pickle.loads(pickle.dumps(array))
    again.append(np.ones((1, 2)))
    assert again.view.tolist() == [[1, 0], [0, 1], [1, 1]]


def test_pickles_of_the_first_version_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their arrays had an array for a state."""
    model = HypersphereClassifier().fit(X, Y, names=NAMES, unlabelled=ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(AppendableArray, "__getstate__", lambda self: self.view.copy())
        old = pickle.dumps(model)
    assert_equal_models(pickle.loads(old), model, Q, 0)


@pytest.mark.parametrize("name", ["plain", "evidence", "summary", "statistics", "text"])
def test_pickles_of_an_earlier_layout_give_the_same_answers(name: str) -> None:
    """They name classes and modules that are gone."""
    expected = json.loads((PICKLES / "expected.json").read_text())[name]
    model = pickle.loads((PICKLES / f"{name}.pickle").read_bytes())
    queries = expected["q"] if name == "text" else np.array(expected["q"])
    if name == "evidence":  # with unlabelled rows leave-one-out has changed, and with it the temperature alone
        now, before = (np.log(np.array(p)[0, :2]) for p in (model.predict_proba(queries), expected["probabilities"]))
        model.set_params(temperature=model.temperature_ * float((now[0] - now[1]) / (before[0] - before[1])))
    for _ in range(2):
        assert model.classes_.tolist() == expected["classes"]
        np.testing.assert_allclose(model.predict_proba(queries), expected["probabilities"], rtol=1e-6)
        model = pickle.loads(pickle.dumps(model))
    assert "new" in model.partial_fit(queries[:2], ["new", "new"]).classes_
    if name == "text":
        assert model.examples_[0] == "abba"


@pytest.mark.filterwarnings("ignore")
def test_skops(tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io")
    for model in models(tmp_path):
        content = skops.dumps(model)
        trusted = skops.get_untrusted_types(data=content)
        assert all(name.startswith("hyperproto.") for name in trusted)
        again = skops.loads(content, trusted=trusted)
        assert_equal_models(again, model, Q, 0)
        again.partial_fit(Q[:1], ["f"])
        assert again.classes_.tolist() == [*"abcdef"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["skops", "cloudpickle"])
def test_mlflow(tmp_path: Path, form: str) -> None:
    skops, mlflow = pytest.importorskip("skops.io"), pytest.importorskip("mlflow.sklearn")
    for number, model in enumerate(models(tmp_path / "saved")):
        folder = tmp_path / str(number)
        options: dict[str, Any] = {"serialization_format": form, "pip_requirements": ["hyperproto"]}
        if form == "skops":
            options["skops_trusted_types"] = skops.get_untrusted_types(data=skops.dumps(model))
        mlflow.save_model(model, folder, **options)
        assert_equal_models(mlflow.load_model(str(folder)), model, Q, 0)
