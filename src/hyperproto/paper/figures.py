"""Make figures of the paper, and two that it lacks: measure the numbers or read them, draw, write PNG, SVG and JSON.

A figure whose numbers were measured before (its JSON file is among the results) is drawn again from them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from hyperproto import __version__
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import atomic_write, is_folder, read_json
from hyperproto.paper import (
    memory_figure,
    radius_dynamics,
    radius_figure,
    schematics,
    score_figures,
    space_figures,
    tsne_figure,
)
from hyperproto.paper.figure import (
    HOW,
    Drawing,
    FigureDefinition,
    NotGivenError,
    Numbers,
    Request,
    Results,
    Table,
    about,
)
from hyperproto.progress import Show
from hyperproto.reports.page import Page
from hyperproto.reports.tables import write_results

FIGURES: dict[str, FigureDefinition] = {
    "fig1": schematics.FIG1,
    "fig2": schematics.FIG2,
    "fig3": score_figures.FIG3,
    "fig4": space_figures.FIG4,
    "fig5": space_figures.FIG5,
    "fig6": radius_dynamics.FIG6,
    "fig7": tsne_figure.FIG7,
    "fig8": score_figures.FIG8,
    "radius": radius_figure.RADIUS_FIGURE,
    "memory": memory_figure.MEMORY_FIGURE,
}
ALL, PAGE = "all", "index.html"
RESULTS = Path("results")


def read_results(given: Sequence[Path] | None) -> Results:
    """Read files, and of folders those that figures are made from; None: the folder results, if there is one."""
    found = Results()
    for path in [RESULTS] * RESULTS.is_dir() if given is None else given:
        folder = is_folder(path)
        for file in _files(path) if folder else [path]:
            _sort_in(found, file, named=not folder)
    return found


def _sort_in(found: Results, file: Path, named: bool) -> None:
    """Read a file and sort it by its content; a file that was named, not found in a folder, must hold such results."""
    content = read_json(file, missing=HOW, damaged=HOW)
    name = content.get("figure") if isinstance(content, dict) else None
    if isinstance(name, str) and name in FIGURES:
        if named or FIGURES[name].measured:  # others are made from the results themselves
            found.figures.setdefault(name, (file, content))
    elif isinstance(content, dict) and isinstance(content.get("table"), str) and "rows" in content:
        found.tables.setdefault(content["table"], (file, content))
    elif isinstance(content, dict) and _is_entity_grid(content):
        found.shots.append((file, content))
    elif named:
        raise DataError(f"{file}: neither a report on a table, nor an entity grid, nor a figure's numbers; {HOW}")


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder and of the folders in it that have the names of such results."""
    patterns = ("table*.json", "*-shots.json", *(f"{name}.json" for name in FIGURES))
    places = (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
    return [path for place in places for pattern in patterns for path in sorted(place.glob(pattern))]


def _is_entity_grid(content: Mapping[str, Any]) -> bool:
    rows = content.get("results")
    return isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) and "setting" in row for row in rows)


@dataclass(eq=False)
class PaperFigure:
    """A figure with its numbers and the files that hold it."""

    name: str
    numbers: Numbers
    files: list[Path]

    @property
    def title(self) -> str:
        """Title of the figure."""
        return FIGURES[self.name].title

    @property
    def caption(self) -> str:
        """Caption: how to read the figure."""
        return FIGURES[self.name].caption

    @cached_property
    def drawing(self) -> Drawing:
        """Drawing made from the numbers."""
        with about(self.numbers.get("read_from")):
            drawn = FIGURES[self.name].draw(self.numbers)
            drawn.settle()
        return drawn

    def table(self) -> Table | None:
        """Return the head and rows of the numbers drawn, or None for a figure without a table."""
        tabulate = FIGURES[self.name].table
        return None if tabulate is None else tabulate(self.numbers)


def make_figures(name: str, request: Request, show: Show) -> tuple[list[PaperFigure], dict[str, str]]:
    """Make one figure; or all that can be made from the request, with a page, and say why the others are not made."""
    if name != ALL and name not in FIGURES:
        raise ConfigError(unknown_name("figure", name, [ALL, *FIGURES]))
    if not 0 <= request.seed < 2**63:
        raise ConfigError(f"--seed {request.seed}: give a number from 0 to 2^63 - 1")
    made, missing = [], {}
    request = replace(request, alone=name != ALL)
    for each in FIGURES if name == ALL else [name]:
        try:
            made.append(_made(each, request, show))
        except NotGivenError as error:
            if name != ALL:
                raise
            missing[each] = str(error)
    if name == ALL:
        shown = [FigureOnPage(each.name, each.title, each.caption, each.drawing, each.table()) for each in made]
        write_figure_page(request.out / PAGE, shown, missing)
    return made, missing


def _made(name: str, request: Request, show: Show) -> PaperFigure:
    kind = FIGURES[name]
    before = request.results.figures.get(name)
    numbers = None if before is None or request.asks_anew else before[1]
    if numbers is None:
        try:
            numbers = {"figure": name, "version": __version__, "title": kind.title, **kind.measure(request, show)}
        except NotGivenError:
            if before is None or request.alone:
                raise
            numbers = before[1]  # what is given is for others of all figures
    if before is not None and numbers is before[1]:
        numbers = {**numbers, "read_from": str(before[0])}
    figure = PaperFigure(name, numbers, [request.out / f"{name}.{ending}" for ending in ("png", "svg", "json")])
    with about(numbers.get("read_from")):  # what can be read may not be drawn: NaN, numbers without end
        pictures = figure.drawing.png(), figure.drawing.svg(name)
        write_results(figure.files[-1], {key: value for key, value in numbers.items() if key != "read_from"})
    for path, content in zip(figure.files, pictures, strict=False):
        with atomic_write(path) as file:
            file.write(content)
    return figure


PIXELS_AN_INCH = 110  # of a picture on a wide screen


@dataclass(frozen=True, eq=False)
class FigureOnPage:
    """A figure with its title, caption and table of numbers."""

    name: str
    title: str
    caption: str
    drawing: Drawing
    table: Table | None = None


def write_figure_page(path: Path, figures: Sequence[FigureOnPage], missing: Mapping[str, str]) -> None:
    """Write the page; `missing` holds what the figures need that are not on it."""
    page = Page(
        "The figures of the paper",
        "Point at an instance, a bar or a cell to see what it is; switch methods off above a figure; click on the head "
        "of a column to sort a table.",
    )
    page.add("figure_style")
    for figure in figures:
        page.heading(f"{figure.name}: {figure.title}")
        content = {"tips": figure.drawing.tips, "spots": [spot.placed() for spot in figure.drawing.spots]}
        data = json.dumps(content, ensure_ascii=False).replace("</", "<\\/").replace("<!--", "<\\u0021--")
        page.add("figure", figure.name, figure.drawing.series, inline_svg(figure), data)
        page.note(figure.caption)
        if figure.table is not None:
            with page.folded(f"The numbers of {figure.name}"):
                page.table(*figure.table)
    if missing:
        page.heading("Not here")
        page.table(["figure", "what it needs"], [[name, words] for name, words in missing.items()])
    page.add("figure_script")
    page.write(path)


def inline_svg(figure: FigureOnPage) -> str:
    """Return the SVG as part of a page: without the XML header, every id prefixed with the name of the figure."""
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
