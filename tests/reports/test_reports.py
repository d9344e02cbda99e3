"""Figures are PNGs of a sensible size, the page is self-contained."""

import re
from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from hyperproto.data import Pool
from hyperproto.episodes import EpisodeSampler
from hyperproto.evaluation import Result
from hyperproto.reports import pictures as figures
from hyperproto.reports.comparison import describe, results_table
from hyperproto.reports.page import Page


def picture(png: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(BytesIO(png)).convert("L"))


def test_figures_are_drawn(make_blobs: Callable[..., Pool]) -> None:
    random = np.random.default_rng(0)
    images = Pool(random.integers(0, 256, (60, 9, 9), dtype=np.uint8), np.repeat(np.arange(6), 10), tuple("abcdef"))
    pool = make_blobs(n_classes=5)
    episode = EpisodeSampler(images, way=4, shot=(1, 2, 3, 4), query=5)[0]
    row = [("ProtoNet", 0.7, 0.01), ("HyperProto, Bayes fit", 0.8, 0.01)]
    drawn = [
        figures.accuracy_chart({"5-way, 1 shot": row, "20-way, 1 shot": row}),
        figures.episode_figure(images, episode, random.normal(size=(30, 2)), random.normal(size=(4, 2))),
        figures.distance_heatmap(random.normal(size=(25, 5)), list("abcde"), "title"),
        figures.class_map(figures.tsne(pool.items), pool.labels, pool.class_names, "title"),
        figures.radius_curves([1, 2, 3], random.normal(size=(3, 4)), list("abcd"), "title"),
        figures.training_curves({"metric": [2.0, 1.0]}, [1, 2], "accuracy", [(2, 0.5, 0.1)], "title"),
    ]
    for png in drawn:
        pixels = picture(png)
        assert min(pixels.shape) > 200
        assert pixels.std() > 5  # something is on it


def test_a_circle_covers_the_stated_share_of_its_class() -> None:
    points = np.random.default_rng(0).normal(size=(40, 2))
    center = points.mean(axis=0)
    distances = np.linalg.norm(points - center, axis=1)
    radius = figures.circle_radius(points, center)
    assert np.mean(distances <= radius) == figures.SHARE == 0.8
    assert np.mean(distances < radius) < figures.SHARE  # no larger than it must be
    assert figures.circle_radius(points, center, 1.0) == distances.max()
    assert "80 %" in figures.COVERS


def test_labels_are_moved_apart_and_keep_their_order() -> None:
    values = np.array([0.5, 0.0, 0.1, 3.0, 0.45, 0.52])
    moved = figures.spread_out(values, 0.2)
    assert np.argsort(moved).tolist() == np.argsort(values).tolist()
    assert np.diff(np.sort(moved)).min() >= 0.2 - 1e-12
    assert moved[3] == 3.0  # nothing is near it
    np.testing.assert_allclose(moved[[0, 1, 2, 4, 5]].mean(), values[[0, 1, 2, 4, 5]].mean())


def test_the_page_is_self_contained_and_escapes(tmp_path: Path) -> None:
    page = Page("A <title>", "lead & more")
    page.heading("Numbers")
    page.command("hyperproto demo --out x")
    with page.folded("more <numbers>"):
        page.table(["name", "value"], [["a group"], ["<row>", "1 ± 2"]], strong={(1, 1)})
    page.code("a = '<b>'\n\nc = 1")
    page.picture(b"png", 'a "caption"')
    page.note("a note")
    page.write(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    for words in (
        "A &lt;title&gt;",
        "lead &amp; more",
        "&lt;row&gt;",
        "<details><summary>more &lt;numbers&gt;</summary>",
        '<td class="strong">1 ± 2</td></tr></table></div></details>',
        "<pre>a = &#39;&lt;b&gt;&#39;\n\nc = 1</pre>",
        'colspan="2"',
        "data:image/png;base64,cG5n",
    ):
        assert words in html
    assert not re.search(r'(src|href)="(?!data:)', html)


def test_the_table_shows_percent_and_paired_differences() -> None:
    random = np.random.default_rng(0)
    first = random.uniform(size=100)
    results = [Result("one", {}, first), Result("two", {}, first - 0.1)]
    console = Console(width=120, record=True, file=StringIO())
    console.print(results_table("title", results))
    text = console.export_text()
    assert f"{100 * first.mean():.2f}" in text
    assert "-10.00 │   0.00" in text
    settings = {
        "data": "d",
        "split": "s",
        "way": 5,
        "shot": [1, 2],
        "query": 3,
        "episodes": 4,
        "seed": 5,
        "episode_hash": "h",
    }
    assert describe(settings) == "d s, 5-way, shots 1,2, 3 queries a class, 4 episodes, seed 5, hash h"
