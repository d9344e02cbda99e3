"""Figures of the paper: numbers against the tables and the equations, files of three kinds, the same each time."""

import json
import math
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from hyperproto.paper import schematics, score_figures
from hyperproto.paper.figure import Cells, Drawing, Points
from hyperproto.recipes import read_table

ROOT = Path(__file__).parents[2]


def reports() -> dict[str, Any]:
    return {
        name: json.loads((ROOT / "results" / "tables" / f"{name}.json").read_text())
        for name in ("table1", "table2", "table3")
    }


def shots() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (ROOT / "results" / "entities" / "fewnerd-minilm-hyperproto-shots.json").read_text()
    )
    return content


def check(drawing: Drawing, name: str) -> None:
    """A picture with something on it; ids are unique; every place lies on it, every tip is one of the list."""
    drawing.settle()
    buffer = BytesIO()
    drawing.figure.savefig(buffer, dpi=30)  # as `png` does, but small
    pixels = np.asarray(Image.open(buffer).convert("L"))
    assert min(pixels.shape) > 60
    assert pixels.std() > 5
    svg = drawing.svg(name)
    ids = [node.get("id", "") for node in ElementTree.fromstring(svg).iter()]
    assert len(set(filter(None, ids))) == len(list(filter(None, ids)))
    for number in range(len(drawing.series)):
        assert any(each.startswith(f"series-{number}-") for each in ids)
    for spot in drawing.spots:
        placed = json.loads(json.dumps(spot.placed()))
        if isinstance(spot, Points):
            assert all(0 <= share <= 1 for place in placed["at"] for share in place)
            assert len(placed["at"]) == len(placed["tips"])
            used = placed["tips"]
        else:
            left, top, right, bottom = placed["box"]
            assert 0 <= left < right <= 1
            assert 0 <= top < bottom <= 1
            assert np.shape(placed["values"]) == (len(placed["rows"]), len(placed["columns"]))
            used = placed["rows"] + placed["columns"]
        assert all(0 <= tip < len(drawing.tips) for tip in used)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("fig1", lambda: schematics.draw_sphere(schematics.sphere_numbers())),
        ("fig2", lambda: schematics.draw_variants(schematics.variant_numbers())),
        ("fig3", lambda: score_figures.draw_bars(score_figures.bar_numbers(reports()))),
        ("fig8", lambda: score_figures.draw_shots(score_figures.shot_numbers(shots()))),
    ],
)
def test_it_is_drawn(name: str, make: Callable[[], Drawing]) -> None:
    check(make(), name)


def test_the_sphere_of_the_schematic_is_equation_3() -> None:
    numbers = schematics.sphere_numbers()
    points = numbers["sampled"]
    assert len(points) == 5
    center = [sum(point[d] for point in points) / 5 for d in range(2)]
    radius = sum(math.dist(point, center) for point in points) / 5
    np.testing.assert_allclose(numbers["initialised"]["center"], center, atol=1e-4)
    assert numbers["initialised"]["radius"] == pytest.approx(radius, abs=1e-3)
    assert len(numbers["others"]) == schematics.OTHERS
    for stage in ("initialised", "learned"):
        for line in numbers["to_surface"][stage]:
            sphere = numbers[stage]
            assert math.dist(line["to"], sphere["center"]) == pytest.approx(sphere["radius"], abs=1e-3)
            own = math.dist(line["from"], sphere["center"]) - sphere["radius"]  # eq. 2 with plain distances
            assert line["length"] == pytest.approx(own, abs=1e-3)
            assert math.dist(line["from"], line["to"]) == pytest.approx(abs(own), abs=1e-3)


def test_the_variants_of_the_schematic_are_closed_forms() -> None:
    numbers = schematics.variant_numbers()
    for cone in numbers["cones"]:
        assert np.linalg.norm(cone["axis"]) == pytest.approx(1, abs=1e-3)
        angles = [math.acos(np.dot(point, cone["axis"])) for point in cone["points"]]
        assert cone["angle"] == pytest.approx(sum(angles) / len(angles), abs=2e-3)
    for region in numbers["gaussians"]:
        squares = [math.dist(point, region["mean"]) ** 2 for point in region["points"]]
        assert region["sigma"] == pytest.approx(math.sqrt(sum(squares) / len(squares) / 2), abs=1e-3)


def test_published_bars_are_those_of_the_tables() -> None:
    entities, relations, images = score_figures.bar_numbers({})["panels"]
    assert [len(panel["columns"]) for panel in (entities, relations, images)] == [8, 8, 4]
    assert all(
        list(p["series"]) == ["ProtoNet, published", "HyperProto, published"] for p in (entities, relations, images)
    )
    for panel, table, backbone in ((entities, "table1", "BERT"), (relations, "table2", "BERT")):
        for row in read_table(table).published:
            if row.backbone == backbone and row.method in ("ProtoNet", "HyperProto"):
                own = panel["series"][f"{row.method}, published"]
                assert {column: [v["percent"], v["half"]] for column, v in own.items()} == row.numbers
    assert images["series"]["HyperProto, published"]["WRN-28-10 5-way 1-shot"] == {"percent": 63.78, "half": 0.63}
    assert images["series"]["ProtoNet, published"]["Conv4 5-way 5-shot"] == {"percent": 63.72, "half": 0.55}


def test_our_bars_are_those_of_the_reports() -> None:
    entities, relations, images = score_figures.bar_numbers(reports())["panels"]
    [row] = [
        row
        for row in reports()["table2"]["rows"]
        if (row["published"]["method"], row["published"]["backbone"]) == ("HyperProto", "BERT")
    ]
    results = {variant["label"]: variant["columns"] for variant in row["ours"][0]["results"]}
    for label, variant in (
        ("HyperProto (eq. 3), ours", "hyperproto paper, plain distances"),
        ("HyperProto (Bayes fit), ours", "hyperproto bayes"),
    ):
        for column, measured in results[variant].items():
            assert relations["series"][label][column]["percent"] == pytest.approx(100 * measured["accuracy"], abs=0.006)
            assert relations["series"][label][column]["half"] == pytest.approx(100 * measured["ci95"], abs=0.006)
    assert {column.split()[0] for column in entities["series"]["ProtoNet, ours"]} == {"INTER"}  # INTRA is not at hand
    assert {column.split()[0] for column in images["series"]["ProtoNet, ours"]} == {"Conv4"}
    assert "validation sets" in relations["note"]
    assert "MPNet in BERT's place" in entities["note"]
    assert entities["runs"]["HyperProto (Bayes fit), ours, BERT"] == "fewnerd-mpnet:hyperproto, decided by path and O"
    assert entities["series"]["HyperProto (Bayes fit), ours"]["INTER 5-way 5~10-shot"]["percent"] == 62.32
    head, rows = score_figures.bar_table(score_figures.bar_numbers(reports()))
    assert len(rows) == 20
    assert all(len(cells) == len(head) == 6 for cells in rows)
    assert rows[0][1:3] == ["23.45 ± 0.92", "32.26 ± 1.94"]


def test_lines_over_shots_are_those_of_the_grid() -> None:
    content = shots()
    numbers = score_figures.shot_numbers(content)
    assert numbers["part"] == "INTER"
    assert len(numbers["lines"]) == 12  # 4 methods, decided in 3 ways
    for line in numbers["lines"]:
        assert [point["shots"] for point in line["points"]] == [10, 15, 20]
    [bayes] = [x for x in numbers["lines"] if (x["method"], x["decided"]) == ("HyperProto (Bayes fit)", "words")]
    [row] = [
        row
        for row in content["results"]
        if (row["setting"], row["method"], row["fit"], row["decided"])
        == ("5-way 15~30", "hyperproto", "bayes", "words")
    ]
    assert bayes["points"][1]["f1"] == pytest.approx(100 * row["toolkit"]["f1"], abs=0.006)
    head, rows = score_figures.shot_table(numbers)
    assert head[2:] == ["F1 at 10 shots, %", "F1 at 15 shots, %", "F1 at 20 shots, %"]
    assert len(rows) == 12


def test_lines_over_shots_from_a_report() -> None:
    """`hyperproto report table1-shots` says the same in another form."""
    measured = {"f1": 0.5, "ci95": 0.01}
    columns = {f"INTRA 5-way {k}~{2 * k}-shot": measured for k in (20, 10)}
    group = {
        "results": [{"label": "hyperproto paper none", "columns": columns}, {"label": "cosine point", "columns": {}}]
    }
    content = {"columns": [{"data": "fewnerd:,setting=intra"}], "rows": [{"ours": [group]}, {"ours": []}]}
    numbers = score_figures.shot_numbers(content)
    assert numbers["part"] == "INTRA"
    [line] = numbers["lines"]
    assert (line["method"], line["decided"]) == ("HyperProto (eq. 3)", "words")
    assert [(p["shots"], p["f1"], p["half"]) for p in line["points"]] == [(10, 50.0, 1.0), (20, 50.0, 1.0)]


def test_places_are_shares_of_the_picture() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 2))
    axis = figure.add_axes((0.25, 0.5, 0.5, 0.25))
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 1)
    points = Points(axis, [(0, 0), (1, 1)], [0, 1], series=2).placed()
    assert points == {"at": [[0.25, 0.5], [0.75, 0.25]], "tips": [0, 1], "series": 2}
    grid = Cells(axis, [0], [1, 2], [[0.123456, 1]], "distance").placed()
    assert grid == {
        "box": [0.25, 0.25, 0.75, 0.5],
        "rows": [0],
        "columns": [1, 2],
        "values": [[0.1235, 1]],
        "unit": "distance",
    }
