"""Several processes and threads that save, add to and load one model: none loses anything, none finds it broken."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import hyperproto
from hyperproto import BusyError, DataError, HypersphereClassifier
from hyperproto.estimators import storage
from tests.estimators.conftest import blobs

ADDING = 6
LOADS = 60


def write_table(path: Path, label: str, rows: Any) -> str:
    path.write_text("".join(json.dumps({"vector": row.tolist(), "label": label}) + "\n" for row in rows))
    return str(path)


def test_commands_that_add_at_the_same_time_all_succeed_and_lose_nothing(tmp_path: Path) -> None:
    x, y = blobs((4, 4))
    folder = tmp_path / "model"
    HypersphereClassifier().fit(x, y).save(folder)
    tables = [write_table(tmp_path / f"{n}.jsonl", f"class {n}", x[:3] + n) for n in range(ADDING)]
    code = "import sys, hyperproto; hyperproto.add(sys.argv[1], sys.argv[2], new_classes=True)"
    commands = [[sys.executable, "-c", code, str(folder), table] for table in tables]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for command in commands]
    assert [process.communicate()[1] for process in running] == [b""] * ADDING
    assert [process.returncode for process in running] == [0] * ADDING
    found = hyperproto.load_classifier(folder)
    assert found.classes_.tolist() == ["a", "b", *(f"class {n}" for n in range(ADDING))]
    assert found.counts_.tolist() == [4, 4] + [3] * ADDING


def test_readers_never_fail_while_others_save(tmp_path: Path) -> None:
    models = [HypersphereClassifier().fit(*blobs((4, 4), seed=seed)) for seed in range(2)]
    models[0].save(tmp_path)
    wanted, done = {model.means_.tobytes() for model in models}, Event()

    def save(model: HypersphereClassifier) -> None:
        while not done.is_set():
            model.save(tmp_path)

    def load() -> set[bytes]:
        return {HypersphereClassifier.load(tmp_path).means_.tobytes() for _ in range(LOADS)}

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(save, model) for model in models]
        reading = [pool.submit(load) for _ in range(2)]
        try:
            seen = set().union(*(each.result() for each in reading))
        finally:
            done.set()
        for each in writing:
            each.result()
    assert seen <= wanted
    assert len(list(tmp_path.glob("tensors-*"))) == 1


def test_a_model_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the moment: a reader that has seen the old model.json finds its tensors gone, and takes the new ones."""
    old, new = (HypersphereClassifier().fit(*blobs((4, 4), seed=seed)) for seed in range(2))
    old.save(tmp_path)
    read_bytes: Any = vars(storage)["read_bytes"]

    def replaced_first(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(storage, "read_bytes", read_bytes)
        new.save(tmp_path)
        return read_bytes(*arguments, **options)

    monkeypatch.setattr(storage, "read_bytes", replaced_first)
    np.testing.assert_array_equal(HypersphereClassifier.load(tmp_path).means_, new.means_)


def test_a_model_that_is_being_changed_is_refused_after_a_while(tmp_path: Path) -> None:
    model = HypersphereClassifier().fit(*blobs((4, 4)))
    model.save(tmp_path)

    def save() -> None:
        with hyperproto.model_lock(tmp_path, timeout=0.05):
            model.save(tmp_path)

    told = r"another process has been changing this model for 0.05 s; wait until it is done, or stop it"
    with hyperproto.model_lock(tmp_path), ThreadPoolExecutor(1) as pool:
        model.save(tmp_path)  # whoever holds the lock may save
        HypersphereClassifier.load(tmp_path)  # and anyone may load
        with pytest.raises(BusyError, match=told):
            pool.submit(save).result()


def test_adding_to_what_is_not_there_makes_no_folder(tmp_path: Path) -> None:
    table = write_table(tmp_path / "more.jsonl", "a", np.eye(2))
    with pytest.raises(DataError, match="no such file; a saved classifier is a folder"):
        hyperproto.add(tmp_path / "nothing", table)
    assert not (tmp_path / "nothing").exists()


def test_a_class_that_is_taken_away_meanwhile_is_not_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = blobs((4, 4))
    HypersphereClassifier().fit(x, y).save(tmp_path)
    table = write_table(tmp_path / "more.jsonl", "b", x[:1])
    from hyperproto.api import files

    read: Any = vars(files)["read_examples"]

    def removed_meanwhile(*arguments: Any) -> Any:
        found = read(*arguments)
        HypersphereClassifier.load(tmp_path).remove_class("b").save(tmp_path)
        return found

    monkeypatch.setattr(files, "read_examples", removed_meanwhile)
    with pytest.raises(DataError, match="class 'b' was removed while the examples were read"):
        hyperproto.add(tmp_path, table)
    assert hyperproto.load_classifier(tmp_path).classes_.tolist() == ["a"]
