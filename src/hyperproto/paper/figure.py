"""Parts that all figures of the paper share: what is asked for, what one is, its drawing, and the places to explain.

A figure is drawn from a dict of numbers that JSON can hold, and from nothing else: the same file draws it again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hyperproto.errors import ConfigError, DataError
from hyperproto.progress import Show
from hyperproto.training import Run

Numbers = dict[str, Any]  # what a figure shows, as its JSON file holds it

Table = tuple[list[str], list[list[str]]]  # head and rows
HOW = "make one with `hyperproto report TABLE --json FILE` or `hyperproto figure NAME --out FOLDER`"
DPI = 150


class NotGivenError(ConfigError):
    """Error for a figure that needs runs or results that were not given."""


@dataclass(frozen=True, eq=False)
class Results:
    """Files of results, sorted by their content."""

    figures: dict[str, tuple[Path, Numbers]] = field(default_factory=dict)  # measured before, by name
    tables: dict[str, tuple[Path, dict[str, Any]]] = field(default_factory=dict)  # reports on tables, by table
    shots: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)  # entity grids


@dataclass(frozen=True, eq=False)
class Request:
    """Runs, results and settings that figures are made from; None stands for the default of each figure."""

    out: Path
    runs: Sequence[str] = ()
    results: Results = field(default_factory=Results)
    data: str | None = None
    split: str | None = None
    samples: int | None = None  # instances a class
    shots: Sequence[int] | None = None
    recipe: str | None = None  # of trainings
    overrides: Sequence[str] = ()
    anchors: int | None = None
    seed: int = 0
    alone: bool = True  # whether this figure was asked for by its name, and not among all

    @property
    def asks_anew(self) -> bool:
        """True if the request names something to measure, so that earlier numbers are not used."""
        settings = (self.data, self.split, self.samples, self.shots, self.recipe, self.anchors)
        changed = bool(self.overrides) or any(given is not None for given in settings)
        return bool(self.runs) or (self.alone and changed)


@dataclass(frozen=True, eq=False)
class Points:
    """Points (n, 2) in the data coordinates of a panel, each with the text that a page shows there."""

    axis: Axes
    places: Any
    tips: Sequence[int]  # index into the drawing's tips
    series: int | None = None  # of the drawing's series, if it can be switched off

    def placed(self) -> dict[str, Any]:
        """Return the places as shares of the picture's width and height, from its upper left corner."""
        pixels = self.axis.transData.transform(np.asarray(self.places, np.float64).reshape(-1, 2))
        figure = self.axis.get_figure(root=True)
        assert figure is not None
        shares = figure.transFigure.inverted().transform(pixels) * (1, -1) + (0, 1)
        return {"at": shares.round(4).tolist(), "tips": list(self.tips), "series": self.series}


@dataclass(frozen=True, eq=False)
class Cells:
    """A panel of rows x columns of equal cells, with a text for each row and column, and the values."""

    axis: Axes
    rows: Sequence[int]  # index into the drawing's tips
    columns: Sequence[int]
    values: Sequence[Sequence[float]]
    unit: str  # what a value is

    def placed(self) -> dict[str, Any]:
        """Return the panel's borders as shares of the picture, from its upper left corner."""
        figure = self.axis.get_figure(root=True)
        assert figure is not None
        box = self.axis.bbox.transformed(figure.transFigure.inverted())
        borders = [round(float(share), 4) for share in (box.x0, 1 - box.y1, box.x1, 1 - box.y0)]
        values = np.round(np.asarray(self.values, np.float64), 4).tolist()
        return {"box": borders, "rows": [*self.rows], "columns": [*self.columns], "values": values, "unit": self.unit}


@dataclass(eq=False)
class Drawing:
    """A figure, the series that a page can switch off, and the texts at the points where a reader may hover."""

    figure: Figure
    series: list[str] = field(default_factory=list)
    tips: list[dict[str, str]] = field(default_factory=list)  # "text", and "image", a data URI
    spots: list[Points | Cells] = field(default_factory=list)

    def tip(self, text: str, image: str | None = None) -> int:
        """Add a text, and a picture, that are shown on hovering; return its number."""
        self.tips.append({"text": text} | ({} if image is None else {"image": image}))
        return len(self.tips) - 1

    def belongs(self, series: str, artists: Sequence[Artist]) -> int:
        """Assign artists to a series; return its number."""
        if series not in self.series:
            self.series.append(series)
        number = self.series.index(series)
        for artist in artists:
            artist.set_gid(f"series-{number}-{id(artist)}")
        return number

    def settle(self) -> None:
        """Fix the layout, so that PNG, SVG and the points of the page agree."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")
        count = 0
        for artist in self.figure.findobj():  # ids that are the same each time
            gid = artist.get_gid()
            if gid is not None and gid.startswith("series-"):
                artist.set_gid("-".join([*gid.split("-")[:2], str(count)]))
                count += 1

    def png(self) -> bytes:
        """Return the figure as PNG."""
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()

    def svg(self, name: str) -> bytes:
        """Return the figure as SVG, letters as outlines; `name` makes its ids differ from those of other figures."""
        buffer = BytesIO()
        with rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
            self.figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()


@dataclass(frozen=True)
class FigureDefinition:
    """Definition of a figure: title, caption, how it is measured, drawn and tabulated."""

    title: str
    caption: str
    measure: Callable[[Request, Show], Numbers]
    draw: Callable[[Numbers], Drawing]
    table: Callable[[Numbers], Table] | None = None
    measured: bool = False  # in runs, by a training or a measurement: what was measured before is drawn again


@contextmanager
def about(path: str | None) -> Iterator[None]:
    """Turn an error about numbers that were read from a file into a DataError that names the file."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if path is None:
            raise
        raise DataError(f"{path}: not the numbers that this figure needs ({error!r:.200}); {HOW}") from None


def style(axis: Axes) -> None:
    """Take away two of the borders, and draw a light grid behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.3, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)


def runs_for(name: str, what: str, request: Request) -> Sequence[str]:
    """Return the given runs; without any, raise an error that says which ones a figure needs."""
    if not request.runs:
        raise NotGivenError(
            f"{name} looks into {what}: name each with --run, or its numbers, {name}.json, with --results"
        )
    return request.runs


def one_a_data_set(runs: Sequence[str], request: Request) -> Sequence[str]:
    """Choose one run for each data set, the first of hyperproto or the first; all runs if one figure is asked for."""
    if request.alone:
        return runs
    chosen: dict[str, str] = {}
    for run in sorted(runs, key=lambda run: method_of(run) != "hyperproto"):
        chosen.setdefault(trained_on(run), run)
    return [run for run in runs if run in chosen.values()]


def trained_on(run: str) -> str:
    """Return the data spec that a run was trained on."""
    return str(Run(run).read_config()["recipe"]["data"]["spec"])


def method_of(run: str) -> str:
    """Return the name of the method of a run."""
    return str(Run(run).read_config()["recipe"]["method"]["name"])
