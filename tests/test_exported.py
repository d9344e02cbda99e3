"""Exported classifiers: the answers of the model without torch and scikit-learn, and errors for damage."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto import ConfigError, DataError, ExportedClassifier, FewShotTextClassifier, HypersphereClassifier
from hyperproto.estimators import MultiLabelClassifier, export
from hyperproto.estimators.export import export_classifier
from tests.estimators.conftest import blobs
from tests.helpers.tiny_models import tiny_bert

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

CARD = ["My card has not arrived", "Where is my new card?", "The card should be here", "Card delivery takes long"]
RATE = ["What is the exchange rate?", "How many euros for $100?", "Yen to pounds", "Is the dollar up today?"]
ASKED = ["Has my card been posted?", "Swiss francs?", "What is the capital of Peru?", "card " * 400, "é 汉字 😀"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[FewShotTextClassifier, Path]:
    """A saved classifier of texts, exported into its folder."""
    folder = tmp_path_factory.mktemp("texts") / "model"
    model = FewShotTextClassifier(coverage=0.75).fit(CARD + RATE, ["card"] * 4 + ["rate"] * 4)
    model.save(folder)
    export_classifier(model, folder / "export")
    return model, folder


@pytest.mark.filterwarnings("ignore:.*longer than 256 word pieces")
def test_texts_get_the_answers_of_the_model(texts: Any) -> None:
    model, folder = texts
    exported = ExportedClassifier(folder / "export", threads=1)
    found = exported.predictions(ASKED)
    assert exported.items == "text"
    assert exported.rejects
    np.testing.assert_array_equal(exported.classes_, model.classes_)
    np.testing.assert_array_equal(found.labels, model.predict(ASKED))
    np.testing.assert_allclose(found.probabilities, model.predict_proba(ASKED), atol=1e-4)
    np.testing.assert_array_equal(exported.predict_set(ASKED), model.predict_set(ASKED))
    np.testing.assert_allclose(exported.vectors(ASKED), model.item_encoder().transform(ASKED), atol=1e-5)
    np.testing.assert_allclose(exported.predict_proba(ASKED[:1]), found.probabilities[:1], atol=1e-6)
    assert exported.predict_proba([]).shape == (0, 2)


def test_neither_torch_nor_scikit_learn_is_imported(texts: Any) -> None:
    _, folder = texts
    code = (
        "import sys, hyperproto\n"
        f"model = hyperproto.ExportedClassifier({str(folder / 'export')!r}, threads=1)\n"
        "print(model.predict(['Where is my card?'])[0], {'torch', 'sklearn', 'scipy', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "card set()\n"


@pytest.mark.parametrize("labels", [["a", "b", "c", "d"], [3, 1, 4, 15]])
@pytest.mark.parametrize("coverage", [None, 0.8])
def test_vectors_keep_their_labels(tmp_path: Path, labels: list[Any], coverage: float | None) -> None:
    x, y = blobs((8, 5, 1, 6), dim=12, seed=1)
    given = [labels["abcd".index(label)] for label in y]
    model = HypersphereClassifier(coverage=coverage).fit(x, given)
    export_classifier(model, tmp_path / "out")
    exported = ExportedClassifier(tmp_path / "out", threads=1)
    found = exported.predictions(x)
    assert found.labels.tolist() == model.predict(x).tolist()
    assert found.labels.dtype == model.predict(x).dtype
    np.testing.assert_allclose(found.probabilities, model.predict_proba(x), atol=1e-4)
    if coverage is None:
        with pytest.raises(ConfigError, match="the exported model has no coverage"):
            exported.predict_set(x)


def test_the_graph_names_the_labels(tmp_path: Path) -> None:
    import onnxruntime

    x, y = blobs((8, 5, 1, 6), dim=12, seed=1)
    for given, expected in ((y, list(y)), ([10 * "abcd".index(label) for label in y], None)):
        model = HypersphereClassifier(coverage=0.5).fit(x, given)
        model.export_onnx(tmp_path / "head.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "head.onnx", providers=["CPUExecutionProvider"])
        [names] = session.run(["name"], {"x": np.vstack([x, -x]).astype(np.float32)})
        assert names.tolist() == model.predict(np.vstack([x, -x])).tolist()
        assert expected is None or "none of these" in names.tolist()


def test_long_texts_are_read_in_the_same_windows(tmp_path: Path) -> None:
    bert = str(tiny_bert(tmp_path / "bert"))
    model = FewShotTextClassifier(encoder=bert, max_length=12, long="windows", names=None, feature_transform="none")
    asked = ["anna met bob", "the king was born in paris. the queen of london met anna in a city of the river " * 3]
    model.fit(["the king of london", "a city of the river"], ["king", "city"])
    export_classifier(model, tmp_path / "out")
    exported = ExportedClassifier(tmp_path / "out", threads=1)
    np.testing.assert_allclose(exported.vectors(asked), model.item_encoder().transform(asked), atol=1e-5)
    assert exported.predict(asked).tolist() == model.predict(asked).tolist()


@pytest.mark.slow
def test_int8_is_smaller_and_nearly_the_same(texts: Any, tmp_path: Path) -> None:
    model, folder = texts
    export_classifier(model, tmp_path / "small", int8=True)
    full, small = (path / "encoder.onnx" for path in (folder / "export", tmp_path / "small"))
    assert small.stat().st_size < 0.3 * full.stat().st_size
    found = ExportedClassifier(tmp_path / "small", threads=1).predictions(CARD + RATE)
    assert 0 < np.abs(found.probabilities - model.predict_proba(CARD + RATE)).max() < 0.2


@pytest.mark.parametrize("rule", ["reject_rate", "precision", "outside"])
def test_rules_that_are_not_exported_are_refused(tmp_path: Path, rule: str) -> None:
    x, y = blobs((20, 20), dim=3)
    model = HypersphereClassifier().set_params(**({} if rule == "outside" else {rule: 0.5}))
    model.fit(x, y, outside=-x[:5] if rule == "outside" else None)
    with pytest.raises(ConfigError, match=f"{rule} rejects by a score that is not exported"):
        export_classifier(model, tmp_path / "out")
    assert model.answers_.tolist() == ["a", "b", "none of these"]


def test_an_export_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = str(tiny_bert(tmp_path / "bert"))
    model = FewShotTextClassifier(encoder=bert, names=None).fit(["the king of london", "a river"], ["king", "city"])
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(ConfigError, match=r"vectors differ .* nothing was written"):
        model.export(tmp_path / "out")
    assert not (tmp_path / "out" / "export.json").exists()


def test_models_without_probabilities_and_of_label_sets_are_refused(tmp_path: Path) -> None:
    x, y = blobs((8, 5), dim=3)
    model = HypersphereClassifier(fit_mode="point", store_support=False).fit(x, y)
    with pytest.raises(ConfigError, match="give temperature a number"):
        model.export(tmp_path / "out")
    several = MultiLabelClassifier().fit(x, [[label] for label in y])
    with pytest.raises(ConfigError, match="MultiLabelClassifier cannot be exported"):
        export_classifier(several, tmp_path / "out")


def test_damage_and_wrong_input_are_named(tmp_path: Path) -> None:
    x, y = blobs((8, 5), dim=3)
    model = HypersphereClassifier().fit(x, y)
    model.save(tmp_path / "model")
    with pytest.raises(ConfigError, match="holds a model; export to a folder of its own"):
        export_classifier(model, tmp_path / "model")
    with pytest.raises(ConfigError, match="int8 is for the encoder"):
        export_classifier(model, tmp_path / "out", int8=True)
    with pytest.raises(DataError, match="hyperproto export MODEL --to"):
        ExportedClassifier(tmp_path / "model")
    export_classifier(model, tmp_path / "out")
    exported = ExportedClassifier(tmp_path / "out", threads=1)
    for wrong, words in (
        ([[1.0, 2.0]], r"shape \(1, 2\); this classifier takes vectors \(n, 3\)"),
        ([[1.0, 2.0, np.nan]], r"X\[0\] holds a number that is not finite"),
        ([["a", "b", "c"]], "no array of numbers"),
        ([[10**400, 0, 0]], "no array of numbers"),
    ):
        with pytest.raises(DataError, match=words):
            exported.predict(wrong)
    head = json.loads((tmp_path / "out" / "export.json").read_text())
    for change, words in (
        ({"classes": ["a", "c"]}, "was changed since the export"),
        ({"format": "x/9"}, "has format 'x/9'"),
    ):
        (tmp_path / "out" / "export.json").write_text(json.dumps({**head, **change}))
        with pytest.raises(DataError, match=words):
            ExportedClassifier(tmp_path / "out")
    (tmp_path / "out" / "export.json").write_text(json.dumps(head))
    (tmp_path / "out" / "head.onnx").write_bytes(b"cut")
    with pytest.raises(DataError, match="was cut or changed since the export"):
        ExportedClassifier(tmp_path / "out")


def test_encoders_that_cannot_be_exported_are_refused(tmp_path: Path) -> None:
    model = FewShotTextClassifier(encoder=lambda texts: np.ones((len(texts), 3)) + len(texts[0])).fit(
        ["a", "b"], [0, 1]
    )
    with pytest.raises(ConfigError, match="only language models of whole texts are exported"):
        export_classifier(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_single_text_is_refused(texts: Any) -> None:
    exported = ExportedClassifier(texts[1] / "export", threads=1)
    with pytest.raises(DataError, match="is a single text"):
        exported.predict("Where is my card?")
    with pytest.raises(DataError, match=r"X\[1\] is an empty text"):
        exported.predict(["Where is my card?", " "])
