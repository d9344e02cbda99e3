"""The demo's page: its sentence follows from the numbers, the best rows are marked, the rest is folded."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hyperproto.evaluation import Result
from hyperproto.paper.demo import OURS, SAME_FIT, SHORT, THEIRS, DemoReport, Picture

LABELS = [*SHORT, SAME_FIT]
NOISE = np.random.default_rng(0).normal(scale=0.02, size=(len(LABELS), 200))
KINDS = {"5-way, 1 shot": (5, 1), "20-way, 5 shots": (20, 5)}


def made_up(*means: dict[str, float]) -> DemoReport:
    """Accuracies of 0.8 with noise, but for those of `means`, a dictionary for each kind of episodes."""
    columns = {}
    for (name, (way, shot)), given in zip(KINDS.items(), means, strict=True):
        settings = {"way": way, "shot": shot, "episode_hash": f"hash{way}"}
        columns[name] = [
            Result(label, settings, given.get(label, 0.8) + noise - noise.mean())
            for label, noise in zip(LABELS, NOISE, strict=True)
        ]
    return DemoReport("hyperproto demo --out x", columns, ["a note"], [Picture("A picture", b"png", "what")], 1.0)


def test_the_sentence_says_where_it_is_better_and_where_level() -> None:
    report = made_up({}, {OURS: 0.85})
    assert report.takeaway() == (
        "HyperProto with the Bayes fit against ProtoNet, each on the encoder that it trained: better in 1 of 2 kinds "
        "of episodes, most in 20-way, 5 shots: 85.0 % against 80.0 %, a paired difference of +5.00 ± 0.36 points; "
        "level in 5-way, 1 shot."
    )


def test_the_sentence_admits_a_loss_and_a_draw() -> None:
    assert (
        ": worse in all 2 kinds of episodes, most in 5-way, 1 shot: 80.0 % against 88.0 %"
        in made_up({THEIRS: 0.88}, {THEIRS: 0.81}).takeaway()
    )
    mixed = made_up({OURS: 0.85}, {THEIRS: 0.85}).takeaway()
    assert "better in 1 of 2" in mixed
    assert "worse in 1 of 2" in mixed
    assert (
        made_up({}, {})
        .takeaway()
        .endswith("no difference that these episodes can show in any of the 2 kinds of episodes.")
    )


def test_the_best_is_marked_and_what_is_level_with_it() -> None:
    second = list(SHORT)[1]
    rows = made_up({OURS: 0.9, second: 0.899}, {second: 0.95}).short_rows()
    assert len(rows) == len(SHORT) <= 8
    marks = {row[0]: [cell[-1] for cell in row[1:]] for row in rows}
    assert marks["HyperProto, Bayes fit"] == ["*", " "]
    assert marks[SHORT[second]] == ["=", "*"]
    assert marks["Cosine prototypes"] == [" ", " "]
    assert rows[-1][1].startswith("90.00 ± 0.2")


@pytest.mark.parametrize("width", [80, 160])
def test_a_form_of_the_table_fits_the_terminal(width: int) -> None:
    report = made_up({}, {})
    results = report.columns["5-way, 1 shot"]
    five = ("5-way, 1 shot", "5-way, 5 shots", "5-way, shots 1,1,2,5,20", "20-way, 1 shot", "20-way, 5 shots")
    lines = replace(report, columns=dict.fromkeys(five, results)).table().text(width).splitlines()
    assert max(map(len, lines)) <= width
    assert any("HyperProto, the" in line for line in lines)
    assert any("80.00 ± 0.2" in line for line in lines) == (width == 160)


def test_the_page_opens_with_the_sentence_and_the_chart(tmp_path: Path) -> None:
    report = made_up({}, {OURS: 0.85})
    report.write_page(tmp_path / "page.html")
    html = re.sub(r'base64,[^"]+"', '"', (tmp_path / "page.html").read_text())
    places = [
        html.index(words)
        for words in (
            '<p class="lead">HyperProto with the Bayes fit',
            "<img",
            "<th>method</th>",
            "<h2>A picture</h2>",
            "Why the last digits differ on another machine",
            "<details><summary>All 9 rows",
            "<details><summary>Paired differences",
        )
    ]
    assert places == sorted(places)
    assert html.count('<td class="strong">') == len(KINDS)
    assert f"<td>{OURS.partition(': ')[2]}</td>" in html
    assert "hash20" in html
    assert "nan" not in html
    assert "on ProtoNet&#39;s encoder, minus ProtoNet, in points: 5-way, 1 shot: +0.00 ± " in html


def test_every_two_rows_are_compared_in_the_file() -> None:
    content = made_up({}, {OURS: 0.85}).to_json()
    assert len(content["results"]) == 2 * len(LABELS)
    assert len(content["comparisons"]) == len(LABELS) * (len(LABELS) - 1)
    assert {(row["way"], row["shot"]) for row in content["comparisons"]} == {(5, 1), (20, 5)}
