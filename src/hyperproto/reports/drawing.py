"""What the figures of the paper share: colours, files, and the places on a picture that a page can explain.

A figure is drawn from a dict of numbers that JSON can hold, and from nothing else: the same file draws it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Numbers = dict[str, Any]  # what a figure shows, as its JSON file holds it

# Okabe and Ito's colours, which readers with any kind of colour vision tell apart.
BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, BLACK = (
    "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000",
)  # fmt: skip
CLASS_COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK, "#999999")
CLASS_MARKERS = "o^sDvPX*"
DPI = 150


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
class Grid:
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
    spots: list[Points | Grid] = field(default_factory=list)

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


def plain(text: str) -> str:
    """Words of others as they are: a dollar begins no formula, and half a character is a question mark."""
    return text.encode("utf-8", "replace").decode().replace("$", r"\$")


def style(axis: Axes) -> None:
    """Take away two of the borders, and draw a light grid behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.3, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
