"""Figure 7 of the paper: t-SNE of training and unseen classes, and the gap between classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hyperproto.data import IntArray, open_pool
from hyperproto.errors import ConfigError, DataError
from hyperproto.paper.figure import Drawing, FigureDefinition, Numbers, Points, Request, Table, runs_for, trained_on
from hyperproto.paper.space_figures import (
    CLASSES,
    TrainedSpace,
    class_words,
    described,
    draw_classes,
    draw_units,
    instance_tips,
    short_label,
)
from hyperproto.progress import Show
from hyperproto.reports.pictures import CLASS_COLOURS, CLASS_MARKERS, Floats, plain, tsne

WORDS = 500  # instances a class
PAPER_GAP = {"ProtoNet": {"train": 2.33, "test": 1.55}, "HyperProto": {"train": 5.09, "test": 4.56}}


def gap_of(vectors: Floats, labels: IntArray, n_classes: int) -> dict[str, float]:
    """Return the gap, mean distance to prototypes of other classes minus that to the own one, and the gap over scale.

    Prototypes are the means of the classes. The distance to a sphere's surface instead gives the same difference where
    classes are equally large: each radius is subtracted as often as it is added. The scale of the space is the root of
    the mean squared distance of the vectors (n, D) to their common mean.
    """
    centers = np.stack([vectors[labels == n].mean(axis=0) for n in range(n_classes)])
    distances = np.linalg.norm(vectors[:, None] - centers, axis=-1)  # (n, classes)
    own = distances[np.arange(len(labels)), labels]
    others = (distances.sum(axis=1) - own) / (n_classes - 1)
    gap = float((others - own).mean())
    scale = float(np.sqrt(((vectors - vectors.mean(axis=0)) ** 2).sum(axis=1).mean()))
    return {"gap": round(gap, 5), "scale": round(scale, 5), "gap_over_scale": round(gap / scale, 5) if scale else 0.0}


def map_numbers(runs: Sequence[str], split: str | None, seed: int, words: int, show: Show) -> Numbers:
    """Place 5 training and 5 unseen classes, `words` instances of each, by t-SNE: before training, and for each run.

    Where not 5 classes have so many, the five largest decide how many are drawn.
    """
    spaces = [TrainedSpace.open(folder) for folder in runs]
    if len({space.spec for space in spaces}) > 1:
        specs = ", ".join(sorted({space.spec for space in spaces}))
        raise ConfigError(f"fig7 compares runs on the same data, and these are of {specs}; name runs of one data set")
    columns = [("before training", TrainedSpace.open(runs[-1], trained=False))]
    columns += [(_method_title(space), space) for space in spaces]
    first = spaces[0]
    rows, done = [], 0
    for kind, name in (("train", first.recipe.data.split), ("test", first.unseen_split(split))):
        pool = open_pool(first.spec, name)
        sizes = np.sort(pool.counts)[::-1]
        if len(sizes) < CLASSES:
            raise DataError(f"{pool}: {len(sizes)} classes, but {CLASSES} are drawn; name another --split")
        count = min(words, int(sizes[CLASSES - 1]))
        classes = draw_classes(pool, CLASSES, count, seed, items_once=False)[:CLASSES]
        units = np.concatenate([draw_units(pool, n, count, seed, items_once=False) for n in classes])
        labels = np.repeat(np.arange(CLASSES), count)
        panels = []
        for title, space in columns:
            show(done, 2 * len(columns), "panels placed by t-SNE")
            done += 1
            vectors = space.vectors(pool, units)
            placed = tsne(vectors.astype(np.float32), seed)
            panels.append(
                {
                    "title": title,
                    "run": space.folder,
                    "places": placed.round(3).tolist(),
                    **gap_of(vectors, labels, CLASSES),
                }
            )
        rows.append(
            {
                "kind": kind,
                "data": pool.name,
                "split": name,
                "classes": [class_words(pool)[n] for n in classes],
                "instances_a_class": count,
                "instances": described(pool, units),
                "panels": panels,
            }
        )
    return {"seed": seed, "rows": rows, "paper_gap": PAPER_GAP}


def _method_title(space: TrainedSpace) -> str:
    known = {"protonet": "ProtoNet", "hyperproto": "HyperProto"}
    return known.get(space.recipe.method.name, space.recipe.method.name)


def draw_maps(numbers: Numbers) -> Drawing:
    """Draw a row of training classes and one of unseen classes, with a column for each space."""
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
        names = [short_label(name) for name in row["classes"]]
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
    """Return head and rows: a row for each space, ours and the paper's."""
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


def _measure(request: Request, show: Show) -> Numbers:
    runs = runs_for("fig7", "two runs on the same data, one of protonet and one of hyperproto", request)
    if not request.alone:  # the first data set that several runs share
        by_data: dict[str, list[str]] = {}
        for run in runs:
            by_data.setdefault(trained_on(run), []).append(run)
        runs = max(by_data.values(), key=len)
    return map_numbers(runs, request.split, request.seed, request.samples or WORDS, show)


FIG7 = FigureDefinition(
    "t-SNE of training and unseen classes, before and after training",
    "The gap is the mean distance of instances to the prototypes of other classes minus that to their own; over the "
    "scale of the space (root mean squared distance to the common mean), since a larger space has larger gaps. "
    "The paper's gaps, train / test: ProtoNet 2.33 / 1.55, HyperProto 5.09 / 4.56.",
    _measure,
    draw_maps,
    gap_table,
    measured=True,
)
