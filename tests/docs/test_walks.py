"""The walks of CONTRIBUTING.md: each file is written, each command and each check is run, as it stands there."""

import sys
import tomllib
from pathlib import Path

import pytest

from hyperproto.regions import REGIONS
from tests.docs.markdown import ROOT, blocks, commands, done, read, run, run_saying, section, tables

WALKS = ["Your own method", "Your own region", "Your own data set", "Your own problem", "Your own encoder"]


@pytest.fixture(autouse=True)
def _package_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files of all walks to a folder, install them by their entry points, and go there."""
    points: dict[str, dict[str, str]] = {}
    for walk in WALKS:
        text = section("CONTRIBUTING.md", walk)
        for code in blocks(text, "python"):
            first = code.partition("\n")[0]
            if first.startswith("# "):
                (tmp_path / first.removeprefix("# ")).write_text(code)
        for toml in blocks(text, "toml"):
            for group, entries in tomllib.loads(toml)["project"]["entry-points"].items():
                points.setdefault(group, {}).update(entries)
    installed = tmp_path / "mine-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in points.items()]
    (installed / "entry_points.txt").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    for module in ("linkage", "diamond", "digits", "ordered", "projection"):
        monkeypatch.delitem(sys.modules, module, raising=False)


def checks(walk: str) -> list[str]:
    """The code of a walk that is no file."""
    return [code for code in blocks(section("CONTRIBUTING.md", walk), "python") if not code.startswith("# ")]


def test_a_method_is_one_file() -> None:
    compare, train, evaluate = commands(section("CONTRIBUTING.md", "Your own method"))
    assert "linkage.py:AverageLinkage point none" in done(compare)
    assert "best validation accuracy" in done(train)
    assert "linkage.py:AverageLinkage point none" in done(evaluate)
    [check] = checks("Your own method")
    run(check)


def test_a_region_is_one_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, region in REGIONS.items():
        monkeypatch.setitem(REGIONS, name, region)  # so that what is added is taken away again
    [check] = checks("Your own region")
    try:
        model = run_saying(check, capsys)["model"]
    finally:
        REGIONS.pop("diamond", None)
    assert type(model.region_).__name__ == "Diamond"


def test_a_data_set_is_one_file() -> None:
    check, compare = commands(section("CONTRIBUTING.md", "Your own data set"))
    assert "896" in done(check)  # images of 5 to 9
    assert "hyperproto bayes none" in done(compare)


def test_a_problem_is_one_file() -> None:
    [compare] = commands(section("CONTRIBUTING.md", "Your own problem"))
    table = done(compare)
    assert "closeness %" in table
    assert "accuracy" not in table


def test_an_encoder_is_one_file() -> None:
    [check] = checks("Your own encoder")
    run(check)


def test_the_picture_of_the_house_is_the_one_that_is_checked() -> None:
    layers = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]["layers"]
    checked = [{room.strip().removeprefix("hyperproto.") for room in layer.split(":")} for layer in reversed(layers)]
    [rooms] = tables(section("CONTRIBUTING.md", "The house"))
    assert [set(row[0].replace("`", "").split(", ")) for row in rooms[1:]] == checked
    modules = {path.stem for path in (ROOT / "src" / "hyperproto").iterdir() if not path.name.startswith(("_", "py."))}
    assert modules == set().union(*checked)
