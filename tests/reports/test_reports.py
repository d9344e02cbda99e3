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
from hyperproto.reports import figures
from hyperproto.reports.comparison import describe, results_table
from hyperproto.reports.page import Page


def picture(png: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(BytesIO(png)).convert("L"))


def test_figures_are_drawn(make_blobs: Callable[..., Pool]) -> None:
    random = np.random.default_rng(0)
    images = Pool(random.integers(0, 256, (60, 9, 9), dtype=np.uint8), np.repeat(np.arange(6), 10), tuple("abcdef"))
    pool = make_blobs(n_classes=5)
    metrics = [{"step": step, "radii": [0.1 * step, -0.1 * step]} for step in range(1, 9)] + [{"step": 9}]
    drawn = [
        figures.contact_sheet(images, EpisodeSampler(images, way=4, shot=(1, 2, 3, 4), query=5)[0]),
        figures.distance_heatmap(random.normal(size=(25, 5)), list("abcde"), "title"),
        figures.class_map(pool.items, pool.labels, pool.class_names, "title"),
        figures.radius_curves(metrics, "title"),
    ]
    for png in drawn:
        pixels = picture(png)
        assert min(pixels.shape) > 200
        assert pixels.std() > 5  # something is on it


def test_the_page_is_self_contained_and_escapes(tmp_path: Path) -> None:
    page = Page("A <title>", "lead & more")
    page.heading("Numbers")
    page.command("hyperproto demo --out x")
    page.table(["name", "value"], [["a group"], ["<row>", "1 ± 2"]])
    page.picture(b"png", 'a "caption"')
    page.note("a note")
    page.write(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    for words in (
        "A &lt;title&gt;",
        "lead &amp; more",
        "&lt;row&gt;",
        "1 ± 2",
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
