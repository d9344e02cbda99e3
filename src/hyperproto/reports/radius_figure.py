"""Figure 6 of the paper: distance and radius of anchor classes over training, and their cross-correlation."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hyperproto.reports.drawing import BLUE, VERMILLION, Drawing, Numbers, Points, plain, style

COLUMNS = 4  # panels in a row
DISTANCE, RADIUS = "distance to the centre (left scale)", "radius (right scale)"


def draw_radius(numbers: Numbers) -> Drawing:
    """A panel for each anchor, with two scales, and below them the cross-correlation by lag."""
    anchors = numbers["anchors"]
    rows = -(-len(anchors) // COLUMNS)
    figure = Figure(figsize=(12, 2.5 * rows + 2.9), layout="constrained")
    drawing = Drawing(figure)
    upper, lower = figure.subfigures(2, 1, height_ratios=[2.5 * rows, 2.9], squeeze=False)[:, 0]
    grid = upper.subplots(rows, min(COLUMNS, len(anchors)), squeeze=False)
    for axis, anchor in zip(grid.ravel(), anchors, strict=False):
        _anchor(drawing, axis, anchor, numbers)
    for axis in grid.ravel()[len(anchors) :]:
        axis.set_axis_off()
    upper.supxlabel("training step (grey: blocks of bad episodes)", fontsize=9)
    handles = {label: h for axis in upper.axes for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    upper.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=2, fontsize=9, frameon=False)
    titles = {"distance": "distance of the logged episode", "block_distance": "mean distance over the block"}
    for axis, (key, title) in zip(lower.subplots(1, 2, sharey=True), titles.items(), strict=True):
        _correlation(drawing, axis, numbers["correlation"][key], title)
    lower.supylabel("correlation of changes", fontsize=9)
    return drawing


def _anchor(drawing: Drawing, axis: Axes, anchor: dict[str, Any], numbers: Numbers) -> None:
    steps = np.array(anchor["step"])
    right = axis.twinx()
    for scale, key, label, colour, look in (
        (axis, "distance", DISTANCE, BLUE, "-"),
        (right, "radius", RADIUS, VERMILLION, "--"),
    ):
        line = scale.plot(
            steps, anchor[key], look, color=colour, linewidth=1.5, marker="o", markersize=2.6, label=label
        )
        words = [
            f"{anchor['anchor']}\nstep {s}: {key} {value:.4g}" for s, value in zip(steps, anchor[key], strict=True)
        ]
        places = np.stack([steps, anchor[key]], axis=1)
        series = drawing.belongs(label, line)
        drawing.spots.append(Points(scale, places, [drawing.tip(text) for text in words], series))
        scale.tick_params(axis="y", labelsize=7, colors=colour)
    block, start = numbers["block"], numbers["warmup"]
    for end in steps[(steps - start) // block % 2 == 0]:
        axis.axvspan(end - block, end, color="#999999", alpha=0.16, linewidth=0)
    axis.tick_params(axis="x", labelsize=7)
    axis.set_title(plain(anchor["anchor"][:34]), fontsize=9)
    axis.spines["top"].set_visible(False)
    right.spines["top"].set_visible(False)


def _correlation(drawing: Drawing, axis: Axes, found: dict[str, Any], title: str) -> None:
    rows = found["lags"]
    lags, means = [row["lag"] for row in rows], [row["mean"] for row in rows]
    axis.axhline(0, color="black", linewidth=0.7)
    for row in rows:
        axis.scatter([row["lag"]] * len(row["anchors"]), row["anchors"], s=9, color="#999999", linewidths=0, zorder=2)
        if row["low"] is not None:
            axis.plot([row["lag"]] * 2, [row["low"], row["high"]], color=VERMILLION, linewidth=1.6, zorder=3)
    axis.scatter(lags, means, s=34, color=VERMILLION, zorder=4)
    words = [_said(row) for row in rows]
    drawing.spots.append(Points(axis, np.array([lags, means]).T.reshape(-1, 2), [drawing.tip(text) for text in words]))
    style(axis)
    axis.set_xticks(lags)
    axis.set_xlabel("lag in blocks (above 0: the radius follows the distance)", fontsize=9)
    verdict = "the radius follows" if found["radius_follows"] else "not shown that the radius follows"
    axis.set_title(f"{title}: {verdict}", fontsize=9)


def _said(row: dict[str, Any]) -> str:
    interval = "" if row["low"] is None else f" [{row['low']:.3f}, {row['high']:.3f}]"
    return f"lag {row['lag']}: mean correlation {row['mean']:.3f}{interval} over {len(row['anchors'])} anchors"


def lag_table(numbers: Numbers) -> tuple[list[str], list[list[str]]]:
    """Head and rows: a row for each lag."""
    rows = []
    for key, words in (("distance", "of the logged episode"), ("block_distance", "over the block")):
        for row in numbers["correlation"][key]["lags"]:
            interval = "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"
            rows.append([words, str(row["lag"]), f"{row['mean']:.3f}", interval])
    return ["distance", "lag, blocks", "mean correlation of changes", "95 % interval, all lags at once"], rows
