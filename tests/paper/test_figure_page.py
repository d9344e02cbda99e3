"""The page of figures: self-contained, and in a real Chromium: pointing, switching methods off, sorting."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyperproto.paper import score_figures, space_figures, tsne_figure
from hyperproto.paper.figures import FigureOnPage, inline_svg, write_figure_page

PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="
NUMBERS = (["name", "value"], [["a", "9.5"], ["b", ""], ["c", "10.25 ± 1"], ["d", "-3"], ["e", "unknown"]])
INSTANCES = [{"class": f"class {n // 2}", "text": f"</script> [word {n}] & more"} for n in range(4)]


def on_page(name: str, drawing: Any, table: Any = None) -> FigureOnPage:
    drawing.settle()
    return FigureOnPage(name, f"title of {name}", "a caption", drawing, table)


def figures() -> list[FigureOnPage]:
    bars = score_figures.bar_numbers({})
    bars["panels"] = bars["panels"][2:]
    facts = {"run": "runs/x", "method": "hyperproto", "data": "mine", "split": "test"}
    values = [[0.0, 1.0], [0.2, 0.8], [0.9, 0.1], [1.0, 0.3]]
    seen = [{**one, "image": PIXEL} for one in INSTANCES]
    heat = {**facts, "classes": ["class 0", "class 1"], "instances": seen, "measure": values, "normalised": values}
    spaces = [
        {"title": title, "run": "runs/x", "gap": 1.0, "scale": 2.0, "gap_over_scale": 0.5, "places": places}
        for title, places in (
            ("ProtoNet", [[0, 0], [0, 1], [5, 5], [5, 6]]),
            ("HyperProto", [[0, 0], [1, 0], [6, 6], [6, 5]]),
        )
    ]
    row = {**facts, "kind": "train", "classes": ["class 0", "class 1"], "instances_a_class": 2, "instances": INSTANCES}
    maps = {"rows": [{**row, "panels": spaces}], "paper_gap": {}}
    return [
        on_page("fig3", score_figures.draw_bars(bars), score_figures.bar_table(bars)),
        on_page("fig4", space_figures.draw_distances({"panels": [{**heat, "nearest_is_own": 1.0}]}), NUMBERS),
        on_page("fig7", tsne_figure.draw_maps(maps), tsne_figure.gap_table(maps)),
    ]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    write_figure_page(path, figures(), {"fig6": "trainings, <8 of them>"})
    return path


def test_it_is_self_contained(page_file: Path) -> None:
    html = page_file.read_text()
    sources = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s>)]+)""", html)
    assert all(source.startswith(("data:", "#")) for source in sources if source != "part.image;")
    assert "@import" not in html
    assert not re.search(r"<(link|iframe|object|embed)\b", html)
    assert "trainings, &lt;8 of them&gt;" in html
    assert html.count("</script>") == 4  # the data of three figures and the program: no instance closes one early


def test_ids_of_figures_do_not_clash() -> None:
    one, other = (inline_svg(figure) for figure in figures()[:2])
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, other)]
    assert all(each.startswith("fig3-") for each in ids[0])
    assert not ids[0] & ids[1]
    for text, own in zip((one, other), ids, strict=True):
        used = {*re.findall(r'href="#([^"]+)"', text), *re.findall(r"url\(#([^)]+)\)", text)}
        assert used
        assert used <= own
    assert "<?xml" not in one
    assert "<!DOCTYPE" not in one
    assert 'aria-label="title of fig3"' in one


# In a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -c constraints.txt playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium to look at pages with: apt-get install chromium")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, page_file: Path) -> Iterator[Any]:
    """The page in a browser without a network; nothing but the file is asked for, and nothing goes wrong."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 1000})
    page = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(page_file.as_uri())
    yield page
    assert [url for url in asked if not url.startswith("data:")] == [page_file.as_uri()]
    assert wrong == []
    context.close()


def point(page: Any, name: str, x: float, y: float) -> str | None:
    """Move the mouse to a share of a picture; return what is shown there."""
    drawing = page.locator(f"#{name} svg")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    tip = page.locator("#tip")
    return tip.inner_text() if tip.is_visible() else None


def test_an_instance_is_seen_where_one_points_at_it(page: Any) -> None:
    heat, maps = figures()[1], figures()[2]
    left, top, right, bottom = heat.drawing.spots[0].placed()["box"]
    for row in range(4):
        shown = point(page, "fig4", left + 0.75 * (right - left), top + (row + 0.5) / 4 * (bottom - top)) or ""
        assert f"class {row // 2}\n</script> [word {row}] & more" in shown
        assert "hypersphere of class 1" in shown
        assert f"distance to the surface (eq. 2): {[1, 0.8, 0.1, 0.3][row]:g}" in shown
        assert page.locator("#tip img").get_attribute("src") == PIXEL
    assert point(page, "fig4", 0.001, 0.001) is None
    for spot in maps.drawing.spots:
        placed = spot.placed()
        for place, tip in zip(placed["at"], placed["tips"], strict=True):
            assert point(page, "fig7", *place) == maps.drawing.tips[tip]["text"]


def test_a_method_is_switched_off_and_on(page: Any) -> None:
    [bar] = [spot.placed() for spot in figures()[0].drawing.spots if spot.placed()["series"] == 1]
    place = bar["at"][0]
    said = "WRN-28-10 5-way 1-shot\nHyperProto, published: accuracy 63.78 ± 0.63 %"
    assert point(page, "fig3", *place) == said
    box = page.get_by_label("HyperProto, published")
    parts = page.locator('#fig3 svg [id^="fig3-series-1-"]')
    assert parts.count() >= 4
    box.uncheck()
    assert not any(parts.nth(n).is_visible() for n in range(parts.count()))
    assert page.locator('#fig3 svg [id^="fig3-series-0-"]').first.is_visible()
    assert "HyperProto" not in (point(page, "fig3", *place) or "")
    box.check()
    assert parts.first.is_visible()
    assert point(page, "fig3", *place) == said


def test_a_table_is_sorted_by_a_column(page: Any) -> None:
    page.get_by_text("The numbers of fig4").click()
    table = page.locator("details").nth(1).locator("table")
    name, value = table.locator("th").nth(0), table.locator("th").nth(1)

    def order() -> str:
        return "".join(table.locator("tr td:first-child").all_inner_texts())

    assert order() == "abcde"
    value.click()
    assert order() == "daceb"  # as numbers; a word after them, and last what is empty
    assert value.get_attribute("aria-sort") == "ascending"
    value.press("Enter")
    assert order() == "ecadb"
    assert value.get_attribute("aria-sort") == "descending"
    name.click()
    assert order() == "abcde"
    assert value.get_attribute("aria-sort") is None
    name.click()
    assert order() == "edcba"
