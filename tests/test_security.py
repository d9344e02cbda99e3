"""The promises of SECURITY.md that no other test keeps; and that the tests it names are there."""

import io
import json
import pickle
import re
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyperproto
from tests.fuzz.files import sealed

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "SECURITY.md").read_text()
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_every_test_that_a_promise_names_is_there() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and "tests/" in line]
    named = {name for row in rows for name in re.findall(r"`(tests/[^`]+)`", row.rpartition("|")[0].rpartition("|")[2])}
    assert len(rows) >= 10
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_every_promise_names_a_test() -> None:
    table = TEXT.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [
        line for line in table.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| promise"))
    ]
    assert rows
    assert all("`tests/" in row for row in rows)


@pytest.mark.parametrize(
    "forbidden",
    [
        r"^\s*(import|from) pickle",
        r"allow_pickle\s*=\s*True",
        r"\beval\((?!\))",
        r"\bexec\(",
        r"trust_remote_code\s*=\s*True",
        r"\bos\.system\(",
        r"shell\s*=\s*True",
    ],
)
def test_no_source_unpickles_or_runs_text(forbidden: str) -> None:
    found = [path.name for path in SOURCES if re.search(forbidden, path.read_text(), re.MULTILINE)]
    assert found == []


def test_weights_of_others_are_loaded_as_weights_only() -> None:
    calls = [call for path in SOURCES for call in re.findall(r"torch\.load\([^\n]*", path.read_text())]
    assert calls
    assert all("weights_only=True" in call for call in calls)


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_a_pickle_in_an_npz_file_is_refused_and_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    pickle.loads(pickle.dumps(Evil(trace)))
    assert trace.exists()  # it would work
    trace.unlink()
    member = io.BytesIO()
    np.save(member, np.array([Evil(trace)] * 4, dtype=object), allow_pickle=True)
    good = io.BytesIO()
    np.save(good, np.array(["a", "a", "b", "b"]))
    with zipfile.ZipFile(tmp_path / "evil.npz", "w") as archive:
        archive.writestr("x.npy", member.getvalue())
        archive.writestr("y.npy", good.getvalue())
    with pytest.raises(hyperproto.DataError, match=r"evil\.npz: "):
        hyperproto.check_data(f"vectors:{tmp_path / 'evil.npz'}")
    assert not trace.exists()


def test_a_saved_classifier_cannot_name_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass X: pass\n")
    hyperproto.HypersphereClassifier().fit(np.eye(2), ["a", "b"]).save(tmp_path / "model")
    head = json.loads((tmp_path / "model" / "model.json").read_text())
    head.pop("checksum")
    for name in ("kind", "region", "fit_mode", "feature_transform"):
        forged = json.loads(json.dumps(head))
        (forged if name == "kind" else forged["parameters"])[name] = f"{tmp_path}/evil.py:X"
        (tmp_path / "model" / "model.json").write_text(json.dumps(sealed(forged)))
        with pytest.raises(hyperproto.HyperProtoError, match=r"evil\.py:X"):
            hyperproto.load_classifier(tmp_path / "model")
    assert not trace.exists()


def test_data_specs_name_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`FILE.py:CLASS` is for methods; as a data set the part before the colon would be a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('trace', 'w').close()\nclass X: pass\n")
    with pytest.raises(hyperproto.ConfigError, match=r"there is no data set 'evil\.py'"):
        hyperproto.check_data("evil.py:X")
    assert not (tmp_path / "trace").exists()


def test_nothing_touches_the_network_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    np.savez(tmp_path / "v.npz", x=np.random.default_rng(0).normal(size=(12, 3)), y=np.repeat(["a", "b", "c"], 4))
    spec = f"vectors:{tmp_path / 'v.npz'}"
    hyperproto.evaluate(spec, encoder="identity", method="protonet", split="all", way=2, shot=1, query=1, episodes=2)
    hyperproto.list_recipes()
    hyperproto.list_data()
    model = hyperproto.FewShotTextClassifier().fit(["a fine day", "rain again"], ["good", "bad"])  # MiniLM is a package
    model.save(tmp_path / "model")
    hyperproto.load_classifier(tmp_path / "model").predict(["sunshine"])


def test_a_method_of_a_file_is_imported_only_where_it_is_named(tmp_path: Path) -> None:
    """What SECURITY.md warns of: the words FILE.py:CLASS import the file."""
    (tmp_path / "mine.py").write_text("open('trace', 'w').close()\nclass X: pass\n")
    script = "import hyperproto\nhyperproto.list_methods(); hyperproto.list_recipes()\n"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    assert not (tmp_path / "trace").exists()
    assert 'grep -r "\\.py:" FOLDER' in TEXT
