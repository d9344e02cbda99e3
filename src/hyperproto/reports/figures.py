"""Figures, each as PNG bytes: an episode, the distance heat map, unseen classes in the plane, radii over training."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import NDArray

from hyperproto.data import IntArray, Pool
from hyperproto.episodes import Episode
from hyperproto.regions import Sphere
from hyperproto.training.metrics import METRICS, validated

Floats = NDArray[np.floating[Any]]


def contact_sheet(pool: Pool, episode: Episode, columns: int = 5) -> bytes:
    """One row a class: its support examples, a gap, some of its queries."""
    queries = np.arange(len(episode.query)).reshape(episode.way, -1)[:, :columns]
    shots = [np.flatnonzero(episode.support_y == n) for n in range(episode.way)]
    width = max(map(len, shots))
    figure = Figure(figsize=(0.62 * (width + columns + 1), 0.75 * episode.way))
    axes = figure.subplots(episode.way, width + 1 + columns, squeeze=False)
    for n, row in enumerate(axes):
        items = [*episode.support[shots[n]], *[None] * (width - len(shots[n]) + 1), *episode.query[queries[n]]]
        for axis, item in zip(row, items, strict=True):
            axis.set_axis_off()
            if item is not None:
                axis.imshow(pool.items[item], cmap="gray_r", vmin=0, vmax=255)
        row[0].set_title(pool.class_names[episode.classes[n]], fontsize=7, loc="left")
    figure.suptitle("support" + " " * 12 * width + "queries", x=0.13, ha="left", fontsize=9, y=1.02)
    return _png(figure)


def distance_heatmap(measures: Floats, names: Sequence[str], title: str) -> bytes:
    """Measure of each instance (rows, class after class) to each region, standardised in its row."""
    spread = measures.std(axis=1, keepdims=True)
    rows = (measures - measures.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    figure = Figure(figsize=(4.6, 5.2), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(rows, aspect="auto", cmap="viridis_r")
    per_class = len(rows) // len(names)
    names = [_short(name) for name in names]
    axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
    axis.set_yticks(np.arange(len(names)) * per_class + (per_class - 1) / 2, names, fontsize=7)
    for n in range(1, len(names)):
        axis.axhline(n * per_class - 0.5, color="white", linewidth=1)
    axis.set_xlabel("region of")
    axis.set_ylabel("instances of")
    axis.set_title(title, fontsize=9)
    figure.colorbar(image, label="measure, standardised (bright: inside or near)")
    return _png(figure)


def class_map(vectors: Floats, labels: IntArray, names: Sequence[str], title: str, seed: int = 0) -> bytes:
    """t-SNE of unseen classes, with the extent of each class drawn as a circle.

    A distance in the plane is not one in embedding space, so the extents are those of the classes *in the plane*.
    """
    from sklearn.manifold import TSNE

    plane = (
        TSNE(perplexity=min(30, (len(vectors) - 1) / 3), random_state=seed).fit_transform(vectors).astype(np.float64)
    )
    regions = Sphere.fit(plane, labels, len(names), mode="point")
    figure = Figure(figsize=(7.5, 6.2), layout="constrained")
    axis = figure.subplots()
    colours = colormaps["tab20"](np.arange(len(names)) % 20)
    for n, name in enumerate(names):
        own = plane[labels == n]
        axis.scatter(own[:, 0], own[:, 1], s=7, color=colours[n], label=_short(name))
        place, reach = tuple(regions.center[n]), float(regions.extent_radius[n])
        axis.add_patch(
            Circle(place, reach, facecolor=(*colours[n][:3], 0.2), edgecolor="black", linewidth=0.8, zorder=3)
        )
    axis.set_aspect("equal")
    axis.set_axis_off()
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.set_title(title, fontsize=9)
    return _png(figure)


def training_curves(metrics: Sequence[dict[str, Any]], title: str) -> bytes:
    """Each part of the loss, and what the validation episodes measured with its interval, over the steps."""
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axis = figure.subplots()
    known = {"step", *METRICS, "ci95", "precision", "recall", "radii", "radius_spread"}
    for part in sorted(metrics[0].keys() - known):
        axis.plot([row["step"] for row in metrics], [row[part] for row in metrics], label=f"loss: {part}", linewidth=1)
    metric, validations = validated(metrics)
    right = axis.twinx()
    values, ci95 = ([100 * row[key] for row in validations] for key in (metric, "ci95"))
    right.errorbar([row["step"] for row in validations], values, ci95, color="black", marker="o", markersize=4)
    right.set_ylabel(f"validation {metric}, %")
    axis.set_xlabel("training step")
    axis.set_ylabel("loss")
    axis.legend(fontsize=8, loc="center right")
    axis.set_title(title, fontsize=9)
    return _png(figure)


def radius_curves(metrics: Sequence[dict[str, Any]], title: str) -> bytes:
    """Centred radii of some training classes over the steps: only differences of radii matter in the softmax."""
    rows = [row for row in metrics if "radii" in row]
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axis = figure.subplots()
    axis.plot([row["step"] for row in rows], np.array([row["radii"] for row in rows]), linewidth=1)
    axis.axhline(0, color="black", linewidth=0.5)
    axis.set_xlabel("training step")
    axis.set_ylabel("radius - mean radius")
    axis.set_title(title, fontsize=9)
    return _png(figure)


def _short(name: str) -> str:
    """A class name without its code point."""
    return name.partition(" U+")[0]


def _png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=130, bbox_inches="tight")
    return buffer.getvalue()
