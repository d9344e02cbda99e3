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
    """A figure needs runs or results that were not given."""


@dataclass(frozen=True, eq=False)
class Results:
    """Files of results, sorted by what they hold."""

    figures: dict[str, tuple[Path, Numbers]] = field(default_factory=dict)  # measured before, by name
    tables: dict[str, tuple[Path, dict[str, Any]]] = field(default_factory=dict)  # reports on tables, by table
    shots: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)  # entity grids


@dataclass(frozen=True, eq=False)
class Request:
    """What figures are made from; None stands for the default of each figure."""

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
        """Whether it says what to measure, so that what was measured before is not meant."""
        settings = (self.data, self.split, self.samples, self.shots, self.recipe, self.anchors)
        told = bool(self.overrides) or any(given is not None for given in settings)
        return bool(self.runs) or (self.alone and told)


@dataclass(frozen=True, eq=False)
class Points:
    """Places (n, 2) in the data coordinates of a panel, each with the words that a page shows there."""

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
    """A panel of rows x columns of equal cells: what each row and each column is, and the values."""

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
    """A figure, the series that a page can switch off, and what it says where a reader points."""

    figure: Figure
    series: list[str] = field(default_factory=list)
    tips: list[dict[str, str]] = field(default_factory=list)  # "text", and "image", a data URI
    spots: list[Points | Cells] = field(default_factory=list)

    def tip(self, text: str, image: str | None = None) -> int:
        """Add the words, and the picture, of one thing; return its number."""
        self.tips.append({"text": text} | ({} if image is None else {"image": image}))
        return len(self.tips) - 1

    def belongs(self, series: str, artists: Sequence[Artist]) -> int:
        """Say which series some artists belong to; return its number."""
        if series not in self.series:
            self.series.append(series)
        number = self.series.index(series)
        for artist in artists:
            artist.set_gid(f"series-{number}-{id(artist)}")
        return number

    def settle(self) -> None:
        """Lay the figure out, once: PNG, SVG and the places of the page are then the same picture."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")
        count = 0
        for artist in self.figure.findobj():  # ids that are the same each time
            gid = artist.get_gid()
            if gid is not None and gid.startswith("series-"):
                artist.set_gid("-".join([*gid.split("-")[:2], str(count)]))
                count += 1

    def png(self) -> bytes:
        """The figure as PNG."""
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()

    def svg(self, name: str) -> bytes:
        """The figure as SVG, letters as outlines; `name` makes its ids differ from those of other figures."""
        buffer = BytesIO()
        with rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
            self.figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()


@dataclass(frozen=True)
class FigureDefinition:
    """A figure: what it shows, and how it is made."""

    title: str
    caption: str
    measure: Callable[[Request, Show], Numbers]
    draw: Callable[[Numbers], Drawing]
    table: Callable[[Numbers], Table] | None = None
    measured: bool = False  # in runs, by a training or a measurement: what was measured before is drawn again


@contextmanager
def about(path: str | None) -> Iterator[None]:
    """Name the file of results whose numbers are not what they should be."""
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
    """Return the runs that were given, or say which ones a figure needs."""
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
