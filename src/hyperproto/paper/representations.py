"""What trained encoders make of instances: distances to spheres, similarities, t-SNE, the gap between classes, radii.

The numbers of figures 4, 5 and 7 of the paper, and of learned radii against class scatter and size, which it speaks of
and never shows. Vectors are those that the run's method sees: after the feature transform.
"""

from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from hyperproto.data import IntArray, Pool, open_pool, splits_of
from hyperproto.data.fewrel import relation_texts
from hyperproto.data.miniimagenet import NAMES
from hyperproto.episodes.random import PICTURES, shuffled
from hyperproto.errors import ConfigError, DataError, HyperProtoError
from hyperproto.evaluation import EncodedPool, training_center
from hyperproto.methods.stored import StoredRegions
from hyperproto.progress import Show
from hyperproto.recipes import Recipe
from hyperproto.regions import Sphere
from hyperproto.reports.drawing import Numbers
from hyperproto.reports.figures import Floats, short_name, tsne
from hyperproto.training import Run
from hyperproto.training.learner import Learner

CLASSES, INSTANCES, SHOTS = 5, 5, 5  # of a panel
PANELS = 4  # of a row of figure 5
WORDS = 500  # a type in figure 7
SCATTER_UNITS = 100  # a class, for its scatter
PAPER_GAP = {"ProtoNet": {"train": 2.33, "test": 1.55}, "HyperProto": {"train": 5.09, "test": 4.56}}
LONGEST = 400  # characters of an instance that are kept


@dataclass(frozen=True, eq=False)
class TrainedSpace:
    """A run's encoder and transform, or the same before training."""

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
        """The data it was trained on."""
        return self.recipe.data.spec

    def unseen_split(self, split: str | None) -> str:
        """Name the split of unseen classes: the one given, else test or, where there is none, that of validation."""
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
    """Put the classes that have `least` units (of different items) in random order; there must be `count`."""
    order = shuffled(seed, PICTURES, pool.n_classes, pool.n_classes)
    enough = [n for n in order if len(draw_units(pool, n, least, seed, items_once=items_once)) == least]
    if len(enough) < count:
        raise DataError(
            f"{pool}: {len(enough)} classes have {least} instances, but {count} are drawn; name another --split"
        )
    return enough


def described(pool: Pool, units: IntArray) -> list[dict[str, str]]:
    """Say of each unit its class, and what it is: a text, or a picture as a data URI."""
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
    """A sentence with some of its words in brackets; of a long one what lies around the first of them."""
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
    """Names of classes to read: of relation ids and WordNet ids the words they stand for, where these are known."""
    relations: dict[str, str] = {}
    with suppress(HyperProtoError):
        relations = relation_texts(pool.name)
    known = {**NAMES, **{name: text.partition(":")[0] for name, text in relations.items()}}
    return [known.get(name) or short_name(name) for name in pool.class_names]


def _facts(space: TrainedSpace, pool: Pool) -> dict[str, Any]:
    return {"run": space.folder, "method": space.recipe.method.name, "data": pool.name, "split": pool.split}


# Figure 4 -----------------------------------------------------------------------------------------------------------


def distance_numbers(runs: Sequence[str], split: str | None, seed: int, show: Show) -> Numbers:
    """Of each run: 25 instances of 5 unseen classes against the spheres that 5 other instances of each give (eq. 3).

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
                **_facts(space, pool),
                "classes": [class_words(pool)[n] for n in classes],
                "instances": described(pool, query),
                "measure": measure.round(5).tolist(),
                "normalised": ((measure - measure.min()) / spread).round(5).tolist(),
                "nearest_is_own": round(float((measure.argmin(axis=1) == own).mean()), 4),
            }
        )
    return {"shots": SHOTS, "seed": seed, "panels": panels}


# Figure 5 -----------------------------------------------------------------------------------------------------------


def similarity_numbers(runs: Sequence[str], split: str | None, seed: int, show: Show) -> Numbers:
    """Of each run: 4 matrices of the cosine similarities of 5 instances of each of 5 unseen classes.

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
                **_facts(space, pool),
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


# Figure 7 -----------------------------------------------------------------------------------------------------------


def gap_of(vectors: Floats, labels: IntArray, n_classes: int) -> dict[str, float]:
    """Mean distance to the prototypes of other classes less the mean distance to the own one, and over the scale.

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
    """t-SNE of 5 training and 5 unseen classes, `words` instances of each: before training, and in each run's space.

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


# Learned radii ------------------------------------------------------------------------------------------------------


def radius_numbers(runs: Sequence[str], seed: int, units: int, show: Show) -> Numbers:
    """Learned radii of the training classes against their scatter and their size, with Spearman's correlations.

    The scatter of a class is the mean squared distance of at most `units` of its units to their mean, times K/(K-1).
    Only differences of radii matter in training, so the mean radius is subtracted.
    """
    found = []
    for done, folder in enumerate(runs):
        show(done, len(runs), "runs measured")
        space = TrainedSpace.open(folder)
        method = space.learner.method
        if not isinstance(method, StoredRegions):
            raise ConfigError(
                f"{folder}: {space.recipe.method.name} learns no radius; name a run of hyperproto, hyperproto-cone or "
                "hyperproto-gaussian"
            )
        pool = open_pool(space.spec, space.recipe.data.split)
        drawn = [draw_units(pool, n, units, seed, items_once=False) for n in range(pool.n_classes)]
        vectors = space.vectors(pool, np.concatenate(drawn))
        parts = np.split(vectors, np.cumsum([len(own) for own in drawn])[:-1])
        scatter = np.array([_scatter(part) for part in parts])
        radius = method.radius.detach().double().cpu().numpy()[:, 0]
        centred = radius - radius.mean()
        found.append(
            {
                **_facts(space, pool),
                "classes": class_words(pool),
                "radius": centred[: pool.n_classes].round(6).tolist(),
                "scatter": scatter.round(6).tolist(),
                "size": pool.counts.tolist(),
                "radius_of_O": None if pool.outside_row is None else round(float(centred[pool.outside_row]), 6),
                "with_scatter": correlation(centred[: pool.n_classes], scatter),
                "with_size": correlation(centred[: pool.n_classes], pool.counts.astype(np.float64)),
            }
        )
    return {"seed": seed, "units_a_class": units, "runs": found}


def _scatter(vectors: Floats) -> float:
    """Unbiased total variance of the rows."""
    return float(((vectors - vectors.mean(axis=0)) ** 2).sum() / max(1, len(vectors) - 1))


def correlation(a: Floats, b: Floats) -> dict[str, float | int] | None:
    """Spearman's rank correlation, its p-value and a 95 % interval (Fisher's z); None where one does not vary."""
    if len(a) < 4 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    rho, p = (float(value) for value in spearmanr(a, b))
    half = 1.96 * 1.03 / np.sqrt(len(a) - 3)
    z = np.arctanh(np.clip(rho, -0.999999, 0.999999))
    interval = {"low": round(float(np.tanh(z - half)), 4), "high": round(float(np.tanh(z + half)), 4)}
    return {"spearman": round(rho, 4), "p": float(f"{p:.3g}"), **interval, "classes": len(a)}
