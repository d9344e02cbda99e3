"""Saved and loaded: the same classifier, in files that are whole, checked, and no pickle."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError, DataError
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
    assert not any(len(x) in np.shape(part) for part in again._memory.to_tensors().values())


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
    assert [name.partition("-")[0] for name in names] == ["model.json", "tensors"]
    assert names[1].endswith(".safetensors")
    head = json.loads((saved / "model.json").read_text())
    assert head["format"] == "hyperproto-estimator/1"
    assert head["parameters"]["coverage"] == 0.8
    assert len(head["tensors"]["sha256"]) == 64


def test_saving_again_replaces_the_model_and_leaves_nothing_behind(saved: Path) -> None:
    HypersphereClassifier().fit(*blobs((2, 2))).save(saved)
    assert len(list(saved.iterdir())) == 2
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
        (lambda folder: tensors(folder).unlink(), r"tensors-.*: model.json names this file, and it cannot be read"),
        (lambda folder: (folder / "model.json").unlink(), r"model.json: no such file; a saved classifier is a folder"),
        (
            lambda folder: (folder / "model.json").write_text("{"),
            r"model.json: not readable as JSON .*fit and save again",
        ),
        (lambda folder: (folder / "model.json").write_text("[]"), r"model.json: format None; this version .* reads"),
        (lambda folder: edit(folder, lambda head: head["classes"].reverse()), r"model.json: was changed after it was"),
        (
            lambda folder: edit(folder, lambda head: head["parameters"].update(coverage=0.1)),
            r"was changed after it was",
        ),
        (
            lambda folder: edit(folder, lambda head: head.update(format="hyperproto-estimator/2")),
            r"format 'hyperproto-estimator/2'; this version of hyperproto reads 'hyperproto-estimator/1'",
        ),
        (lambda folder: edit(folder, lambda head: head.pop("checksum")), r"model.json: was changed"),
    ],
)
def test_a_cut_or_changed_file_is_refused(saved: Path, harm: Any, message: str) -> None:
    harm(saved)
    with pytest.raises(DataError, match=message):
        HypersphereClassifier.load(saved)


def test_a_model_of_a_later_version_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hyperproto.estimators.storage as storage

    def change(head: Any) -> None:
        head["parameters"]["later"] = 1
        head.pop("checksum")
        head["checksum"] = storage.checksum(head)

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
