"""One page of figures that works offline: point at an instance to see it, switch methods off, sort tables."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from hyperproto.reports.drawing import Drawing
from hyperproto.reports.page import Page

PIXELS_AN_INCH = 110  # of a picture on a wide screen
STYLE = """
.picture svg { width: 100%; height: auto; display: block; } .picture label { margin-right: 1rem; white-space: nowrap; }
body { max-width: 80rem; } th { cursor: pointer; } th[aria-sort=ascending]::after { content: " \\25B2"; }
th[aria-sort=descending]::after { content: " \\25BC"; }
#tip { position: fixed; z-index: 9; max-width: 28rem; padding: 0.5rem 0.7rem; background: #ffffff; color: #1c2430;
  border: 1px solid #8a94a3; border-radius: 4px; font-size: 0.85rem; line-height: 1.35; pointer-events: none; }
#tip div { white-space: pre-line; } #tip img { width: 84px; image-rendering: pixelated; display: block; }
#tip div + div { margin-top: 0.3rem; }
"""


@dataclass(frozen=True, eq=False)
class FigureOnPage:
    """A figure with its words, and the table of its numbers."""

    name: str
    title: str
    caption: str
    drawing: Drawing
    table: tuple[list[str], list[list[str]]] | None = None


def write_figure_page(path: Path, figures: Sequence[FigureOnPage], missing: Mapping[str, str]) -> None:
    """Write the page; `missing` says of figures that are not on it what they need."""
    page = Page(
        "The figures of the paper",
        "Point at an instance, a bar or a cell to see what it is; switch methods off above a figure; click on the head "
        "of a column to sort a table.",
    )
    page.part(f"<style>{STYLE}</style>")
    for figure in figures:
        page.heading(f"{figure.name}: {figure.title}")
        page.part(_picture(figure))
        page.note(figure.caption)
        if figure.table is not None:
            with page.folded(f"The numbers of {figure.name}"):
                page.table(*figure.table)
    if missing:
        page.heading("Not here")
        page.table(["figure", "what it needs"], [[name, words] for name, words in missing.items()])
    page.part('<div id="tip" role="tooltip" hidden></div>')
    page.part(f"<script>{files('hyperproto.reports').joinpath('figure_page.js').read_text(encoding='utf-8')}</script>")
    page.write(path)


def _picture(figure: FigureOnPage) -> str:
    """The SVG with ids of its own, a box for each series, and what the script needs to explain it."""
    boxes = "".join(
        f'<label><input type="checkbox" checked data-series="{number}"> {escape(name)}</label>'
        for number, name in enumerate(figure.drawing.series)
    )
    content = {"tips": figure.drawing.tips, "spots": [spot.placed() for spot in figure.drawing.spots]}
    data = json.dumps(content, ensure_ascii=False).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    return (
        f'<div class="picture" id="{figure.name}"><div>{boxes}</div>{inline_svg(figure)}'
        f'<script type="application/json">{data}</script></div>'
    )


def inline_svg(figure: FigureOnPage) -> str:
    """The SVG as a part of a page: without what stands before it, every id under the figure's name."""
    text = figure.drawing.svg(figure.name).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{figure.name}-', text)
    text = re.sub(r'href="#', f'href="#{figure.name}-', text)
    text = re.sub(r"url\(#", f"url(#{figure.name}-", text)
    widest = PIXELS_AN_INCH * figure.drawing.figure.get_figwidth()
    words = f'role="img" aria-label="{escape(figure.title, quote=True)}" style="max-width: {widest:.0f}px"'
    opening = rf'<svg {words} \1 xmlns:xlink="http://www.w3.org/1999/xlink">'
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', opening, text, count=1)
