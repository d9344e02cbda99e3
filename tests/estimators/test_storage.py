"""Saved and loaded: the same classifier, in files that are whole, checked, and no pickle."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import storage
from hyperproto.files import json_checksum
from tests.estimators.conftest import assert_equal_models, blobs

Q = np.random.default_rng(9).normal(size=(6, 5))


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    x, y = blobs((6, 4, 5))
    HypersphereClassifier(coverage=0.8).fit(x, y).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_round_trip_keeps_everything(make: Callable[..., HypersphereClassifier], tmp_path: Path) -> None:
    x, y = blobs()
    model = make(prior_ratio=4.0).fit(x.astype(np.float32), y, np.arange(1, 13) % 3 / 2)
    model.save(tmp_path)
    again = HypersphereClassifier.load(str(tmp_path))
    assert again.get_params() == model.get_params()
    assert_equal_models(again, model, Q, 0)
    assert [e.example for e in again.diagnose().outlying] == [e.example for e in model.diagnose().outlying]
    for each in (model, again):
        each.partial_fit(Q, ["a", "b", "new", "new", "c", "a"]).forget(Q[:1], ["a"])
    assert_equal_models(again, model, Q, 0)


def test_statistics_alone(tmp_path: Path) -> None:
    x, y = blobs()
    model = HypersphereClassifier(fit_mode="unbiased", store_support=False, temperature=0.5).fit(x, y)
    model.save(tmp_path)
    again = HypersphereClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(Q), model.predict_proba(Q))
    assert not any(len(x) in np.shape(part) for part in storage._tensors(again._state).values())


@pytest.mark.parametrize("labels", [["x", "é", "y"], [1, 2, 3], [1.5, 2.0, -1.0], [True, "a", 7]])
def test_labels_of_any_kind_come_back(tmp_path: Path, labels: Any) -> None:
    x, y = np.repeat(np.eye(3), 4, axis=0), np.array([label for label in labels for _ in range(4)], dtype=object)
    model = HypersphereClassifier().fit(x, y)
    model.save(tmp_path)
    again = HypersphereClassifier.load(tmp_path)
    assert again.classes_.tolist() == model.classes_.tolist()
    assert [type(label) for label in again.predict(x).tolist()] == [type(label) for label in y]


def test_feature_names_come_back(tmp_path: Path) -> None:
    model = HypersphereClassifier().fit(np.eye(2), ["a", "b"])
    model.feature_names_in_ = np.array(["one", "two"], dtype=object)
    model.save(tmp_path)
    assert HypersphereClassifier.load(tmp_path).feature_names_in_.tolist() == ["one", "two"]


def test_the_folder_holds_json_and_safetensors_only(saved: Path) -> None:
    names = sorted(path.name for path in saved.iterdir())
    assert [name.partition("-")[0] for name in names] == [".lock", "model.json", "tensors"]
    assert names[2].endswith(".safetensors")
    assert (saved / ".lock").read_bytes() == b""
    head = json.loads((saved / "model.json").read_text())
    assert head["format"] == "hyperproto-estimator/1"
    assert head["parameters"]["coverage"] == 0.8
    assert len(head["tensors"]["sha256"]) == 64


def test_saving_again_replaces_the_model_and_leaves_nothing_behind(saved: Path) -> None:
    HypersphereClassifier().fit(*blobs((2, 2))).save(saved)
    assert len(list(saved.glob("[!.]*"))) == 2
    assert HypersphereClassifier.load(saved).counts_.tolist() == [2, 2]


@pytest.mark.parametrize("at", ["tensors", "model.json"])
def test_a_failure_on_the_way_leaves_the_old_model(saved: Path, monkeypatch: pytest.MonkeyPatch, at: Any) -> None:
    """Whatever was being written when the power went: the folder still holds the model from before."""
    before = HypersphereClassifier.load(saved)
    import hyperproto.estimators.storage as storage

    write: Any = vars(storage)["atomic_write"]

    def broken(path: Any) -> Any:
        if path.name.startswith(at):
            raise OSError("no space left")
        return write(path)

    monkeypatch.setattr(storage, "atomic_write", broken)
    with pytest.raises(OSError, match="no space left"):
        HypersphereClassifier().fit(*blobs((2, 2))).save(saved)
    assert_equal_models(HypersphereClassifier.load(saved), before, Q, 0)


def tensors(folder: Path) -> Any:
    return next(folder.glob("*.safetensors"))


def cut(folder: Path) -> None:
    tensors(folder).write_bytes(tensors(folder).read_bytes()[:-7])


def flip(folder: Path) -> None:
    content = bytearray(tensors(folder).read_bytes())
    content[-3] ^= 1
    tensors(folder).write_bytes(bytes(content))


def edit(folder: Path, change: Any) -> None:
    head = json.loads((folder / "model.json").read_text())
    change(head)
    (folder / "model.json").write_text(json.dumps(head))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (cut, r"tensors-.*: not the \d+ bytes that were saved.*cut or changed: take it from a copy, or fit and save"),
        (flip, r"tensors-.*: not the \d+ bytes that were saved, but \d+, or others"),
        (lambda folder: tensors(folder).unlink(), r"tensors-.*: no such file; model.json names it: take"),
        (lambda folder: (folder / "model.json").unlink(), r"model.json: no such file; a saved classifier is a folder"),
        (
            lambda folder: (folder / "model.json").write_text("{"),
            r"model.json: not JSON .*fit and save again",
        ),
        (lambda folder: (folder / "model.json").write_text("[]"), r"model.json: format None; this version .* reads"),
        (lambda folder: edit(folder, lambda head: head["classes"].reverse()), r"model.json: was changed after it was"),
        (
            lambda folder: edit(folder, lambda head: head["parameters"].update(coverage=0.1)),
            r"was changed after it was",
        ),
        (
            lambda folder: edit(folder, lambda head: head.update(format="hyperproto-estimator/4")),
            r"format 'hyperproto-estimator/4'; this version of hyperproto reads '\S+/1' and '\S+/2' and '\S+/3'",
        ),
        (lambda folder: edit(folder, lambda head: head.pop("checksum")), r"model.json: was changed"),
    ],
)
def test_a_cut_or_changed_file_is_refused(saved: Path, harm: Any, message: str) -> None:
    harm(saved)
    with pytest.raises(DataError, match=message):
        HypersphereClassifier.load(saved)


def test_a_model_of_a_later_version_is_refused(saved: Path) -> None:
    def change(head: Any) -> None:
        head["parameters"]["later"] = 1
        head.pop("checksum")
        head["checksum"] = json_checksum(head)

    edit(saved, change)
    with pytest.raises(DataError, match=r"was saved by another version of hyperproto \(.*'later'\); use that one"):
        HypersphereClassifier.load(saved)


def test_a_parameter_that_json_has_no_word_for(tmp_path: Path) -> None:
    model = HypersphereClassifier(reject_label=object()).fit(np.eye(2), ["a", "b"])
    with pytest.raises(ConfigError, match=r"cannot be written as JSON .*; use strings and numbers"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_loading_needs_no_torch_and_no_pickle(saved: Path) -> None:
    code = (
        "import sys; from hyperproto import HypersphereClassifier; import pickle; pickle.loads = pickle.load = None;"
        f"HypersphereClassifier.load({str(saved)!r}).predict([[1.0] * 5]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def forge(folder: Path, head: Any = None, tensors: Any = None) -> None:
    """Change a saved model, and compute all its checksums again."""
    path = folder / "model.json"
    content = json.loads(path.read_text())
    content.pop("checksum")
    old = folder / content["tensors"]["file"]
    parts = {name: part.copy() for name, part in safetensors.numpy.load(old.read_bytes()).items()}
    if tensors is not None:
        tensors(parts)
    packed = safetensors.numpy.save(parts)
    digest = sha256(packed).hexdigest()
    content["tensors"] = {"file": f"tensors-{digest[:16]}.safetensors", "sha256": digest, "bytes": len(packed)}
    (folder / content["tensors"]["file"]).write_bytes(packed)
    if head is not None:
        head(content)
    path.write_text(json.dumps({**content, "checksum": json_checksum(content)}))


def put(name: str, place: Any, value: Any) -> Any:
    def change(parts: Any) -> None:
        parts[name][place] = value

    return change


HEADS = {
    "its 'kind' is None": lambda head: head.pop("kind"),
    "it has no 'encoder'": lambda head: head.pop("encoder"),
    "its 'parameters' is \\[\\]": lambda head: head.update(parameters=[]),
    "its 'classes' is 3": lambda head: head.update(classes=3),
    "its 'classes' are no list of strings and numbers": lambda head: head["classes"].__setitem__(0, None),
    "a class is there twice": lambda head: head["classes"].__setitem__(0, "b"),
    "'count' has shape \\(3,\\), not \\(2,\\)": lambda head: head["classes"].pop(),
    "its 'unit' is 1": lambda head: head.update(unit=1),
    "its 'feature_names' are no list of strings": lambda head: head.update(feature_names=[1]),
    "2 names for 5 features": lambda head: head.update(feature_names=["x", "y"]),
    "its encoder is 'mine', which has no name": lambda head: head.update(encoder="mine"),
    "its encoder has no options": lambda head: head.update(encoder={"name": "x", "sha256": None}),
    "the prior_ratio of its encoder is": lambda head: head.update(
        encoder={"name": "x", "options": {}, "sha256": None, "prior_ratio": {"unit": -1}}
    ),
    "its 'items' are no list of numbers and texts": lambda head: head.update(items=[["0", "text"]]),
    "names examples that it does not hold": lambda head: head.update(items=[[99, "text"]]),
    "its tensors lie in '../../secret'": lambda head: head["tensors"].update(file="../../secret"),
    "its tensors have no size": lambda head: head["tensors"].update(bytes=None),
    "region or feature_transform was changed": lambda head: head["parameters"].update(feature_transform="none"),
}
TENSORS = {
    "holds count, .* where count, .* belong": lambda parts: parts.pop("given"),
    "holds .*more": lambda parts: parts.update(more=np.ones(1)),
    "'mean' has shape \\(15,\\)": lambda parts: parts.update(mean=parts["mean"].reshape(-1)),
    "'mean' has shape \\(\\)": lambda parts: parts.update(mean=np.array(1.0)),
    "'rows' has shape \\(\\)": lambda parts: parts.update(rows=np.array(1.0)),
    "'weights' has shape": lambda parts: parts.update(weights=parts["weights"][:-1].copy()),
    "'slots' is of type float64": lambda parts: parts.update(slots=parts["slots"].astype(float)),
    "'rows' is of type float16": lambda parts: parts.update(rows=parts["rows"].astype(np.float16)),
    "'mean' holds numbers that are not finite": put("mean", (0, 0), np.nan),
    "'rows' holds numbers that are not finite": put("rows", (0, 0), np.inf),
    "a class has no examples": put("count", 0, 0.0),
    "or a negative scatter": put("squares", 1, -1.0),
    "an example has no class": put("slots", 0, -1),
    "an example has no class, or": put("slots", 2, 3),
    "or no weight": put("weights", 1, 0.0),
    "examples are not numbered in their order": put("numbers", 1, 0),
    "not numbered in": put("given", 0, 2),
    "examples are not of length 1": lambda parts: parts["rows"].__imul__(1.1),
    "the counts of classes are not those of": put("count", 0, 100.0),
    "the means of classes are not those of": put("mean", (2, 3), 0.5),
    "the scatter of classes is not that of": put("squares", 1, 9.0),
}


@pytest.mark.parametrize("message", HEADS)
def test_a_forged_model_json_is_refused_though_its_checksum_is_right(saved: Path, message: str) -> None:
    forge(saved, head=HEADS[message])
    with pytest.raises((DataError, ConfigError), match=message):
        HypersphereClassifier.load(saved)


@pytest.mark.parametrize("message", TENSORS)
def test_forged_tensors_are_refused_though_their_checksum_is_right(saved: Path, message: str) -> None:
    forge(saved, tensors=TENSORS[message])
    with pytest.raises(DataError, match=f"{message}.*; no saved classifier is like that: take it from a copy"):
        HypersphereClassifier.load(saved)


def test_tensors_are_regular_files(saved: Path) -> None:
    """A FIFO would be waited for forever."""
    path = tensors(saved)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="a FIFO, not a file"):
        HypersphereClassifier.load(saved)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([1e-3, 1.0, 1e4]),
    st.sampled_from(["none", "unit", "center-unit"]),
)
def test_whatever_was_fitted_and_changed_is_loaded_again(
    tmp_path: Path, seed: int, dtype: Any, scale: float, transform: str
) -> None:
    """No honest model is taken for a forged one."""
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(30, 4)) * scale + random.choice([0, 100]) * scale, random.integers(0, 4, 30)
    model = HypersphereClassifier(feature_transform=transform, temperature=1.0)
    model.fit(x[:20].astype(dtype), y[:20], sample_weight=random.uniform(0.1, 3, 20))
    for row in range(20, 30):
        model.partial_fit(x[row : row + 1].astype(dtype), y[row : row + 1])
    model.forget(x[25:27].astype(dtype), y[25:27])
    model.save(tmp_path)
    again = HypersphereClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.measure(x), model.measure(x))
