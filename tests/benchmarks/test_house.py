"""Modules, importers and walks are counted as the definitions say, on a small package counted by hand."""

import json
from pathlib import Path

import pytest

from benchmarks import house
from benchmarks.house import LIMITS, REPOSITORY, SourceTree, above_limits, main, walks_of

PACKAGE = {
    "__init__.py": "",
    "cli.py": """
        import sys
        from hyperproto.room import two

        def main():
            assert sys.argv == ["hyperproto", "report", "table2"]
            two()
            two()
            import hyperproto.late
            hyperproto.late.three()
            sys.exit(0)
    """,
    "late.py": """
        from hyperproto import shared

        def three():
            return json_names()

        def json_names():
            import json
            return json.dumps([shared.four()])

        class Thing:
            held = shared.four()  # while it is imported
    """,
    "shared.py": """
        def four():
            return 4
    """,
    "room/__init__.py": "from hyperproto.room.work import two",
    "room/work.py": """
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from hyperproto.late import Thing as LateThing

        class Thing: ...
        class _Hidden: ...

        def two():
            from ..shared import four
            return four()
    """,
    "room/shared.py": "class _Hidden: ...",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / "hyperproto" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("\n".join(line[8:] if line.startswith(" " * 8) else line for line in text.splitlines()))
    return tmp_path


def test_importers_are_counted_by_hand(source: Path) -> None:
    tree = SourceTree(source)
    name = "hyperproto."
    direct, followed = tree.importers(), tree.importers(follow=True)
    assert direct[name + "late"] == {name + "cli", name + "room.work"}
    assert direct[name + "shared"] == {name + "late", name + "room.work"}
    assert direct[name + "room"] == {name + "cli"}
    assert direct[name + "room.work"] == set()  # by its package file only
    assert (followed[name + "room"], followed[name + "room.work"]) == (set(), {name + "cli"})
    counts = tree.counts()
    assert (counts["modules"], counts["one importer"], counts["one importer, followed"]) == (7, 1, 1)
    assert counts["no importer but packages and registries"] == 4  # the package, cli, room.work, room.shared
    assert counts["names of modules used twice"] == {"shared": [name + "room.shared", name + "shared"]}
    assert counts["names of classes used twice"] == {"Thing": [name + "late", name + "room.work"]}


def test_a_walk_is_counted_by_hand(source: Path) -> None:
    """cli, work, shared, work, shared, late, late, shared: seven changes less the one within late."""
    found = walks_of(source, ["report table2"])
    path = ["cli.py", "room/work.py", "shared.py", "late.py"]
    assert found == {"report table2": {"files": 4, "changes": 6, "path": path}}


def test_a_walk_that_fails_is_shown_and_left_out(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert walks_of(source, ["compare"]) == {}
    assert "compare failed" in capsys.readouterr().err


def test_long_classes_places_of_an_option_and_docstrings_are_counted_by_hand(source: Path) -> None:
    (source / "hyperproto" / "more.py").write_text(
        '"""Module."""\n\n\ndef _train(least_spans):\n    """The loop."""\n    return least_spans\n\n\n'
        "class Long:\n    a = 1\n    b = 2\n\n\ndef call(options):\n    return options.least_spans\n"
    )
    counts = SourceTree(source).counts()
    assert (counts["longest class"], counts["lines of _train"]) == (3, 3)
    assert list(counts["places of an episode option"]) == ["hyperproto.more"]
    assert counts["non-imperative docstrings"] == 1


def test_this_source_tree_is_within_its_limits_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = walks_of(REPOSITORY / "src", list(house.LIMITED))
    assert list(found)[:4] == ["fit", "first predict", "then predict_proba", "partial_fit"]
    for way in found.values():
        assert way["changes"] >= way["files"] - 1 > 0
    monkeypatch.setattr(house, "walks_of", lambda *_: found)
    main(["--json", str(tmp_path / "house.json")])  # it exits with the rows that are above a limit
    content = json.loads((tmp_path / "house.json").read_text())
    assert content["command"].startswith("python -m benchmarks.house --json")
    assert content["trees"]["now"]["walks"] == found
    assert "at most" in capsys.readouterr().out


def test_a_row_above_its_limit_or_not_measured_fails() -> None:
    tree = {"counts": {**LIMITS, "modules": LIMITS["modules"] + 1}, "walks": {}}
    del tree["counts"]["lines"]
    assert above_limits(tree)[0] == "lines: not measured"
    assert above_limits(tree)[-1] == f"modules: {LIMITS['modules'] + 1}, at most {LIMITS['modules']}"
