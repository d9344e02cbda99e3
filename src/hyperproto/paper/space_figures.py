"""Figures 4 and 5 of the paper: distances of instances to spheres, and similarities of instances, in trained spaces.

Vectors are those that the method of a run sees: after the feature transform.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hyperproto.data import IntArray, Pool, open_pool, splits_of
from hyperproto.data.fewrel import relation_texts
from hyperproto.data.miniimagenet import NAMES
from hyperproto.episodes.random import PICTURES, shuffled
from hyperproto.errors import ConfigError, DataError, HyperProtoError
from hyperproto.evaluation import EncodedPool, training_center
from hyperproto.paper.figure import (
    Cells,
    Drawing,
    FigureDefinition,
    Numbers,
    Request,
    Table,
    one_a_data_set,
    runs_for,
)
from hyperproto.progress import Show
from hyperproto.recipes import Recipe
from hyperproto.regions import Sphere
from hyperproto.reports.pictures import Floats, plain, short_name
from hyperproto.training import Run
from hyperproto.training.learner import Learner

CLASSES, INSTANCES, SHOTS = 5, 5, 5  # of a panel
PANELS = 4  # of a row of figure 5
WARM = "inferno_r"  # of distances: bright and warm is short
SIMILAR = "inferno"  # of similarities: bright and warm is alike
LONGEST = 400  # characters of an instance that are kept


@dataclass(frozen=True, eq=False)
class TrainedSpace:
    """Encoder and transform of a run, with trained or initial weights."""

    folder: str
    recipe: Recipe
    learner: Learner

    @classmethod
    def open(cls, folder: str, *, trained: bool = True) -> "TrainedSpace":
        """Open a run; with `trained` false, give its encoder the weights it began with."""
        run = Run(folder)
        learner, recipe = run.load()
        if not trained:
            learner = Learner.build(recipe, run.read_config()["n_classes"]).eval()
        shape = learner.features.feature_shape
        if learner.method.reads == "items" or -1 in shape:
            reads = "items" if learner.method.reads == "items" else "token states"
            raise ConfigError(
                f"{folder}: {recipe.method.name} reads {reads}, and these figures are of vectors; name a run of "
                "another method"
            )
        return cls(folder, recipe, learner)

    @property
    def spec(self) -> str:
        """Spec of the training data."""
        return self.recipe.data.spec

    def unseen_split(self, split: str | None) -> str:
        """Return the split of unseen classes: the given one, else test or, if there is none, that of validation."""
        return split or ("test" if "test" in splits_of(self.spec) else self.recipe.validation.split)

    def vectors(self, pool: Pool, units: IntArray) -> Floats:
        """Encode some units of a pool, (n, D), reading each item once."""
        different = self.learner.features.encoder.differences(pool)
        if different:
            raise ConfigError(f"{self.folder}: its encoder cannot read {pool}, which has {', '.join(different)}")
        features = self.learner.features
        own = pool.items_of(units)
        items = np.unique(own)
        encoded = EncodedPool.of_items(features.encoder, pool, items).units
        transform = features.transform.eval()
        if transform.kind == "center-unit" and not transform.has_center:
            train = open_pool(self.spec, self.recipe.data.split)
            transform.set_center(training_center(features.encoder, train, cached=True))
        rows = encoded.x[encoded.offsets[own] + units - pool.unit_offsets[own]]
        found: Floats = transform(rows).flatten(1).double().cpu().numpy()
        return found


def draw_units(pool: Pool, n: int, count: int, seed: int, *, items_once: bool = True) -> IntArray:
    """Draw units of class `n` at random, at most `count`; with `items_once` no two of one item."""
    members = pool.members[n][shuffled(seed, PICTURES, n, len(pool.members[n]))]
    if items_once:
        members = members[np.sort(np.unique(pool.items_of(members), return_index=True)[1])]
    return members[:count]


def draw_classes(pool: Pool, count: int, least: int, seed: int, *, items_once: bool = True) -> list[int]:
    """Return the classes with `least` units (of different items) in random order, at least `count` of them."""
    order = shuffled(seed, PICTURES, pool.n_classes, pool.n_classes)
    enough = [n for n in order if len(draw_units(pool, n, least, seed, items_once=items_once)) == least]
    if len(enough) < count:
        raise DataError(
            f"{pool}: {len(enough)} classes have {least} instances, but {count} are drawn; name another --split"
        )
    return enough


def described(pool: Pool, units: IntArray) -> list[dict[str, str]]:
    """Return for each unit its class, and its text or its picture as a data URI."""
    names = class_words(pool)
    found = []
    for unit, item in zip(units.tolist(), pool.items_of(units).tolist(), strict=True):
        one = {"class": names[pool.labels[unit]], "text": f"{pool} item {item}"}
        content = pool.items[item]
        if isinstance(content, str):
            one["text"] = content[:LONGEST]
        elif isinstance(content, list):
            one["text"] = _marked(content, [unit - int(pool.unit_offsets[item])])
        elif isinstance(content, dict) and "tokens" in content:
            one["text"] = _marked(content["tokens"], [*content["head"], *content["tail"]])
        elif isinstance(content, np.ndarray) and content.dtype == np.uint8:
            one["image"] = _picture(content)
        found.append(one)
    return found


def _marked(tokens: Sequence[str], marked: Sequence[int]) -> str:
    """Return a sentence with marked words in brackets, cut around the first of them if it is long."""
    words = [f"[{word}]" if place in marked else word for place, word in enumerate(tokens)]
    text = " ".join(words).replace("] [", " ")
    start = max(0, text.find("[") - LONGEST // 2)
    return ("... " if start else "") + text[start : start + LONGEST]


def _picture(pixels: Any) -> str:
    from PIL import Image

    buffer = BytesIO()
    image = Image.fromarray(255 - pixels if pixels.ndim == 2 else pixels)  # characters are white on black
    image.save(buffer, format="PNG" if pixels.ndim == 2 else "JPEG")
    kind = "png" if pixels.ndim == 2 else "jpeg"
    return f"data:image/{kind};base64,{b64encode(buffer.getvalue()).decode()}"


def class_words(pool: Pool) -> list[str]:
    """Return readable class names: words for relation ids and WordNet ids, where these are known."""
    relations: dict[str, str] = {}
    with suppress(HyperProtoError):
        relations = relation_texts(pool.name)
    known = {**NAMES, **{name: text.partition(":")[0] for name, text in relations.items()}}
    return [known.get(name) or short_name(name) for name in pool.class_names]


def run_facts(space: TrainedSpace, pool: Pool) -> dict[str, Any]:
    """Return what the JSON file of a figure says of a run and its data."""
    return {"run": space.folder, "method": space.recipe.method.name, "data": pool.name, "split": pool.split}


def instance_tips(drawing: Drawing, instances: Sequence[Mapping[str, str]]) -> list[int]:
    """Add the texts of instances to a drawing; return their numbers."""
    return [drawing.tip(f"{one['class']}\n{one['text']}", one.get("image")) for one in instances]


def run_title(facts: Mapping[str, Any]) -> str:
    """Return the title of a panel: data, split and method."""
    return plain(f"{facts['data']} ({facts['split']}), {facts['method']}")


def short_label(name: str, width: int = 22) -> str:
    """Cut a class name to at most `width` characters."""
    return plain(name if len(name) <= width else f"{name[: width - 1]}…")


# Figure 4 -----------------------------------------------------------------------------------------------------------


def distance_numbers(runs: Sequence[str], split: str | None, seed: int, show: Show) -> Numbers:
    """Measure 25 instances of 5 unseen classes against spheres fitted to 5 other instances of each, for each run.

    A value is eq. 2, ||x - z||^2 - eps, read as the run reads it, and then scaled to 0 to 1 within the run's panel.
    """
    panels = []
    for done, folder in enumerate(runs):
        show(done, len(runs), "runs measured")
        space = TrainedSpace.open(folder)
        pool = open_pool(space.spec, space.unseen_split(split))
        classes = draw_classes(pool, CLASSES, SHOTS + INSTANCES, seed)[:CLASSES]
        drawn = np.stack([draw_units(pool, n, SHOTS + INSTANCES, seed) for n in classes])  # (5, 10)
        support, query = drawn[:, :SHOTS].ravel(), drawn[:, SHOTS:].ravel()
        vectors = space.vectors(pool, np.concatenate([support, query]))
        options = space.recipe.method.options if space.recipe.method.name == "hyperproto" else {}
        reading = {key: options[key] for key in ("squared", "radius_distance") if key in options}
        labels = np.repeat(np.arange(CLASSES), SHOTS)
        sphere = Sphere.fit(vectors[: len(support)], labels, CLASSES, mode="paper", **reading)
        measure = np.asarray(sphere.measure(vectors[len(support) :]))  # (25, 5)
        spread = np.ptp(measure) or 1.0
        own = np.repeat(np.arange(CLASSES), INSTANCES)
        panels.append(
            {
                **run_facts(space, pool),
                "classes": [class_words(pool)[n] for n in classes],
                "instances": described(pool, query),
                "measure": measure.round(5).tolist(),
                "normalised": ((measure - measure.min()) / spread).round(5).tolist(),
                "nearest_is_own": round(float((measure.argmin(axis=1) == own).mean()), 4),
            }
        )
    return {"shots": SHOTS, "seed": seed, "panels": panels}


def draw_distances(numbers: Numbers) -> Drawing:
    """Draw one heat map for each run, side by side."""
    panels = numbers["panels"]
    figure = Figure(figsize=(1.2 + 4.1 * len(panels), 5.6), layout="constrained")
    drawing = Drawing(figure)
    image: Any = None
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        values = np.array(panel["normalised"])
        image = axis.imshow(values, aspect="auto", cmap=WARM, vmin=0, vmax=1)
        names = [short_label(name) for name in panel["classes"]]
        each = len(values) // len(names)
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        axis.set_yticks(np.arange(len(names)) * each + (each - 1) / 2, names, fontsize=8)
        for line in range(1, len(names)):
            axis.axhline(line * each - 0.5, color="white", linewidth=1.2)
        axis.set_xlabel("hypersphere of", fontsize=9)
        axis.set_ylabel("instances of", fontsize=9)
        axis.set_title(f"{run_title(panel)}\nnearest sphere is the own: {panel['nearest_is_own']:.0%}", fontsize=9)
        rows = instance_tips(drawing, panel["instances"])
        columns = [drawing.tip(f"hypersphere of {name}") for name in panel["classes"]]
        drawing.spots.append(Cells(axis, rows, columns, panel["measure"], "distance to the surface (eq. 2)"))
    bar = figure.colorbar(image, ax=figure.axes, shrink=0.7, pad=0.02)
    bar.set_label("distance to the surface, normalised (warm: short)", fontsize=9)
    return drawing


def distance_table(numbers: Numbers) -> Table:
    """Return head and rows: a row for each run."""
    rows = [[p["run"], run_title(p), f"{p['nearest_is_own']:.2f}"] for p in numbers["panels"]]
    return ["run", "data, method", "share of instances nearest to their own sphere"], rows


def _measure_distances(request: Request, show: Show) -> Numbers:
    runs = one_a_data_set(runs_for("fig4", "trained runs, one for each data set", request), request)
    return distance_numbers(runs, request.split, request.seed, show)


FIG4 = FigureDefinition(
    "Distances of instances to hyperspheres",
    "25 instances of 5 random unseen classes (rows) against the spheres of these classes (columns), each fitted by "
    "eq. 3 to 5 other instances. A value is eq. 2, the distance to the surface, scaled to 0 to 1 within a panel.",
    _measure_distances,
    draw_distances,
    distance_table,
    measured=True,
)


# Figure 5 -----------------------------------------------------------------------------------------------------------


def similarity_numbers(runs: Sequence[str], split: str | None, seed: int, show: Show) -> Numbers:
    """Return 4 matrices of cosine similarities between 5 instances of each of 5 unseen classes, for each run.

    The classes of the panels differ as long as there are enough.
    """
    rows = []
    for done, folder in enumerate(runs):
        show(done, len(runs), "runs measured")
        space = TrainedSpace.open(folder)
        pool = open_pool(space.spec, space.unseen_split(split))
        order = draw_classes(pool, CLASSES, INSTANCES, seed)
        drawn = np.array([order[place % len(order)] for place in range(PANELS * CLASSES)]).reshape(PANELS, CLASSES)
        units = np.stack([[draw_units(pool, n, INSTANCES, seed) for n in classes] for classes in drawn.tolist()])
        vectors = space.vectors(pool, units.ravel()).reshape(PANELS, CLASSES * INSTANCES, -1)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        cosines = vectors @ np.swapaxes(vectors, 1, 2)  # (4, 25, 25)
        label = np.repeat(np.arange(CLASSES), INSTANCES)
        same = label[:, None] == label
        other_instance = ~np.eye(len(label), dtype=bool)
        rows.append(
            {
                **run_facts(space, pool),
                "panels": [
                    {
                        "classes": [class_words(pool)[n] for n in classes],
                        "instances": described(pool, own.ravel()),
                        "similarity": matrix.round(4).tolist(),
                    }
                    for classes, own, matrix in zip(drawn.tolist(), units, cosines, strict=True)
                ],
                "within_classes": round(float(cosines[:, same & other_instance].mean()), 4),
                "between_classes": round(float(cosines[:, ~same].mean()), 4),
            }
        )
    return {"seed": seed, "rows": rows}


def draw_similarities(numbers: Numbers) -> Drawing:
    """Draw a row for each run, a panel for each five classes."""
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
            axis.set_yticks(middle, [short_label(name, 16) for name in panel["classes"]], fontsize=7)
            axis.set_xticks([])
            tips = instance_tips(drawing, panel["instances"])
            drawing.spots.append(Cells(axis, tips, tips, panel["similarity"], "cosine similarity"))
        within, between = row["within_classes"], row["between_classes"]
        part.suptitle(f"{run_title(row)}: mean within classes {within:.2f}, between classes {between:.2f}", fontsize=10)
        bar = part.colorbar(image, ax=part.axes, pad=0.01, fraction=0.03)
        bar.set_label("cosine similarity", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return drawing


def similarity_table(numbers: Numbers) -> Table:
    """Return head and rows: a row for each run."""
    rows = [
        [row["run"], run_title(row), f"{row['within_classes']:.3f}", f"{row['between_classes']:.3f}"]
        for row in numbers["rows"]
    ]
    return ["run", "data, method", "mean cosine within classes", "between classes"], rows


def _measure_similarities(request: Request, show: Show) -> Numbers:
    runs = one_a_data_set(runs_for("fig5", "trained runs, one for each data set", request), request)
    return similarity_numbers(runs, request.split, request.seed, show)


FIG5 = FigureDefinition(
    "Similarity of instances",
    "Cosine similarities of 25 instances of 5 random unseen classes, in four panels of other classes for each run. "
    "Cells on the diagonal blocks are of one class.",
    _measure_similarities,
    draw_similarities,
    similarity_table,
    measured=True,
)
