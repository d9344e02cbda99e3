"""Learned radii against the scatter and the size of classes, which the paper speaks of and never shows."""

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from hyperproto.data import open_pool
from hyperproto.errors import ConfigError
from hyperproto.methods.stored import StoredRegions
from hyperproto.paper.figure import (
    Drawing,
    FigureDefinition,
    NotGivenError,
    Numbers,
    Points,
    Request,
    Table,
    method_of,
    runs_for,
    style,
)
from hyperproto.paper.space_figures import TrainedSpace, class_words, draw_units, run_facts, run_title
from hyperproto.progress import Show
from hyperproto.reports.pictures import BLUE, VERMILLION, Floats

SCATTER_UNITS = 100  # a class, for its scatter


def radius_numbers(runs: Sequence[str], seed: int, units: int, show: Show) -> Numbers:
    """Return learned radii of training classes with their scatter and size, and Spearman's correlations.

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
                **run_facts(space, pool),
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
    """Return the unbiased total variance of the rows."""
    return float(((vectors - vectors.mean(axis=0)) ** 2).sum() / max(1, len(vectors) - 1))


def correlation(a: Floats, b: Floats) -> dict[str, float | int] | None:
    """Return Spearman's rank correlation, p-value and 95 % interval (Fisher's z); None where one does not vary."""
    if len(a) < 4 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    rho, p = (float(value) for value in spearmanr(a, b))
    half = 1.96 * 1.03 / np.sqrt(len(a) - 3)
    z = np.arctanh(np.clip(rho, -0.999999, 0.999999))
    interval = {"low": round(float(np.tanh(z - half)), 4), "high": round(float(np.tanh(z + half)), 4)}
    return {"spearman": round(rho, 4), "p": float(f"{p:.3g}"), **interval, "classes": len(a)}


def draw_radii(numbers: Numbers) -> Drawing:
    """Draw a row for each run: learned radius against scatter, and against size."""
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
        axes[0].set_ylabel(f"{shorten(run_title(run), 50)}\nlearned radius - mean radius", fontsize=9)
    return drawing


def _correlated(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "the same in every class: no correlation"
    return f"Spearman {found['spearman']:.2f} [{found['low']:.2f}, {found['high']:.2f}], {found['classes']} classes"


def radius_table(numbers: Numbers) -> Table:
    """Return head and rows: a row for each run and each property of classes."""
    rows = []
    for run in numbers["runs"]:
        for words, found in (("scatter", run["with_scatter"]), ("size", run["with_size"])):
            cells = ["", "", "", ""]
            if found is not None:
                interval = f"{found['low']:.3f} to {found['high']:.3f}"
                cells = [f"{found['spearman']:.3f}", interval, f"{found['p']:.2g}", str(found["classes"])]
            rows.append([run["run"], words, *cells])
    return ["run", "learned radius against", "Spearman", "95 % interval", "p", "classes"], rows


def _measure(request: Request, show: Show) -> Numbers:
    runs = runs_for("radius", "runs of hyperproto, its cone or its Gaussian", request)
    if not request.alone:
        runs = [run for run in runs if method_of(run).startswith("hyperproto")]
        if not runs:
            raise NotGivenError("radius looks into runs of hyperproto, its cone or its Gaussian: name one with --run")
    return radius_numbers(runs, request.seed, request.samples or SCATTER_UNITS, show)


RADIUS_FIGURE = FigureDefinition(
    "Learned radius against class scatter and class size",
    "The paper says that sparse classes learn larger radii, and never shows it. Each point is a training class; "
    "only differences of radii matter in training, so their mean is subtracted.",
    _measure,
    draw_radii,
    radius_table,
    measured=True,
)
