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
from typer.testing import CliRunner

import hyperproto
from hyperproto import cli, registry
from hyperproto.training import Run, load_recipe
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


@pytest.mark.parametrize("forbidden", [r"\.read_text\(", r"\.splitlines\(", r"\bjson\.load\(", r"(?<![\w.])open\("])
def test_readers_of_data_go_through_files(forbidden: str) -> None:
    """Past them a FIFO hangs, U+2028 ends a line, deep nesting is a RecursionError."""
    readers = [path for path in SOURCES if path.parent.name in ("data", "episodes", "methods", "estimators")]
    allowed = {"doctor.py", "_glyph_shapes.py"}  # text of our own
    code = {path.name: re.sub(r'f?"[^"\n]*"', '""', path.read_text()) for path in readers}
    assert sorted(name for name, text in code.items() if re.search(forbidden, text) and name not in allowed) == []


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


def test_listing_imports_no_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("open('trace', 'w').close()\nclass X: pass\n")
    script = "import hyperproto\nhyperproto.list_methods(); hyperproto.list_recipes()\n"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    assert not (tmp_path / "trace").exists()


CODE = """
from torch import nn, ones
from hyperproto.methods.protonet import ProtoNet
open("trace", "w").close()
class Mine(ProtoNet):
    def __init__(self, **options):
        super().__init__(**options)
        self.scale = nn.Parameter(ones(()))
    def scores(self, task):
        return self.scale * super().scores(task)
"""
RECIPE = """
[data]
spec = "vectors:v.npz"
[encoder]
name = "identity"
[method]
name = "mine\\u002epy:Mine"
[optim.encoder]
lr = 0.01
[episodes]
way = 2
shot = 1
query = 1
[training]
steps = 2
[validation]
split = "train"
way = 2
shot = 1
query = 1
episodes = 2
[paper]
table = "own"
method = "A"
backbone = "B"
"""
TABLE = """
[table]
title = "Own"
episodes = 2
query = 1
columns = [{ name = "c", data = "vectors:v.npz", split = "test", way = 2, shot = 1 }]
[[published]]
method = "A"
backbone = "B"
numbers = { c = [50.0] }
"""
WORDS = (
    r"'mine\.py:Mine' is code in .*mine\.py, which would run; .* add --trust mine\.py \(in Python: trust='mine\.py'\)"
)


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe that names code by an escape, which no search for .py finds; whoever imports it leaves a trace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_trusted", set())
    rows = np.random.default_rng(0).normal(size=(48, 3))
    np.savez(tmp_path / "v.npz", x=rows, y=np.repeat(list("abcdefgh"), 6), split=np.repeat(["train", "test"], 24))
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "r.toml").write_text(RECIPE)
    (tmp_path / "own.toml").write_text(TABLE)
    return tmp_path / "trace"


def consented(trace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train a run with consent, and take the consent and the trace away again."""
    folder = hyperproto.train("r.toml", "runs/r", trust="mine.py").folder
    assert trace.exists()
    trace.unlink()
    monkeypatch.setattr(registry, "_trusted", set())
    for name in [name for name in sys.modules if name.startswith("hyperproto_file_mine")]:
        del sys.modules[name]
    return folder


def test_a_recipe_that_names_code_needs_consent(strange: Path) -> None:
    for call in (
        lambda: hyperproto.train("r.toml"),
        lambda: hyperproto.grid("r.toml", {"training.seed": [0, 1]}),
        lambda: load_recipe("r.toml"),
    ):
        with pytest.raises(hyperproto.ConfigError, match=WORDS):
            call()
    assert not strange.exists()
    load_recipe("r.toml", trust=["mine.py"])
    assert strange.exists()


@pytest.mark.parametrize("override", ["method.name=mine.py:Mine", "method={name='mine.py:Mine'}"])
def test_the_users_own_words_are_consent(strange: Path, override: str) -> None:
    load_recipe("glyphs:protonet", [override])
    assert strange.exists()
    hyperproto.evaluate("vectors:v.npz", encoder="identity", method="mine.py:Mine", way=2, shot=1, query=1, episodes=2)


def test_consent_is_for_a_file_wherever_links_lead(strange: Path) -> None:
    (strange.parent / "evil.py").write_text(CODE)
    (strange.parent / "link.py").symlink_to("evil.py")
    Path("r.toml").write_text(RECIPE.replace("mine\\u002epy", "link.py"))
    with pytest.raises(hyperproto.ConfigError, match=r"code in .*evil\.py, which would run"):
        load_recipe("r.toml", trust="mine.py")
    assert not strange.exists()
    load_recipe("r.toml", trust="evil.py")
    assert strange.exists()


def test_a_run_and_a_model_that_name_code_need_consent(strange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = consented(strange, monkeypatch)
    task: dict[str, Any] = {"split": "test", "way": 2, "shot": 1, "query": 1, "episodes": 2}
    for call in (
        lambda: hyperproto.evaluate("vectors:v.npz", run=folder, **task),
        lambda: Run(folder).load(),
        lambda: hyperproto.FewShotTextClassifier(encoder=str(folder)).fit(["x", "y"], ["a", "b"]),
    ):
        with pytest.raises(hyperproto.ConfigError, match=rf"config\.json: the method {WORDS}"):
            call()
    command = ["evaluate", "--run", str(folder), "--data", "vectors:v.npz", "--way", "2", "--shot", "1", "--query", "1"]
    refused = CliRunner().invoke(cli.app, [*command, "--episodes", "2"])
    assert isinstance(refused.exception, hyperproto.ConfigError)
    assert not strange.exists()
    allowed = CliRunner().invoke(cli.app, [*command, "--episodes", "2", "--trust", "./mine.py"])
    assert allowed.exit_code == 0, allowed.output
    assert strange.exists()


def test_a_saved_tagger_that_names_code_needs_consent(strange: Path) -> None:
    tagger = hyperproto.EntityTagger().fit([["Anna", "lives", "here"]], [["person", "O", "O"]])
    tagger.save("tagger")
    head = json.loads(Path("tagger/tagger.json").read_text())
    head.pop("checksum")
    head["parameters"]["method"] = "mine.py:Mine"
    Path("tagger/tagger.json").write_text(json.dumps(sealed(head)))
    with pytest.raises(hyperproto.ConfigError, match=rf"tagger\.json: the method {WORDS}"):
        hyperproto.EntityTagger.load("tagger")
    assert not strange.exists()
    hyperproto.EntityTagger.load("tagger", trust="mine.py")
    assert strange.exists()


def test_a_report_imports_nothing(strange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = consented(strange, monkeypatch)
    registry.trust("mine.py")  # a report opens runs that nobody has named: not even then
    found = hyperproto.report("own.toml", "runs", episodes=2)
    assert not found.groups
    [remark] = found.remarks
    assert f"{folder} is left out: the method 'mine.py:Mine' is code in " in remark
    assert "`hyperproto evaluate --run ... --trust mine.py`" in remark
    hyperproto.report("table3", "runs", episodes=2)  # of another table
    Path("both.toml").write_text(TABLE + RECIPE.replace('"own"', '"both"'))
    [remark] = hyperproto.report("both.toml", "runs", episodes=2).remarks
    assert remark.startswith("runs of both.toml:both are not looked for: the method 'mine.py:Mine' is code in ")
    assert not strange.exists()


def test_workers_know_what_is_trusted(strange: Path) -> None:
    found = hyperproto.grid("r.toml", {"training.seed": [0, 1]}, workers=2, trust="mine.py")
    assert not found.failed
