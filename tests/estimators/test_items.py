"""The ready classifiers: whatever the classifier does with rows, they do with texts and images; saved and loaded."""

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from hyperproto import FewShotImageClassifier, FewShotTextClassifier, HypersphereClassifier, ImageEncoder, TextEncoder
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import load_classifier, networks, storage
from hyperproto.files import json_checksum
from tests.helpers.items import LABELS, TEXTS, names_of
from tests.helpers.tiny_models import tiny_bert

NEW = ["the king of london", "bob", "a river was born"]


@pytest.fixture
def model(bert: str) -> FewShotTextClassifier:
    return FewShotTextClassifier(encoder=bert, coverage=0.8).fit(TEXTS, LABELS)


def test_it_is_the_classifier_on_the_encoders_vectors(bert: str, model: FewShotTextClassifier) -> None:
    encode = TextEncoder(bert).transform
    head = HypersphereClassifier(coverage=0.8).fit(encode(TEXTS), LABELS, names=names_of(LABELS, encode))
    for call in ("predict", "predict_proba", "decision_function", "measure", "predict_set", "novelty"):
        np.testing.assert_array_equal(getattr(model, call)(NEW), getattr(head, call)(encode(NEW)))
    assert model.score(TEXTS, LABELS) == head.score(encode(TEXTS), LABELS)
    assert model.diagnose() == head.diagnose()
    model.partial_fit(NEW, ["court", "people", "new"]).forget(TEXTS[:1], LABELS[:1]).remove_class("place")
    head.partial_fit(encode(NEW), ["court", "people", "new"], names=names_of(["new"], encode))
    head.forget(encode(TEXTS[:1]), LABELS[:1]).remove_class("place")
    assert model.classes_.tolist() == ["court", "new", "people"]
    np.testing.assert_array_equal(model.predict_proba(TEXTS), head.predict_proba(encode(TEXTS)))


def test_examples_are_known_by_what_they_were(bert: str, model: FewShotTextClassifier, tmp_path: Path) -> None:
    assert model.examples_ == dict(enumerate(TEXTS))
    model.partial_fit(NEW, ["court", "new", "new"], sample_weight=[1, 0, 1]).forget(TEXTS[:1], LABELS[:1])
    model.remove_class("people")
    expected = {**{n: TEXTS[n] for n in range(1, 6)}, 9: NEW[0], 11: NEW[2]}
    assert model.examples_ == expected
    assert not any(text.encode() in pickle.dumps(model) for text in (TEXTS[0], *TEXTS[6:]))
    model.save(tmp_path)
    loaded = FewShotTextClassifier.load(tmp_path)
    assert loaded.examples_ == expected
    other = (
        FewShotTextClassifier(encoder=bert).partial_fit(["anna", "bob"], ["people"] * 2).forget(["anna"], ["people"])
    )
    loaded.merge(other)
    assert loaded.examples_ == {**expected, 12 + 1: "bob"}
    lean = FewShotTextClassifier(encoder=bert, fit_mode="unbiased", store_support=False).fit(TEXTS, LABELS)
    assert lean.partial_fit(NEW[:1], ["court"]).examples_ == {}


def test_the_doctor_knows_the_examples(model: FewShotTextClassifier) -> None:
    assert model.diagnose().items == model.examples_


def test_models_of_two_encoders_are_not_merged(bert: str, model: FewShotTextClassifier) -> None:
    other = FewShotTextClassifier(encoder=bert, max_length=64).fit(TEXTS, LABELS)
    with pytest.raises(DataError, match=r"fitted to .*max_length=162.*the other to those of .*max_length=64"):
        model.merge(other)
    with pytest.raises(DataError, match="those of an encoder that it does not name; only classifiers of one encoder"):
        model.merge(HypersphereClassifier().fit(np.eye(32), np.arange(32)))


def test_onnx_takes_vectors(bert: str, model: FewShotTextClassifier, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model.export_onnx(tmp_path / "head.onnx")
    session = runtime.InferenceSession(tmp_path / "head.onnx", providers=["CPUExecutionProvider"])
    [found] = session.run(["probabilities"], {"x": TextEncoder(bert).transform(NEW)})
    np.testing.assert_allclose(found, model.predict_proba(NEW), atol=1e-4)


def test_settings_of_both_are_its_own(bert: str) -> None:
    model = FewShotTextClassifier(encoder=bert, max_length=20, fit_mode="unbiased")
    assert model.get_params().keys() == HypersphereClassifier().get_params().keys() | {
        *("encoder", "max_length", "pooling", "prompt", "prompt_name", "long", "progress", "cache", "names")
    }
    copy = clone(model).set_params(coverage=0.9)
    assert (copy.max_length, copy.fit_mode, copy.coverage) == (20, "unbiased", 0.9)
    assert "max_length=20" in repr(model)
    with pytest.raises(TypeError, match="fitmode"):
        FewShotTextClassifier(fitmode="bayes")


def test_scikit_learn_can_search_and_pickle_it(bert: str, model: FewShotTextClassifier) -> None:
    search = GridSearchCV(
        FewShotTextClassifier(encoder=bert), {"fit_mode": ["bayes", "point"]}, cv=3, error_score="raise"
    )
    assert search.fit(TEXTS, LABELS).best_score_ >= 0
    assert len(cross_val_score(FewShotTextClassifier(encoder=bert), np.array(TEXTS), LABELS, cv=3)) == 3
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert again.partial_fit(NEW[:1], ["court"]).predict(NEW[:1]).tolist() == ["court"]


def test_a_model_that_names_no_encoder_is_refused(model: FewShotTextClassifier, tmp_path: Path) -> None:
    model.save(tmp_path)
    content = json.loads((tmp_path / "model.json").read_text())
    forged = {**content, "encoder": None, "items": None}
    forged.pop("checksum")
    (tmp_path / "model.json").write_text(json.dumps({**forged, "checksum": json_checksum(forged)}))
    with pytest.raises(DataError, match="the model does not say which encoder made its vectors; take it from a copy"):
        FewShotTextClassifier.load(tmp_path)


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("parameters", {"max_length": [128]}, r"max_length is \[128\], no whole number or string; take it from a copy"),
        ("parameters", {"prompt": ["a"]}, r"prompt is \['a'\], no string or None"),
        ("encoder", {"options": {"encoder": ["x"]}}, r"the options of its encoder name an encoder \['x'\]"),
        ("encoder", {"options": {"model": ["x"]}}, "this classifier was fitted to vectors of"),
    ],
)
def test_lists_among_the_options_of_a_saved_encoder_are_refused(
    model: FewShotTextClassifier, tmp_path: Path, section: str, values: dict[str, Any], message: str
) -> None:
    model.save(tmp_path)
    forged = json.loads((tmp_path / "model.json").read_text())
    forged[section] |= values
    forged.pop("checksum")
    (tmp_path / "model.json").write_text(json.dumps({**forged, "checksum": json_checksum(forged)}))
    with pytest.raises(DataError, match=message):
        FewShotTextClassifier.load(tmp_path)


def test_an_option_of_the_encoder_that_is_a_list_is_refused(bert: str) -> None:
    options: Any = {"max_length": [128]}
    with pytest.raises(ConfigError, match=r"option 'max_length': \[128\] is not valid"):
        FewShotTextClassifier(encoder=bert, **options).fit(TEXTS, LABELS)


def test_a_model_on_disk_is_the_same_model(bert: str, model: FewShotTextClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = FewShotTextClassifier.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))
    for each in (again, model):
        each.partial_fit(NEW, ["a", "b", "court"])
    np.testing.assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))
    assert {path.suffix for path in (tmp_path / "model").glob("[!.]*")} == {".json", ".safetensors"}
    head = json.loads((tmp_path / "model" / "model.json").read_text())
    assert head["kind"] == "FewShotTextClassifier"
    assert head["encoder"]["options"] == {"model": bert, "max_length": 162}
    assert len(head["encoder"]["sha256"]) == 64


def test_other_weights_are_refused(model: FewShotTextClassifier, tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    tiny_bert(folder)
    FewShotTextClassifier(encoder=str(folder)).fit(TEXTS, LABELS).save(tmp_path / "model")
    import torch
    from transformers import BertModel

    other = BertModel.from_pretrained(folder)
    with torch.no_grad():
        other.embeddings.word_embeddings.weight[5, 0] += 1
    other.save_pretrained(folder)
    networks.forget_networks()
    with pytest.raises(
        DataError,
        match=r"fitted to vectors of sentence-transformer \(max_length=162, model='.*'; weights \w{12}\), but '.*' is "
        r"now sentence-transformer \(.*; weights \w{12}\); use the encoder of the fit, or fit again",
    ):
        FewShotTextClassifier.load(tmp_path / "model")
    late = FewShotTextClassifier.load(tmp_path / "model", check_encoder=False)
    assert late.classes_.tolist() == ["court", "people", "place"]
    for call in (lambda: late.predict(NEW), lambda: late.partial_fit(NEW, ["a", "b", "c"])):
        with pytest.raises(DataError, match="fitted to vectors of"):
            call()
    assert late.fit(TEXTS, LABELS).predict(NEW).shape == (3,)  # a new fit is to the new weights


def test_settings_of_the_encoder_may_not_change_after_the_fit(model: FewShotTextClassifier) -> None:
    with pytest.raises(DataError, match=r"max_length=162.*is now sentence-transformer \(max_length=64"):
        model.set_params(max_length=64).predict(NEW)


def test_every_kind_is_loaded_as_what_it_is(model: FewShotTextClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "texts")
    HypersphereClassifier().fit(np.eye(2), ["a", "b"]).save(tmp_path / "rows")
    assert type(load_classifier(tmp_path / "texts")) is FewShotTextClassifier
    assert type(load_classifier(tmp_path / "rows")) is HypersphereClassifier
    with pytest.raises(DataError, match=r"texts: holds a FewShotTextClassifier, not a HypersphereClassifier; load"):
        HypersphereClassifier.load(tmp_path / "texts")
    with pytest.raises(DataError, match=r"rows: holds a HypersphereClassifier, not a FewShotTextClassifier"):
        FewShotTextClassifier.load(tmp_path / "rows")


def test_a_kind_that_nobody_knows(tmp_path: Path) -> None:
    class FewShotSoundClassifier(HypersphereClassifier):
        pass

    FewShotSoundClassifier().fit(np.eye(2), ["a", "b"]).save(tmp_path)
    with pytest.raises(DataError, match=r"there is no classifier 'FewShotSoundClassifier'; did you mean"):
        load_classifier(tmp_path)


def test_damage_is_refused_before_anything_is_loaded(
    model: FewShotTextClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path)
    monkeypatch.setattr(networks, "make_encoder", None)
    [tensors] = tmp_path.glob("*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(DataError, match="cut or changed"):
        load_classifier(tmp_path)
    head = json.loads((tmp_path / "model.json").read_text())
    head["encoder"]["sha256"] = "0" * 64
    (tmp_path / "model.json").write_text(json.dumps(head))
    with pytest.raises(DataError, match="was changed after it was saved"):
        load_classifier(tmp_path)


class Unread(list[str]):
    def __iter__(self) -> Iterator[str]:
        raise AssertionError("read")


def test_a_call_that_fails_changes_nothing(model: FewShotTextClassifier) -> None:
    before = model.predict_proba(NEW)
    failing: list[tuple[Callable[[], object], str]] = [
        (lambda: model.partial_fit(["a", ""], ["x", "y"]), r"X\[1\] is an empty text"),
        (lambda: model.fit(["a", None], ["x", "y"]), r"X\[1\] is missing"),
        (lambda: model.forget(["never seen"], ["court"]), "is not among the examples"),
    ]
    for call, message in failing:
        with pytest.raises(DataError, match=message):
            call()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.partial_fit(Unread(TEXTS), ["x"])  # seen before anything is encoded
    np.testing.assert_array_equal(model.predict_proba(NEW), before)


def test_before_the_fit_there_is_nothing(bert: str, tmp_path: Path) -> None:
    model = FewShotTextClassifier(encoder=bert)
    calls: list[Callable[[], object]] = [lambda: model.predict(NEW), lambda: model.save(tmp_path), model.check_encoder]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()
    with pytest.raises(ConfigError, match="coverage=2: give a share"):
        FewShotTextClassifier(encoder=bert, coverage=2).fit(TEXTS, LABELS)


def test_a_saved_model_needs_no_torch_unless_it_reads(model: FewShotTextClassifier, tmp_path: Path) -> None:
    import subprocess
    import sys

    model.save(tmp_path)
    code = (
        "import sys; from hyperproto.estimators import load_classifier;"
        f"model = load_classifier({str(tmp_path)!r}, check_encoder=False);"
        "print(len(model.diagnose().classes), 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["3", "False"]


def test_images(files: list[Path], tmp_path: Path) -> None:
    labels = ["red" if n % 2 else "blue" for n in range(6)]
    model = FewShotImageClassifier(resolution=32).fit(files[:4], labels[:4])
    assert model.predict(files[4:]).tolist() == labels[4:]
    head = HypersphereClassifier().fit(ImageEncoder(resolution=32).transform(files[:4]), labels[:4])
    np.testing.assert_array_equal(
        model.predict_proba(files), head.predict_proba(ImageEncoder(resolution=32).transform(files))
    )
    model.save(tmp_path / "model")
    assert load_classifier(tmp_path / "model").predict(files[4:]).tolist() == labels[4:]
    assert storage.read_kind(tmp_path / "model") == "FewShotImageClassifier"


def test_a_format_of_the_future_is_refused(model: FewShotTextClassifier, tmp_path: Path) -> None:
    assert storage.FORMAT == "hyperproto-estimator/1"
    model.save(tmp_path)
    head = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**head, "format": "hyperproto-estimator/9"}))
    with pytest.raises(DataError, match="format 'hyperproto-estimator/9'; this version of hyperproto reads"):
        FewShotTextClassifier.load(tmp_path)
