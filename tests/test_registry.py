import py_compile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from hyperproto import registry
from hyperproto.errors import ConfigError
from hyperproto.methods import METHODS
from hyperproto.methods.protonet import ProtoNet
from hyperproto.registry import Registry, check_options


def test_names_are_imported_on_first_use() -> None:
    table = Registry("thing", "hyperproto.things", {"square": "math:sqrt", "module": "math", "none": "no.such:thing"})
    assert table.get("square")(4) == 2
    assert table.get("module").pi > 3
    assert table.names() == ["module", "none", "square"]
    with pytest.raises(ModuleNotFoundError):
        table.get("none")


def test_other_packages_add_theirs_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "math:floor", "hyperproto.things")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == "hyperproto.things" else [])
    table = Registry("thing", "hyperproto.things", {"ours": "math:ceil"})
    assert table.names() == ["ours", "theirs"]
    assert table.get("theirs")(1.5) == 1


def test_a_name_is_taken_once() -> None:
    table = Registry("thing", "hyperproto.things", {})
    table.add("mine", len)
    assert table.get("mine") is len
    with pytest.raises(ConfigError, match="the thing 'mine' is registered already; choose another name"):
        table.add("mine", sum)


def test_a_wrong_name_without_a_near_one() -> None:
    with pytest.raises(ConfigError, match=r"there is no thing 'zzz'\. Known: none"):
        Registry("thing", "hyperproto.things", {}).get("zzz")


def test_options_of_base_classes_count_and_what_the_library_fills_in_is_not_offered() -> None:
    check_options("method", "protonet", ProtoNet, {"squared": False, "temperature": 2, "fit": None})
    with pytest.raises(ConfigError) as caught:
        check_options("method", "protonet", ProtoNet, {"squard": 1, "temperature": "hot"})
    assert "called 'squard'; did you mean 'squared'?" in str(caught.value)
    assert "option 'temperature': 'hot' is not valid" in str(caught.value)
    assert "n_classes" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Mine = 3", "is no subclass of hyperproto.methods.Method"),
        ("class Mine: pass", "is no subclass of hyperproto.methods.Method"),
        ("Mine = 3\nraise SystemExit(3)", r"cannot be imported \(SystemExit\(3\)\)"),
    ],
)
def test_a_file_that_defines_something_else(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "own.py").write_text(content)
    registry.trust(tmp_path / "own.py")
    with pytest.raises(ConfigError, match=rf"the method '.*own\.py:Mine'.* {words}"):
        METHODS.get(f"{tmp_path / 'own.py'}:Mine")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("class Other: pass", r"own\.py: there is no name 'Mine'\. Known: Other"),
        ("def f():\n    class Mine: pass", r"there is no name 'Mine'\. Known: none"),
        ("class Mine(:", r"cannot be imported \(SyntaxError"),
    ],
)
def test_a_file_without_the_class_is_refused_before_it_runs(tmp_path: Path, content: str, words: str) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "own.py").write_text(f"open({str(trace)!r}, 'w').close()\n{content}\n")
    registry.trust([tmp_path / "own.py"])
    with pytest.raises(ConfigError, match=words):
        METHODS.get(f"{tmp_path / 'own.py'}:Mine")
    assert not trace.exists()


def test_names_that_a_file_makes_while_it_runs_are_left_to_the_import(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from hyperproto.methods.protonet import ProtoNet\nglobals()['Mine'] = ProtoNet\n")
    registry.trust(f"{tmp_path / 'own.py'}:Mine")
    assert METHODS.get(f"{tmp_path / 'own.py'}:Mine") is ProtoNet


def test_the_source_runs_and_no_compiled_file_beside_it(tmp_path: Path) -> None:
    """An archive may hold a `__pycache__` that is not what its source says."""
    source = "from hyperproto.methods.protonet import ProtoNet\nclass Mine(ProtoNet):\n    number = {}\n"
    path = tmp_path / "own.py"
    path.write_text(source.format(2))
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    path.write_text(source.format(1))
    registry.trust(path)
    assert METHODS.get(f"{path}:Mine").number == 1


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("no.py", "--trust no.py: there is no file .*no.py; check the path"),
        ("pyproject.toml", "--trust pyproject.toml: not a .py file; name the file that may be imported"),
        (3, "trust = 3: name a file, or a list of files"),
        ([3], r"trust = \[3\]: name a file, or a list of files"),
    ],
)
def test_trust_takes_files(files: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        registry.trust(files)
