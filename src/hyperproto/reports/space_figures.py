"""Figures 4, 5 and 7 of the paper, and learned radii against class scatter and size: drawn from measured numbers."""

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hyperproto.reports.drawing import (
    BLUE,
    CLASS_COLOURS,
    CLASS_MARKERS,
    VERMILLION,
    Drawing,
    Grid,
    Numbers,
    Points,
    plain,
    style,
)

WARM = "inferno_r"  # of distances: bright and warm is short
SIMILAR = "inferno"  # of similarities: bright and warm is alike
Table = tuple[list[str], list[list[str]]]


def instance_tips(drawing: Drawing, instances: Sequence[Mapping[str, str]]) -> list[int]:
    """Add what a page says of instances; return their numbers."""
    return [drawing.tip(f"{one['class']}\n{one['text']}", one.get("image")) for one in instances]


def _title(facts: Mapping[str, Any]) -> str:
    return plain(f"{facts['data']} ({facts['split']}), {facts['method']}")


def _short(name: str, width: int = 22) -> str:
    return plain(name if len(name) <= width else f"{name[: width - 1]}…")


# Figure 4 -----------------------------------------------------------------------------------------------------------


def draw_distances(numbers: Numbers) -> Drawing:
    """One heat map for each run, side by side."""
    panels = numbers["panels"]
    figure = Figure(figsize=(1.2 + 4.1 * len(panels), 5.6), layout="constrained")
    drawing = Drawing(figure)
    image: Any = None
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        values = np.array(panel["normalised"])
        image = axis.imshow(values, aspect="auto", cmap=WARM, vmin=0, vmax=1)
        names = [_short(name) for name in panel["classes"]]
        each = len(values) // len(names)
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        axis.set_yticks(np.arange(len(names)) * each + (each - 1) / 2, names, fontsize=8)
        for line in range(1, len(names)):
            axis.axhline(line * each - 0.5, color="white", linewidth=1.2)
        axis.set_xlabel("hypersphere of", fontsize=9)
        axis.set_ylabel("instances of", fontsize=9)
        axis.set_title(f"{_title(panel)}\nnearest sphere is the own: {panel['nearest_is_own']:.0%}", fontsize=9)
        rows = instance_tips(drawing, panel["instances"])
        columns = [drawing.tip(f"hypersphere of {name}") for name in panel["classes"]]
        drawing.spots.append(Grid(axis, rows, columns, panel["measure"], "distance to the surface (eq. 2)"))
    bar = figure.colorbar(image, ax=figure.axes, shrink=0.7, pad=0.02)
    bar.set_label("distance to the surface, normalised (warm: short)", fontsize=9)
    return drawing


def distance_table(numbers: Numbers) -> Table:
    """Head and rows: a row for each run."""
    rows = [[p["run"], _title(p), f"{p['nearest_is_own']:.2f}"] for p in numbers["panels"]]
    return ["run", "data, method", "share of instances nearest to their own sphere"], rows


# Figure 5 -----------------------------------------------------------------------------------------------------------


def draw_similarities(numbers: Numbers) -> Drawing:
    """A row for each run, a panel for each five classes."""
    rows = numbers["rows"]
    figure = Figure(figsize=(13, 0.3 + 2.8 * len(rows)), layout="constrained")
    drawing = Drawing(figure)
    image: Any = None
    lowest = min(0.0, *(np.min(panel["similarity"]) for row in rows for panel in row["panels"]))
    for part, row in zip(figure.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        for axis, panel in zip(part.subplots(1, len(row["panels"]), squeeze=False)[0], row["panels"], strict=True):
            image = axis.imshow(np.array(panel["similarity"]), cmap=SIMILAR, vmin=lowest, vmax=1, aspect="auto")
            each = len(panel["similarity"]) // len(panel["classes"])
            for line in range(1, len(panel["classes"])):
                axis.axhline(line * each - 0.5, color="white", linewidth=0.6)
                axis.axvline(line * each - 0.5, color="white", linewidth=0.6)
            middle = np.arange(len(panel["classes"])) * each + (each - 1) / 2
            axis.set_yticks(middle, [_short(name, 16) for name in panel["classes"]], fontsize=7)
            axis.set_xticks([])
            tips = instance_tips(drawing, panel["instances"])
            drawing.spots.append(Grid(axis, tips, tips, panel["similarity"], "cosine similarity"))
        within, between = row["within_classes"], row["between_classes"]
        part.suptitle(f"{_title(row)}: mean within classes {within:.2f}, between classes {between:.2f}", fontsize=10)
        bar = part.colorbar(image, ax=part.axes, pad=0.01, fraction=0.03)
        bar.set_label("cosine similarity", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return drawing


def similarity_table(numbers: Numbers) -> Table:
    """Head and rows: a row for each run."""
    rows = [
        [row["run"], _title(row), f"{row['within_classes']:.3f}", f"{row['between_classes']:.3f}"]
        for row in numbers["rows"]
    ]
    return ["run", "data, method", "mean cosine within classes", "between classes"], rows


# Figure 7 -----------------------------------------------------------------------------------------------------------


def draw_maps(numbers: Numbers) -> Drawing:
    """A row of training classes and one of unseen classes, a column for each space."""
    rows = numbers["rows"]
    width = max(len(row["panels"]) for row in rows)
    figure = Figure(figsize=(1.9 + 3.3 * width, 3.6 * len(rows)), layout="constrained")
    drawing = Drawing(figure)
    grid = figure.subplots(len(rows), width, squeeze=False)
    for axes, row in zip(grid, rows, strict=True):
        tips = instance_tips(drawing, row["instances"])
        labels = np.repeat(np.arange(len(row["classes"])), row["instances_a_class"])
        for axis, panel in zip(axes, row["panels"], strict=True):
            _map(drawing, axis, panel, labels, tips)
        seen = "training classes" if row["kind"] == "train" else "unseen classes"
        axes[0].set_ylabel(f"{seen}\n{plain(row['data'])} ({plain(row['split'])})", fontsize=9)
        marks = [
            Line2D([], [], marker=CLASS_MARKERS[n], linestyle="", color=CLASS_COLOURS[n], markersize=6)
            for n in range(len(row["classes"]))
        ]
        names = [_short(name) for name in row["classes"]]
        axes[-1].legend(marks, names, fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    return drawing


def _map(drawing: Drawing, axis: Axes, panel: Mapping[str, Any], labels: Any, tips: Sequence[int]) -> None:
    places = np.array(panel["places"])
    for n in range(labels.max() + 1):
        own = places[labels == n]
        look: dict[str, Any] = {"marker": CLASS_MARKERS[n], "color": CLASS_COLOURS[n], "alpha": 0.75, "linewidths": 0}
        dots = axis.scatter(own[:, 0], own[:, 1], s=7, **look)
        series = drawing.belongs(panel["title"], [dots])
    drawing.spots.append(Points(axis, places, tips, series))
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title(f"{panel['title']}\ngap {panel['gap']:.2f}, over scale {panel['gap_over_scale']:.2f}", fontsize=9)


def gap_table(numbers: Numbers) -> Table:
    """Head and rows: a row for each space, ours and the paper's."""
    kinds = {row["kind"]: {panel["title"]: panel for panel in row["panels"]} for row in numbers["rows"]}
    titles = list(next(iter(kinds.values())))
    rows = []
    for title in titles:
        paper = numbers["paper_gap"].get(title, {})
        cells = []
        for kind, panels in kinds.items():
            own = panels[title]
            said = f"{paper[kind]:.2f}" if kind in paper else ""
            cells += [f"{own['gap']:.3f}", f"{own['scale']:.3f}", f"{own['gap_over_scale']:.3f}", said]
        rows.append([title, *cells])
    parts = ("gap", "scale of the space", "gap over scale", "gap in the paper")
    return ["space", *(f"{part}, {kind}" for kind in kinds for part in parts)], rows


# Learned radii ------------------------------------------------------------------------------------------------------


def draw_radii(numbers: Numbers) -> Drawing:
    """A row for each run: learned radius against scatter, and against size."""
    runs = numbers["runs"]
    figure = Figure(figsize=(9.6, 3.9 * len(runs)), layout="constrained")
    drawing = Drawing(figure)
    for axes, run in zip(figure.subplots(len(runs), 2, squeeze=False), runs, strict=True):
        for axis, key, found, colour in (
            (axes[0], "scatter", run["with_scatter"], VERMILLION),
            (axes[1], "size", run["with_size"], BLUE),
        ):
            places = np.stack([run[key], run["radius"]], axis=1)
            axis.scatter(*places.T, s=26, color=colour, alpha=0.8, linewidths=0)
            words = [
                f"{name}\nradius {r:.4g}, scatter {s:.4g}, {count} instances"
                for name, r, s, count in zip(run["classes"], run["radius"], run["scatter"], run["size"], strict=True)
            ]
            drawing.spots.append(Points(axis, places, [drawing.tip(text) for text in words]))
            style(axis)
            if key == "size" and max(run["size"]) > 10 * max(1, min(run["size"])):
                axis.set_xscale("log")
            axis.set_xlabel("scatter of the class" if key == "scatter" else "instances of the class", fontsize=9)
            axis.set_title(_correlated(found), fontsize=9)
        axes[0].set_ylabel(f"{shorten(_title(run), 50)}\nlearned radius - mean radius", fontsize=9)
    return drawing


def _correlated(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "the same in every class: no correlation"
    return f"Spearman {found['spearman']:.2f} [{found['low']:.2f}, {found['high']:.2f}], {found['classes']} classes"


def radius_table(numbers: Numbers) -> Table:
    """Head and rows: a row for each run and each property of classes."""
    rows = []
    for run in numbers["runs"]:
        for words, found in (("scatter", run["with_scatter"]), ("size", run["with_size"])):
            cells = ["", "", "", ""]
            if found is not None:
                interval = f"{found['low']:.3f} to {found['high']:.3f}"
                cells = [f"{found['spearman']:.3f}", interval, f"{found['p']:.2g}", str(found["classes"])]
            rows.append([run["run"], words, *cells])
    return ["run", "learned radius against", "Spearman", "95 % interval", "p", "classes"], rows
