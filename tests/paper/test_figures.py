"""`hyperproto figure`: what it writes, what it reads, and what it refuses."""

import json
import math
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import hyperproto
from hyperproto.errors import ConfigError, DataError
from hyperproto.paper import figures as paper_figures
from hyperproto.paper.figure import NotGivenError, Request, Results
from hyperproto.paper.figures import FIGURES, read_results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw small pictures: they cost less."""
    monkeypatch.setattr("hyperproto.paper.figure.DPI", 30)


def panels(*given: Path, anywhere: bool = False) -> list[dict[str, Any]]:
    """What fig3 would show; `anywhere`: of the results that are found without a name."""
    request = Request(Path("unused"), results=read_results(None if anywhere else given))
    found: list[dict[str, Any]] = FIGURES["fig3"].measure(request, lambda *_: None)["panels"]
    return found


def test_results_in_the_folder_are_found_and_files_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ours = "ProtoNet, ours"
    assert all(ours in panel["series"] for panel in panels(anywhere=True))
    assert [ours in panel["series"] for panel in panels(RESULTS / "tables" / "table2.json")] == [False, True, False]
    assert not any(ours in panel["series"] for panel in panels())
    monkeypatch.chdir("/")
    assert not any(ours in panel["series"] for panel in panels(anywhere=True))


def test_numbers_draw_the_same_figure_again(tmp_path: Path) -> None:
    [first] = hyperproto.figure(
        "fig8", tmp_path / "one", results=RESULTS / "entities" / "fewnerd-minilm-hyperproto-shots.json"
    )
    [again] = hyperproto.figure("fig8", tmp_path / "two", results=tmp_path / "one" / "fig8.json")
    for one, two in zip(first.files, again.files, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert read_results([tmp_path / "one"]).figures == {}  # of a folder it is made anew, from results


def measured(accuracy: float, ci95: float) -> dict[str, Any]:
    """A row of a report in which ProtoNet was measured."""
    column = {"FewRel 5-way 1-shot": {"accuracy": accuracy, "ci95": ci95}}
    group = {
        "label": "mine",
        "note": "costs $5, or $6 \ud800",
        "results": [{"label": "protonet point", "columns": column}],
    }
    return {"published": {"method": "ProtoNet", "backbone": "BERT"}, "ours": [group]}


LINES = {
    "figure": "fig8", "part": "INTER", "way": 5,
    "lines": [{"method": "ProtoNet", "decided": "words", "points": [{"shots": 1, "f1": 50.0, "half": None}]}],
}  # fmt: skip


def test_words_of_others_are_no_formulas(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.json", {"table": "table2", "rows": [measured(0.5, 0.01)]})
    drawing = FIGURES["fig3"].draw({"panels": panels(file)})
    drawing.settle()  # a formula that is none would be an error here
    axis = drawing.figure.axes[1]
    assert axis.get_xlabel().startswith(r"Ours: costs \$5, or \$6 ?;")


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("fig3", {"table": "table1", "rows": [{}]}, "not the numbers that this figure needs (KeyError('published'))"),
        ("fig3", {"figure": "fig3", "panels": 3}, "not the numbers that this figure needs (TypeError("),
        ("fig3", {"figure": "fig3"}, "not the numbers that this figure needs (KeyError('panels'))"),
        (
            "fig8",
            {"results": [{"setting": "5-way 10~20"}]},
            "not the numbers that this figure needs (KeyError('method'))",
        ),
        ("fig3", {"table": "table2", "rows": [measured(1e300, 0.01)]}, "1e+300 ± 0.01 is not a share of 1"),
        ("fig3", {"table": "table2", "rows": [measured(0.5, math.nan)]}, "0.5 ± nan is not a share of 1"),
        ("fig8", {**LINES, "encoder": math.inf}, "not the numbers that this figure needs (ValueError("),
        ("fig3", {"results": []}, "neither a report on a table, nor an entity grid, nor a figure's numbers; make one"),
        ("fig3", {"figure": ["fig3"]}, "neither a report on a table"),
        ("fig3", [], "neither a report on a table"),
    ],
)
def test_results_that_are_none_are_named(tmp_path: Path, name: str, content: Any, words: str) -> None:
    file = write(tmp_path / "mine.json", content)
    with pytest.raises(DataError) as raised:
        hyperproto.figure(name, tmp_path / "out", results=file)
    assert str(raised.value).startswith(f"{file}: ")
    assert words in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no figure 'fig9'; did you mean 'fig"):
        hyperproto.figure("fig9", tmp_path)
    with pytest.raises(ConfigError, match="--seed 9223372036854775808: give a number from 0 to"):
        hyperproto.figure("fig1", tmp_path, seed=2**63)
    with pytest.raises(DataError, match=r"no\.json: no such file; make one with `hyperproto report TABLE --json FILE`"):
        hyperproto.figure("fig3", tmp_path, results="no.json")
    with pytest.raises(DataError, match=r"^a{300} \.\.\.: File name too long; take a shorter name$"):
        hyperproto.figure("fig3", tmp_path, results="a" * 6000)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match=r"bad\.json: not JSON"):
        hyperproto.figure("fig3", tmp_path, results=tmp_path / "bad.json")


NEEDS = {
    "fig4": "fig4 looks into trained runs, one for each data set: name each with --run, or its numbers, fig4.json",
    "fig5": "fig5 looks into trained runs, one for each data set: name each with --run",
    "fig7": "fig7 looks into two runs on the same data, one of protonet and one of hyperproto: name each with --run",
    "fig8": "fig8 is drawn from F1 at several shots, 5-way; name the file with --results",
    "radius": "radius looks into runs of hyperproto, its cone or its Gaussian: name each with --run",
}
NEEDED_BY_ALL = {
    **NEEDS,
    "fig6": "fig6 trains once for each anchor class; make it by its own name, `hyperproto figure fig6 --out FOLDER`",
    "memory": "memory draws episodes of a data set: name it with --data, such as --data fewnerd",
}


@pytest.mark.parametrize("name", NEEDS)
def test_a_figure_says_what_it_needs(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=NEEDS[name]):
        hyperproto.figure(name, tmp_path, results=[])


def test_all_makes_those_that_it_can(tmp_path: Path) -> None:
    made = hyperproto.figure("all", tmp_path, results=[])
    assert [each.name for each in made] == [name for name in FIGURES if name not in NEEDED_BY_ALL]
    assert all(path.exists() for each in made for path in each.files)
    by_name = {each.name: each for each in made}
    png, svg, numbers = (path.read_bytes() for path in by_name["fig3"].files)
    assert png.startswith(b"\x89PNG")
    assert svg.startswith(b"<?xml")
    assert json.loads(numbers) == by_name["fig3"].numbers
    assert by_name["fig3"].numbers["figure"] == "fig3"
    assert [path.name for path in by_name["fig3"].files] == ["fig3.png", "fig3.svg", "fig3.json"]
    head, rows = by_name["fig3"].table() or ([], [])
    assert (head[0], len(rows)) == ("setting", 20)
    assert all(each.title and each.caption for each in made)
    page = (tmp_path / "index.html").read_text()
    for name in FIGURES:
        assert (f'<div class="picture" id="{name}">' in page) == (name in by_name)
    for words in NEEDED_BY_ALL.values():
        assert words in unescape(page)


@pytest.mark.parametrize("name", ["fig6", "memory"])
def test_what_was_measured_is_on_the_page_whatever_runs_are_given_for_others(tmp_path: Path, name: str) -> None:
    """Runs are for the figures that look into them; of all figures the others are drawn from their files."""
    file = RESULTS / "figures" / f"{name}.json"
    request = Request(tmp_path, runs=["runs/elsewhere"], results=read_results([file]), alone=False)
    made = paper_figures._made(name, request, lambda *_: None)
    assert json.loads(made.files[-1].read_text()) == json.loads(file.read_text())
    with pytest.raises(NotGivenError):
        paper_figures._made(name, replace(request, results=Results()), lambda *_: None)
