"""Figures, each as PNG bytes: accuracies, an episode with its regions, classes in the plane, curves over training.

A circle in a picture covers SHARE of its class: its radius is that quantile of the distances of the class's own points
to the class's centre, in the plane that is drawn. Distances in the plane are not those of the embedding space.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import NDArray

from hyperproto.data import IntArray, Pool
from hyperproto.episodes import Episode

if TYPE_CHECKING:
    from hyperproto.estimators.doctor.report import Diagnosis

Floats = NDArray[np.floating[Any]]

SHARE = 0.8  # of a class's points that its circle covers
COVERS = f"a circle covers {100 * SHARE:.0f} % of its class"
# Okabe and Ito's colours, which readers with any kind of colour vision tell apart.
BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, BLACK = (
    "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000",
)  # fmt: skip
CLASS_COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK, "#999999")
CLASS_MARKERS = "o^sDvPX*"
OURS, OTHERS = "#c23b22", "#31517a"  # colours of HyperProto and of everything else
WIDEST = 40  # characters of a label: the time to lay out a text grows with the square of its length
LEAST_OVERLAP = 0.005  # of a pair that is joined by a line
BOX = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
LEGEND = (
    "circle: covers {covered:.0%} of the class's own examples in this plane; line: overlap with the nearest rival; "
    "black ring: possibly mislabelled; black cross: far from its class"
)


def plain(text: str) -> str:
    """Escape text for matplotlib: a dollar sign starts no formula, and a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode().replace("$", r"\$")


def circle_radius(points: Floats, center: Floats, share: float = SHARE) -> float:
    """Return the smallest radius around `center` (2,) that covers `share` of the points (n, 2)."""
    return float(np.quantile(np.linalg.norm(points - center, axis=1), share, method="inverted_cdf"))


def accuracy_chart(columns: Mapping[str, Sequence[tuple[str, float, float]]], ours: str = "HyperProto") -> bytes:
    """Draw a panel for each kind of episodes, a row for each method: mean accuracy in percent and its interval.

    `columns` holds (method, accuracy, half the 95 % interval) by the panel's title; methods whose name begins with
    `ours` stand out.
    """
    labels = [label for label, *_ in next(iter(columns.values()))]
    figure = Figure(figsize=(2.3 + 1.75 * len(columns), 1.3 + 0.27 * len(labels)), layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    places = np.arange(len(labels))
    for axis, (title, rows) in zip(panels, columns.items(), strict=True):
        for place, (label, mean, half) in zip(places, rows, strict=True):
            colour = OURS if label.startswith(ours) else OTHERS
            axis.errorbar(100 * mean, place, xerr=100 * half, fmt="o", markersize=4.5, capsize=2.5, color=colour)
        axis.set_title(title.replace(", ", "\n", 1), fontsize=9)
        axis.grid(axis="x", alpha=0.35)
        axis.locator_params(axis="x", nbins=4)
        axis.tick_params(axis="x", labelsize=8)
        axis.margins(x=0.12)
    panels[0].set_yticks(places, labels, fontsize=9)
    panels[0].invert_yaxis()
    figure.supxlabel("accuracy on unseen classes, %, with 95 % intervals over episodes; scales differ", fontsize=9)
    return _png(figure)


def episode_figure(pool: Pool, episode: Episode, plane: Floats, centers: Floats, columns: int = 5) -> bytes:
    """Draw an episode's images, one row a class, and its classes in the plane as circles of the same colours.

    `plane` (n_support + n_query, 2) places support, then queries; `centers` (way, 2) are the regions' centres.
    """
    shots = [np.flatnonzero(episode.support_y == n) for n in range(episode.way)]
    queries = np.arange(len(episode.query)).reshape(episode.way, -1)
    width = max(map(len, shots))
    colours = colormaps["Dark2"](np.arange(episode.way) % 8)
    figure = Figure(figsize=(0.55 * (width + columns + 1) + 4.6, max(3.8, 0.82 * episode.way)))
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[0.55 * (width + columns + 1), 4.6])[0]
    grid = left.subplots(
        episode.way, width + 1 + columns, squeeze=False, gridspec_kw={"left": 0.02, "right": 0.98, "hspace": 0.55}
    )
    for n, row in enumerate(grid):
        items = [
            *episode.support[shots[n]],
            *[None] * (width - len(shots[n]) + 1),
            *episode.query[queries[n, :columns]],
        ]
        for axis, item in zip(row, items, strict=True):
            axis.set_axis_off()
            if item is not None:
                axis.imshow(pool.items[item], cmap="gray_r", vmin=0, vmax=255)
        name = f"{n + 1}  {short_name(pool.class_names[episode.classes[n]])}"
        row[0].set_title(name, fontsize=8, loc="left", color=colours[n], fontweight="bold", pad=3)
    for place, words in ((0.02, "support"), (0.02 + 0.96 * (width + 1) / (width + 1 + columns), "queries")):
        left.text(place, 0.965, words, fontsize=9)
    axis = right.subplots()
    labels = np.concatenate([episode.support_y, np.repeat(np.arange(episode.way), queries.shape[1])])
    given = np.arange(len(plane)) < len(episode.support)
    for n in range(episode.way):
        own = labels == n
        axis.scatter(*plane[own & ~given].T, s=12, color=colours[n], alpha=0.75, linewidths=0)
        axis.scatter(*plane[own & given].T, s=34, color=colours[n], edgecolors="black", linewidths=0.9, zorder=4)
        _region(axis, plane[own], centers[n], colours[n], str(n + 1))
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel("first axis of the class centres", fontsize=8)
    axis.set_ylabel("second axis", fontsize=8)
    axis.set_title(f"the same episode in embedding space, projected;\n{COVERS}", fontsize=9)
    marks = [Line2D([], [], marker="o", linestyle="", color="grey", markersize=3.5)]
    marks.insert(0, Line2D([], [], marker="o", linestyle="", color="grey", markeredgecolor="black", markersize=6))
    axis.legend(marks, ["support", "query"], fontsize=8, loc="upper center", ncols=2, bbox_to_anchor=(0.5, -0.06))
    return _png(figure)


def distance_heatmap(measures: Floats, names: Sequence[str], title: str) -> bytes:
    """Measure of each instance (rows, class after class) to each region, standardised in its row."""
    spread = measures.std(axis=1, keepdims=True)
    rows = (measures - measures.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    figure = Figure(figsize=(6.2, 5.2), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(rows, aspect="auto", cmap="viridis_r")
    per_class = len(rows) // len(names)
    names = [short_name(name) for name in names]
    axis.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize=8)
    axis.set_yticks(np.arange(len(names)) * per_class + (per_class - 1) / 2, names, fontsize=8)
    for n in range(1, len(names)):
        axis.axhline(n * per_class - 0.5, color="white", linewidth=1)
    axis.set_xlabel("region of")
    axis.set_ylabel("queries of")
    axis.set_title(title, fontsize=9)
    figure.colorbar(image, label="measure, standardised in each row (bright: inside or near)")
    return _png(figure)


def class_map(plane: Floats, labels: IntArray, names: Sequence[str], title: str) -> bytes:
    """Draw classes in a plane: points (n, 2) with their labels, and a circle around each class's mean."""
    figure = Figure(figsize=(8.6, 6.2), layout="constrained")
    axis = figure.subplots()
    colours = colormaps["tab20"](np.arange(len(names)) % 20)
    for n in range(len(names)):
        own = plane[labels == n]
        axis.scatter(own[:, 0], own[:, 1], s=7, color=colours[n], linewidths=0)
        _region(axis, own, own.mean(axis=0), colours[n], str(n + 1))
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel("t-SNE, first axis", fontsize=8)
    axis.set_ylabel("t-SNE, second axis", fontsize=8)
    marks = [Line2D([], [], marker="o", linestyle="", color=colour) for colour in colours]
    words = [f"{n}  {short_name(name)}" for n, name in enumerate(names, start=1)]
    axis.legend(marks, words, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    axis.set_title(f"{title}; {COVERS}", fontsize=10)
    return _png(figure)


def tsne(vectors: Floats, seed: int = 0) -> Floats:
    """Place vectors (n, D) in the plane (n, 2) by t-SNE."""
    from sklearn.manifold import TSNE

    perplexity = min(30, (len(vectors) - 1) / 3)
    placed: Floats = TSNE(perplexity=perplexity, random_state=seed).fit_transform(vectors).astype(np.float64)
    return placed


def training_curves(
    losses: Mapping[str, Sequence[float]],
    steps: Sequence[int],
    metric: str,
    validations: Sequence[tuple[int, float, float]],
    title: str,
) -> bytes:
    """Draw each part of the loss over the steps, and what the validation episodes measured: (step, mean, interval)."""
    figure = Figure(figsize=(6.8, 3.6), layout="constrained")
    axis = figure.subplots()
    for name, values in losses.items():
        axis.plot(steps, values, label=f"loss: {name} (left)", linewidth=1)
    right = axis.twinx()
    at, values, ci95 = zip(*validations, strict=True)
    label = f"validation {metric} (right)"
    percents, bars = 100 * np.array(values), 100 * np.array(ci95)
    right.errorbar(at, percents, bars, color="black", marker="o", markersize=4, capsize=2, label=label)
    right.set_ylabel(f"validation {metric}, % (± 95 %)")
    axis.set_xlabel("training step")
    axis.set_ylabel("loss")
    handles = [h for part in (axis, right) for h in part.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, fontsize=8, loc="outside lower center", ncols=3)
    axis.set_title(title, fontsize=9)
    return _png(figure)


def radius_curves(steps: Sequence[int], radii: Floats, names: Sequence[str], title: str) -> bytes:
    """Draw the centred radii (n_steps, n_classes) of some training classes: only differences matter in the softmax."""
    figure = Figure(figsize=(8.2, 4.2), layout="constrained")
    axis = figure.subplots()
    colours = colormaps["tab20"](np.arange(radii.shape[1]) % 20)
    low, high = float(radii.min()), float(radii.max())
    places = spread_out(radii[-1], (high - low or 1.0) / 19)
    for n, name in enumerate(names):
        axis.plot(steps, radii[:, n], linewidth=1.2, color=colours[n])
        axis.annotate(
            short_name(name),
            (steps[-1], float(radii[-1, n])),
            xytext=(1.04, float(places[n])),
            textcoords=axis.get_yaxis_transform(),
            fontsize=8,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colours[n], "linewidth": 0.9, "relpos": (0, 0.5)},
        )
    axis.axhline(0, color="black", linewidth=0.5)
    if steps[0] < steps[-1]:  # a run of a few steps may have logged one
        axis.set_xlim(steps[0], steps[-1])
    axis.set_xlabel("training step")
    axis.set_ylabel("radius of the class - mean radius of all classes")
    axis.set_title(title, fontsize=9)
    return _png(figure)


def spread_out(values: Floats, gap: float) -> Floats:
    """Move values apart until sorted neighbours differ by at least `gap`, as little as their middle allows."""
    order = np.argsort(values)
    places = values[order].astype(np.float64)
    blocks: list[list[int]] = []  # values that touch stand around their common mean
    for n in range(len(places)):
        blocks.append([n])
        while len(blocks) > 1 and _start(places, blocks[-1], gap) < _start(places, blocks[-2], gap) + gap * len(
            blocks[-2]
        ):
            last = blocks.pop()
            blocks[-1] += last
    moved = np.concatenate([_start(places, block, gap) + gap * np.arange(len(block)) for block in blocks])
    found = np.empty_like(moved)
    found[order] = moved
    return found


def _start(places: Floats, block: Sequence[int], gap: float) -> float:
    return float(places[block].mean() - gap * (len(block) - 1) / 2)


def short_name(name: str) -> str:
    """Return a class name without its code point."""
    return name.partition(" U+")[0]


def _region(axis: Axes, points: Floats, center: Floats, colour: Floats, label: str) -> None:
    """Draw a class's circle, and its number in the middle."""
    place = float(center[0]), float(center[1])
    reach = circle_radius(points, center)
    axis.add_patch(Circle(place, reach, facecolor=(*colour[:3], 0.18), edgecolor="black", linewidth=0.8, zorder=3))
    box = {"boxstyle": "circle,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    axis.text(*place, label, fontsize=8, ha="center", va="center", zorder=5, bbox=box)


def _png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=130, bbox_inches="tight")
    return buffer.getvalue()


def draw_diagnosis(diagnosis: "Diagnosis") -> Any:
    """Draw a matplotlib Figure."""
    plane = diagnosis.plane
    figure = Figure(figsize=(8.5, 7), layout="constrained")
    axis = figure.subplots()
    colours = colormaps["tab20"](np.arange(len(plane.classes)) % 20)
    _circles(axis, plane, colours)
    axis.scatter(plane.examples[:, 0], plane.examples[:, 1], s=9, c=colours[plane.labels], zorder=3, linewidths=0)
    _marks(axis, diagnosis)
    _lines(axis, diagnosis)
    for n, mean in zip(plane.classes, plane.means, strict=True):
        axis.annotate(
            plain(_short(diagnosis.classes[n].label)), mean, fontsize=8, ha="center", va="center", bbox=BOX, zorder=6
        )
    axis.set_aspect("equal")
    axis.autoscale_view()
    axis.set_xticks([])
    axis.set_yticks([])
    some = len(plane.classes) < len(diagnosis.classes)
    which = f"The {len(plane.classes)} most confused of {len(diagnosis.classes)} classes" if some else "Classes"
    axis.set_title(f"{which}, in the plane in which their means lie farthest apart", fontsize=10)
    axis.set_xlabel(LEGEND.format(covered=plane.covered), fontsize=7)
    return figure


def _short(label: Any) -> str:
    """Return a label on one line of at most WIDEST characters."""
    text = " ".join(str(label).split())
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _circles(axis: Any, plane: Any, colours: Any) -> None:
    for mean, radius, colour in zip(plane.means, plane.radii, colours, strict=True):
        axis.add_patch(Circle(tuple(mean), float(radius), facecolor=(*colour[:3], 0.15), edgecolor="none", zorder=1))
        axis.add_patch(Circle(tuple(mean), float(radius), fill=False, edgecolor=colour, linewidth=1.2, zorder=2))


def _marks(axis: Any, diagnosis: "Diagnosis") -> None:
    plane = diagnosis.plane
    for reports, style in (
        (diagnosis.mislabelled, {"marker": "o", "facecolors": "none", "edgecolors": "black", "s": 60}),
        (diagnosis.outlying, {"marker": "x", "c": "black", "s": 45}),
    ):
        marked = plane.examples[np.isin(plane.numbers, [report.example for report in reports])]
        axis.scatter(marked[:, 0], marked[:, 1], zorder=4, linewidths=1.0, **style)


def _lines(axis: Any, diagnosis: "Diagnosis") -> None:
    """Draw a line between each class and its rival, labelled with their overlap."""
    plane = diagnosis.plane
    place = {diagnosis.classes[n].label: mean for n, mean in zip(plane.classes, plane.means, strict=True)}
    pairs: dict[frozenset[Any], float] = {}
    for report in diagnosis.classes:
        if report.label in place and report.rival in place and (report.overlap or 0.0) >= LEAST_OVERLAP:
            pair = frozenset((report.label, report.rival))
            pairs[pair] = max(pairs.get(pair, 0.0), report.overlap or 0.0)
    for pair, overlap in pairs.items():
        ends = np.stack([place[label] for label in pair])
        axis.plot(ends[:, 0], ends[:, 1], color="black", alpha=0.55, linewidth=0.5 + 12 * overlap, zorder=5)
        axis.annotate(f"{overlap:.0%}", ends.mean(axis=0), fontsize=7, ha="center", va="center", bbox=BOX, zorder=6)
